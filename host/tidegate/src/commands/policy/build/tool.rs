//! Running the tools of a language.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context as _, anyhow};

use crate::exit::Failure;

/// Runs a tool in a directory. All that it says goes to standard error, since standard output is for data. `advice` is
/// what to do when there is no such tool.
pub(super) fn run(program: &Path, arguments: &[&str], directory: &Path, advice: &str) -> Result<(), Failure> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stdout(std::io::stderr());
    let status = command.status().map_err(|error| absent(program, &error, advice))?;
    if status.success() { Ok(()) } else { Err(failed(program, arguments, &status.to_string())) }
}

/// The same; answers what it writes to standard output.
pub(super) fn ask(
    program: &Path,
    arguments: &[&str],
    directory: &Path,
    advice: &str,
) -> Result<String, Failure> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| absent(program, &error, advice))?;
    if !output.status.success() {
        return Err(failed(program, arguments, &output.status.to_string()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a tool is there and ends well; what it says goes nowhere.
pub(super) fn works(program: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn absent(program: &Path, error: &std::io::Error, advice: &str) -> Failure {
    let program = program.display();
    if error.kind() == ErrorKind::NotFound {
        Failure::Environment(anyhow!("there is no `{program}` here; {advice}"))
    } else {
        Failure::Environment(anyhow!("cannot run `{program}`: {error}"))
    }
}

fn failed(program: &Path, arguments: &[&str], status: &str) -> Failure {
    let first = arguments.first().copied().unwrap_or_default();
    Failure::runtime(anyhow!("`{} {first}` failed ({status}); what it said is above", program.display()))
}

/// Runs a project's own build, and answers the component that it wrote into its directory.
pub(super) fn written_by(
    directory: &Path,
    build: impl FnOnce() -> Result<(), Failure>,
) -> Result<PathBuf, Failure> {
    let before = components(directory)?;
    build()?;
    let mut written = components(directory)?;
    written.retain(|file, modified| before.get(file) != Some(modified));
    let mut written = written.into_keys();
    match (written.next(), written.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(Failure::config(anyhow!(
            "the build of `{}` wrote no component into its directory",
            directory.display()
        ))),
        (Some(one), Some(other)) => Err(Failure::config(anyhow!(
            "the build of `{}` wrote several components, among them `{}` and `{}`",
            directory.display(),
            one.display(),
            other.display()
        ))),
    }
}

/// The components of a directory, and when each was written.
fn components(directory: &Path) -> Result<BTreeMap<PathBuf, SystemTime>, Failure> {
    let look = || -> std::io::Result<BTreeMap<PathBuf, SystemTime>> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "wasm") {
                let modified = std::fs::metadata(&path)?.modified()?;
                found.insert(path, modified);
            }
        }
        Ok(found)
    };
    look()
        .with_context(|| format!("cannot look into `{}`", directory.display()))
        .map_err(Failure::environment)
}
