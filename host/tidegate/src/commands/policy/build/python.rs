//! Python policies: a project with a `build.py`, or with a module that componentize-py makes a component of. Either runs
//! in a virtual environment of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tidegate_policy::Built;

use super::super::contract;
use super::{Made, tool};
use crate::exit::Failure;

const PYTHON_ADVICE: &str = "install Python 3.10 or newer";
const COMPILER_ADVICE: &str = "requirements.txt must name componentize-py";

/// The virtual environment, below the policy's directory.
const ENVIRONMENT: &str = ".venv";

/// The module that is the policy, unless pyproject.toml says otherwise.
const MODULE: &str = "policy";

/// The project's own build.
const SCRIPT: &str = "build.py";

pub(super) fn build(directory: &Path) -> Result<Made, Failure> {
    let project = Project::read(directory)?;
    let environment = std::path::absolute(directory.join(ENVIRONMENT)).map_err(Failure::environment)?;
    install(directory, &environment)?;
    let compiler = environment.join("bin/componentize-py");
    let (bytes, name) = if directory.join(SCRIPT).is_file() {
        let python = environment.join("bin/python");
        let run = || tool::run(&python, &[SCRIPT], directory, PYTHON_ADVICE);
        super::read_written(&tool::written_by(directory, run)?)?
    } else {
        (compile(directory, &project, &compiler)?, project.name.clone())
    };
    let version = tool::ask(&compiler, &["--version"], directory, COMPILER_ADVICE)?;
    let built = Built { name: name.clone(), version: project.version, sdk: version.trim().to_owned() };
    Ok(Made { bytes, built: Some(built), name })
}

/// Makes a component of the project's module.
fn compile(directory: &Path, project: &Project, compiler: &Path) -> Result<Vec<u8>, Failure> {
    let module = directory.join(format!("{}.py", project.module.replace('.', "/")));
    if !module.is_file() {
        return Err(Failure::config(anyhow!(
            "`{}` is not there; `module` of [tool.tidegate] in pyproject.toml says which module the policy is",
            module.display()
        )));
    }
    let scratch = tempfile::tempdir().map_err(Failure::environment)?;
    let wit = contract::write(directory, scratch.path())?;
    let to = scratch.path().join("component.wasm");
    let (wit, to_text) = (wit.to_string_lossy(), to.to_string_lossy());
    let arguments = [
        "--quiet",
        "--wit-path",
        &wit,
        "--world",
        &project.world,
        "componentize",
        &project.module,
        "--stub-wasi",
        "--python-path",
        ".",
        "--output",
        &to_text,
    ];
    tool::run(compiler, &arguments, directory, COMPILER_ADVICE)?;
    std::fs::read(&to).context("componentize-py wrote nothing").map_err(Failure::runtime)
}

/// What pyproject.toml says, if it is there.
struct Project {
    name: String,
    version: String,
    world: String,
    module: String,
}

impl Project {
    fn read(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join("pyproject.toml");
        let table: toml::Table = match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text)
                .with_context(|| format!("cannot read `{}`", path.display()))
                .map_err(Failure::config)?,
            Err(_) => toml::Table::new(),
        };
        let text = |path: &[&str]| {
            let (last, parents) = path.split_last()?;
            let mut inside = &table;
            for key in parents {
                inside = inside.get(*key)?.as_table()?;
            }
            inside.get(*last)?.as_str().map(str::to_owned)
        };
        Ok(Self {
            name: text(&["project", "name"])
                .map_or_else(|| super::directory_name(directory), |name| super::plain_name(&name)),
            version: text(&["project", "version"]).unwrap_or_else(|| "0.0.0".to_owned()),
            world: text(&["tool", "tidegate", "world"]).unwrap_or_else(|| "throttle-policy".to_owned()),
            module: text(&["tool", "tidegate", "module"]).unwrap_or_else(|| MODULE.to_owned()),
        })
    }
}

/// Makes the environment and installs what the policy needs, unless requirements.txt is older than that.
fn install(directory: &Path, environment: &Path) -> Result<(), Failure> {
    let modified = |path: &Path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let done: PathBuf = environment.join("tidegate-installed");
    if modified(&done).is_some_and(|done| Some(done) >= modified(&directory.join("requirements.txt"))) {
        return Ok(());
    }
    let python = environment.join("bin/python");
    // An environment without pip is what a system without all of Python's modules left behind.
    if !tool::works(&python, &["-m", "pip", "--version"]) {
        let arguments = ["-m", "venv", ENVIRONMENT];
        tool::run(Path::new("python3"), &arguments, directory, PYTHON_ADVICE)?;
    }
    let arguments = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
        "requirements.txt",
    ];
    tool::run(&python, &arguments, directory, PYTHON_ADVICE)?;
    std::fs::write(&done, "").map_err(Failure::environment)
}
