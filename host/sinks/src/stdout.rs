//! The sink that writes one JSON object a line to standard output.

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_connector::options::Table;
use tidegate_connector::{Clock, Inbox, Sink, SinkError};
use tidegate_model::{Outcome, ReceiptIssuer, Report};
use tokio::io::AsyncWriteExt as _;

use crate::parts::Recorder;

/// Its options: none.
pub const STDOUT: Table = Table {
    connector: "stdout",
    summary: "Writes one JSON object a line to standard output: value, metadata, receipt. When nobody reads it any more, the flow fails.",
    options: &[],
};

/// Writes deliveries to standard output; they are accepted once the operating system has taken the bytes.
#[derive(Debug)]
pub struct Stdout {
    name: Arc<str>,
    recorder: Recorder,
}

/// Lines under way: enough to fill a pipe, few enough that a reader that stops stops the flow soon.
const CREDITS: usize = 256;

impl Stdout {
    /// The sink `name` for deliveries of `source`, whose receipts `issuer` signs.
    #[must_use]
    pub const fn new(name: Arc<str>, source: Arc<str>, issuer: ReceiptIssuer, clock: Clock) -> Self {
        Self { name, recorder: Recorder::new(source, issuer, clock) }
    }

    fn failed(&self, detail: impl std::fmt::Display) -> SinkError {
        SinkError {
            sink: (*self.name).into(),
            detail: format!("standard output cannot be written: {detail}").into(),
        }
    }
}

#[async_trait]
impl Sink for Stdout {
    fn credits(&self) -> usize {
        CREDITS
    }

    async fn run(self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        let mut stdout = tokio::io::stdout();
        let mut lines = Vec::new();
        while let Some(batch) = inbox.next().await {
            lines.clear();
            for emission in &batch {
                self.recorder.write(emission, &mut lines).map_err(|error| self.failed(error))?;
                lines.push(b'\n');
            }
            stdout.write_all(&lines).await.map_err(|error| self.failed(error))?;
            stdout.flush().await.map_err(|error| self.failed(error))?;
            let accepted = |id| Report { id, outcome: Outcome::Accepted, cost: None };
            inbox.report(batch.iter().map(|emission| accepted(emission.id)).collect()).await;
        }
        Ok(())
    }
}
