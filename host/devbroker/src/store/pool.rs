//! One normal group's consumption of a topic: any message to any receiver, each with its own invisible time.
//!
//! Measured on 5.5.0: an un-acked message comes again about two seconds after its invisible time, through the group's
//! retry topic and thus with a new offset; a change makes the handle before it powerless, though it is still answered
//! with OK; a change after an ack brings the message back.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::message::Stored;
use super::time::Moment;

/// A normal group's place in a topic's main log.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The next place of the main log to hand out for the first time.
    pub(crate) next: u64,
    inflight: HashMap<u64, Inflight>,
    /// The in-flight messages by the time they come back.
    due: BTreeSet<(Duration, u64)>,
    returned: VecDeque<Returned>,
    /// Offsets of the group's retry topic handed out so far.
    retry_offset: u64,
    /// How long after its invisible time a message comes back.
    revive_lag: Duration,
    /// Whether messages came back since the last [`Pool::take_wake`].
    wake: bool,
}

#[derive(Debug)]
struct Inflight {
    stored: Arc<Stored>,
    place: u64,
    popped_ms: u64,
    due: Duration,
    attempt: u32,
}

/// A message whose invisible time is over.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) stored: Arc<Stored>,
    pub(crate) place: u64,
    pub(crate) attempt: u32,
}

/// One delivery.
#[derive(Debug)]
pub(crate) struct Popped {
    pub(crate) stored: Arc<Stored>,
    /// Place in the main log.
    pub(crate) place: u64,
    pub(crate) attempt: u32,
    pub(crate) popped_ms: u64,
    /// The offset in the retry topic, for a delivery from there.
    pub(crate) retry_offset: Option<u64>,
}

impl Pool {
    pub(crate) fn new(start: u64, revive_lag: Duration) -> Self {
        Self {
            next: start,
            inflight: HashMap::new(),
            due: BTreeSet::new(),
            returned: VecDeque::new(),
            retry_offset: 0,
            revive_lag,
            wake: false,
        }
    }

    /// The next message whose invisible time is over.
    pub(crate) fn next_returned(&mut self) -> Option<Returned> {
        self.returned.pop_front()
    }

    /// Whether messages came back since the last call.
    pub(crate) fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.wake)
    }

    /// The attempt number of a message that is out.
    pub(crate) fn attempt(&self, sequence: u64) -> Option<u32> {
        self.inflight.get(&sequence).map(|inflight| inflight.attempt)
    }

    /// Hands a message out.
    pub(crate) fn hand_out(&mut self, now: Moment, returned: Returned, invisible: Duration) -> Popped {
        let Returned { stored, place, attempt } = returned;
        let retry_offset = (attempt > 1).then_some(self.retry_offset);
        if retry_offset.is_some() {
            self.retry_offset += 1;
        }
        let popped_ms = now.wall_ms;
        self.track(Inflight {
            stored: Arc::clone(&stored),
            place,
            popped_ms,
            due: now.since_start.saturating_add(invisible).saturating_add(self.revive_lag),
            attempt,
        });
        Popped { stored, place, attempt, popped_ms, retry_offset }
    }

    /// Acks a delivery; gives the message when that did something.
    pub(crate) fn ack(&mut self, sequence: u64, popped_ms: u64) -> Option<Returned> {
        if self.inflight.get(&sequence)?.popped_ms != popped_ms {
            return None;
        }
        self.untrack(sequence)
    }

    /// Gives a delivery a new end; its new pop time makes the new handle. Nothing when the handle has no power.
    pub(crate) fn change(
        &mut self,
        now: Moment,
        sequence: u64,
        popped_ms: u64,
        invisible: Duration,
    ) -> Option<u64> {
        let known = self.inflight.get(&sequence)?;
        if known.popped_ms != popped_ms {
            return None;
        }
        // Never the pop time the old handle carries, or that one would keep its power.
        let renewed_ms = now.wall_ms.max(popped_ms + 1);
        let (stored, place, attempt) = (Arc::clone(&known.stored), known.place, known.attempt);
        let due = now.since_start.saturating_add(invisible).saturating_add(self.revive_lag);
        self.track(Inflight { stored, place, popped_ms: renewed_ms, due, attempt });
        Some(renewed_ms)
    }

    /// Brings an acked message back: what a change does after an ack.
    pub(crate) fn revive(
        &mut self,
        now: Moment,
        (stored, place): (Arc<Stored>, u64),
        popped_ms: u64,
        invisible: Duration,
    ) -> Option<u64> {
        let waits = |returned: &Returned| returned.stored.sequence == stored.sequence;
        if self.inflight.contains_key(&stored.sequence) || self.returned.iter().any(waits) {
            return None;
        }
        let renewed_ms = now.wall_ms.max(popped_ms + 1);
        let due = now.since_start.saturating_add(invisible).saturating_add(self.revive_lag);
        self.track(Inflight { stored, place, popped_ms: renewed_ms, due, attempt: 1 });
        Some(renewed_ms)
    }

    /// Moves messages whose time is over to the returned ones.
    pub(crate) fn handle_timeout(&mut self, now: Moment) {
        while let Some((due, sequence)) = self.due.first().copied() {
            if due > now.since_start {
                break;
            }
            if let Some(mut back) = self.untrack(sequence) {
                back.attempt = back.attempt.saturating_add(1);
                self.returned.push_back(back);
                self.wake = true;
            }
        }
    }

    /// When [`Pool::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Returns everything that is out, as a broker does that is killed and started again.
    pub(crate) fn forget(&mut self) {
        let all: Vec<u64> = self.due.iter().map(|(_, sequence)| *sequence).collect();
        for sequence in all {
            if let Some(mut back) = self.untrack(sequence) {
                back.attempt = back.attempt.saturating_add(1);
                self.returned.push_back(back);
            }
        }
        self.wake = true;
    }

    /// Takes the place of what was out of the same message.
    fn track(&mut self, inflight: Inflight) {
        let sequence = inflight.stored.sequence;
        self.untrack(sequence);
        self.due.insert((inflight.due, sequence));
        self.inflight.insert(sequence, inflight);
    }

    fn untrack(&mut self, sequence: u64) -> Option<Returned> {
        let Inflight { stored, place, due, attempt, .. } = self.inflight.remove(&sequence)?;
        self.due.remove(&(due, sequence));
        Some(Returned { stored, place, attempt })
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{NewMessage, Room};
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment { since_start: Duration::from_secs(seconds), wall_ms: seconds * 1_000 }
    }

    fn returned(sequence: u64) -> Returned {
        let message = NewMessage::default();
        let room = Room::take(&Arc::default(), &message);
        let stored =
            Stored { message, topic: "T".into(), sequence, stored_ms: 0, attempts_before: 0, _room: room };
        Returned { stored: Arc::new(stored), place: sequence, attempt: 1 }
    }

    /// It came back by itself, and a handle that is still around is changed as if it had been acked.
    #[test]
    fn what_waits_to_be_handed_out_again_is_not_revived_beside_that() {
        let lease = Duration::from_secs(10);
        let mut pool = Pool::new(0, Duration::from_secs(2));
        let popped = pool.hand_out(at(0), returned(7), lease);
        pool.handle_timeout(at(20));
        let again = (Arc::clone(&popped.stored), popped.place);
        assert_eq!(pool.revive(at(21), again, popped.popped_ms, lease), None);
        let back = pool.next_returned().expect("it waits");
        assert_eq!(back.attempt, 2);
        pool.hand_out(at(22), back, lease);
        // Handed out twice it would be due twice.
        pool.hand_out(at(25), returned(7), lease);
        pool.handle_timeout(at(60));
        assert_eq!(pool.poll_timeout(), None);
        assert!(pool.next_returned().is_some() && pool.next_returned().is_none(), "once");
    }
}
