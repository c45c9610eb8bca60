//! What a policy of any world answered, for people and as JSON.

use serde_json::{Value, json};
use tidegate_connector::units::format_duration;
use tidegate_model::{Renewal, Verdict};
use tidegate_policy::Failure;

/// An answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    Verdict(Verdict),
    Renewal(Renewal),
    Partition(u32),
}

impl Answer {
    /// The word for it; a partitioner's is its number.
    pub(super) fn word(&self) -> String {
        match self {
            Self::Verdict(Verdict::Deliver) => "deliver",
            Self::Verdict(Verdict::Defer(_)) => "defer",
            Self::Verdict(Verdict::Reject { .. }) => "reject",
            Self::Verdict(Verdict::Discard { .. }) => "discard",
            Self::Renewal(Renewal::Renew(_)) => "renew",
            Self::Renewal(Renewal::Release) => "release",
            Self::Renewal(Renewal::Lapse) => "lapse",
            Self::Partition(partition) => return partition.to_string(),
        }
        .to_owned()
    }

    /// The delay of a deferral, the length of a renewal.
    pub(super) const fn delay(&self) -> Option<std::time::Duration> {
        match self {
            Self::Verdict(Verdict::Defer(deferral)) => Some(deferral.delay),
            Self::Renewal(Renewal::Renew(length)) => Some(*length),
            _ => None,
        }
    }

    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Self::Verdict(Verdict::Defer(deferral)) => Some(&deferral.reason),
            Self::Verdict(Verdict::Reject { reason } | Verdict::Discard { reason }) => Some(reason),
            _ => None,
        }
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Self::Partition(partition) => json!({ "partition": partition }),
            Self::Verdict(_) | Self::Renewal(_) => {
                let mut object = serde_json::Map::new();
                object.insert("verdict".to_owned(), self.word().into());
                if let Some(delay) = self.delay() {
                    let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                    object.insert("delay-ms".to_owned(), millis.into());
                }
                if let Some(reason) = self.reason() {
                    object.insert("reason".to_owned(), reason.into());
                }
                object.into()
            }
        }
    }
}

/// In one line.
impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Self::Partition(partition) = self {
            return write!(f, "partition {partition}");
        }
        f.write_str(&self.word())?;
        if let Some(delay) = self.delay() {
            write!(f, " {}", format_duration(delay))?;
        }
        match self.reason() {
            Some(reason) if !reason.is_empty() => write!(f, ": {reason}"),
            _ => Ok(()),
        }
    }
}

/// Bytes as people read them.
#[allow(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// A call that failed, in one line.
pub(super) fn failed(failure: &Failure) -> String {
    format!("error ({}): {failure}", failure.cause)
}

/// What came of a call, as JSON.
pub(super) fn json(answer: &Result<Answer, Failure>) -> Value {
    match answer {
        Ok(answer) => answer.json(),
        Err(failure) => json!({ "error": failure }),
    }
}
