//! A process that says when it began, had its first record, and had its last one acknowledged.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tidegate_test_brokers::Usage;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdout, Command};
use tokio::time::{Instant, timeout};

use super::Traffic;
use crate::watch::Measured;

/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(180);
/// What a client that counts its traffic says it after.
const TRAFFIC: &str = "traffic ";

/// Says so to the parent.
#[allow(clippy::print_stdout, reason = "its parent reads it")]
pub(super) fn tell(what: &str) {
    println!("{what}");
}

/// Says to the parent what went over the wire.
pub(super) fn tell_traffic(traffic: Traffic) -> Result<()> {
    tell(&format!("{TRAFFIC}{}", serde_json::to_string(&traffic)?));
    Ok(())
}

/// Runs it to its last acknowledgement.
pub(super) async fn run(mut command: Command, records: usize) -> Result<Measured> {
    let log = tempfile::NamedTempFile::new()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.reopen()?)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {:?}", command.as_std().get_program()))?;
    let process = child.id().context("it has ended already")?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let mut result = watch(&mut lines, process, records).await;
    if let Ok(measured) = &mut result {
        // It leaves its group and ends by itself; what it says last is what went over the wire, if it counts that.
        let leaving = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(traffic) = line.strip_prefix(TRAFFIC) {
                    measured.traffic = Some(serde_json::from_str(traffic)?);
                }
            }
            child.wait().await?;
            anyhow::Ok(())
        };
        timeout(PATIENCE, leaving).await.context("waiting for its end")??;
    }
    // No effect when it has ended.
    child.kill().await?;
    result.with_context(|| std::fs::read_to_string(log.path()).unwrap_or_default())
}

async fn watch(lines: &mut Lines<BufReader<ChildStdout>>, process: u32, records: usize) -> Result<Measured> {
    let began = heard(lines, "began").await?;
    let first = heard(lines, "first").await?;
    let before = Usage::of(process)?;
    let done = heard(lines, "done").await?;
    let after = Usage::of(process)?;
    #[expect(clippy::cast_precision_loss, reason = "counts of records are far below 2^52")]
    let count = records as f64;
    Ok(Measured {
        first_after: first - began,
        rate: count / (done - first).as_secs_f64(),
        cpu_per_thousand: after.cpu.saturating_sub(before.cpu).div_f64(count / 1_000.0),
        resident_peak_bytes: after.resident_peak_bytes,
        traffic: None,
    })
}

async fn heard(lines: &mut Lines<BufReader<ChildStdout>>, what: &str) -> Result<Instant> {
    let waiting = async {
        while let Some(line) = lines.next_line().await? {
            if line == what {
                return Ok(Instant::now());
            }
        }
        anyhow::bail!("it ended before it said `{what}`")
    };
    timeout(PATIENCE, waiting).await.with_context(|| format!("waiting for `{what}`"))?
}
