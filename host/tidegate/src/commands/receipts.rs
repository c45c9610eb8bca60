//! Receipts from arguments and from standard input.

use std::io::{BufRead as _, Read as _};
use std::path::Path;

use anyhow::{Context as _, anyhow};
use tidegate_config::Config;
use tidegate_model::ReceiptKey;
use tidegate_model::receipt::TEXT_BYTES_MAX;
use tidegate_pipeline::Identity;

use crate::exit::Failure;

/// Calls `take` with batches of at most `batch` receipts, in order. A line of standard input that is empty is passed over.
pub(super) async fn each_batch(
    given: &[String],
    batch: usize,
    mut take: impl AsyncFnMut(Vec<String>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut waiting = Vec::new();
    for argument in given {
        if argument != "-" {
            waiting.push(argument.trim().to_owned());
            continue;
        }
        while let Some(line) = next_line()? {
            if !line.is_empty() {
                waiting.push(line);
            }
            if waiting.len() >= batch {
                take(std::mem::take(&mut waiting)).await?;
            }
        }
    }
    for rest in waiting.chunks(batch) {
        take(rest.to_vec()).await?;
    }
    Ok(())
}

fn next_line() -> Result<Option<String>, Failure> {
    // One more than a receipt has, and the line's end: what is longer is refused as a receipt, and shown as it begins.
    let limit = TEXT_BYTES_MAX as u64 + 3;
    let mut line = Vec::new();
    let mut input = std::io::stdin().lock();
    input
        .by_ref()
        .take(limit)
        .read_until(b'\n', &mut line)
        .context("cannot read standard input")
        .map_err(Failure::environment)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() as u64 == limit && line.last() != Some(&b'\n') {
        return Err(Failure::config(anyhow!(
            "a line of standard input is longer than any receipt: give one receipt a line"
        )));
    }
    Ok(Some(String::from_utf8_lossy(&line).trim().to_owned()))
}

/// The key that a configuration's hosts sign with; made by a host and not by a command.
pub(super) fn key_of(config: &Config) -> Result<ReceiptKey, Failure> {
    let own = || Identity::key_file(&config.host.state_dir);
    let path = config.host.receipt_key_file.clone().unwrap_or_else(own);
    key_at(&path)
}

pub(super) fn key_at(path: &Path) -> Result<ReceiptKey, Failure> {
    Identity::read_key(path).map_err(|error| {
        let hint = "the key of the fleet's receipts is needed: --key-file names it";
        Failure::config(anyhow::Error::new(error).context(hint))
    })
}
