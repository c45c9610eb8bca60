//! `tidegate policy build`: a component from sources or from a core module, sealed, and in place in one step.

mod javascript;
mod python;
mod rust;
mod tool;

use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde_json::json;
use tidegate_policy::{Built, Workbench, encode_component, seal_component};

use super::engine;
use super::subject::{refused, tried};
use crate::cli::BuildArgs;
use crate::exit::Failure;
use crate::output::Output;

/// What a toolchain made.
struct Made {
    /// A core module or a component.
    bytes: Vec<u8>,
    /// What it was made from; a core module says so itself.
    built: Option<Built>,
    /// The policy's name, as its sources have it.
    name: String,
}

pub(super) fn run(args: &BuildArgs, output: &Output) -> Result<(), Failure> {
    if args.from.is_dir() {
        let made = from_sources(&args.from)?;
        let to = match &args.output {
            Some(to) => to.clone(),
            None => args.from.join(format!("{}.wasm", made.name)),
        };
        let component = component_of(&made.bytes, made.built)
            .with_context(|| format!("`{}` cannot be made a component", args.from.display()))
            .map_err(Failure::config)?;
        return put(&component, &to, Checked::Yes, output);
    }
    let bytes = std::fs::read(&args.from)
        .with_context(|| format!("cannot read `{}`", args.from.display()))
        .map_err(Failure::config)?;
    let Some(to) = &args.output else {
        return Err(Failure::config(anyhow!("say where to write the component: --output FILE")));
    };
    let component = component_of(&bytes, None)
        .with_context(|| format!("`{}` cannot be made a component", args.from.display()))
        .map_err(Failure::config)?;
    put(&component, to, Checked::No, output)
}

/// Encodes a core module; seals what is a component already.
fn component_of(bytes: &[u8], built: Option<Built>) -> Result<Vec<u8>, tidegate_policy::EncodeError> {
    match seal_component(bytes, built) {
        // Only a component can be sealed as it is; what is neither is told as the encoder tells it.
        Err(tidegate_policy::EncodeError::NotComponent(_)) => encode_component(bytes),
        sealed => sealed,
    }
}

fn from_sources(directory: &Path) -> Result<Made, Failure> {
    let has = |name: &str| directory.join(name).is_file();
    if has("Cargo.toml") {
        rust::build(directory)
    } else if has("package.json") {
        javascript::build(directory)
    } else if has("requirements.txt") {
        python::build(directory)
    } else {
        Err(Failure::config(anyhow!(
            "`{}` has no sources that can be built: neither Cargo.toml nor package.json nor requirements.txt; \
             `tidegate policy new` writes a policy to begin with",
            directory.display()
        )))
    }
}

/// Whether the component goes through the ladder before it takes its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Checked {
    Yes,
    No,
}

/// Writes it aside and renames it, so that a host that watches the file sees the old one or the new one.
fn put(component: &[u8], to: &Path, checked: Checked, output: &Output) -> Result<(), Failure> {
    let aside = to.with_extension("wasm.new");
    let cannot_write = || format!("cannot write `{}`", to.display());
    std::fs::write(&aside, component).with_context(cannot_write).map_err(Failure::environment)?;
    if checked == Checked::Yes
        && let Err(failure) = check(&aside, to)
    {
        // What was refused is of no use to anybody.
        let _ = std::fs::remove_file(&aside);
        return Err(failure);
    }
    std::fs::rename(&aside, to).with_context(cannot_write).map_err(Failure::environment)?;
    let name = to.display().to_string();
    if output.is_json() {
        output.data(&json!({ "component": name, "bytes": component.len() }).to_string());
    } else {
        output.data(&format!("{name}: {} bytes", component.len()));
    }
    Ok(())
}

/// Every check that depends neither on rules nor on grants.
fn check(aside: &Path, to: &Path) -> Result<(), Failure> {
    let spec = tried(aside);
    let engine = engine(std::slice::from_ref(&spec))?;
    Workbench::look(&engine, &spec).map(drop).map_err(|error| refused(to, error))
}

/// The name of a directory, for sources that do not say what they are called.
fn directory_name(directory: &Path) -> String {
    let path = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    path.file_name().map_or_else(|| "policy".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// A package's name as that of a file: without the scope that npm puts before it.
fn plain_name(name: &str) -> String {
    name.rsplit('/').next().unwrap_or(name).to_owned()
}

/// A component that a project's own build wrote, and its name.
fn read_written(file: &Path) -> Result<(Vec<u8>, String), Failure> {
    let bytes = std::fs::read(file)
        .with_context(|| format!("cannot read `{}`", file.display()))
        .map_err(Failure::environment)?;
    Ok((bytes, file.file_stem().unwrap_or_default().to_string_lossy().into_owned()))
}
