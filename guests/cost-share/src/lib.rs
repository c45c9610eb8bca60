//! The throttle policy `cost-share`: keys that take more than their share of what the work costs are held back, and no
//! others.
//!
//! The cost of a message is what its worker reported with the settlement (tokens, seconds, rows), or else the seconds
//! that the sink had it. The policy is told as an observer how deliveries ended, and keeps in the host's state how much
//! each key has consumed lately and what one of its messages costs. A key is *costly* when what it has consumed, with what
//! its messages in flight are going to cost, is more than its share of the whole. Small keys are never costly, whatever
//! the others do: there is a part that every key may take, and a number of messages that may be chance.
//!
//! A costly key is not stopped but paced: through a token bucket of the host so many of its messages pass as make up its
//! share of the cost, be they few and dear or many and cheap. What has no token is deferred until one is due (see
//! [`tidegate_guest::pace`]). As long as no queue builds up before the workers nobody is costly: what a key takes then it
//! takes from nobody, and holding it back would leave workers idle; one that is alone is costly only when it would fill
//! the host. A message that was deferred for long in all passes anyway.
//!
//! # When to use it instead of `fair-share`
//!
//! When the messages of one tenant cost much more than those of another: prompts, queries, files, crawls. `fair-share`
//! counts messages: a key with nine of them in the host is never noisy, whatever they cost, and a noisy one is held to a
//! rate of messages. Where messages are about alike `fair-share` is the better one: it looks at facts that are there before
//! the first message is done, while a cost is known only afterwards.
//!
//! The fact `key-share` says what part of the flow's last minute a key has taken. That tells who is costly, but not what
//! to do about it: neither how much that was nor how many messages make it up. So this policy counts for itself.
//!
//! # What is not known
//!
//! What a key's messages cost is not known before the first of them is done: until then it may hold a few, and the others
//! are deferred for a moment if workers are short. Costs are counted by policy, not by flow: flows whose costs are of different kinds want
//! a policy each. That a key is ordered is known when it is its messages' lite topic; others that are ordered are paced
//! all the same, but may leave workers idle for a deferral.

mod decay;
mod ledger;
mod queue;
mod share;

use ledger::Ledger;
use queue::{Queue, Shortage};
use share::{Costly, Limits, assess};
use tidegate_guest::pace::Pace;
use tidegate_guest::share::Shares;
use tidegate_guest::{
    Description, Message, Observer, Outcome, RuleError, Rules, Throttle, Verdict, clock, format_rounded,
};

struct CostShare {
    shortage: Shortage,
    limits: Limits,
    ledger: Ledger,
    /// How deferrals are shaped; the rate is each key's own.
    pace: Pace,
    /// A message deferred by so many milliseconds in all passes.
    patience: u64,
}

/// Name of the buckets of costly keys, and of the counters of those that wait.
const COSTLY: &str = "costly";

impl Throttle for CostShare {
    fn describe() -> Description {
        Description::of(
            "cost-share",
            env!("CARGO_PKG_VERSION"),
            "Holds back keys that take more than their share of what the work costs, and no others.",
        )
        .duration("half-life", "After so long what was consumed counts half.", Some("30s"))
        .number("share", "Part of the whole that a key may always take, 0 to 1.", Some(0.1))
        .number("factor", "How many even shares a key may take.", Some(1.5))
        .number(
            "min-excess",
            "Keys that are above their share by fewer average messages are never costly.",
            Some(3.0),
        )
        .number("min-queued", "While fewer messages wait for the workers nobody is costly.", Some(10.0))
        .duration("delay", "The shortest deferral.", Some("250ms"))
        .duration("max-delay", "The longest deferral.", Some("1m"))
        .number("jitter", "Part of a deferral that is left to chance, 0 to 1.", Some(0.2))
        .duration("patience", "A message deferred for so long in all passes.", Some("10m"))
    }

    fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
        let half_life = rules.duration("half-life")?.unwrap_or(30_000);
        if !HALF_LIVES.contains(&half_life) {
            return Err(rules.error("half-life", "must be `1s` to `1d`"));
        }
        let limits = Limits {
            shares: Shares {
                always: rules.number("share", 0.0..=1.0)?.unwrap_or(0.1),
                factor: rules.number("factor", 1.0..=1e6)?.unwrap_or(1.5),
            },
            min_excess: rules.number("min-excess", 0.0..=1e9)?.unwrap_or(3.0),
        };
        let min_queued = rules.number("min-queued", 1.0..=1e9)?.unwrap_or(10.0);
        let delay = rules.duration("delay")?.unwrap_or(250);
        let max_delay = rules.duration("max-delay")?.unwrap_or(60_000);
        if max_delay < delay {
            return Err(rules.error("max-delay", format!("must not be below `delay`, which is {delay} ms")));
        }
        let jitter = rules.number("jitter", 0.0..=1.0)?.unwrap_or(0.2);
        let patience = rules.duration("patience")?.unwrap_or(600_000);
        Ok(Self {
            shortage: Shortage { min_queued, delay },
            limits,
            ledger: Ledger::new(half_life),
            pace: Pace { rate_per_second: 1.0, burst: 1.0, delay, max_delay, jitter },
            patience,
        })
    }

    fn decide(&mut self, message: &Message) -> Verdict {
        let standing = message.standing();
        let deferred = message.deferred();
        let queue = Queue::of_all(&standing);
        if !self.shortage.is_there(&standing, queue) || deferred >= self.patience {
            return self.pass(message, deferred);
        }
        let key = message.key();
        let is_ordered = message.lite_topic().is_some_and(|topic| topic == key);
        let queue = if is_ordered { Queue::of_others(&standing) } else { queue };
        if !self.shortage.is_there(&standing, queue) {
            return self.pass(message, deferred);
        }
        let account = self.ledger.account_of(&key, clock::elapsed());
        let Some(costly) = assess(&self.limits, &standing, &account) else {
            return self.pass(message, deferred);
        };
        let rate_per_second = costly.messages_per_second().max(self.least_rate());
        let pace = Pace { rate_per_second, burst: rate_per_second * BURST, ..self.pace };
        match pace.take(COSTLY, &key, message) {
            None => Verdict::Deliver,
            Some(delay) => {
                let longest = self.longest(&costly, queue, deferred);
                let delay = if delay < longest { delay } else { self.spread(longest, clock::random()) };
                Verdict::defer(delay, costly.reason())
            }
        }
    }
}

impl Observer for CostShare {
    fn observe(&mut self, outcomes: &[Outcome]) {
        self.ledger.charge(outcomes, clock::elapsed());
    }
}

/// What can be told apart from the quarters of a second in which outcomes come, up to a day.
const HALF_LIVES: std::ops::RangeInclusive<u64> = 1_000..=86_400_000;

/// Seconds for which a key may take later what it has not taken. An ordered key has one deferral at a time, and that
/// begins when all before it is done: without this what it may do meanwhile would be lost to it.
const BURST: f64 = 15.0;

impl CostShare {
    /// Lets a message pass that need not be held back.
    fn pass(&self, message: &Message, deferred: u64) -> Verdict {
        if deferred > 0 {
            self.pace.leave(COSTLY, &message.key());
        }
        Verdict::Deliver
    }

    /// Messages a second to which every key may be held: as many as pass by patience.
    fn least_rate(&self) -> f64 {
        1_000.0 / self.patience.max(1_000) as f64
    }

    /// The longest deferral now, in milliseconds.
    ///
    /// What is deferred beyond the end of the queue leaves workers idle, and of what nothing is known more is known soon.
    /// But a queue may be short again and again, and every deferral costs the broker a delivery, of which the host allows
    /// a message so many: so a message may wait as long again as it has waited.
    fn longest(&self, costly: &Costly, queue: Queue, deferred: u64) -> u64 {
        let useful = match costly {
            Costly::Known { .. } => queue.lasts.min(FORESEEN),
            Costly::Unknown { .. } => 0.0,
        };
        useful.max(deferred as f64).max(self.pace.delay as f64).min(self.pace.max_delay as f64) as u64
    }

    /// What becomes of a deferral that is cut, in milliseconds, given a random number: at most half of it is left to chance.
    /// All that is cut at one time would be back at one time, and after the first of it the rest would be deferred again.
    fn spread(&self, longest: u64, random: u64) -> u64 {
        let chance = random as f64 / u64::MAX as f64;
        ((longest as f64 * (1.0 - chance / 2.0)) as u64).max(self.pace.delay)
    }
}

/// How far a queue's end is foreseen, in milliseconds: as far as the fact looks back from which it is reckoned.
const FORESEEN: f64 = 10_000.0;

impl Costly {
    fn messages_per_second(&self) -> f64 {
        match self {
            Self::Known { messages_per_second, .. } => *messages_per_second,
            Self::Unknown { .. } => 0.0,
        }
    }

    fn reason(&self) -> String {
        let percent = |part: f64| format_rounded(part * 100.0, 0);
        match self {
            Self::Known { share, allowed, estimate, .. } => [
                "costly: ",
                &percent(*share),
                " % of the recent cost with what it holds, ",
                &percent(*allowed),
                " % is its share; ",
                &format_rounded(*estimate, 3),
                " a message",
            ]
            .concat(),
            Self::Unknown { held } => {
                ["unknown: it holds ", &held.to_string(), " messages and none is done yet"].concat()
            }
        }
    }
}

tidegate_guest::throttle!(CostShare, observer);

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Costly =
        Costly::Known { share: 0.83, allowed: 0.1, estimate: 12.5, messages_per_second: 0.2 };

    fn configured(rules: &str) -> Result<CostShare, RuleError> {
        CostShare::configure(&mut Rules::parse(rules).unwrap())
    }

    #[test]
    fn a_deferral_is_as_long_as_the_queue_or_as_the_message_has_waited() {
        let policy = configured("{}").unwrap();
        let longest = |lasts, deferred| policy.longest(&KNOWN, Queue { messages: 100.0, lasts }, deferred);
        assert_eq!(longest(2_000.0, 0), 2_000);
        assert_eq!(longest(2_000.0, 7_000), 7_000);
        assert_eq!(longest(10.0, 0), 250, "the shortest");
        assert_eq!(longest(f64::INFINITY, 0), 10_000, "nothing was done lately");
        assert_eq!(longest(f64::INFINITY, 590_000), 60_000, "the longest");
        let unknown = Costly::Unknown { held: 11 };
        let queue = Queue { messages: 100.0, lasts: 2_000.0 };
        assert_eq!(policy.longest(&unknown, queue, 0), 250);
        assert_eq!(policy.longest(&unknown, queue, 600), 600);
    }

    #[test]
    fn what_is_cut_does_not_come_back_at_one_time() {
        let policy = configured("{}").unwrap();
        assert_eq!(
            [0, u64::MAX / 2, u64::MAX].map(|random| policy.spread(10_000, random)),
            [10_000, 7_500, 5_000]
        );
        assert_eq!(policy.spread(300, u64::MAX), 250, "no less than the shortest");
    }

    #[test]
    fn a_key_is_not_held_below_what_patience_lets_pass() {
        assert!((configured("{}").unwrap().least_rate() - 1.0 / 600.0).abs() < 1e-12);
        assert!((configured(r#"{"patience": "0ms"}"#).unwrap().least_rate() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_by_key() {
        for (rules, key) in [
            (r#"{"half-life": "10ms"}"#, "half-life"),
            (r#"{"half-life": "2d"}"#, "half-life"),
            (r#"{"share": 2}"#, "share"),
            (r#"{"factor": 0.5}"#, "factor"),
            (r#"{"min-excess": -1}"#, "min-excess"),
            (r#"{"min-queued": 0}"#, "min-queued"),
            (r#"{"delay": "5s", "max-delay": "1s"}"#, "max-delay"),
        ] {
            assert_eq!(configured(rules).map(|_| ()).unwrap_err().key, key, "{rules}");
        }
    }

    #[test]
    fn the_reason_says_how_much_and_of_what() {
        let expected =
            "costly: 83 % of the recent cost with what it holds, 10 % is its share; 12.500 a message";
        assert_eq!(KNOWN.reason(), expected);
        let expected = "unknown: it holds 11 messages and none is done yet";
        assert_eq!(Costly::Unknown { held: 11 }.reason(), expected);
    }
}
