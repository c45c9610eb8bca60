//! `tidegate policy new`: a directory with a policy that builds and whose tests pass.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::json;
use tidegate_policy::World;

use super::contract;
use crate::cli::{Language, NewArgs};
use crate::exit::Failure;
use crate::output::Output;

/// Every file of every language, by its path.
const TEMPLATES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/templates.rs"));

/// Cases for `tidegate policy test`: the templates of all languages are the same policy.
const CASES: (&str, &str) = ("tests/policy.toml", include_str!("new/cases.toml"));

/// Where the contract goes: the tools of every language read it.
const CONTRACT: &str = "wit/policy.wit";

/// Where a Rust policy has the SDK, as cargo wants it said.
const SDK: &str = "{ path = \"sdk/guest\" }";

/// Ends the name of a file that would mean something to other tools where the template lies.
const TEMPLATE_ENDING: &str = ".in";

pub(super) fn run(args: &NewArgs, output: &Output) -> Result<(), Failure> {
    let name = check_name(&args.name)?;
    check_world(&args.world)?;
    let directory = PathBuf::from(name);
    let files = files(args.lang, name);
    // Made here and only here: nothing that is there already is written over.
    std::fs::create_dir(&directory)
        .with_context(|| format!("cannot make the directory `{name}`"))
        .map_err(Failure::config)?;
    for (file, text) in &files {
        write(&directory.join(file), text)?;
    }
    if output.is_json() {
        let files: Vec<_> = files.iter().map(|(file, _)| file).collect();
        output.data(&json!({ "directory": name, "files": files }).to_string());
    } else {
        for (file, _) in &files {
            output.data(&format!("{name}/{file}"));
        }
        output.data(&format!("\nnext: tidegate policy build {name} && tidegate policy test {name}"));
    }
    Ok(())
}

/// The name is that of a crate, of an npm package and of a file.
fn check_name(name: &str) -> Result<&str, Failure> {
    const BYTES_MAX: usize = 64;
    let fits = name.len() <= BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if fits {
        return Ok(name);
    }
    Err(Failure::config(anyhow!(
        "`{name}` is no name for a policy: lower-case letters, digits and `-`, with a letter first"
    )))
}

fn check_world(world: &str) -> Result<(), Failure> {
    if world == World::ThrottlePolicy.name() {
        return Ok(());
    }
    let worlds = World::ALL.map(World::name);
    if worlds.contains(&world) {
        return Err(Failure::config(anyhow!(
            "there is no template of a `{world}`; begin with a throttle policy, whose SDK has what a `{world}` needs"
        )));
    }
    Err(Failure::config(anyhow!("there is no world `{world}`; there are `{}`", worlds.join("`, `"))))
}

/// The files of a new policy, by their paths in its directory.
fn files(language: Language, name: &str) -> Vec<(String, String)> {
    let beginning = match language {
        Language::Rust => "rust/",
        Language::Js => "js/",
        Language::Python => "python/",
    };
    let own = TEMPLATES.iter().filter_map(|(path, text)| Some((path.strip_prefix(beginning)?, *text)));
    let mut files: Vec<(String, String)> = own
        .map(|(path, text)| {
            let path = path.strip_suffix(TEMPLATE_ENDING).unwrap_or(path);
            (path.replace("{{name}}", name), filled(text, name))
        })
        .collect();
    let has = |files: &[(String, String)], wanted: &str| files.iter().any(|(path, _)| path == wanted);
    if !has(&files, CONTRACT) {
        files.push((CONTRACT.to_owned(), contract::TEXT.to_owned()));
    }
    if !has(&files, CASES.0) {
        files.push((CASES.0.to_owned(), CASES.1.to_owned()));
    }
    files.sort();
    files
}

/// A template with its placeholders replaced.
fn filled(text: &str, name: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    text.replace("{{name}}", name).replace("{{sdk}}", SDK).replace("{{version}}", version)
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let cannot = || format!("cannot write `{}`", file.display());
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent).with_context(cannot).map_err(Failure::environment)?;
    }
    std::fs::write(file, text).with_context(cannot).map_err(Failure::environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_all_languages() {
        assert!(check_name("fair-share2").is_ok());
        for bad in ["", "2fast", "Fair", "a/b", "..", "a b", "-a", &"a".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_language_has_its_files_and_no_placeholder_is_left() {
        for (language, wanted) in [
            (Language::Js, "package.json"),
            (Language::Python, "requirements.txt"),
            (Language::Rust, "Cargo.toml"),
        ] {
            let files = files(language, "my-policy");
            assert!(files.iter().any(|(path, _)| path == wanted), "{language:?}: {files:?}");
            assert!(files.iter().any(|(path, _)| path == "tests/policy.toml"));
            for (path, text) in files {
                assert!(
                    !path.contains("{{") && !text.contains("{{name}}") && !text.contains("{{sdk}}"),
                    "{path}"
                );
            }
        }
    }
}
