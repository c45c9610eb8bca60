//! Events about rejected messages.

use std::sync::Arc;
use std::time::Duration;

use super::FlowLabel;
use crate::{Event, Metrics};

/// A delivery was rejected, or discarded, and will not come again.
#[derive(Debug)]
pub struct Rejected<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// The broker's name of the message.
    pub message_id: &'a str,
    /// The key it belongs to.
    pub key: &'a str,
    /// Why.
    pub reason: &'a str,
    /// Where it went: a sink's name, `broker` for the broker's own dead letters, or none.
    pub dead_letter: Option<&'a str>,
}

impl Event for Rejected<'_> {
    fn record(self, _metrics: &Metrics) {
        match self.dead_letter {
            Some(to) => {
                tracing::warn!(flow = %self.flow, id = self.message_id, key = self.key, "rejected to {to}: {}", self.reason);
            }
            None => tracing::warn!(
                flow = %self.flow, id = self.message_id, key = self.key,
                "rejected and dropped, the flow has no dead-letter sink: {}", self.reason
            ),
        }
    }
}

/// A flow rejects so many messages that it pauses itself.
#[derive(Debug)]
pub struct PausedByDeadLetters<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// In a sentence.
    pub reason: &'a str,
}

impl Event for PausedByDeadLetters<'_> {
    fn record(self, metrics: &Metrics) {
        let Self { flow, reason } = self;
        metrics.flow.dead_letter_pauses.get_or_create(&FlowLabel { flow: Arc::clone(flow) }).inc();
        tracing::error!(flow = %flow, "{reason}");
    }
}

/// The dead-letter sink did not take a rejected message, which comes again.
#[derive(Debug)]
pub struct DeadLetterRefused<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// The dead-letter sink.
    pub sink: &'a str,
    /// The broker's name of the message.
    pub message_id: &'a str,
    /// What the sink said.
    pub said: &'a str,
    /// How long the message stays away.
    pub wait: Duration,
    /// How many in a row it has not taken, this one included.
    pub in_a_row: u32,
}

impl Event for DeadLetterRefused<'_> {
    fn record(self, _metrics: &Metrics) {
        let Self { flow, sink, message_id, said, wait, in_a_row } = self;
        // A sink that is out of order is one story: say it when it begins, then ever more rarely.
        if in_a_row.is_power_of_two() {
            tracing::warn!(
                flow = %flow, id = message_id, ?wait, in_a_row,
                "the dead-letter sink {sink} has not taken a rejected message, which comes again: {said}"
            );
        } else {
            tracing::debug!(flow = %flow, id = message_id, ?wait, in_a_row, "not taken by {sink}: {said}");
        }
    }
}
