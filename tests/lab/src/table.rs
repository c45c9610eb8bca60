//! The table that is printed.

use std::fmt;
use std::time::Duration;

use crate::watch::Measured;

/// All runs of one contestant.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) runs: Vec<Measured>,
}

/// Rows, and which of them is compared with which.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
    /// Pairs of names: the first one's numbers are divided by the second one's.
    pub(crate) ratios: Vec<(String, String)>,
}

/// What is shown of a contestant: medians over its runs, the most memory of any.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Summary {
    rate: f64,
    cpu_per_thousand: Duration,
    resident_peak_bytes: u64,
    first_after: Duration,
}

impl Row {
    fn summary(&self) -> Option<Summary> {
        Some(Summary {
            rate: median(self.runs.iter().map(|run| run.rate))?,
            cpu_per_thousand: Duration::from_secs_f64(median(
                self.runs.iter().map(|run| run.cpu_per_thousand.as_secs_f64()),
            )?),
            resident_peak_bytes: self.runs.iter().map(|run| run.resident_peak_bytes).max()?,
            first_after: Duration::from_secs_f64(median(
                self.runs.iter().map(|run| run.first_after.as_secs_f64()),
            )?),
        })
    }
}

impl Table {
    fn summary(&self, name: &str) -> Option<Summary> {
        self.rows.iter().find(|row| row.name == name)?.summary()
    }
}

/// Markdown, so that it can be put into a document as it is.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| client | runs | messages/s | CPU s per 1,000 | memory, peak MB | first after s |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let Some(summary) = row.summary() else {
                writeln!(f, "| {} | 0 | | | | |", row.name)?;
                continue;
            };
            writeln!(
                f,
                "| {} | {} | {:.0} | {:.3} | {:.0} | {:.1} |",
                row.name,
                row.runs.len(),
                summary.rate,
                summary.cpu_per_thousand.as_secs_f64(),
                megabytes(summary.resident_peak_bytes),
                summary.first_after.as_secs_f64(),
            )?;
        }
        writeln!(f)?;
        for (left, right) in &self.ratios {
            if let (Some(one), Some(other)) = (self.summary(left), self.summary(right)) {
                writeln!(
                    f,
                    "{left} : {right} = {:.2} x the rate, {:.2} x the CPU, {:.2} x the memory",
                    one.rate / other.rate,
                    one.cpu_per_thousand.as_secs_f64() / other.cpu_per_thousand.as_secs_f64(),
                    megabytes(one.resident_peak_bytes) / megabytes(other.resident_peak_bytes),
                )?;
            }
        }
        Ok(())
    }
}

fn megabytes(bytes: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "shown without decimals")]
    let bytes = bytes as f64;
    bytes / 1e6
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rate: f64, cpu_millis: u64, megabytes: u64) -> Measured {
        Measured {
            first_after: Duration::from_secs(1),
            rate,
            cpu_per_thousand: Duration::from_millis(cpu_millis),
            resident_peak_bytes: megabytes * 1_000_000,
        }
    }

    #[test]
    fn medians_peaks_and_ratios() {
        let table = Table {
            rows: vec![
                Row {
                    name: "ours".into(),
                    runs: vec![run(6000.0, 100, 20), run(5000.0, 120, 25), run(7000.0, 110, 22)],
                },
                Row { name: "theirs".into(), runs: vec![run(1000.0, 900, 250), run(1200.0, 1100, 260)] },
                Row { name: "absent".into(), runs: Vec::new() },
            ],
            ratios: vec![("ours".into(), "theirs".into()), ("ours".into(), "absent".into())],
        };
        let text = table.to_string();
        assert!(text.contains("| ours | 3 | 6000 | 0.110 | 25 | 1.0 |"), "{text}");
        assert!(text.contains("| theirs | 2 | 1100 | 1.000 | 260 | 1.0 |"), "{text}");
        assert!(
            text.contains("ours : theirs = 5.45 x the rate, 0.11 x the CPU, 0.10 x the memory"),
            "{text}"
        );
        assert!(!text.contains("ours : absent"), "{text}");
    }
}
