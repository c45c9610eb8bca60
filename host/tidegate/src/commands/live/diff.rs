//! `tidegate policy diff`: what a policy in shadow mode would have done.

use serde_json::Value;
use tidegate_model::Timestamp;

use super::ago::ago;
use super::{YELLOW, table, text};
use crate::output::Output;

/// Keys and messages that are shown; `--json` has more of them.
const KEYS_SHOWN: usize = 10;
const MESSAGES_SHOWN: usize = 20;

pub(super) fn show(body: &Value, now: Timestamp, output: &Output) {
    let flow = text(&body["flow"]);
    let comparisons = body["comparisons"].as_array().map(Vec::as_slice).unwrap_or_default();
    if comparisons.is_empty() {
        output.data(&format!(
            "{flow}: nothing is compared; give the flow a `shadow` policy, or its policy `mode = \"shadow\"`, and send \
             messages"
        ));
    }
    for comparison in comparisons {
        let (compared, differing) = (count(&comparison["compared"]), count(&comparison["differing"]));
        output.data(&format!(
            "{flow}, shadow {}: {compared} compared, {differing} differ ({})",
            text(&comparison["policy"]),
            share(differing, compared)
        ));
        let pairs = comparison["pairs"].as_array().into_iter().flatten();
        let mut rows = vec![["  DONE", "SHADOW", "COUNT"].map(str::to_owned).to_vec()];
        let mut differ = vec![false];
        for pair in pairs {
            let (live, shadow) = (text(&pair["live"]), text(&pair["shadow"]));
            rows.push(vec![format!("  {live}"), shadow.to_owned(), pair["count"].to_string()]);
            differ.push(live != shadow);
        }
        for (line, differs) in table::lines(&rows).iter().zip(differ) {
            output.data(&if differs { output.paint(YELLOW, line) } else { line.clone() });
        }
        show_keys(comparison, output);
        show_differences(comparison, now, output);
    }
}

fn show_keys(comparison: &Value, output: &Output) {
    let keys = comparison["keys"].as_array().map(Vec::as_slice).unwrap_or_default();
    if keys.is_empty() {
        return;
    }
    let shown = keys.iter().take(KEYS_SHOWN).map(|key| format!("{} {}", text(&key["key"]), key["count"]));
    let mut line = shown.collect::<Vec<_>>().join(", ");
    if let Some(more) = keys.len().checked_sub(KEYS_SHOWN).filter(|more| *more > 0) {
        line.push_str(&format!(", and {more} more"));
    }
    output.data(&format!("  keys that differ: {line}"));
}

fn show_differences(comparison: &Value, now: Timestamp, output: &Output) {
    let differences = comparison["differences"].as_array().map(Vec::as_slice).unwrap_or_default();
    if differences.is_empty() {
        return;
    }
    output.data("  the last messages that differ");
    let rows: Vec<_> = differences
        .iter()
        .skip(differences.len().saturating_sub(MESSAGES_SHOWN))
        .map(|difference| {
            vec![
                format!("    {}", ago(&difference["at-unix-ms"], now)),
                text(&difference["message-id"]).to_owned(),
                text(&difference["key"]).to_owned(),
                format!("{} -> {}", text(&difference["live"]), text(&difference["shadow"])),
            ]
        })
        .collect();
    for line in table::lines(&rows) {
        output.data(&line);
    }
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// A part of a whole in per cent.
fn share(part: u64, whole: u64) -> String {
    // In hundredths, rounded; counts are far from 2^64.
    let hundredths = part.saturating_mul(10_000).saturating_add(whole / 2).checked_div(whole).unwrap_or(0);
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_in_per_cent() {
        assert_eq!(share(0, 0), "0.00 %");
        assert_eq!(share(1, 3), "33.33 %");
        assert_eq!(share(2, 3), "66.67 %");
        assert_eq!(share(7, 7), "100.00 %");
    }
}
