//! What went over the wire.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_kafka_share::{Exchange, ExchangeKind};

/// Requests of a client and bytes both ways.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Traffic {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Of the bytes: acknowledgements that ride on fetches, and all of the exchanges that are about nothing else.
    pub(crate) acknowledgement_bytes: u64,
    /// Of the requests: those that are about nothing else.
    pub(crate) acknowledgement_requests: u64,
    /// Records that came.
    pub(crate) records: u64,
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
impl Traffic {
    pub(crate) fn requests_per_thousand(&self) -> f64 {
        self.requests as f64 / (self.records as f64 / 1_000.0)
    }

    pub(crate) fn acknowledgements_of_bytes(&self) -> f64 {
        self.acknowledgement_bytes as f64 / self.bytes as f64
    }

    pub(crate) fn add(&mut self, exchange: &Exchange) {
        let bytes = exchange.sent_bytes + exchange.received_bytes;
        let is_acknowledgement = exchange.kind == ExchangeKind::Acknowledge;
        let acknowledgement_bytes = if is_acknowledgement { bytes } else { exchange.acknowledgement_bytes };
        self.requests += 1;
        self.bytes += bytes as u64;
        self.acknowledgement_bytes += acknowledgement_bytes as u64;
        self.acknowledgement_requests += u64::from(is_acknowledgement);
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests, {} of them for acknowledgements alone, {} bytes, {} of them acknowledgements",
            self.requests, self.acknowledgement_requests, self.bytes, self.acknowledgement_bytes
        )
    }
}
