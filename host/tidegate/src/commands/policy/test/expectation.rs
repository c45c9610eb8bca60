//! What a case expects of an answer.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use tidegate_connector::options::nearest;
use tidegate_connector::units::{format_duration, parse_duration};
use tidegate_policy::Failure;

use super::super::answer::{Answer, failed};
use super::super::fields::Fields;

/// The answers that policies of all worlds give.
const WORDS: [&str; 8] = ["deliver", "defer", "reject", "discard", "renew", "release", "lapse", "error"];

/// What is expected.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expectation {
    /// Of every answer.
    Each { word: String, delay: Option<Delay>, reason: Option<String>, cause: Option<String> },
    /// So many of each.
    Counts(BTreeMap<String, u64>),
}

/// From and to, both included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Delay {
    from: Duration,
    to: Option<Duration>,
}

impl Expectation {
    pub(super) fn read(fields: &mut Fields<'_>, times: u32) -> Option<Self> {
        let delay = read_delay(fields);
        let reason = fields.text("reason");
        let cause = fields.text("cause");
        match fields.take("expect") {
            Some(Value::String(word)) if WORDS.contains(&&*word) => {
                if cause.is_some() && word != "error" {
                    fields.complain("cause", "goes with `expect = \"error\"`");
                }
                Some(Self::Each { word, delay, reason, cause })
            }
            Some(Value::Number(partition)) if partition.as_u64().is_some() => {
                Some(Self::Each { word: partition.to_string(), delay, reason, cause })
            }
            Some(Value::Object(counts)) => read_counts(fields, &counts, times),
            Some(Value::String(word)) => {
                let near = nearest(&word, WORDS).map(|near| format!(", did you mean `{near}`?"));
                let known = near.unwrap_or_else(|| format!("; known are `{}`", WORDS.join("`, `")));
                fields.complain("expect", format_args!("`{word}` is no answer{known}"));
                None
            }
            Some(_) => {
                fields.complain("expect", "must be an answer, a partition, or a table of counts");
                None
            }
            None => {
                fields.complain("expect", format_args!("is missing: one of `{}`", WORDS.join("`, `")));
                None
            }
        }
    }

    /// What is not as expected. One line for each answer, or one for wrong counts.
    pub(super) fn differences(
        &self,
        place: &str,
        answers: &[(Duration, Result<Answer, Failure>)],
    ) -> Vec<String> {
        match self {
            Self::Each { .. } => {
                let differ = answers.iter().enumerate().filter(|(_, (_, answer))| !self.fits(answer));
                let line = |(n, (at, answer)): (usize, &(Duration, Result<Answer, Failure>))| {
                    let time = if answers.len() > 1 { format!(", time {}", n + 1) } else { String::new() };
                    let got = answer.as_ref().map_or_else(failed, ToString::to_string);
                    format!("{place}{time}, at {}: expected {self}, got {got}", format_duration(*at))
                };
                differ.map(line).collect()
            }
            Self::Counts(expected) => {
                let mut counts = BTreeMap::new();
                for (_, answer) in answers {
                    *counts.entry(word(answer)).or_insert(0_u64) += 1;
                }
                if counts == *expected {
                    return Vec::new();
                }
                vec![format!("{place}: expected {self}, got {}", shown(&counts))]
            }
        }
    }

    fn fits(&self, answer: &Result<Answer, Failure>) -> bool {
        let Self::Each { word: expected, delay, reason, cause } = self else { return true };
        if word(answer) != *expected {
            return false;
        }
        match answer {
            Err(failure) => {
                let text = failure.to_string();
                cause.as_ref().is_none_or(|cause| failure.cause.label() == cause)
                    && reason.as_ref().is_none_or(|reason| text.contains(reason.as_str()))
            }
            Ok(answer) => {
                delay.is_none_or(|delay| answer.delay().is_some_and(|is| delay.has(is)))
                    && reason
                        .as_ref()
                        .is_none_or(|reason| answer.reason().is_some_and(|is| is.contains(reason.as_str())))
            }
        }
    }
}

fn word(answer: &Result<Answer, Failure>) -> String {
    answer.as_ref().map_or_else(|_| "error".to_owned(), Answer::word)
}

fn shown(counts: &BTreeMap<String, u64>) -> String {
    counts.iter().map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

fn read_counts(
    fields: &mut Fields<'_>,
    counts: &serde_json::Map<String, Value>,
    times: u32,
) -> Option<Expectation> {
    let mut read = BTreeMap::new();
    for (word, count) in counts {
        match count.as_u64() {
            Some(0) => {}
            Some(count) => drop(read.insert(word.clone(), count)),
            None => {
                fields.complain("expect", format_args!("`{word}` must have a number, not {count}"));
                return None;
            }
        }
    }
    if read.values().sum::<u64>() != u64::from(times) {
        fields.complain("expect", format_args!("the counts must make {times} in all, as `times` says"));
        return None;
    }
    Some(Expectation::Counts(read))
}

/// `250ms`, `1s..2s`, `1s..` or `..2s`.
fn read_delay(fields: &mut Fields<'_>) -> Option<Delay> {
    let text = fields.text("delay")?;
    let delay = match text.split_once("..") {
        None => parse_duration(&text).map(|exact| Delay { from: exact, to: Some(exact) }),
        Some((from, to)) => {
            bound(from).and_then(|from| Ok(Delay { from: from.unwrap_or_default(), to: bound(to)? }))
        }
    };
    match delay {
        Ok(delay) => Some(delay),
        Err(error) => {
            fields.complain("delay", error);
            None
        }
    }
}

fn bound(text: &str) -> Result<Option<Duration>, tidegate_connector::units::UnitError> {
    let text = text.trim();
    if text.is_empty() { Ok(None) } else { parse_duration(text).map(Some) }
}

impl Delay {
    fn has(self, delay: Duration) -> bool {
        self.from <= delay && self.to.is_none_or(|to| delay <= to)
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = format_duration(self.from);
        match self.to {
            Some(to) if to == self.from => f.write_str(&from),
            Some(to) => write!(f, "{from}..{}", format_duration(to)),
            None => write!(f, "{from}.."),
        }
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Each { word, delay, reason, cause } => {
                f.write_str(word)?;
                if let Some(cause) = cause {
                    write!(f, " ({cause})")?;
                }
                if let Some(delay) = delay {
                    write!(f, " {delay}")?;
                }
                match reason {
                    Some(reason) => write!(f, " with {reason:?}"),
                    None => Ok(()),
                }
            }
            Self::Counts(counts) => f.write_str(&shown(counts)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_model::{Deferral, Verdict};

    use super::*;

    fn read(value: Value, times: u32) -> Result<Expectation, Vec<String>> {
        let mut mistakes = Vec::new();
        let mut fields = Fields::new("m", value, &mut mistakes).unwrap();
        let read = Expectation::read(&mut fields, times);
        fields.end();
        if mistakes.is_empty() { Ok(read.unwrap()) } else { Err(mistakes) }
    }

    fn deferral(millis: u64) -> (Duration, Result<Answer, Failure>) {
        let delay = Duration::from_millis(millis);
        (Duration::ZERO, Ok(Answer::Verdict(Verdict::Defer(Deferral { delay, reason: "no tokens".into() }))))
    }

    #[test]
    fn delays_are_exact_or_ranges() {
        let fits = |delay: &str, millis| {
            let expect = read(json!({ "expect": "defer", "delay": delay }), 1).unwrap();
            expect.differences("m", &[deferral(millis)]).is_empty()
        };
        assert!(fits("250ms", 250) && !fits("250ms", 251));
        assert!(
            fits("1s..2s", 1_000) && fits("1s..2s", 2_000) && !fits("1s..2s", 999) && !fits("1s..2s", 2_001)
        );
        assert!(fits("1s..", 90_000) && !fits("1s..", 999));
        assert!(fits("..1s", 0) && !fits("..1s", 1_001));
    }

    #[test]
    fn differences_say_what_was_expected_and_what_came() {
        let expect = read(json!({ "expect": "defer", "delay": "1s..2s", "reason": "share" }), 1).unwrap();
        let lines = expect.differences("message[0]", &[deferral(1_500)]);
        assert_eq!(
            lines,
            ["message[0], at 0s: expected defer 1s..2s with \"share\", got defer 1s500ms: no tokens"]
        );
        let expect = read(json!({ "expect": { "deliver": 1, "defer": 1, "reject": 0 } }), 2).unwrap();
        let lines = expect.differences("message[0]", &[deferral(1), deferral(2)]);
        assert_eq!(lines, ["message[0]: expected 1 defer, 1 deliver, got 2 defer"]);
    }

    #[test]
    fn mistakes_are_told() {
        let mistake = |value, times| read(value, times).unwrap_err().remove(0);
        assert!(mistake(json!({}), 1).starts_with("m.expect: is missing"));
        assert!(mistake(json!({ "expect": "delivr" }), 1).contains("did you mean `deliver`?"));
        assert!(mistake(json!({ "expect": { "deliver": 3 } }), 2).contains("2 in all"));
        assert!(mistake(json!({ "expect": "defer", "delay": "soon.." }), 1).starts_with("m.delay: "));
        assert!(mistake(json!({ "expect": "defer", "cause": "panic" }), 1).starts_with("m.cause: "));
    }
}
