//! The whole host as a contestant, counted by itself: what the broker has confirmed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use tidegate_process_tests::Configuration;
use tidegate_test_brokers::Usage;
use tokio::time::{Instant, sleep};

use super::{Subject, TENANT, TOPIC};
use crate::absolute;
use crate::program::Program;
use crate::watch::Measured;

/// Between two looks: short against a run, long against what a look costs.
const INTERVAL: Duration = Duration::from_millis(20);
/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(180);

/// The program and its shipped policies.
pub(super) struct Host {
    program: PathBuf,
    policies: PathBuf,
}

impl Host {
    pub(super) fn prepare(program: &Path, policies: &Path) -> Result<Self> {
        Ok(Self { program: absolute(program)?, policies: absolute(policies)? })
    }

    pub(super) async fn run(&self, subject: Subject<'_>) -> Result<Measured> {
        let directory = tempfile::tempdir()?;
        let began = Instant::now();
        let host =
            Program::start(&self.program, directory.path(), &self.configuration(subject, &directory)).await?;
        let total = subject.records as u64;
        let mut first: Option<(Instant, u64, Usage)> = None;
        loop {
            let accepted = host.totals().await?.accepted;
            let (now, usage) = (Instant::now(), Usage::of(host.id())?);
            ensure!(now - began < PATIENCE, "{accepted} of {total} records after {} s", PATIENCE.as_secs());
            match first {
                None if accepted > 0 => first = Some((now, accepted, usage)),
                Some((at, before, used)) if accepted >= total => {
                    let totals = host.totals().await?;
                    ensure!(
                        totals.deferred == 0 && totals.on_error == 0,
                        "what is measured is the road of a record that nothing holds back: {totals:?}"
                    );
                    ensure!(before < total, "the records are gone within one look: take more");
                    #[expect(clippy::cast_precision_loss, reason = "counts of records are far below 2^52")]
                    let count = (accepted - before) as f64;
                    return Ok(Measured {
                        first_after: at - began,
                        rate: count / (now - at).as_secs_f64(),
                        cpu_per_thousand: usage.cpu.saturating_sub(used.cpu).div_f64(count / 1_000.0),
                        resident_peak_bytes: usage.resident_peak_bytes,
                        traffic: None,
                    });
                }
                _ => {}
            }
            sleep(INTERVAL).await;
        }
    }

    fn configuration(&self, subject: Subject<'_>, directory: &TempDir) -> String {
        let (policies, state) = (self.policies.display(), directory.path().join("state"));
        let state = state.display();
        let host = format!("policy-dir = \"{policies}\"\nstate-dir = \"{state}\"\nlog-level = \"info\"");
        Configuration::new(&host)
            .policy("measured", "fair-share")
            .share_source("lab", subject.bootstrap, subject.group, &format!("topic = \"{TOPIC}\""))
            .sink("out", "discard", "")
            .flow("lab", "lab", "out", &format!("throttle = \"measured\"\nkey = \"property:{TENANT}\""))
            .toml()
            .to_owned()
    }
}
