//! What sinks are given, and what several of them do alike.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::Clock;
use tidegate_model::{Emission, Instant, ReceiptIssuer};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::sink::ReleaseCause;

use crate::record::Record;

/// What a sink that writes records needs beside its options.
#[derive(Clone, Debug)]
pub struct SinkParts {
    /// The sink's name in the configuration.
    pub name: Arc<str>,
    /// The name of the source whose deliveries it takes.
    pub source: Arc<str>,
    /// Who signs the receipts.
    pub issuer: ReceiptIssuer,
    /// The process's clock.
    pub clock: Clock,
    /// Where events go.
    pub telemetry: Telemetry,
}

/// Dead letters are worked on for so long from when they come, even when their leases are over: given back, such a
/// message would only be rejected again, while its record may still be taken.
const DEAD_LETTER_PATIENCE: Duration = Duration::from_secs(60);

/// From when on work on an emission has no effect any more: the message comes again.
pub(crate) fn work_end(emission: &Emission) -> Instant {
    match emission.dead_letter {
        None => emission.expires_at,
        Some(_) => emission.expires_at.max(emission.received_at + DEAD_LETTER_PATIENCE),
    }
}

/// Finds out which emissions a sink had better give back, going through them in order: those whose time is over, and
/// those of an ordered key behind one of them.
#[derive(Debug)]
pub(crate) struct Lateness {
    now: Instant,
    overtaken: HashSet<Arc<str>>,
}

impl Lateness {
    pub(crate) fn new(now: Instant) -> Self {
        Self { now, overtaken: HashSet::new() }
    }

    /// Why the next emission had better be given back, if it had.
    pub(crate) fn of(&mut self, emission: &Emission) -> Option<ReleaseCause> {
        if emission.order.as_ref().is_some_and(|order| self.overtaken.contains(order)) {
            return Some(ReleaseCause::Overtaken);
        }
        if work_end(emission) > self.now {
            return None;
        }
        self.overtaken.extend(emission.order.clone());
        Some(ReleaseCause::LeaseOver)
    }

    /// The ordered keys of which something is given back.
    pub(crate) fn into_overtaken(self) -> HashSet<Arc<str>> {
        self.overtaken
    }
}

/// Makes records of emissions.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    source: Arc<str>,
    issuer: ReceiptIssuer,
    clock: Clock,
}

impl Recorder {
    pub(crate) const fn new(source: Arc<str>, issuer: ReceiptIssuer, clock: Clock) -> Self {
        Self { source, issuer, clock }
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    pub(crate) fn receipt(&self, emission: &Emission) -> String {
        self.issuer.issue(emission, self.clock.wall_at(emission.expires_at))
    }

    /// Appends the record to `out`; on an error nothing of it.
    pub(crate) fn write(&self, emission: &Emission, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let before = out.len();
        let receipt = self.receipt(emission);
        let written = serde_json::to_writer(&mut *out, &Record::new(&self.source, emission, &receipt));
        if written.is_err() {
            out.truncate(before);
        }
        written
    }
}
