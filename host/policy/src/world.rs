//! The names of the contract: what a throttle policy may import and must export.

/// The package, as its WIT says.
pub(crate) const PACKAGE: &str = "tidegate:policy@1.0.0";

/// The package without its version.
const PACKAGE_NAME: &str = "tidegate:policy";

/// Interfaces that the world gives. Every name is refused but these.
const IMPORTS: [&str; 4] = ["delivery", "state", "clock", "log"];

/// Interfaces that the world asks for.
const EXPORTS: [&str; 2] = ["lifecycle", "throttle"];

/// A name such as `tidegate:policy/log@1.0.0`, taken apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct InterfaceName<'a> {
    package: &'a str,
    interface: &'a str,
    version: Option<&'a str>,
}

impl<'a> InterfaceName<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let (path, version) = match name.split_once('@') {
            Some((path, version)) => (path, Some(version)),
            None => (name, None),
        };
        let (package, interface) = path.split_once('/')?;
        Some(Self { package, interface, version })
    }

    /// Whether this host's contract can serve it: the same major version, and no pre-release.
    fn is_served(&self) -> bool {
        self.version.is_some_and(|version| version.split('.').next() == Some("1") && !version.contains('-'))
    }
}

/// What is wrong with an import, as advice; `None` when the world gives it.
pub(crate) fn import_advice(name: &str) -> Option<String> {
    let Some(parsed) = InterfaceName::parse(name) else {
        return Some(format!(
            "policies import whole interfaces of {PACKAGE}; build it for the world `throttle-policy`"
        ));
    };
    if parsed.package == PACKAGE_NAME && IMPORTS.contains(&parsed.interface) {
        return (!parsed.is_served()).then(|| other_version(parsed.version));
    }
    if parsed.package == PACKAGE_NAME {
        let known = IMPORTS.join("`, `");
        return Some(format!("this host's {PACKAGE} gives throttle policies `{known}` and nothing else"));
    }
    if parsed.package.starts_with("wasi:") {
        return Some(
            "policies get no WASI (no files, no network, no clock of their own); build Rust for \
             `wasm32-unknown-unknown`, Python with `--stub-wasi`, JavaScript with those features disabled"
                .to_owned(),
        );
    }
    Some(format!("throttle policies get only interfaces of {PACKAGE}"))
}

/// The first thing that the world asks for and that is not among `exports`, with advice.
pub(crate) fn missing_export(exports: &[String]) -> Option<(String, String)> {
    let parsed: Vec<_> = exports.iter().filter_map(|name| InterfaceName::parse(name)).collect();
    EXPORTS.iter().find_map(|&wanted| {
        let name = format!("{PACKAGE_NAME}/{wanted}@1.0.0");
        let ours: Vec<_> =
            parsed.iter().filter(|name| name.package == PACKAGE_NAME && name.interface == wanted).collect();
        if ours.iter().any(|found| found.is_served()) {
            return None;
        }
        let advice = match ours.first() {
            Some(found) => other_version(found.version),
            None if exports.is_empty() => {
                "it exports nothing; a Rust policy needs `tidegate_guest::throttle!(MyPolicy)` in its library, and \
                 `crate-type = [\"cdylib\"]`"
                    .to_owned()
            }
            None => format!(
                "build it for the world `throttle-policy` of {PACKAGE}; it exports `{}`",
                exports.join("`, `")
            ),
        };
        Some((name, advice))
    })
}

fn other_version(version: Option<&str>) -> String {
    let version = version.unwrap_or("none");
    format!(
        "it was built for version {version} of the contract, and this host has {PACKAGE}; build it against that, or \
         use a host that has {version}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_gives_its_interfaces_in_every_version_1() {
        for name in ["delivery", "state", "clock", "log"] {
            assert_eq!(import_advice(&format!("tidegate:policy/{name}@1.0.0")), None);
            assert_eq!(import_advice(&format!("tidegate:policy/{name}@1.7.3")), None);
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        let advice = |name| import_advice(name).unwrap();
        assert!(advice("tidegate:policy/log@2.0.0").contains("version 2.0.0"));
        assert!(advice("tidegate:policy/log@1.1.0-rc.1").contains("version 1.1.0-rc.1"));
        assert!(advice("tidegate:policy/http@1.0.0").contains("`clock`"));
        assert!(advice("wasi:cli/environment@0.2.0").contains("wasm32-unknown-unknown"));
        assert!(advice("acme:db/rows@1.0.0").contains("only"));
        assert!(advice("run").contains("throttle-policy"));
    }

    #[test]
    fn missing_exports_are_named() {
        let check = |names: &[&str]| missing_export(&names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>());
        assert_eq!(check(&["tidegate:policy/lifecycle@1.0.0", "tidegate:policy/throttle@1.2.0"]), None);
        let (export, advice) = check(&["tidegate:policy/lifecycle@1.0.0"]).unwrap();
        assert_eq!(export, "tidegate:policy/throttle@1.0.0");
        assert!(advice.contains("lifecycle"), "{advice}");
        let (_, advice) =
            check(&["tidegate:policy/lifecycle@1.0.0", "tidegate:policy/throttle@0.9.0"]).unwrap();
        assert!(advice.contains("version 0.9.0"), "{advice}");
        let (_, advice) = check(&[]).unwrap();
        assert!(advice.contains("throttle!"), "{advice}");
    }
}
