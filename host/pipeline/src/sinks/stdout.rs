//! The sink that writes one JSON object a line to standard output.

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_connector::options::Table;
use tidegate_connector::{Inbox, Sink, SinkError};
use tidegate_model::{Emission, Outcome, Receipt, Report};
use tokio::io::AsyncWriteExt as _;

use crate::Identity;
use crate::record::Record;

/// Its options: none.
pub const STDOUT: Table = Table {
    connector: "stdout",
    summary: "Writes one JSON object a line to standard output: value, metadata, receipt.",
    options: &[],
};

/// Writes deliveries to standard output; they are accepted once the operating system has taken the bytes.
#[derive(Debug)]
pub struct Stdout {
    name: Arc<str>,
    source: Arc<str>,
    identity: Identity,
}

/// Lines under way: enough to fill a pipe, few enough that a reader that stops stops the flow soon.
const CREDITS: usize = 256;

impl Stdout {
    /// The sink `name` for deliveries of `source`, whose receipts `identity` signs.
    #[must_use]
    pub const fn new(name: Arc<str>, source: Arc<str>, identity: Identity) -> Self {
        Self { name, source, identity }
    }

    fn write_line(&self, emission: &Emission, line: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let receipt = Receipt::of(emission, self.identity.host_id()).encode(self.identity.receipt_key());
        serde_json::to_writer(&mut *line, &Record::new(&self.source, emission, &receipt))?;
        line.push(b'\n');
        Ok(())
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
                self.write_line(emission, &mut lines).map_err(|error| self.failed(error))?;
            }
            stdout.write_all(&lines).await.map_err(|error| self.failed(error))?;
            stdout.flush().await.map_err(|error| self.failed(error))?;
            let accepted = |id| Report { id, outcome: Outcome::Accepted, cost: None };
            inbox.report(batch.iter().map(|emission| accepted(emission.id)).collect()).await;
        }
        Ok(())
    }
}
