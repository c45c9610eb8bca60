//! A policy for tests: it panics with the text of the property `panic`, when a message has one.

use tidegate_guest::{Description, Message, RuleError, Rules, Throttle, Verdict};

struct Panicking;

impl Throttle for Panicking {
    fn describe() -> Description {
        Description::of("panicking", env!("CARGO_PKG_VERSION"), "Panics when a message says so.")
    }

    fn configure(_rules: &mut Rules) -> Result<Self, RuleError> {
        Ok(Self)
    }

    fn decide(&mut self, message: &Message) -> Verdict {
        if let Some(text) = message.property("panic") {
            panic!("{text}");
        }
        Verdict::Deliver
    }
}

tidegate_guest::throttle!(Panicking);
