//! Whether workers are what is short, and for how long.

use tidegate_guest::Standing;

use crate::ledger::{Account, Typical, Whole};

/// When there is too little of workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shortage {
    /// While fewer messages wait for them there is enough.
    pub(crate) min_queued: f64,
    /// The shortest deferral, in milliseconds.
    pub(crate) delay: u64,
}

/// What waits for the workers, as far as it keeps them busy while a message is deferred.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Queue {
    pub(crate) messages: f64,
    /// How long the workers have enough to do with it, in milliseconds.
    pub(crate) lasts: f64,
}

/// A queue that lasts so long, in milliseconds, is more than the workers need before anything else can be there.
const AMPLE: f64 = 10_000.0;

/// One that takes one in so many of the host's places is so too, when nobody knows yet how long it lasts.
const PLACES: f64 = 8.0;

impl Shortage {
    /// Whether so much waits for the workers that they have enough to do until something that is deferred now is back.
    ///
    /// A key that is alone takes nothing from anybody, yet. But what is accepted now stands before whoever comes next, and
    /// in a full host nobody can come: so not even one that is alone may fill it.
    pub(crate) fn is_there(&self, standing: &Standing, queue: Queue) -> bool {
        let is_ample = queue.messages >= f64::from(standing.flow_budget) / PLACES
            || (standing.flow_throughput > 0.0 && queue.lasts >= AMPLE);
        queue.messages >= self.min_queued
            && queue.lasts >= self.delay as f64
            && (standing.active_keys >= 2 || is_ample)
    }
}

impl Queue {
    /// For a message that waits on its own.
    pub(crate) fn of_all(standing: &Standing) -> Self {
        Self::of(standing.flow_queued, standing)
    }

    /// For one of an ordered key: its deferral begins when what is before it is done. So this is what waits of other keys,
    /// at least; workers that the key itself has are taken for theirs.
    pub(crate) fn of_others(standing: &Standing) -> Self {
        let others = standing.flow_in_flight.saturating_sub(standing.key_in_flight);
        Self::of(others.saturating_sub(standing.flow_emitted).min(standing.flow_queued), standing)
    }

    fn of(messages: u32, standing: &Standing) -> Self {
        let messages = f64::from(messages);
        Self { messages, lasts: messages * 1_000.0 / standing.flow_throughput }
    }
}

/// How many messages workers have at one time: as they have now, or had on the average, which is less than it was before
/// there was so much to do.
pub(crate) fn workers(standing: &Standing, whole: &Whole) -> f64 {
    f64::from(standing.flow_emitted).max(whole.workers).max(1.0)
}

/// How long the workers have enough to do with what waits of other keys, in milliseconds: about, and rather too short, since
/// a worker that is idle is worse than a message that is asked about once more.
pub(crate) fn others_last(standing: &Standing, account: &Account, typical: &Typical) -> f64 {
    Queue::of_others(standing).messages * account.seconds_of_others(typical) * 1_000.0
        / workers(standing, &account.whole)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const SHORTAGE: Shortage = Shortage { min_queued: 10.0, delay: 250 };

    /// A flow in which half of what it holds waits, and twenty are done in a second.
    pub(crate) fn standing(key_in_flight: u32, flow_in_flight: u32, active_keys: u32) -> Standing {
        Standing {
            key_in_flight,
            flow_in_flight,
            flow_budget: 1_000,
            flow_queued: flow_in_flight / 2,
            flow_emitted: 10,
            active_keys,
            key_rate: 0.0,
            flow_rate: 20.0,
            flow_throughput: 20.0,
            key_share: 0.0,
        }
    }

    fn is_short(standing: &Standing) -> bool {
        SHORTAGE.is_there(standing, Queue::of_all(standing))
    }

    #[test]
    fn workers_are_short_when_a_queue_lasts() {
        let waiting = standing(10, 100, 2);
        assert!(is_short(&waiting));
        for enough in [
            Standing { flow_queued: 9, ..waiting },
            Standing { flow_queued: 0, flow_throughput: 0.0, ..waiting },
            // Fifty messages that are done in a twentieth of a second.
            Standing { flow_throughput: 1_000.0, ..waiting },
            Standing { flow_throughput: f64::NAN, ..waiting },
        ] {
            assert!(!is_short(&enough), "{enough:?}");
        }
        assert!(is_short(&Standing { flow_throughput: 0.0, ..waiting }), "nothing is done yet");
    }

    #[test]
    fn a_key_that_is_alone_may_not_fill_the_host() {
        let alone = standing(100, 100, 1);
        assert!(!is_short(&alone), "a queue of 2.5 s");
        assert!(is_short(&Standing { flow_throughput: 5.0, ..alone }), "of 10 s");
        assert!(!is_short(&Standing { flow_throughput: 0.0, ..alone }), "nobody knows");
        let full = Standing { flow_queued: 125, flow_throughput: 0.0, ..alone };
        assert!(is_short(&full), "but that there is no room for others soon");
    }

    #[test]
    fn what_others_wait_for_lasts_as_long_as_it_takes() {
        let typical = Typical { cost: 50.0, seconds: 5.0 };
        // A hundred messages of this key and a thousand of others, that take a tenth of a second.
        let whole =
            Whole { cost: 6_000.0, messages: 1_100.0, seconds: 600.0, cost_rate: 100.0, workers: 6.0 };
        let account = Account { consumed: 5_000.0, typical: Some(typical), whole };
        let lasts = |standing: Standing| others_last(&standing, &account, &typical);
        let waiting = Standing { flow_queued: 50, ..standing(20, 80, 2) };
        assert!((lasts(waiting) - 500.0).abs() < 1e-9, "fifty of others by ten workers: {}", lasts(waiting));
        let few = Standing { flow_emitted: 0, ..waiting };
        assert!((lasts(few) - 5_000.0 / 6.0).abs() < 1e-9, "as many as there were: {}", lasts(few));
        let own = Standing { key_in_flight: 70, ..waiting };
        assert!(lasts(own).abs() < 1e-9, "all that waits may be its own");
    }

    #[test]
    fn an_ordered_key_does_not_wait_for_itself() {
        let queue = |key, flow, queued| {
            let standing = Standing { flow_queued: queued, ..standing(key, flow, 2) };
            Queue::of_others(&standing).messages as u32
        };
        assert_eq!(queue(32, 40, 22), 0, "8 of others, 10 with workers");
        assert_eq!(queue(32, 60, 40), 18);
        assert_eq!(queue(1, 60, 40), 40, "and no more than wait");
        assert_eq!(queue(60, 40, 40), 0);
    }
}
