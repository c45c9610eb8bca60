//! The throttle policy `rate-rules`: an ordered list of rules, the first that fits a message decides about it.
//!
//! A rule has patterns on the lite topic, the key, the tag and properties, and one of: a rate (through token buckets
//! of the host, one per key or one for the rule), a rejection, or free passage. What no rule fits passes.

mod rule;

use rule::{Action, Per, Rule};
use tidegate_guest::{Description, Message, RuleError, Rules, Throttle, Verdict, format_number};

struct RateRules(Vec<Rule>);

impl Throttle for RateRules {
    fn describe() -> Description {
        Description::of(
            "rate-rules",
            env!("CARGO_PKG_VERSION"),
            "Ordered rules: patterns on a message, and a rate, a rejection or free passage.",
        )
        .list("rule", "The rules; the first that fits a message decides about it.")
    }

    fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
        rules.tables("rule")?.into_iter().map(Rule::read).collect::<Result<_, _>>().map(Self)
    }

    fn decide(&mut self, message: &Message) -> Verdict {
        let Some(rule) = self.0.iter().find(|rule| rule.is_for(message)) else { return Verdict::Deliver };
        match &rule.action {
            Action::Deliver => Verdict::Deliver,
            Action::Reject(reason) => Verdict::Reject(reason.clone()),
            Action::Pace { pace, per } => {
                let key = match per {
                    Per::Key => message.key(),
                    Per::Rule => String::new(),
                };
                match pace.take(&rule.bucket, &key) {
                    None => Verdict::Deliver,
                    Some(delay) => {
                        let rate = format_number(pace.rate_per_second);
                        Verdict::defer(delay, ["above ", &rate, " a second"].concat())
                    }
                }
            }
        }
    }
}

tidegate_guest::throttle!(RateRules);
