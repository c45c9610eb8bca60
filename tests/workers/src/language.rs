//! What it takes to run a worker of each language.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tidegate_process_tests::program_path;
use tokio::process::Command;
use tokio::sync::OnceCell;

/// How long one command of a toolchain may take, downloads included.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);
const PROTO: &str = "tidegate/v1/handoff.proto";

/// A language with a worker of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Language {
    /// `tests/workers/curl`, over HTTP.
    Curl,
    /// `tests/workers/go`.
    Go,
    /// `tests/workers/java`.
    Java,
    /// `tests/workers/javascript`.
    JavaScript,
    /// `tests/workers/python`.
    Python,
    /// The example `worker` of `tidegate-client`.
    Rust,
}

/// How a worker is started.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// What stands before the address of a host.
    pub(crate) scheme: &'static str,
}

impl Language {
    /// Its name, which is that of its directory.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Go => "go",
            Self::Java => "java",
            Self::JavaScript => "javascript",
            Self::Python => "python",
            Self::Rust => "rust",
        }
    }

    /// Gets and builds what is missing, and says how the worker is started.
    pub(crate) async fn prepare(self) -> Launch {
        let began = tokio::time::Instant::now();
        let launch = match self {
            Self::Curl => curl(),
            Self::Go => go().await,
            Self::Java => java().await,
            Self::JavaScript => javascript().await,
            Self::Python => python().await,
            Self::Rust => rust(),
        };
        // Not to standard output: a program that uses this has data of its own for that.
        eprintln!("{:>7.1} s  {} is ready", began.elapsed().as_secs_f64(), self.name());
        launch
    }
}

/// It needs nothing that would have to be got.
fn curl() -> Launch {
    Launch {
        program: "sh".into(),
        arguments: vec![source("curl/worker.sh").into()],
        variables: Vec::new(),
        scheme: "",
    }
}

async fn python() -> Launch {
    let environment = python_environment().await;
    let stubs = fresh(&kept("python-stubs"));
    protoc(environment, &[("--python_out=", &stubs), ("--grpc_python_out=", &stubs)], &[]).await;
    Launch {
        program: environment.join("bin/python"),
        arguments: vec![source("python/worker.py").into()],
        variables: vec![("PYTHONPATH", stubs.into())],
        scheme: "",
    }
}

/// A virtual environment with gRPC and `protoc`, made once: two languages use it.
async fn python_environment() -> &'static Path {
    static MADE: OnceCell<PathBuf> = OnceCell::const_new();
    let make = || async {
        let environment = kept("python");
        let requirements = source("python/requirements.txt");
        if is_stale(&environment, &[&requirements]) {
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment)).await;
            let pip = environment.join("bin/pip");
            let cache = [("PIP_CACHE_DIR", kept("cache/pip"))];
            run(Command::new(pip).args(["install", "--quiet", "-r"]).arg(&requirements).envs(cache)).await;
            stamp(&environment, &[&requirements]);
        }
        environment
    };
    MADE.get_or_init(make).await
}

/// Generates stubs with the compiler that comes with Python's gRPC.
async fn protoc(environment: &Path, outputs: &[(&str, &Path)], options: &[String]) {
    let mut command = Command::new(environment.join("bin/python"));
    command.args(["-m", "grpc_tools.protoc", "-I"]).arg(repository().join("proto")).args(options);
    for (option, path) in outputs {
        command.arg(joined(option, path));
    }
    run(command.arg(PROTO)).await;
}

async fn javascript() -> Launch {
    let directory = kept("javascript");
    let files = ["package.json", "package-lock.json", "worker.js"];
    let [package, lock, worker] = files.map(|file| copy(&source("javascript").join(file), &directory));
    if is_stale(&directory, &[&package, &lock]) {
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--cache"]).arg(kept("cache/npm"));
        run(npm.current_dir(&directory)).await;
        stamp(&directory, &[&package, &lock]);
    }
    Launch {
        program: "node".into(),
        arguments: vec![worker.into()],
        variables: vec![("TIDEGATE_PROTO", repository().join("proto").join(PROTO).into())],
        scheme: "",
    }
}

async fn go() -> Launch {
    let directory = kept("go");
    let files = ["go.mod", "go.sum", "worker.go"].map(|file| copy(&source("go").join(file), &directory));
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.args(arguments).current_dir(&directory);
        go.env("GOPATH", kept("cache/go-path")).env("GOCACHE", kept("cache/go-build"));
        // Or nobody could delete it.
        go.env("GOFLAGS", "-modcacherw");
        go
    };
    let proto = repository().join("proto").join(PROTO);
    let inputs = [&*files[0], &files[1], &files[2], &proto];
    if is_stale(&directory, &inputs) {
        // The compiler's plugins, as `go.mod` names them.
        run(&mut go(&["build", "-o", "bin/", "tool"])).await;
        let plugin = |name: &str| format!("--plugin={name}={}", directory.join("bin").join(name).display());
        let option = |of: &str| format!("--{of}_opt=module=worker,M{PROTO}=worker/tidegatev1");
        let options =
            [plugin("protoc-gen-go"), plugin("protoc-gen-go-grpc"), option("go"), option("go-grpc")];
        let outputs = [("--go_out=", &*directory), ("--go-grpc_out=", &directory)];
        protoc(python_environment().await, &outputs, &options).await;
        run(&mut go(&["vet", "."])).await;
        run(&mut go(&["build", "-o", "worker", "."])).await;
        stamp(&directory, &inputs);
    }
    Launch { program: directory.join("worker"), arguments: Vec::new(), variables: Vec::new(), scheme: "" }
}

async fn java() -> Launch {
    let directory = kept("java");
    let (pom, worker) = (source("java/pom.xml"), source("java/src/main/java/Worker.java"));
    let proto = repository().join("proto").join(PROTO);
    let inputs = [&*pom, &worker, &proto];
    if is_stale(&directory, &inputs) {
        let mut mvn = Command::new("mvn");
        mvn.args(["--batch-mode", "--quiet", "--file"]).arg(&pom);
        mvn.arg(joined("-Doutput=", &directory));
        mvn.arg(joined("-Dmaven.repo.local=", kept("cache/maven")));
        run(mvn.arg("package")).await;
        stamp(&directory, &inputs);
    }
    let jar = directory.join("worker.jar");
    Launch {
        program: "java".into(),
        arguments: vec!["-jar".into(), jar.into()],
        variables: Vec::new(),
        scheme: "",
    }
}

fn rust() -> Launch {
    let program = program_path().with_file_name("examples").join("worker");
    assert!(program.exists(), "run `cargo build --workspace --example worker` first");
    Launch { program, arguments: Vec::new(), variables: Vec::new(), scheme: "http://" }
}

/// Runs a command to its good end.
async fn run(command: &mut Command) {
    command.kill_on_drop(true).stdin(Stdio::null());
    let output = tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{command:?} was still running after {COMMAND_TIMEOUT:?}"));
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} ended with {}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Whether what is in a directory was made from something else than these files are now.
fn is_stale(directory: &Path, inputs: &[&Path]) -> bool {
    fs::read(directory.join(STAMP)).ok() != Some(contents(inputs))
}

/// Notes what a directory was made from.
fn stamp(directory: &Path, inputs: &[&Path]) {
    fs::write(directory.join(STAMP), contents(inputs)).expect("the target directory is ours");
}

const STAMP: &str = "made-from";

fn contents(inputs: &[&Path]) -> Vec<u8> {
    inputs
        .iter()
        .flat_map(|path| fs::read(path).unwrap_or_else(|error| panic!("{path:?}: {error}")))
        .collect()
}

fn copy(file: &Path, directory: &Path) -> PathBuf {
    let copy = directory.join(file.file_name().expect("a file"));
    fs::copy(file, &copy).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    copy
}

fn fresh(directory: &Path) -> PathBuf {
    fs::remove_dir_all(directory).expect("the target directory is ours");
    fs::create_dir(directory).expect("the target directory is ours");
    directory.to_owned()
}

fn joined(option: &str, path: impl AsRef<OsStr>) -> OsString {
    let mut joined = OsString::from(option);
    joined.push(path.as_ref());
    joined
}

/// A directory that is kept between runs, whichever program of whichever profile asks.
fn kept(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a program has a path");
    let is_of_a_profile = |path: &&Path| path.ends_with("debug") || path.ends_with("release");
    let profile = program.ancestors().find(is_of_a_profile).expect("cargo has built it");
    let directory = profile.with_file_name("workers").join(name);
    fs::create_dir_all(&directory).expect("the target directory is ours");
    directory
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn repository() -> PathBuf {
    source("../..")
}
