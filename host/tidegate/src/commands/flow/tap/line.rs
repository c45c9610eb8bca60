//! The lines of a tap, for people.

use serde_json::Value;

use crate::commands::live::{GREEN, RED, YELLOW, text};
use crate::output::Output;

/// Columns that stand below each other as long as what is in them is short.
const TIME_WIDTH: usize = 12;
const KEY_WIDTH: usize = 20;
const ATTEMPT_WIDTH: usize = 3;
const VERDICT_WIDTH: usize = 16;
const ID_WIDTH: usize = 34;

/// What stands above them.
pub(super) fn head() -> String {
    columns("TIME (UTC)", "KEY", "TRY", "VERDICT", "MESSAGE", "WHAT")
}

/// A decision, or how a delivery ended that was shown.
pub(super) fn of(line: &Value, output: &Output) -> String {
    let id = printable(text(&line["message-id"]));
    let attempt = line["attempt"].to_string();
    if let Some(ended) = line["ended"].as_str() {
        let what = format!("after {} ms with the sink", line["spent-ms"]);
        return columns("", "", &attempt, &format!("> {ended}"), &id, &what);
    }
    let verdict = text(&line["verdict"]);
    let delay = line["delay-ms"].as_u64().map_or_else(String::new, |millis| format!(" {millis} ms"));
    let time = line["at-unix-ms"].as_u64().map_or_else(String::new, time_of_day);
    let shown = columns(
        &time,
        &printable(text(&line["key"])),
        &attempt,
        &format!("{verdict}{delay}"),
        &id,
        &what(line),
    );
    output.paint(
        match verdict {
            "deliver" => GREEN,
            "defer" | "discard" => YELLOW,
            _ => RED,
        },
        &shown,
    )
}

/// Why, and the beginning of the body.
fn what(line: &Value) -> String {
    let reason = text(&line["reason"]);
    let on_error = line["on-error"].as_str().map(|cause| format!("on-error ({cause})"));
    let body = body(line);
    let parts = [on_error.unwrap_or_default(), printable(reason), body];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" | ")
}

fn body(line: &Value) -> String {
    let bytes = line["body-bytes"].as_u64().unwrap_or(0);
    match line["body"]["text"].as_str() {
        Some("") => String::new(),
        Some(shown) => {
            let rest = if (shown.len() as u64) < bytes { "…" } else { "" };
            format!("{}{rest}", printable(shown))
        }
        None => format!("({bytes} bytes, not text)"),
    }
}

fn columns(time: &str, key: &str, attempt: &str, verdict: &str, id: &str, what: &str) -> String {
    let line = format!(
        "{time:<TIME_WIDTH$}  {key:<KEY_WIDTH$}  {attempt:>ATTEMPT_WIDTH$}  {verdict:<VERDICT_WIDTH$}  {id:<ID_WIDTH$}  \
         {what}"
    );
    line.trim_end().to_owned()
}

/// A message must not steer the terminal of whoever looks at it.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}

fn time_of_day(unix_ms: u64) -> String {
    let (seconds, millis) = (unix_ms / 1_000 % 86_400, unix_ms % 1_000);
    format!("{:02}:{:02}:{:02}.{millis:03}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_for_each_decision_and_each_ending() {
        let output = Output::new(false);
        let deferred = json!({
            "at-unix-ms": 1_764_450_061_007_u64, "verdict": "defer", "delay-ms": 250, "reason": "busy",
            "origin": "policy", "key": "tenant-7", "attempt": 2, "message-id": "01AB",
            "body": { "text": "{\"a\":" }, "body-bytes": 900,
        });
        let failed = json!({
            "at-unix-ms": 0, "verdict": "deliver", "origin": "on-error", "on-error": "timeout", "key": "k",
            "attempt": 1, "message-id": "02", "body": { "base64": "AAE=" }, "body-bytes": 2,
        });
        let ended = json!({ "ended": "accepted", "message-id": "02", "attempt": 1, "spent-ms": 12 });
        let lines = [head(), of(&deferred, &output), of(&failed, &output), of(&ended, &output)];
        insta::assert_snapshot!(lines.join("\n"), @r#"
        TIME (UTC)    KEY                   TRY  VERDICT           MESSAGE                             WHAT
        21:01:01.007  tenant-7                2  defer 250 ms      01AB                                busy | {"a":…
        00:00:00.000  k                       1  deliver           02                                  on-error (timeout) | (2 bytes, not text)
                                              1  > accepted        02                                  after 12 ms with the sink
        "#);
    }

    #[test]
    fn a_message_does_not_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\r\nc\u{9b}d é"), "a·[2Jb··c·d é");
    }
}
