//! What `cargo xtask test` does, in order.

use std::time::Duration;

use crate::command::{Line, cargo, program};

/// One thing to do, with its own log and line in the report.
#[derive(Debug)]
pub(crate) struct Step {
    /// Its name for `--only`, its log's name, and its place in the report.
    pub(crate) name: &'static str,
    /// What it is for.
    pub(crate) purpose: &'static str,
    /// Run one after the other until one fails.
    pub(crate) lines: Vec<Line>,
    /// Whether `--quick` leaves it out.
    pub(crate) slow: bool,
    /// The command without which it is passed over, and why that may be.
    pub(crate) unless_missing: Option<(Line, &'static str)>,
}

/// Longest that one step may take: the tests with real brokers, cold, take well under half of this on two cores.
pub(crate) const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Name of the step that runs nearly all tests.
pub(crate) const TESTS: &str = "test";
/// Name of the step that does what the README says.
const WALK: &str = "walk";
/// Name of the step that runs workers in several languages.
const WORKERS: &str = "workers";
/// Name of the step that fuzzes the HTTP APIs.
const API: &str = "api";
/// Names of the steps whose tests are counted.
pub(crate) const COUNTED: [&str; 4] = [TESTS, WALK, WORKERS, API];

/// A package of its own that the lab builds when it is wanted.
const RIVAL: [&str; 2] = ["--manifest-path", "tests/lab/krafka/Cargo.toml"];
const GUESTS: [&str; 2] = ["--manifest-path", "guests/Cargo.toml"];
const WASM: [&str; 2] = ["--target", "wasm32-unknown-unknown"];
/// One selection of packages and features for all that compiles, so that nothing is compiled twice.
const ALL: &str = "--workspace";
/// Turns on what starts real brokers.
const REAL: [&str; 2] = ["--features", "real"];
/// Workers wait most of the time, for leases to end: all languages go at once, however few cores there are.
const AT_ONCE: [&str; 2] = ["--test-threads", "6"];
const DENY_WARNINGS: [&str; 3] = ["--", "-D", "warnings"];

/// The steps, with or without real brokers.
pub(crate) fn all(real: bool) -> Vec<Step> {
    let features: &[&str] = if real { &REAL } else { &[] };
    let built = cargo(&["build", ALL]).with(features);
    let step = |name, purpose, lines| Step { name, purpose, lines, slow: false, unless_missing: None };
    vec![
        step(
            "fmt",
            "the formatter has nothing to change",
            vec![
                cargo(&["fmt", "--all", "--check"]),
                cargo(&["fmt"]).with(&GUESTS).with(&["--all", "--check"]),
                cargo(&["fmt"]).with(&RIVAL).with(&["--check"]),
            ],
        ),
        step(
            "clippy",
            "no lint warns",
            vec![
                cargo(&["clippy", ALL, "--all-targets"]).with(features).with(&DENY_WARNINGS),
                cargo(&["clippy"]).with(&GUESTS).with(&[ALL]).with(&WASM).with(&DENY_WARNINGS),
            ],
        ),
        step(
            "guests",
            "the policies compile to WebAssembly",
            vec![cargo(&["build", "--release"]).with(&GUESTS).with(&[ALL]).with(&WASM)],
        ),
        step(
            TESTS,
            "units, simulations, whole processes, scenarios (on real brokers unless --quick)",
            vec![
                // The program itself, which the whole-process tests start.
                built.clone(),
                cargo(&["test", ALL, "--no-fail-fast"]).with(features),
            ],
        ),
        Step {
            slow: true,
            ..step(
                WALK,
                "the README's life of a policy, as it stands, in Rust, JavaScript and Python",
                vec![
                    built.clone(),
                    cargo(&["test", ALL]).with(features).with(&["--test", "walkthrough", "--", "--ignored"]),
                ],
            )
        },
        workers(&built, features),
        api(&built, features),
        step(
            "doc",
            "the documentation builds and its links lead somewhere",
            vec![cargo(&["doc", ALL, "--no-deps"]).environment("RUSTDOCFLAGS", "-D warnings")],
        ),
        Step {
            unless_missing: Some((
                cargo(&["deny", "--version"]),
                "cargo-deny is not installed (`cargo install --locked cargo-deny`)",
            )),
            ..step(
                "deny",
                "licences, sources and banned crates",
                vec![cargo(&["deny", ALL, "check", "bans", "licenses", "sources"])],
            )
        },
        Step {
            slow: true,
            ..step(
                "fuzz",
                "every decoder survives ten seconds of mutated inputs",
                vec![built.clone(), program("target/debug/tidegate-fuzz").with(&["--seconds", "10"])],
            )
        },
        audit(built),
    ]
}

fn audit(built: Line) -> Step {
    let audit = program("target/debug/tidegate-audit");
    let hosts = audit.clone().with(&["host", "--host", "target/debug/tidegate"]);
    let kept = ["--host", "target/debug/tidegate", "--keep", "target/xtask/audit"];
    let workers = audit.clone().with(&["workers"]).with(&kept);
    let share = audit.with(&["share"]).with(&kept);
    Step {
        name: "audit",
        purpose: "hosts, workers and real brokers are killed under load, and no promise breaks",
        lines: vec![
            built,
            hosts.with(&["--messages", "20000", "--lite-topics", "100", "--kills", "4"]),
            workers.with(&["--messages", "10000", "--worker-kills", "1", "--host-kills", "2"]),
            share.with(&[
                "--messages",
                "6000",
                "--worker-kills",
                "1",
                "--host-kills",
                "2",
                "--node-kills",
                "1",
            ]),
        ],
        slow: true,
        unless_missing: None,
    }
}

fn workers(built: &Line, features: &[&str]) -> Step {
    Step {
        name: WORKERS,
        purpose: "workers in Go, Java, JavaScript, Python, Rust and with curl lose nothing",
        lines: vec![
            built.clone(),
            cargo(&["build", ALL]).with(features).with(&["--example", "worker"]),
            cargo(&["test", ALL])
                .with(features)
                .with(&["--test", "languages", "--", "--ignored"])
                .with(&AT_ONCE),
        ],
        slow: true,
        unless_missing: None,
    }
}

fn api(built: &Line, features: &[&str]) -> Step {
    Step {
        name: API,
        purpose: "the HTTP APIs are as their OpenAPI descriptions say, whatever a fuzzer asks",
        lines: vec![
            built.clone(),
            cargo(&["test", ALL]).with(features).with(&["--test", "openapi", "--", "--ignored"]),
        ],
        slow: true,
        unless_missing: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_tests_are_among_them() {
        let steps = all(true);
        let names: BTreeSet<_> = steps.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), steps.len());
        assert!(COUNTED.iter().all(|counted| names.contains(counted)));
    }

    #[test]
    fn whatever_compiles_the_host_selects_the_whole_workspace() {
        for step in all(true) {
            for line in step.lines {
                let text = line.to_string();
                let compiles = text.split(' ').any(|word| ["clippy", "test", "doc", "build"].contains(&word));
                assert!(!compiles || text.contains(ALL), "{text}");
            }
        }
    }

    #[test]
    fn quick_turns_no_real_broker_on() {
        assert!(
            all(false).iter().flat_map(|step| &step.lines).all(|line| !line.to_string().contains("real"))
        );
        assert!(all(true).iter().flat_map(|step| &step.lines).any(|line| line.to_string().contains("real")));
    }
}
