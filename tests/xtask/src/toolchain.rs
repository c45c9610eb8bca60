//! What has to be installed, and a sentence for what is not.

use crate::Failure;
use crate::command::program;

const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// Program, an argument with which it only speaks, and what to do when that fails.
const RUST: [(&str, &[&str], &str); 2] = [
    ("cargo", &["fmt", "--version"], "`cargo fmt` (run `rustup component add rustfmt`)"),
    ("cargo", &["clippy", "--version"], "`cargo clippy` (run `rustup component add clippy`)"),
];
const JAVA: [(&str, &[&str], &str); 3] = [
    (
        "java",
        &["-version"],
        "`java` (install a JDK 17 or newer; Debian: `apt-get install openjdk-17-jdk-headless`)",
    ),
    (
        "javac",
        &["-version"],
        "`javac` (install a JDK, not only a JRE; Debian: `apt-get install openjdk-17-jdk-headless`)",
    ),
    ("mvn", &["--version"], "`mvn` (install Maven 3.8 or newer; Debian: `apt-get install maven`)"),
];
/// What policies and workers in other languages are built with, and what fuzzes the HTTP APIs.
const LANGUAGES: [(&str, &[&str], &str); 6] = [
    (
        "curl",
        // From 7.76 on: `--fail-with-body`, which workers use, is refused by earlier ones.
        &["--fail-with-body", "--version"],
        "`curl` (install curl 7.76 or newer; Debian: `apt-get install curl`)",
    ),
    ("bash", &["--version"], "`bash`, which runs the README's commands"),
    (
        "node",
        &["--eval", "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)"],
        "`node` (install Node.js 20 or newer)",
    ),
    ("npm", &["--version"], "`npm` (it comes along with Node.js; Debian: `apt-get install npm`)"),
    ("go", &["version"], "`go` (install Go 1.26 or newer; one from 1.21 on gets it by itself)"),
    (
        "python3",
        &["-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))"],
        "`python3` with `venv` and `pip` (install Python 3.10 or newer; Debian: `apt-get install python3-venv`)",
    ),
];

/// Checks for everything that the tests use. The one thing that is ours to add, the guests' compile target, is added.
pub(crate) fn check(slow_steps: bool) -> Result<(), Failure> {
    add_wasm_target()?;
    let (java, languages): (&[_], &[_]) = if slow_steps { (&JAVA, &LANGUAGES) } else { (&[], &[]) };
    let missing: Vec<&str> = RUST
        .iter()
        .chain(java)
        .chain(languages)
        .filter(|(tool, speak, _)| !program(tool).with(speak).succeeds())
        .map(|(_, _, advice)| *advice)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let quick = if slow_steps { "; `--quick` runs what needs neither Java nor other languages" } else { "" };
    Err(Failure::Environment(format!("not found: {}{quick}", missing.join(", "))))
}

fn add_wasm_target() -> Result<(), Failure> {
    let listing = program("rustup").with(&["target", "list", "--installed"]);
    if !listing.succeeds() {
        // A toolchain from elsewhere than rustup; the guests' build says it if the target is not there.
        return Ok(());
    }
    if listing.output()?.lines().any(|target| target.trim() == WASM_TARGET) {
        return Ok(());
    }
    program("rustup").with(&["target", "add", WASM_TARGET]).run().map_err(|_| {
        Failure::Environment(format!(
            "the guests' compile target is missing: run `rustup target add {WASM_TARGET}`"
        ))
    })
}
