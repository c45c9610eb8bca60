//! Times as people read them who look at something that runs.

use serde_json::Value;
use tidegate_model::Timestamp;

/// How long before `now` a time of an answer was, such as `5 min ago`.
pub(super) fn ago(unix_ms: &Value, now: Timestamp) -> String {
    match unix_ms.as_u64() {
        Some(at) => phrase(now.saturating_since(Timestamp::from_unix_millis(at)).as_secs()),
        None => "at an unknown time".to_owned(),
    }
}

/// How long something lasts at `now` that began at a time of an answer, such as `5 min`.
pub(in crate::commands) fn lasting(unix_ms: &Value, now: Timestamp) -> String {
    match unix_ms.as_u64() {
        Some(at) => length(now.saturating_since(Timestamp::from_unix_millis(at)).as_secs()),
        None => "an unknown time".to_owned(),
    }
}

fn phrase(seconds: u64) -> String {
    if seconds == 0 { "just now".to_owned() } else { format!("{} ago", length(seconds)) }
}

fn length(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_grows_with_the_time() {
        let phrases = [0, 1, 119, 120, 7_199, 7_200, 172_799, 172_800].map(phrase);
        assert_eq!(
            phrases,
            [
                "just now",
                "1 s ago",
                "119 s ago",
                "2 min ago",
                "119 min ago",
                "2 h ago",
                "47 h ago",
                "2 days ago"
            ]
        );
    }

    #[test]
    fn a_clock_that_is_behind_the_hosts_gives_no_nonsense() {
        let now = Timestamp::from_unix_millis(10_000);
        assert_eq!(ago(&Value::from(7_000), now), "3 s ago");
        assert_eq!(ago(&Value::from(11_000), now), "just now");
        assert_eq!(ago(&Value::Null, now), "at an unknown time");
    }
}
