//! Which test files there are, and which component each is about.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

use crate::exit::Failure;

/// Ends the name of a test file beside a component.
const ENDING: &str = ".test.toml";

/// The directory for others.
const DIRECTORY: &str = "tests";

/// A test file, and the component when it was named.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Found {
    pub(super) file: PathBuf,
    pub(super) component: Option<PathBuf>,
}

/// Finds the test files of these paths.
pub(super) fn find(paths: &[PathBuf]) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        if path.is_dir() {
            found.extend(in_directory(path)?.into_iter().map(|file| Found { file, component: None }));
        } else if has_extension(path, "wasm") {
            let directory = directory_of(path);
            let own = path.with_extension(&ENDING[1..]);
            let is_own = |file: &PathBuf| file.file_name() == own.file_name();
            let files = in_directory(&directory)?.into_iter();
            // Other components' files beside this one are not about it.
            let files = files.filter(|file| is_own(file) || !is_beside(file));
            found.extend(files.map(|file| Found { file, component: Some(path.clone()) }));
        } else {
            found.push(Found { file: path.clone(), component: None });
        }
        if found.len() == before {
            return Err(Failure::config(anyhow!(
                "`{}` has no test files: they are NAME{ENDING} beside NAME.wasm, or lie in `{DIRECTORY}`",
                path.display()
            )));
        }
    }
    Ok(found)
}

/// The component that a test file is about, when it does not say so itself.
pub(super) fn component_of(file: &Path) -> Result<PathBuf, Failure> {
    let directory = directory_of(file);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if let Some(name) = name.strip_suffix(ENDING) {
        let own = directory.join(format!("{name}.wasm"));
        if own.exists() {
            return Ok(own);
        }
    }
    let in_tests = directory.file_name() == Some(OsStr::new(DIRECTORY));
    let beside = if in_tests { directory_of(&directory) } else { directory };
    match &*entries(&beside, "wasm")? {
        [only] => Ok(only.clone()),
        [] => Err(Failure::config(anyhow!(
            "there is no component in `{}` for `{}`; `tidegate policy build` makes it, or `component` names another",
            beside.display(),
            file.display()
        ))),
        _ => Err(Failure::config(anyhow!(
            "there are several components in `{}`; say in `{}` which one it is about: component = \"…\"",
            beside.display(),
            file.display()
        ))),
    }
}

fn in_directory(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = entries(directory, "toml")?;
    files.retain(|file| is_beside(file));
    let tests = directory.join(DIRECTORY);
    if tests.is_dir() {
        files.extend(entries(&tests, "toml")?);
    }
    Ok(files)
}

fn is_beside(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ENDING))
        && directory_of(file).file_name() != Some(OsStr::new(DIRECTORY))
}

/// Files of a directory with that extension, by name.
fn entries(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
    };
    let mut files = read()
        .with_context(|| format!("cannot look into `{}`", directory.display()))
        .map_err(Failure::config)?;
    files.retain(|file| has_extension(file, extension) && file.is_file());
    files.sort();
    Ok(files)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension() == Some(OsStr::new(extension))
}

pub(super) fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
