//! Watches a backlog shrink at the broker while a process eats it, and says how fast that went.

use std::time::Duration;

use tidegate_test_brokers::Usage;
use tokio::time::{Instant, sleep};

use crate::share::Traffic;

/// Short against the seconds that a run takes, long against the milliseconds that one look takes.
const INTERVAL: Duration = Duration::from_millis(100);
/// The first and last of a backlog are left out: connections being made, the last messages trickling.
const FROM: f64 = 0.95;
const TO: f64 = 0.05;
/// Without any progress for so long, the run has failed. The Java client first tells the broker of a wildcard group
/// after up to 45 s.
const PATIENCE: Duration = Duration::from_secs(90);

/// One look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Since the watch began.
    pub(crate) at: Duration,
    /// Messages not acknowledged, as the broker counts.
    pub(crate) open: u64,
    /// What the process had used by then.
    pub(crate) usage: Usage,
}

/// How a run went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    /// From the start of the process to the first message acknowledged at the broker.
    pub(crate) first_after: Duration,
    /// Messages a second, acknowledged at the broker.
    pub(crate) rate: f64,
    /// Processor time of the process for a thousand messages.
    pub(crate) cpu_per_thousand: Duration,
    /// The most memory the process had.
    pub(crate) resident_peak_bytes: u64,
    /// What went over the wire, of clients that count it.
    pub(crate) traffic: Option<Traffic>,
}

/// Why a run gave no numbers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    /// The backlog could not be asked for.
    #[error("the backlog could not be asked for")]
    Unknown(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The process is gone.
    #[error("the process ended before the backlog did, at {open} of {total} messages")]
    Ended {
        /// Left.
        open: u64,
        /// Of so many.
        total: u64,
    },
    /// Nothing moves.
    #[error("no message was acknowledged within {} s, at {open} of {total}", PATIENCE.as_secs())]
    Stuck {
        /// Left.
        open: u64,
        /// Of so many.
        total: u64,
    },
    /// It was over before it could be seen.
    #[error("{total} messages are gone within one look: take more")]
    TooFew {
        /// So many.
        total: u64,
    },
}

/// Looks until nothing is open. `open` asks the broker, or the host for what the broker has confirmed; `process` is who
/// eats.
pub(crate) async fn watch<F, E>(
    total: u64,
    process: u32,
    mut open: impl FnMut() -> F,
) -> Result<Measured, WatchError>
where
    F: Future<Output = Result<u64, E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let started = Instant::now();
    let mut samples: Vec<Sample> = Vec::new();
    let mut moved = (started, total);
    loop {
        let left = open().await.map_err(|error| WatchError::Unknown(error.into()))?;
        // The time of the answer: asking takes its time on a busy broker.
        let now = Instant::now();
        let Ok(usage) = Usage::of(process) else { return Err(WatchError::Ended { open: left, total }) };
        samples.push(Sample { at: now - started, open: left, usage });
        if left == 0 {
            return summarize(total, &samples).ok_or(WatchError::TooFew { total });
        }
        if left < moved.1 {
            moved = (now, left);
        } else if now - moved.0 > PATIENCE {
            return Err(WatchError::Stuck { open: left, total });
        }
        sleep(INTERVAL).await;
    }
}

/// The rate over the middle of the run.
fn summarize(total: u64, samples: &[Sample]) -> Option<Measured> {
    #[allow(clippy::cast_precision_loss, reason = "counts of messages are far below 2^52")]
    let share = |open: u64| open as f64 / total as f64;
    let first = samples.iter().find(|sample| sample.open < total)?;
    let from = samples.iter().find(|sample| share(sample.open) <= FROM)?;
    let to = samples.iter().find(|sample| share(sample.open) <= TO)?;
    let (span, messages) = (to.at.checked_sub(from.at)?, from.open.checked_sub(to.open)?);
    if span.is_zero() || messages == 0 {
        return None;
    }
    #[allow(clippy::cast_precision_loss, reason = "counts of messages are far below 2^52")]
    let messages = messages as f64;
    let cpu = to.usage.cpu.saturating_sub(from.usage.cpu);
    Some(Measured {
        first_after: first.at,
        rate: messages / span.as_secs_f64(),
        cpu_per_thousand: cpu.div_f64(messages / 1000.0),
        resident_peak_bytes: samples.iter().map(|sample| sample.usage.resident_peak_bytes).max()?,
        traffic: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_millis: u64, open: u64, cpu_millis: u64) -> Sample {
        let usage = Usage {
            cpu: Duration::from_millis(cpu_millis),
            resident_peak_bytes: 1000 + at_millis,
            ..Usage::default()
        };
        Sample { at: Duration::from_millis(at_millis), open, usage }
    }

    #[test]
    fn the_middle_of_the_run_counts() {
        let samples = [
            sample(0, 1000, 50),
            sample(40_000, 1000, 900),
            sample(40_100, 900, 1000),
            sample(40_600, 400, 1500),
            sample(41_000, 0, 1900),
        ];
        let measured = summarize(1000, &samples).unwrap();
        assert_eq!(measured.first_after, Duration::from_millis(40_100));
        assert!((measured.rate - 1000.0).abs() < 1e-6, "900 messages in 0.9 s: {measured:?}");
        assert_eq!(measured.cpu_per_thousand, Duration::from_secs(1));
        assert_eq!(measured.resident_peak_bytes, 42_000);
    }

    #[test]
    fn a_run_too_short_to_see_gives_no_number() {
        assert_eq!(summarize(1000, &[sample(0, 1000, 0), sample(100, 0, 10)]), None);
        assert_eq!(summarize(1000, &[sample(0, 1000, 0)]), None);
    }
}
