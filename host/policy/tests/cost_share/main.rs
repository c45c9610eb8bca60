//! The shipped policy `cost-share` as a component: told outcomes and asked, reloaded, and in simulated flows.
//!
//! Needs the target `wasm32-unknown-unknown` (`rustup target add wasm32-unknown-unknown`).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test: what fails here is what it found")]

mod broker;
mod decisions;
mod flow;
#[path = "../shared/guests.rs"]
mod guests;
mod sharing;

use std::fs;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_connector::Clock;
use tidegate_policy::{Engine, EngineOptions, Limits, PolicySpec, Sandbox, ThrottleCaller};
use tidegate_telemetry::Telemetry;

fn engine() -> Engine {
    Engine::new(EngineOptions::new(Clock::start(), 7), Telemetry::default()).unwrap()
}

/// The policy with its shipped rules, and with limits that a slow machine does not reach by itself.
fn spec(dir: &TempDir) -> PolicySpec {
    let patient = Duration::from_secs(10);
    let component = dir.path().join("cost-share.wasm");
    fs::write(&component, guests::rebuilt("cost-share")).unwrap();
    let rules = dir.path().join("cost-share.toml");
    fs::copy(guests::root().join("policies/cost-share.toml"), &rules).unwrap();
    PolicySpec {
        rules: Some(rules),
        limits: Limits { deadline: patient, start_deadline: patient, ..Limits::default() },
        ..PolicySpec::new("policy", component)
    }
}

/// A way to ask it, with an empty state.
fn caller() -> ThrottleCaller {
    let dir = tempfile::tempdir().unwrap();
    let (report, sandbox) = Sandbox::load(&engine(), &spec(&dir));
    let sandbox = sandbox.unwrap_or_else(|| panic!("{report:#?}"));
    sandbox.throttle().unwrap().caller()
}
