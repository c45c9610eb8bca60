//! The policy `{{name}}`: holds back a key that is too busy.
//!
//! `describe` says what `rules.toml` may set, `configure` reads it, `decide` is asked about each message. The fields of
//! the policy are a cache: the host makes fresh instances whenever it likes. What must be remembered goes into the host's
//! [`state`](tidegate_guest::state). Durations are milliseconds.

use tidegate_guest::{Description, Message, RuleError, Rules, Throttle, Verdict};

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Policy {
    limit: f64,
    /// Milliseconds.
    delay: u64,
    attempts: i64,
}

impl Policy {
    /// Whether a message may pass. Apart from `decide`, so that it can be tested without a host.
    fn passes(&self, key_rate: f64, attempt: u32) -> bool {
        key_rate <= self.limit || i64::from(attempt) >= self.attempts
    }
}

impl Throttle for Policy {
    fn describe() -> Description {
        Description::of(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            "Holds back a key that is too busy.",
        )
        .number("limit", "Deliveries of one key a second.", Some(100.0))
        .duration("delay", "For how long a message of a busy key is held back.", Some("1s"))
        .integer("attempts", "A message handed out so often is delivered, however busy its key is.", Some(5))
    }

    fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
        Ok(Self {
            limit: rules.number("limit", 0.0..=1e6)?.unwrap_or(100.0),
            delay: rules.duration("delay")?.unwrap_or(1_000),
            attempts: rules.integer("attempts", 1..=i64::MAX)?.unwrap_or(5),
        })
    }

    fn decide(&mut self, message: &Message) -> Verdict {
        if self.passes(message.standing().key_rate, message.attempt()) {
            return Verdict::Deliver;
        }
        Verdict::defer(self.delay, format!("{} is busy", message.key()))
    }
}

tidegate_guest::throttle!(Policy);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_key_waits_until_its_last_attempt() {
        let policy = Policy::configure(&mut Rules::parse(r#"{"limit": 10, "attempts": 3}"#).unwrap()).unwrap();
        assert!(policy.passes(10.0, 1));
        assert!(!policy.passes(10.1, 2));
        assert!(policy.passes(10.1, 3));
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_by_key() {
        let refused = Policy::configure(&mut Rules::parse(r#"{"attempts": 0}"#).unwrap()).unwrap_err();
        assert_eq!(refused.key, "attempts");
    }
}
