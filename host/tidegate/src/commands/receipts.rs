//! Receipts from arguments and from standard input.

use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tidegate_config::Config;
use tidegate_model::receipt::{DecodeError, TEXT_BYTES_MAX};
use tidegate_model::{Receipt, ReceiptKey};
use tidegate_pipeline::Identity;

use crate::exit::Failure;

/// A receipt, or what was given for one.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) text: String,
    /// The line of standard input that it stood on, from 1.
    pub(super) line: Option<u64>,
}

impl Given {
    /// Where it is to be found again: its line, and its last characters, in which receipts differ most.
    pub(super) fn place(&self) -> String {
        const CHARS: usize = 12;
        let count = self.text.chars().count();
        let shown: String = self.text.chars().skip(count.saturating_sub(CHARS)).collect();
        let shown: String = shown.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let dots = if count > CHARS { "…" } else { "" };
        match self.line {
            Some(line) => format!("line {line} ({dots}{shown})"),
            None => format!("{dots}{shown}"),
        }
    }
}

/// Calls `take` with batches of at most `batch` receipts, in order. A line of standard input that is empty is passed over.
pub(super) async fn each_batch(
    given: &[String],
    batch: usize,
    mut take: impl AsyncFnMut(Vec<Given>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut waiting = Vec::new();
    let mut line = 0;
    for argument in given {
        if argument != "-" {
            waiting.push(Given { text: argument.trim().to_owned(), line: None });
            continue;
        }
        while let Some(text) = next_line()? {
            line += 1;
            if !text.is_empty() {
                waiting.push(Given { text, line: Some(line) });
            }
            if waiting.len() >= batch {
                take(std::mem::take(&mut waiting)).await?;
            }
        }
    }
    while !waiting.is_empty() {
        let rest = waiting.split_off(waiting.len().min(batch));
        take(std::mem::replace(&mut waiting, rest)).await?;
    }
    Ok(())
}

/// A line without its end. Of one that is longer than any receipt the beginning, which is still too long to be one.
fn next_line() -> Result<Option<String>, Failure> {
    let limit = TEXT_BYTES_MAX as u64 + 3;
    let mut input = std::io::stdin().lock();
    let mut read = |line: &mut Vec<u8>| {
        line.clear();
        let read = input.by_ref().take(limit).read_until(b'\n', line);
        read.context("cannot read standard input").map_err(Failure::environment)
    };
    let (mut line, mut more) = (Vec::new(), Vec::new());
    if read(&mut line)? == 0 {
        return Ok(None);
    }
    let mut is_whole = line.last() == Some(&b'\n') || (line.len() as u64) < limit;
    while !is_whole {
        let count = read(&mut more)? as u64;
        is_whole = count < limit || more.last() == Some(&b'\n');
    }
    Ok(Some(String::from_utf8_lossy(&line).trim().to_owned()))
}

/// A key, and where it is from.
#[derive(Debug)]
pub(super) struct Key {
    key: ReceiptKey,
    path: PathBuf,
}

impl Key {
    /// The receipt that a text is, when its tag was made with this key.
    pub(super) fn decode(&self, text: &str) -> Result<Receipt, DecodeError> {
        Receipt::decode(text, &self.key)
    }

    /// Why a text was not taken, in a sentence.
    pub(super) fn complaint(&self, error: &DecodeError) -> String {
        match error {
            DecodeError::Tag => format!(
                "the receipt was altered, or made by a host with another key than the one in `{}`",
                self.path.display()
            ),
            error => error.to_string(),
        }
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The key that a configuration's hosts sign with; made by a host and not by a command.
pub(super) fn key_of(config: &Config) -> Result<Key, Failure> {
    match &config.host.receipt_key_file {
        Some(path) => key_at(path),
        None => {
            let path = Identity::key_file(&config.host.state_dir);
            let advice = "a host makes it at its first start; if hosts of this fleet run elsewhere, `--key-file` or \
                          `receipt-key-file` names a copy of theirs";
            read(path, advice)
        }
    }
}

pub(super) fn key_at(path: &Path) -> Result<Key, Failure> {
    read(path.to_owned(), "it has to be the key that the hosts sign with, in 64 hexadecimal digits")
}

fn read(path: PathBuf, advice: &str) -> Result<Key, Failure> {
    let key = Identity::read_key(&path).map_err(|error| {
        Failure::config(anyhow!("receipts are checked with the fleet's key, and {error}; {advice}"))
    })?;
    Ok(Key { key, path })
}
