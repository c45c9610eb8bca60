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
//! share of the cost, be they few and dear or many and cheap. What has no token is deferred, and comes back one after
//! another (see the module `line`), so that workers who would be idle always find something. As long as no queue builds up
//! before the workers nobody is costly: what a key takes then it takes from nobody, and holding it back would leave workers
//! idle; one that is alone is costly only when it would fill the host. A message that was deferred for long in all passes
//! anyway.
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
//! What a key's messages cost is not known before the first of them is done: until then a few pass, and the others are
//! deferred for a moment if workers are short. Costs are counted by policy, not by flow: flows whose costs are of different
//! kinds want a policy each. That a key is ordered is known when it is its messages' lite topic; others that are ordered
//! are paced all the same, but may leave workers idle for a deferral.

mod decay;
mod ledger;
mod line;
mod queue;
mod share;

use ledger::{Account, Ledger, Typical};
use line::Line;
use queue::{Queue, Shortage, others_last, workers};
use share::{Costly, Limits, UNKNOWN_MAX, assess};
use tidegate_guest::share::Shares;
use tidegate_guest::{
    Description, Message, Observer, Outcome, RuleError, Rules, Standing, Throttle, Verdict, clock,
    format_rounded, state,
};

struct CostShare {
    shortage: Shortage,
    limits: Limits,
    ledger: Ledger,
    line: Line,
    /// Part of a deferral that is left to chance, 0 to 1.
    jitter: f64,
    /// A message deferred by so many milliseconds in all passes.
    patience: u64,
}

/// Names of the buckets: of costly keys, and of those of which nothing is known.
const COSTLY: &str = "costly";
const UNKNOWN: &str = "unknown";

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
            line: Line { shortest: delay, longest: max_delay },
            jitter,
            patience,
        })
    }

    fn decide(&mut self, message: &Message) -> Verdict {
        let standing = message.standing();
        let queue = Queue::of_all(&standing);
        if !self.shortage.is_there(&standing, queue) || message.deferred() >= self.patience {
            return Verdict::Deliver;
        }
        let key = message.key();
        let is_ordered = message.lite_topic().is_some_and(|topic| topic == key);
        if is_ordered && !self.shortage.is_there(&standing, Queue::of_others(&standing)) {
            return Verdict::Deliver;
        }
        let now = clock::elapsed();
        let account = self.ledger.account_of(&key, now);
        let asked = Asked { now, key: &key, is_ordered, deferred: message.deferred(), standing, account };
        let costly = assess(&self.limits, &standing, &account);
        let delay = match &costly {
            None => None,
            Some(Costly::Unknown { .. }) => self.hold_back_unknown(&asked),
            Some(Costly::Known { typical, messages_per_second, .. }) => {
                self.hold_back(&asked, typical, *messages_per_second)
            }
        };
        match costly.zip(delay) {
            None => Verdict::Deliver,
            Some((costly, delay)) => Verdict::defer(delay, costly.reason()),
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

/// Seconds for which a key may take later what it has not taken, so that chance does not cost it a part of its share.
const BURST: f64 = 1.0;

/// The same for an ordered key. It has one deferral at a time, and that begins when all before it is done: with less, what
/// it may do meanwhile would be lost to it.
const BURST_ORDERED: f64 = 15.0;

/// A message of a key that is costly, while workers are short.
struct Asked<'a> {
    /// Milliseconds of the host's clock.
    now: u64,
    key: &'a str,
    is_ordered: bool,
    deferred: u64,
    standing: Standing,
    account: Account,
}

impl CostShare {
    /// For how long a message is deferred whose key is to take no more than its share, in milliseconds; `None` when it may
    /// pass.
    fn hold_back(&self, asked: &Asked<'_>, typical: &Typical, messages_per_second: f64) -> Option<u64> {
        let rate_per_second = messages_per_second.max(self.least_rate());
        let seconds = if asked.is_ordered { BURST_ORDERED } else { BURST };
        let limit = state::Limit { rate_per_second, burst: (rate_per_second * seconds).max(1.0) };
        let token = state::take(COSTLY, asked.key, 1.0, limit);
        if token == 0 {
            return None;
        }
        // It is of use again when there is a token for it, or when the workers run out of what others have sent.
        let earliest = token.min(others_last(&asked.standing, &asked.account, typical) as u64);
        let seconds_of_one = typical.seconds / workers(&asked.standing, &asked.account.whole);
        Some(match self.line.join(asked.key, asked.now, earliest, seconds_of_one) {
            Some(delay) => self.jittered(delay, clock::random()),
            None => self.spread(self.line.longest, clock::random()),
        })
    }

    /// The same when nothing is known of the key: a few pass, and soon more is known. But a message that takes a minute must
    /// not be handed out every quarter of a second until then, so the others wait up to twice as long again as they have
    /// waited.
    fn hold_back_unknown(&self, asked: &Asked<'_>) -> Option<u64> {
        let few = state::Limit { rate_per_second: self.least_rate(), burst: f64::from(UNKNOWN_MAX) };
        let is_held_back = state::take(UNKNOWN, asked.key, 1.0, few) > 0;
        is_held_back.then(|| self.spread(asked.deferred.saturating_mul(2), clock::random()))
    }

    /// Messages a second to which every key may be held: as many as pass by patience.
    fn least_rate(&self) -> f64 {
        1_000.0 / self.patience.max(1_000) as f64
    }

    /// A deferral that is a little longer than it has to be.
    fn jittered(&self, delay: u64, random: u64) -> u64 {
        ((delay as f64 * (1.0 + self.jitter * part(random))) as u64).min(self.line.longest)
    }

    /// A deferral for one of many that have no place in a line: half of it is left to chance. All that is deferred at one
    /// moment would be back at one moment, and after the first of it the rest would be deferred again.
    fn spread(&self, longest: u64, random: u64) -> u64 {
        let longest = longest.min(self.line.longest);
        ((longest as f64 * (1.0 - part(random) / 2.0)) as u64).max(self.line.shortest)
    }
}

/// A number from 0 to 1, out of a random one.
fn part(random: u64) -> f64 {
    random as f64 / u64::MAX as f64
}

impl Costly {
    fn reason(&self) -> String {
        let percent = |part: f64| format_rounded(part * 100.0, 0);
        match self {
            Self::Known { share, allowed, typical, .. } => [
                "costly: ",
                &percent(*share),
                " % of the recent cost with what it holds, ",
                &percent(*allowed),
                " % is its share; ",
                &format_rounded(typical.cost, 3),
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

    const KNOWN: Costly = Costly::Known {
        share: 0.83,
        allowed: 0.1,
        typical: Typical { cost: 12.5, seconds: 1.0 },
        messages_per_second: 0.2,
    };

    fn configured(rules: &str) -> Result<CostShare, RuleError> {
        CostShare::configure(&mut Rules::parse(rules).unwrap())
    }

    #[test]
    fn chance_makes_a_deferral_longer_and_not_too_long() {
        let policy = configured("{}").unwrap();
        assert_eq!(
            [0, u64::MAX / 2, u64::MAX].map(|random| policy.jittered(1_000, random)),
            [1_000, 1_100, 1_200]
        );
        assert_eq!(policy.jittered(59_000, u64::MAX), 60_000);
    }

    #[test]
    fn what_is_deferred_at_one_time_does_not_come_back_at_one_time() {
        let policy = configured("{}").unwrap();
        let spread = |longest| [0, u64::MAX / 2, u64::MAX].map(|random| policy.spread(longest, random));
        assert_eq!(spread(10_000), [10_000, 7_500, 5_000]);
        assert_eq!(spread(300), [300, 250, 250], "no less than the shortest");
        assert_eq!(spread(0), [250; 3]);
        assert_eq!(spread(100_000)[0], 60_000, "no more than the longest");
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
