//! What policies in shadow mode would have said, as the API shows it.

use serde::Serialize;

/// A policy in shadow mode beside what was done.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ComparisonView {
    /// The policy that was only asked.
    pub policy: String,
    /// Messages that it was asked about since the flow began.
    pub compared: u64,
    /// Those on which it differed from what was done.
    pub differing: u64,
    /// How often which verdicts met, agreement included.
    pub pairs: Vec<PairCount>,
    /// Messages on which it differed, by key, the keys with most of them first.
    pub keys: Vec<KeyCount>,
    /// Messages on which it differed and whose keys are not counted one by one.
    pub further_keys: u64,
    /// The last messages on which it differed, the newest last.
    pub differences: Vec<DifferenceView>,
}

/// How often two verdicts met.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PairCount {
    /// What was done.
    pub live: String,
    /// What the policy in shadow mode said.
    pub shadow: String,
    /// How often.
    pub count: u64,
}

/// Messages of one key.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct KeyCount {
    /// The key.
    pub key: String,
    /// How many.
    pub count: u64,
}

/// A message on which a policy in shadow mode differed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DifferenceView {
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// The broker's name of the message.
    pub message_id: String,
    /// What fairness is counted by.
    pub key: String,
    /// What was done.
    pub live: String,
    /// What the policy in shadow mode said.
    pub shadow: String,
}
