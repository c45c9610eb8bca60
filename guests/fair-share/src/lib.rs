//! The throttle policy `fair-share`: keys that take more than their share are held back, and no others.
//!
//! A key is *noisy* when it holds more than its share of what the host has in flight **and** of the recent traffic
//! (of deliveries or of work time). Small keys are never noisy, whatever their share: there is a minimum of messages
//! in flight and of deliveries a second. As long as no queue builds up before the workers nobody is noisy either: what a
//! key takes then it takes from nobody, and holding it back would leave workers idle.
//!
//! A noisy key is not stopped but paced: it gets its share of the flow's rate through a token bucket of the host. What has no token is deferred until one is due (see
//! [`tidegate_guest::pace`]). A message that was deferred for long in all passes anyway.
//!
//! SQS fair queues count the same things (noisy above 10 % of at least 30 in flight, or of the processing time) but
//! only reorder; here a noisy key's messages stay with the broker instead of filling the host.

mod share;

use share::{Limits, assess};
use tidegate_guest::pace::Pace;
use tidegate_guest::share::Shares;
use tidegate_guest::{Description, Message, RuleError, Rules, Throttle, Verdict};

struct FairShare {
    limits: Limits,
    /// Shortest and longest deferral, in milliseconds.
    delay: u64,
    max_delay: u64,
    jitter: f64,
    /// A message deferred by so many milliseconds in all passes.
    patience: u64,
}

impl Throttle for FairShare {
    fn describe() -> Description {
        Description::of(
            "fair-share",
            env!("CARGO_PKG_VERSION"),
            "Holds back keys that take more than their share, and no others.",
        )
        .number("share", "Part of the whole that a key may always take, 0 to 1.", Some(0.1))
        .number("factor", "How many even shares a key may take.", Some(2.0))
        .number("min-in-flight", "Keys with fewer messages in flight are never noisy.", Some(10.0))
        .number("min-queued", "While fewer messages wait for the workers nobody is noisy.", Some(10.0))
        .number(
            "min-rate",
            "Keys with fewer deliveries a second are never noisy, nor paced below it.",
            Some(5.0),
        )
        .duration("delay", "The shortest deferral.", Some("250ms"))
        .duration("max-delay", "The longest deferral.", Some("5s"))
        .number("jitter", "Part of a deferral that is left to chance, 0 to 1.", Some(0.2))
        .duration("patience", "A message deferred for so long in all passes.", Some("10m"))
    }

    fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
        let limits = Limits {
            shares: Shares {
                always: rules.number("share", 0.0..=1.0)?.unwrap_or(0.1),
                factor: rules.number("factor", 1.0..=1e6)?.unwrap_or(2.0),
            },
            min_in_flight: rules.number("min-in-flight", 0.0..=1e9)?.unwrap_or(10.0),
            min_queued: rules.number("min-queued", 0.0..=1e9)?.unwrap_or(10.0),
            min_rate: rules.number("min-rate", 0.001..=1e9)?.unwrap_or(5.0),
        };
        let delay = rules.duration("delay")?.unwrap_or(250);
        let max_delay = rules.duration("max-delay")?.unwrap_or(5_000);
        if max_delay < delay {
            return Err(rules.error("max-delay", format!("must not be below `delay`, which is {delay} ms")));
        }
        let jitter = rules.number("jitter", 0.0..=1.0)?.unwrap_or(0.2);
        let patience = rules.duration("patience")?.unwrap_or(600_000);
        Ok(Self { limits, delay, max_delay, jitter, patience })
    }

    fn decide(&mut self, message: &Message) -> Verdict {
        let Some(noise) = assess(&self.limits, &message.standing()) else { return Verdict::Deliver };
        if message.deferred() >= self.patience {
            return Verdict::Deliver;
        }
        // At four times its share a key waits twice as long: fewer and longer deferrals cost the broker less, and the
        // rate has gone down by four already.
        let delay = (self.delay as f64 * noise.pressure.sqrt()).min(self.max_delay as f64) as u64;
        let pace = Pace {
            rate_per_second: noise.rate_per_second,
            // What may pass after the shortest deferral.
            burst: noise.rate_per_second * delay as f64 / 1_000.0,
            delay,
            max_delay: self.max_delay,
            jitter: self.jitter,
        };
        match pace.take("noisy", &message.key()) {
            None => Verdict::Deliver,
            Some(delay) => Verdict::defer(
                delay,
                format!(
                    "noisy: {:.0} % of what is in flight, {:.0} % of the traffic",
                    noise.held * 100.0,
                    noise.traffic * 100.0
                ),
            ),
        }
    }
}

tidegate_guest::throttle!(FairShare);
