//! Rust policies: a crate with a `cdylib`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::Value;

use super::{Made, tool};
use crate::exit::Failure;

/// What policies are compiled for.
const TARGET: &str = "wasm32-unknown-unknown";

const ADVICE: &str = "install Rust, which brings it along";

pub(super) fn build(directory: &Path) -> Result<Made, Failure> {
    require_target(directory)?;
    // Its messages go to standard error as cargo renders them; what it made comes as JSON.
    let arguments = ["build", "--release", "--target", TARGET, "--message-format", "json-render-diagnostics"];
    let messages = tool::ask(Path::new("cargo"), &arguments, directory, ADVICE)?;
    let modules = modules(&messages);
    let (name, module) = match &*modules {
        [only] => only,
        [] => {
            return Err(Failure::config(anyhow!(
                "the crate in `{}` makes no WebAssembly module; its library needs `crate-type = [\"cdylib\"]`",
                directory.display()
            )));
        }
        several => {
            let names: Vec<_> = several.iter().map(|(name, _)| name.as_str()).collect();
            return Err(Failure::config(anyhow!(
                "`{}` makes several modules ({}): build in the directory of one of them",
                directory.display(),
                names.join(", ")
            )));
        }
    };
    let bytes = std::fs::read(module)
        .with_context(|| format!("cannot read `{}`", module.display()))
        .map_err(Failure::environment)?;
    // The SDK's macro has left in the module what it was built from.
    Ok(Made { bytes, built: None, name: name.clone() })
}

/// Cargo's own message for a missing target is a page of errors about `core`.
fn require_target(directory: &Path) -> Result<(), Failure> {
    let arguments = ["--print", "target-libdir", "--target", TARGET];
    let libraries = tool::ask(Path::new("rustc"), &arguments, directory, ADVICE)?;
    if Path::new(libraries.trim()).is_dir() {
        return Ok(());
    }
    Err(Failure::Environment(anyhow!(
        "Rust's compile target {TARGET} is missing: run `rustup target add {TARGET}`"
    )))
}

/// The modules that cargo has made in this directory's own packages, by their packages' names.
fn modules(messages: &str) -> Vec<(String, PathBuf)> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let artifacts = artifacts.filter(|message| message["reason"] == "compiler-artifact");
    let module = |artifact: Value| {
        let kinds = artifact["target"]["kind"].as_array()?;
        if !kinds.iter().any(|kind| kind == "cdylib") {
            return None;
        }
        let mut files = artifact["filenames"].as_array()?.iter().filter_map(Value::as_str);
        let file = files.find(|file| file.ends_with(".wasm"))?;
        let manifest = Path::new(artifact["manifest_path"].as_str()?);
        let name =
            package_name(manifest).or_else(|| Some(artifact["target"]["name"].as_str()?.to_owned()))?;
        Some((name, PathBuf::from(file)))
    };
    artifacts.filter_map(module).collect()
}

fn package_name(manifest: &Path) -> Option<String> {
    let text = std::fs::read_to_string(manifest).ok()?;
    let manifest: toml::Table = toml::from_str(&text).ok()?;
    Some(manifest.get("package")?.get("name")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/x/none/Cargo.toml","target":{"kind":["lib"],"name":"sdk"},"filenames":["/t/libsdk.rlib"]}
not JSON
{"reason":"compiler-artifact","manifest_path":"/x/none/Cargo.toml","target":{"kind":["cdylib"],"name":"my_policy"},"filenames":["/t/my_policy.wasm"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(modules(messages), [("my_policy".to_owned(), PathBuf::from("/t/my_policy.wasm"))]);
    }
}
