//! Builds the guests and encodes the shipped policies.

use std::fs;
use std::path::Path;

use crate::command::cargo;
use crate::{Failure, root};

const TARGET: &str = "wasm32-unknown-unknown";

/// Builds every guest and writes a component into `policies/` for each one that has a file there.
pub(crate) fn build_and_encode(arguments: &[String]) -> Result<(), Failure> {
    if let Some(argument) = arguments.first() {
        return Err(Failure::Usage(format!("`guests` takes no arguments, not `{argument}`")));
    }
    let root = root();
    cargo(&["build", "--release", "--manifest-path", "guests/Cargo.toml", "--workspace", "--target", TARGET])
        .run()?;
    let modules = root.join("guests/target").join(TARGET).join("release");
    let policies = root.join("policies");
    for policy in shipped(&policies)? {
        let module = modules.join(format!("{}.wasm", policy.replace('-', "_")));
        let component = policies.join(format!("{policy}.wasm"));
        let (module, component) = (module.to_string_lossy(), component.to_string_lossy());
        cargo(&["run", "-q", "-p", "tidegate", "--", "policy", "build", &module, "-o", &component]).run()?;
        println!("{component}");
    }
    Ok(())
}

/// Names of the policies in `directory`: each has a file of rules, `NAME.toml`.
fn shipped(directory: &Path) -> Result<Vec<String>, Failure> {
    let unreadable = |error| Failure::Environment(format!("cannot read {}: {error}", directory.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "toml")
            && let Some(name) = path.file_stem()
        {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
