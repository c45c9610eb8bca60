//! What the demo shows: a line of bars per phase, and the account at the end.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use tidegate_admin::PairCount;
use tidegate_policy::{Comparison, EndCause};

use super::worker::Tally;
use crate::inspect::pair_counts;
use crate::output::{Output, pair_line};

/// One phase in numbers.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Phase {
    pub(super) title: &'static str,
    pub(super) quiet_p50_ms: u64,
    pub(super) quiet_p99_ms: u64,
    pub(super) quiet_per_second: f64,
    pub(super) hot_per_second: f64,
}

/// The whole demo in numbers.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Account {
    pub(super) phases: Vec<Phase>,
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) deferred: u64,
    pub(super) delivered: u64,
    pub(super) acknowledged: u64,
    pub(super) lost: u64,
    /// What the policy of `--shadow` would have done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shadow: Option<Shadowed>,
    /// What `--record` wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recording: Option<Recorded>,
    /// Promises that were broken, in words; empty when all is well.
    pub(super) broken: Vec<String>,
}

/// What a policy would have done beside what was done.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Shadowed {
    compared: u64,
    differing: u64,
    pairs: Vec<PairCount>,
}

/// A recording that was written.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Recorded {
    pub(super) file: PathBuf,
    pub(super) end: EndCause,
    pub(super) recorded: u64,
    pub(super) missed: u64,
}

/// Times that a bar of full length stands for, and its length in characters.
const BAR_FULL_MS: u64 = 4_000;
const BAR_FULL_RATE: f64 = 300.0;
const BAR_CHARS: usize = 24;

impl Phase {
    pub(super) fn new(title: &'static str, tally: &Tally, length: Duration) -> Self {
        let seconds = length.as_secs_f64();
        let per_second = |count: u64| (count as f64 / seconds * 10.0).round() / 10.0;
        Self {
            title,
            quiet_p50_ms: tally.quiet_ms.value_at_quantile(0.50),
            quiet_p99_ms: tally.quiet_ms.value_at_quantile(0.99),
            quiet_per_second: per_second(tally.quiet_ms.len()),
            hot_per_second: per_second(tally.hot),
        }
    }

    pub(super) fn show(&self, output: &Output) {
        const GREEN: u8 = 32;
        const RED: u8 = 31;
        const YELLOW: u8 = 33;
        let time = |label: &str, millis: u64| {
            let colour = if millis >= 500 { RED } else { GREEN };
            let bar = output.paint(colour, &bar(millis as f64 / BAR_FULL_MS as f64));
            output.data(&format!("    quiet tenants {label}  {:>8}  {bar}", millis_text(millis)));
        };
        time("p50", self.quiet_p50_ms);
        time("p99", self.quiet_p99_ms);
        let bar = output.paint(YELLOW, &bar(self.hot_per_second / BAR_FULL_RATE));
        output.data(&format!("    hot tenant         {:>7.0}/s  {bar}", self.hot_per_second));
    }
}

impl Account {
    pub(super) fn show(&self, output: &Output) {
        output.data(&format!(
            "messages sent {}   received {}   deferred {}   delivered {}   acknowledged {}   lost {}",
            self.sent, self.received, self.deferred, self.delivered, self.acknowledged, self.lost
        ));
        if let Some(shadow) = &self.shadow {
            shadow.show(output);
        }
        if let Some(Recorded { file, recorded, missed, .. }) = &self.recording {
            let missing = if *missed > 0 { format!("; {missed} are missing") } else { String::new() };
            output.data(&format!("{recorded} decisions in {}{missing}", file.display()));
        }
        for broken in &self.broken {
            output.data(&format!("broken promise: {broken}"));
        }
    }
}

impl Shadowed {
    pub(super) fn of(comparison: &Comparison) -> Self {
        Self {
            compared: comparison.compared,
            differing: comparison.differing(),
            pairs: pair_counts(comparison),
        }
    }

    fn show(&self, output: &Output) {
        output.data(&format!(
            "the rules of --shadow would have decided differently about {} of {} messages",
            self.differing, self.compared
        ));
        for PairCount { live, shadow, count } in &self.pairs {
            output.data(&pair_line(live, shadow, *count));
        }
    }
}

fn millis_text(millis: u64) -> String {
    if millis < 1_000 { format!("{millis} ms") } else { format!("{:.2} s", millis as f64 / 1_000.0) }
}

/// A bar of `share` of the full length, at least a sliver, with eighths of a character.
fn bar(share: f64) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (share.clamp(0.0, 1.0) * (BAR_CHARS * 8) as f64).round().max(1.0) as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    if share > 1.0 {
        bar.push('▶');
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_with_their_share() {
        assert_eq!(bar(0.0), "▏");
        assert_eq!(bar(0.5).chars().count(), BAR_CHARS / 2);
        assert_eq!(bar(1.0), "█".repeat(BAR_CHARS));
        assert!(bar(1.5).ends_with('▶'));
    }
}
