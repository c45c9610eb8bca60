//! Events about those who look on while a flow decides.

use std::sync::Arc;
use std::time::Duration;

use crate::{Event, Metrics};

/// Somebody began to record a flow's decisions.
#[derive(Debug)]
pub struct RecordingBegan<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// The longest that it takes.
    pub length: Duration,
    /// The part of all keys that is recorded, 0 to 1.
    pub sample: f64,
}

impl Event for RecordingBegan<'_> {
    fn record(self, _metrics: &Metrics) {
        let Self { flow, length, sample } = self;
        tracing::info!(flow = %flow, ?length, sample, "a recording of the flow's decisions begins");
    }
}

/// A recording of a flow's decisions ended.
#[derive(Debug)]
pub struct RecordingEnded<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// Decisions in it.
    pub recorded: u64,
    /// Decisions that should be in it and are not.
    pub missed: u64,
}

impl Event for RecordingEnded<'_> {
    fn record(self, _metrics: &Metrics) {
        let Self { flow, recorded, missed } = self;
        if missed > 0 {
            tracing::warn!(flow = %flow, recorded, missed, "the recording has gaps: it was taken in too slowly");
        } else {
            tracing::info!(flow = %flow, recorded, "the recording has ended");
        }
    }
}

/// Somebody began to look on at what a flow decides.
#[derive(Debug)]
pub struct TapBegan<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// The longest that it takes.
    pub length: Duration,
    /// The part of all keys that is shown, 0 to 1.
    pub sample: f64,
}

impl Event for TapBegan<'_> {
    fn record(self, _metrics: &Metrics) {
        let Self { flow, length, sample } = self;
        tracing::info!(flow = %flow, ?length, sample, "a tap of the flow begins");
    }
}

/// Somebody looks on no more.
#[derive(Debug)]
pub struct TapEnded<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// Decisions that were shown.
    pub shown: u64,
    /// Decisions that should have been and were not.
    pub missed: u64,
}

impl Event for TapEnded<'_> {
    fn record(self, _metrics: &Metrics) {
        let Self { flow, shown, missed } = self;
        tracing::info!(flow = %flow, shown, missed, "the tap has ended");
    }
}
