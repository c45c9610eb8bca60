//! JavaScript policies: a package with a script `build`, or with a policy that componentize-js makes a component of.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::Value;
use tidegate_policy::Built;

use super::super::contract;
use super::{Made, tool};
use crate::exit::Failure;

const NPM_ADVICE: &str = "install Node.js 20 or newer, which brings npm along";

/// The package that does it.
const COMPILER: &str = "@bytecodealliance/componentize-js";

/// Policies get no WASI, so all features of the runtime that would import it are left out.
const SCRIPT: &str = "\
import { componentize } from '@bytecodealliance/componentize-js';
import { writeFile } from 'node:fs/promises';
const [sourcePath, witPath, worldName, to] = process.argv.slice(1);
const disableFeatures = ['stdio', 'random', 'clocks', 'http', 'fetch-event'];
const { component } = await componentize({ sourcePath, witPath, worldName, disableFeatures });
await writeFile(to, component);
";

pub(super) fn build(directory: &Path) -> Result<Made, Failure> {
    let manifest = read(&directory.join("package.json"))?;
    let text = |key: &str| manifest[key].as_str();
    install(directory)?;
    let (bytes, name) = if manifest["scripts"]["build"].is_string() {
        let run = || tool::run(Path::new("npm"), &["run", "--silent", "build"], directory, NPM_ADVICE);
        super::read_written(&tool::written_by(directory, run)?)?
    } else {
        let name = text("name").map_or_else(|| super::directory_name(directory), super::plain_name);
        (compile(directory, &manifest)?, name)
    };
    let built = Built {
        name: name.clone(),
        version: text("version").unwrap_or("0.0.0").to_owned(),
        sdk: format!("componentize-js {}", compiler_version(directory)),
    };
    Ok(Made { bytes, built: Some(built), name })
}

/// Makes a component of the package's `main`.
fn compile(directory: &Path, manifest: &Value) -> Result<Vec<u8>, Failure> {
    let main = manifest["main"].as_str().unwrap_or("policy.js");
    if !directory.join(main).is_file() {
        return Err(Failure::config(anyhow!(
            "`{}` is not there; `main` in package.json says where the policy is",
            directory.join(main).display()
        )));
    }
    let world = manifest["tidegate"]["world"].as_str().unwrap_or("throttle-policy");
    let scratch = tempfile::tempdir().map_err(Failure::environment)?;
    let wit = contract::write(directory, scratch.path())?;
    let to = scratch.path().join("component.wasm");
    let (wit, to_text) = (wit.to_string_lossy(), to.to_string_lossy());
    let arguments = ["--input-type=module", "--eval", SCRIPT, "--", main, &wit, world, &to_text];
    tool::run(Path::new("node"), &arguments, directory, NPM_ADVICE)?;
    std::fs::read(&to).context("componentize-js wrote nothing").map_err(Failure::runtime)
}

/// Installs what the package needs, unless it is there as its lock file wants it.
fn install(directory: &Path) -> Result<(), Failure> {
    let installed = modified(&directory.join("node_modules/.package-lock.json"));
    let wanted = modified(&directory.join("package-lock.json")).or(modified(&directory.join("package.json")));
    if installed.is_some() && installed >= wanted {
        return Ok(());
    }
    let command = if directory.join("package-lock.json").is_file() { "ci" } else { "install" };
    tool::run(Path::new("npm"), &[command, "--no-audit", "--no-fund"], directory, NPM_ADVICE)
}

fn modified(path: &Path) -> Option<std::time::SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn compiler_version(directory: &Path) -> String {
    let manifest: PathBuf = directory.join("node_modules").join(COMPILER).join("package.json");
    let version = read(&manifest).ok().and_then(|manifest| manifest["version"].as_str().map(str::to_owned));
    version.unwrap_or_else(|| "of an unknown version".to_owned())
}

fn read(manifest: &Path) -> Result<Value, Failure> {
    let name = || format!("cannot read `{}`", manifest.display());
    let text = std::fs::read_to_string(manifest).with_context(name).map_err(Failure::config)?;
    serde_json::from_str(&text).with_context(name).map_err(Failure::config)
}
