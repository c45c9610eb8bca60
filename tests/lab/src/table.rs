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
#[derive(Debug)]
pub(crate) struct Table {
    /// What rates count, in the plural.
    pub(crate) unit: &'static str,
    pub(crate) rows: Vec<Row>,
    /// Pairs of names: the first one's numbers are divided by the second one's, round by round. A broker that gets
    /// quicker from round to round, as a Java program does, then favours nobody.
    pub(crate) ratios: Vec<(String, String)>,
}

/// What is shown of a contestant: medians over its runs, the most memory of any.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Summary {
    rate: f64,
    cpu_per_thousand: Duration,
    resident_peak_bytes: u64,
    first_after: Duration,
    /// Requests for a thousand, and the part of all bytes that acknowledgements are; of clients that count them.
    traffic: Option<(f64, f64)>,
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
            traffic: self.traffic(),
        })
    }

    fn traffic(&self) -> Option<(f64, f64)> {
        let counted = || self.runs.iter().filter_map(|run| run.traffic);
        Some((
            median(counted().map(|traffic| traffic.requests_per_thousand()))?,
            median(counted().map(|traffic| traffic.acknowledgements_of_bytes()))?,
        ))
    }
}

impl Table {
    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The median over the rounds of what one's number is to the other's.
    fn ratio(&self, (left, right): &(String, String), number: impl Fn(&Measured) -> f64) -> Option<f64> {
        let rounds = self.row(left)?.runs.iter().zip(&self.row(right)?.runs);
        median(rounds.map(|(one, other)| number(one) / number(other)))
    }
}

/// Markdown, so that it can be put into a document as it is.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_traffic = self.rows.iter().any(|row| row.traffic().is_some());
        let (head, rule) =
            if has_traffic { (" requests per 1,000 | acks of all bytes |", "---|---|") } else { ("", "") };
        writeln!(
            f,
            "| client | runs | {}/s | CPU ms per 1,000 | memory, peak MB | first after s |{head}",
            self.unit
        )?;
        writeln!(f, "|---|---|---|---|---|---|{rule}")?;
        for row in &self.rows {
            let Some(summary) = row.summary() else {
                let empty = if has_traffic { " | |" } else { "" };
                writeln!(f, "| {} | 0 | | | | |{empty}", row.name)?;
                continue;
            };
            write!(
                f,
                "| {} | {} | {:.0} | {:.2} | {:.0} | {:.1} |",
                row.name,
                row.runs.len(),
                summary.rate,
                summary.cpu_per_thousand.as_secs_f64() * 1_000.0,
                megabytes(summary.resident_peak_bytes),
                summary.first_after.as_secs_f64(),
            )?;
            match summary.traffic {
                Some((requests, share)) => writeln!(f, " {requests:.2} | {:.3} % |", share * 100.0)?,
                None if has_traffic => writeln!(f, " | |")?,
                None => writeln!(f)?,
            }
        }
        writeln!(f)?;
        for pair in &self.ratios {
            let rate = self.ratio(pair, |run| run.rate);
            let cpu = self.ratio(pair, |run| run.cpu_per_thousand.as_secs_f64());
            let memory = self.ratio(pair, |run| megabytes(run.resident_peak_bytes));
            if let (Some(rate), Some(cpu), Some(memory)) = (rate, cpu, memory) {
                let (left, right) = pair;
                writeln!(
                    f,
                    "{left} : {right} = {rate:.2} x the rate, {cpu:.2} x the CPU, {memory:.2} x the memory"
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
    use crate::share::Traffic;

    fn run(rate: f64, cpu_millis: u64, megabytes: u64) -> Measured {
        Measured {
            first_after: Duration::from_secs(1),
            rate,
            cpu_per_thousand: Duration::from_millis(cpu_millis),
            resident_peak_bytes: megabytes * 1_000_000,
            traffic: None,
        }
    }

    #[test]
    fn medians_peaks_and_ratios() {
        let table = Table {
            unit: "messages",
            rows: vec![
                Row {
                    name: "ours".into(),
                    runs: vec![run(6000.0, 100, 20), run(5000.0, 120, 25), run(7000.0, 110, 22)],
                },
                Row {
                    name: "theirs".into(),
                    runs: vec![run(1000.0, 1000, 200), run(1250.0, 1000, 260), run(1000.0, 1000, 200)],
                },
                Row { name: "absent".into(), runs: Vec::new() },
            ],
            ratios: vec![("ours".into(), "theirs".into()), ("ours".into(), "absent".into())],
        };
        let text = table.to_string();
        assert!(text.contains("| ours | 3 | 6000 | 110.00 | 25 | 1.0 |"), "{text}");
        assert!(text.contains("| theirs | 3 | 1000 | 1000.00 | 260 | 1.0 |"), "{text}");
        assert!(
            text.contains("ours : theirs = 6.00 x the rate, 0.11 x the CPU, 0.10 x the memory"),
            "{text}"
        );
        assert!(!text.contains("ours : absent"), "{text}");
    }
    #[test]
    fn traffic_is_shown_of_those_who_count_it() {
        let traffic = Traffic {
            requests: 5,
            bytes: 1_000_000,
            acknowledgement_bytes: 2_000,
            acknowledgement_requests: 0,
            records: 10_000,
        };
        let counted = Measured { traffic: Some(traffic), ..run(6000.0, 100, 20) };
        let table = Table {
            unit: "records",
            rows: vec![
                Row { name: "ours".into(), runs: vec![counted] },
                Row { name: "theirs".into(), runs: vec![run(1000.0, 1000, 200)] },
            ],
            ratios: Vec::new(),
        };
        let text = table.to_string();
        assert!(text.contains("| client | runs | records/s |"), "{text}");
        assert!(text.contains("| ours | 1 | 6000 | 100.00 | 20 | 1.0 | 0.50 | 0.200 % |"), "{text}");
        assert!(text.contains("| theirs | 1 | 1000 | 1000.00 | 200 | 1.0 | | |"), "{text}");
    }
}
