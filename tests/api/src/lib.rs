//! Schemathesis, a fuzzer of HTTP APIs: it reads an API's OpenAPI description, asks what this allows and what it forbids,
//! and looks whether the answers are as described. It is put below `target/api` and kept between runs.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "only tests use this crate"
)]
#![allow(clippy::print_stdout, reason = "what was tried is shown beside a failure, and with `--nocapture`")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tidegate_process_tests::program_path;
use tokio::process::Command;

/// How long getting it may take.
const INSTALL_TIMEOUT: Duration = Duration::from_secs(600);
/// How long one run may take. It takes well under a minute.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);
/// The same requests each time.
const SEED: &str = "1";

/// The fuzzer, ready to run.
#[derive(Debug)]
pub struct Schemathesis(PathBuf);

impl Schemathesis {
    /// Gets it, unless it is there.
    pub async fn ready() -> Self {
        let (environment, requirements) = (kept("python"), source("requirements.txt"));
        let wanted = fs::read(&requirements).expect("the requirements");
        let stamp = environment.join("made-from");
        if fs::read(&stamp).ok().as_ref() != Some(&wanted) {
            let mut venv = Command::new("python3");
            run_well(venv.args(["-m", "venv", "--clear"]).arg(&environment)).await;
            let mut pip = Command::new(environment.join("bin/pip"));
            pip.args(["install", "--quiet", "--no-deps", "--requirement"]).arg(&requirements);
            run_well(pip.env("PIP_CACHE_DIR", kept("cache"))).await;
            fs::write(stamp, wanted).expect("the target directory is ours");
        }
        Self(environment.join("bin/schemathesis"))
    }

    /// Asks the API at `address` everything but what is at paths that match `except`, `examples` questions of each kind,
    /// and panics when an answer is not as `/openapi.json` there says, or is an error of the server's. `names` is a file
    /// beside this crate's with names that the host has; without it they are made up.
    pub async fn try_out(&self, address: &str, names: Option<&str>, except: Option<&str>, examples: u32) {
        let mut command = Command::new(&self.0);
        if let Some(names) = names {
            command.arg("--config-file").arg(source(names));
        }
        command.arg("run").arg(format!("http://{address}/openapi.json"));
        command.args(["--checks", "all", "--max-examples", &examples.to_string(), "--seed", SEED]);
        command.args(["--generation-database", "none", "--continue-on-failure", "--no-color"]);
        // A pull may wait for a minute, and a settlement for its turn.
        command.args(["--request-timeout", "75", "--max-response-time", "70"]);
        if let Some(paths) = except {
            command.args(["--exclude-path-regex", paths]);
        }
        // What it writes stays below `target`.
        command.current_dir(kept("run"));
        let output = ended(&mut command, RUN_TIMEOUT).await;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("{told}{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{address}, names of {names:?}: {}", output.status);
        // It is content with a description that has nothing in it.
        assert!(tried(&told) >= u64::from(examples), "{} questions were asked", tried(&told));
    }
}

/// How many questions were asked: `406 generated, 3 found 3 unique failures`.
fn tried(told: &str) -> u64 {
    let line = told.lines().find_map(|line| line.trim().split_once(" generated, "));
    line.and_then(|(count, _)| count.parse().ok()).unwrap_or(0)
}

async fn run_well(command: &mut Command) {
    let output = ended(command, INSTALL_TIMEOUT).await;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?} ended with {}:\n{told}", output.status);
}

async fn ended(command: &mut Command, patience: Duration) -> Output {
    command.kill_on_drop(true).stdin(Stdio::null());
    let output = tokio::time::timeout(patience, command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{command:?} was still running after {patience:?}"));
    output.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// A directory that is kept between runs.
fn kept(name: &str) -> PathBuf {
    let directory = program_path().ancestors().nth(2).expect("the target directory").join("api").join(name);
    fs::create_dir_all(&directory).expect("the target directory is ours");
    directory
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}
