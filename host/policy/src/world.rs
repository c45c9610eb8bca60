//! The names of the contract: the worlds, what each may import and must export, and the versions that are served.

use std::fmt;

use serde::Serialize;

use crate::grants::Grants;

/// The package, as its WIT says.
pub(crate) const PACKAGE: &str = "tidegate:policy@1.0.0";

/// The package without its version.
const PACKAGE_NAME: &str = "tidegate:policy";

/// The newest version of the contract that this host has: major and minor. Older ones of the same major are served
/// as well.
const SERVED: (u64, u64) = (1, 0);

/// The interface that tells a policy how deliveries ended, which it may export or not.
const OBSERVER: &str = "observer";

/// What a policy is for: the world that its component was built for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// It decides about each message before the sink sees it.
    ThrottlePolicy,
    /// It decides whether the lease of a waiting delivery is kept.
    RenewalPolicy,
    /// It says whom the host is to a broker.
    CredentialResolver,
    /// It chooses the partition of a record.
    PartitionerPolicy,
}

impl World {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::ThrottlePolicy, Self::RenewalPolicy, Self::CredentialResolver, Self::PartitionerPolicy];

    /// Its name in the contract.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ThrottlePolicy => "throttle-policy",
            Self::RenewalPolicy => "renewal-policy",
            Self::CredentialResolver => "credential-resolver",
            Self::PartitionerPolicy => "partitioner-policy",
        }
    }

    /// The interface that makes a component one of this world.
    pub(crate) const fn export(self) -> &'static str {
        match self {
            Self::ThrottlePolicy => "throttle",
            Self::RenewalPolicy => "renewal",
            Self::CredentialResolver => "credentials",
            Self::PartitionerPolicy => "partitioner",
        }
    }

    /// The interfaces that it gives. Every other name is refused.
    pub(crate) const fn imports(self) -> &'static [&'static str] {
        match self {
            Self::ThrottlePolicy | Self::RenewalPolicy => &["delivery", "state", "clock", "log"],
            Self::CredentialResolver => &["clock", "log", "env", "files", "http"],
            Self::PartitionerPolicy => &["outgoing", "clock", "log"],
        }
    }

    /// The macro of the Rust SDK that makes such a policy.
    const fn sdk_macro(self) -> &'static str {
        match self {
            Self::ThrottlePolicy => "throttle!",
            Self::RenewalPolicy => "renewal!",
            Self::CredentialResolver => "credential_resolver!",
            Self::PartitionerPolicy => "partitioner!",
        }
    }

    /// The worlds that a component exports something of, in the order of the contract.
    pub(crate) fn found_in(exports: &[String]) -> Vec<Self> {
        let has = |world: &Self| {
            let mut names = exports.iter().filter_map(|name| InterfaceName::parse(name));
            names.any(|name| name.package == PACKAGE_NAME && name.interface == world.export())
        };
        Self::ALL.into_iter().filter(has).collect()
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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

    fn is_served(&self) -> bool {
        self.version.is_some_and(is_served)
    }
}

/// Whether a version of the contract is one that this host serves: the same major, no newer minor, no pre-release.
fn is_served(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u64>().ok());
    let (major, minor, patch) = (parts.next().flatten(), parts.next().flatten(), parts.next().flatten());
    parts.next().is_none()
        && patch.is_some()
        && major == Some(SERVED.0)
        && minor.is_some_and(|minor| minor <= SERVED.1)
}

/// Versions that are served, for people.
pub(crate) fn served() -> String {
    let (major, minor) = SERVED;
    if minor == 0 { format!("{major}.0") } else { format!("{major}.0 to {major}.{minor}") }
}

/// What is wrong with the version of the contract that a component's names speak of, if anything is: one sentence,
/// and from the names alone, before anything is compiled.
pub(crate) fn version_advice(names: &[String]) -> Option<String> {
    let mut parsed = names.iter().filter_map(|name| InterfaceName::parse(name));
    let foreign = parsed.find(|name| name.package == PACKAGE_NAME && !name.is_served())?;
    Some(other_version(foreign.version))
}

/// What is wrong with an import, as advice; `None` when the world gives it.
pub(crate) fn import_advice(world: World, name: &str) -> Option<String> {
    let Some(parsed) = InterfaceName::parse(name) else {
        return Some(format!(
            "policies import whole interfaces of {PACKAGE}; build it for the world `{world}`"
        ));
    };
    if parsed.package == PACKAGE_NAME && world.imports().contains(&parsed.interface) {
        return (!parsed.is_served()).then(|| other_version(parsed.version));
    }
    if parsed.package == PACKAGE_NAME {
        let known = world.imports().join("`, `");
        return Some(format!("the world `{world}` gives `{known}` and nothing else"));
    }
    if parsed.package.starts_with("wasi:") {
        return Some(
            "policies get no WASI (no files, no network, no clock of their own, nothing that waits); build Rust for \
             `wasm32-unknown-unknown`, Python with `--stub-wasi`, JavaScript with those features disabled"
                .to_owned(),
        );
    }
    Some(format!("policies get only interfaces of {PACKAGE}"))
}

/// What is wrong with an import that a policy must be granted something of, when it was granted nothing.
pub(crate) fn grant_advice(grants: &Grants, name: &str) -> Option<String> {
    let parsed = InterfaceName::parse(name).filter(|name| name.package == PACKAGE_NAME)?;
    if grants.has(parsed.interface) {
        return None;
    }
    let (what, key) = match parsed.interface {
        "env" => ("environment variables", "env = [\"NAME\"]"),
        "files" => ("directories", "directories = { NAME = \"PATH\" }"),
        _ => ("HTTP origins", "http = [\"https://HOST:PORT\"]"),
    };
    Some(format!("the policy is granted no {what}; give it some in its `grants`: `{key}`"))
}

/// Whether an export is the optional interface that is told how deliveries ended.
pub(crate) fn is_observer(export: &str) -> bool {
    InterfaceName::parse(export)
        .is_some_and(|name| name.package == PACKAGE_NAME && name.interface == OBSERVER)
}

/// The version of the contract that a component's names speak of.
pub(crate) fn contract_version(names: &[String]) -> Option<String> {
    let mut parsed = names.iter().filter_map(|name| InterfaceName::parse(name));
    parsed.find(|name| name.package == PACKAGE_NAME)?.version.map(str::to_owned)
}

/// Names of the interfaces among `imports` that a policy must be granted something of.
pub(crate) fn grants_needed(imports: &[String]) -> Vec<&'static str> {
    let needs = |grant: &&str| {
        let mut names = imports.iter().filter_map(|name| InterfaceName::parse(name));
        names.any(|name| name.package == PACKAGE_NAME && name.interface == *grant)
    };
    ["env", "files", "http"].into_iter().filter(needs).collect()
}

/// The first thing that the world asks for and that is not among `exports`, with advice.
pub(crate) fn missing_export(world: World, exports: &[String]) -> Option<(String, String)> {
    let parsed: Vec<_> = exports.iter().filter_map(|name| InterfaceName::parse(name)).collect();
    ["lifecycle", world.export()].into_iter().find_map(|wanted| {
        let name = format!("{PACKAGE_NAME}/{wanted}@1.0.0");
        let ours: Vec<_> =
            parsed.iter().filter(|name| name.package == PACKAGE_NAME && name.interface == wanted).collect();
        if ours.iter().any(|found| found.is_served()) {
            return None;
        }
        let advice = match ours.first() {
            Some(found) => other_version(found.version),
            None if exports.is_empty() => format!(
                "it exports nothing; a Rust policy needs `tidegate_guest::{}(MyPolicy)` in its library, and \
                 `crate-type = [\"cdylib\"]`",
                world.sdk_macro()
            ),
            None => {
                let others = World::found_in(exports);
                match others.first() {
                    Some(other) => format!("it is a `{other}` and is used as a `{world}`"),
                    None => format!(
                        "build it for the world `{world}` of {PACKAGE}; it exports `{}`",
                        exports.join("`, `")
                    ),
                }
            }
        };
        Some((name, advice))
    })
}

fn other_version(version: Option<&str>) -> String {
    let (needed, host) = (version.unwrap_or("of no version"), served());
    format!(
        "it needs policy API {needed}, this host serves {host}: build it against {PACKAGE}, or use a newer host"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_gives_its_interfaces_in_the_served_versions() {
        for world in World::ALL {
            for name in world.imports() {
                assert_eq!(import_advice(world, &format!("tidegate:policy/{name}@1.0.0")), None);
                assert_eq!(import_advice(world, &format!("tidegate:policy/{name}@1.0.7")), None);
                let newer = import_advice(world, &format!("tidegate:policy/{name}@1.3.0")).unwrap();
                assert!(newer.contains("needs policy API 1.3.0, this host serves 1.0"), "{newer}");
            }
        }
    }

    #[test]
    fn refusals_say_what_to_do() {
        let advice = |name| import_advice(World::ThrottlePolicy, name).unwrap();
        assert!(advice("tidegate:policy/log@2.0.0").contains("API 2.0.0"));
        assert!(advice("tidegate:policy/log@1.0.0-rc.1").contains("API 1.0.0-rc.1"));
        assert!(advice("tidegate:policy/http@1.0.0").contains("`clock`"));
        assert!(advice("wasi:cli/environment@0.2.0").contains("wasm32-unknown-unknown"));
        assert!(advice("acme:db/rows@1.0.0").contains("only"));
        assert!(advice("run").contains("throttle-policy"));
    }

    #[test]
    fn missing_exports_are_named() {
        let check = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            missing_export(World::ThrottlePolicy, &names)
        };
        assert_eq!(check(&["tidegate:policy/lifecycle@1.0.0", "tidegate:policy/throttle@1.0.2"]), None);
        let (export, advice) = check(&["tidegate:policy/lifecycle@1.0.0"]).unwrap();
        assert_eq!(export, "tidegate:policy/throttle@1.0.0");
        assert!(advice.contains("lifecycle"), "{advice}");
        let (_, advice) =
            check(&["tidegate:policy/lifecycle@1.0.0", "tidegate:policy/throttle@0.9.0"]).unwrap();
        assert!(advice.contains("API 0.9.0"), "{advice}");
        let (_, advice) =
            check(&["tidegate:policy/lifecycle@1.0.0", "tidegate:policy/renewal@1.0.0"]).unwrap();
        assert_eq!(advice, "it is a `renewal-policy` and is used as a `throttle-policy`");
        let (_, advice) = check(&[]).unwrap();
        assert!(advice.contains("throttle!"), "{advice}");
    }

    #[test]
    fn worlds_are_found_by_their_exports() {
        let found =
            |names: &[&str]| World::found_in(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(found(&["tidegate:policy/credentials@1.0.0"]), [World::CredentialResolver]);
        assert_eq!(
            found(&["tidegate:policy/renewal@1.0.0", "tidegate:policy/throttle@1.0.0"]),
            [World::ThrottlePolicy, World::RenewalPolicy]
        );
        assert_eq!(found(&["tidegate:policy/lifecycle@1.0.0"]), []);
    }

    #[test]
    fn grants_are_found_by_imports() {
        let imports = ["tidegate:policy/http@1.0.0", "tidegate:policy/log@1.0.0"].map(str::to_owned);
        assert_eq!(grants_needed(&imports), ["http"]);
    }
}
