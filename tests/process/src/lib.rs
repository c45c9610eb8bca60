//! What the tests of the whole program share: where the program is, a directory for it, the program running.
//!
//! The brokers here are development brokers in the test's own process, so that a test can look into them; everything
//! else is the program as users start it.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "only tests use this crate"
)]

mod configuration;
mod home;
mod kills;
mod program;
mod random;
pub mod secrets;
mod tenants;

pub use configuration::{Configuration, Consumed};
pub use home::Home;
pub use kills::kill_again_and_again;
pub use program::{Ended, Program, http_ask, run_to_end, run_with_input, run_with_variables};
pub use random::Random;
pub use tenants::{
    GROUP, TOPIC, Tenants, admin, start_broker, start_broker_at, start_guarded_broker, start_impatient_broker,
};

use std::path::PathBuf;
use std::time::Duration;

/// How long a condition may take to come true. Generous: it is only waited for when something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program that the workspace has built beside the tests.
#[must_use]
pub fn program_path() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let program = test.parent().and_then(|deps| deps.parent()).expect("target directory").join("tidegate");
    assert!(program.exists(), "there is no {}; run `cargo build --workspace` first", program.display());
    program
}

/// What commands say of themselves, one after the other, for a snapshot: the command line is a contract.
#[must_use]
pub fn help_of(commands: &[&[&str]]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let mut text = String::new();
    for command in commands {
        let arguments: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
        let ended = run_to_end(directory.path(), &arguments);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{arguments:?}");
        text.push_str(&format!("$ tidegate {}\n{}\n", arguments.join(" "), ended.stdout));
    }
    text
}

/// The shipped policies.
#[must_use]
pub fn shipped_policies() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../policies")
}

/// Waits until `condition` gives something, and panics with `what` when it does not in time.
pub async fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    eventually_asked(what, async || condition()).await
}

/// The same of something that has to be asked for.
pub async fn eventually_asked<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
