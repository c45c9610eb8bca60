//! What recordings and taps are asked to have in them.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

/// What is to be recorded.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RecordingWanted {
    /// The longest that it takes: above zero and at most [`Self::LENGTH_MAX`].
    #[serde(rename = "length-ms", with = "length")]
    pub length: Duration,
    /// The most decisions in it; as many as there are when not given.
    pub count: Option<u64>,
    /// The part of all keys that is in it, above 0 and at most 1.
    #[serde(deserialize_with = "part")]
    pub sample: f64,
    /// Names of properties whose values are masked; `*` at the end of one stands for any ending.
    pub mask: Vec<String>,
    /// Whether keys, lite topics and groups become hashes.
    pub mask_keys: bool,
    /// Bytes of a body that are recorded; 0 for none.
    pub body_bytes: usize,
}

impl RecordingWanted {
    /// Longer ones are asked for in pieces.
    pub const LENGTH_MAX: Duration = Duration::from_secs(60 * 60);

    /// Whether a recording may take so long, which is counted in milliseconds.
    #[must_use]
    pub fn takes(length: Duration) -> bool {
        (Duration::from_millis(1)..=Self::LENGTH_MAX).contains(&length)
    }

    /// Whether that is a part of all keys to record.
    #[must_use]
    pub fn samples(part: f64) -> bool {
        part > 0.0 && part <= 1.0
    }
}

impl Default for RecordingWanted {
    fn default() -> Self {
        Self {
            length: Duration::from_secs(60),
            count: None,
            sample: 1.0,
            mask: Vec::new(),
            mask_keys: false,
            body_bytes: 4 << 10,
        }
    }
}

/// What is to be shown.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct TapWanted {
    /// The longest that it takes: as that of a recording.
    #[serde(rename = "length-ms", with = "length")]
    pub length: Duration,
    /// The most decisions that are shown; as many as there are when not given.
    pub count: Option<u64>,
    /// The part of all keys that is shown, above 0 and at most 1.
    #[serde(deserialize_with = "part")]
    pub sample: f64,
    /// Only this key; `*` at its end stands for any ending.
    pub key: Option<String>,
    /// Only these verdicts; all of them when there is none.
    pub verdicts: Vec<Verdict>,
    /// Names of properties whose values are masked; `*` at the end of one stands for any ending.
    pub mask: Vec<String>,
    /// Whether keys, lite topics and groups become hashes.
    pub mask_keys: bool,
    /// Bytes of a body that are shown; 0 for none.
    pub body_bytes: usize,
}

/// What became of a message, in a word.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Handed to the sink.
    Deliver,
    /// Given back for a while.
    Defer,
    /// Dead-lettered.
    Reject,
    /// Settled without a sink.
    Discard,
    /// Undecided: the policy failed and its `on-error` stops the flow.
    Stop,
}

impl Default for TapWanted {
    fn default() -> Self {
        Self {
            length: Duration::from_secs(60),
            count: None,
            sample: 1.0,
            key: None,
            verdicts: Vec::new(),
            mask: Vec::new(),
            mask_keys: false,
            body_bytes: 256,
        }
    }
}

mod length {
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::RecordingWanted;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let length = Duration::from_millis(u64::deserialize(from)?);
        if RecordingWanted::takes(length) {
            return Ok(length);
        }
        let max = RecordingWanted::LENGTH_MAX.as_millis();
        Err(D::Error::custom(format!("`length-ms` must be above 0 and at most {max}")))
    }

    pub(super) fn serialize<S: Serializer>(length: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
    }
}

fn part<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let part = f64::deserialize(from)?;
    if RecordingWanted::samples(part) {
        Ok(part)
    } else {
        Err(serde::de::Error::custom("`sample` must be above 0 and at most 1"))
    }
}
