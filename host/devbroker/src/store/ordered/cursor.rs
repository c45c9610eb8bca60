//! One group's place in one ordered queue: the rule of a lite topic.
//!
//! Measured on 5.5.0: a queue with an un-acked delivery gives nothing more until that delivery is acked or due again.
//! It is due when all its open messages are, each at the end of the batch's invisible time or of its own change. A
//! *suspended* change of any open message speaks for the whole queue instead: it is due then, whether that is earlier or
//! later than what was said before, and the last one counts; one that is not suspended and comes after it takes that back.
//! The next delivery begins at the first open offset and takes
//! everything after it, acked or held, so an ack behind an open one does not stick.

use std::sync::Arc;
use std::time::Duration;

use super::super::time::Moment;

/// A group's progress in one queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursor {
    /// Everything below is acked.
    committed: u64,
    /// The last delivery. Stays after its last ack: an ack is judged against it.
    held: Option<Held>,
}

/// The last delivery of a queue.
#[derive(Clone, Debug)]
struct Held {
    first: u64,
    count: u32,
    popped_ms: u64,
    due: Duration,
    /// Offsets with a time of their own, at most one entry for each.
    changed: Vec<(u64, Duration)>,
    /// What the last change says for the whole queue, if it was a suspended one.
    suspended_until: Option<Duration>,
    /// One bit for each offset from `first`.
    acked: u64,
    attempt: u32,
    holder: Arc<str>,
}

/// A batch of consecutive offsets handed to one receiver.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Batch {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) attempt: u32,
    pub(crate) popped_ms: u64,
}

/// What an ack or a change did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Effect {
    /// It counted.
    Done,
    /// Answered with OK, without effect: a stale handle, or an offset acked before.
    None,
    /// A change of what was acked before: answered with OK and a handle that has ended, without effect.
    Acked,
    /// The offset belongs to no delivery: the broker says that the status is abnormal.
    Abnormal,
}

/// How a receive asks a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Take<'a> {
    /// Messages at most; no more than 64.
    pub(crate) count_max: u32,
    /// How long the batch stays hidden.
    pub(crate) invisible: Duration,
    /// Who takes. Another holder than the last one starts counting attempts anew.
    pub(crate) holder: &'a Arc<str>,
}

impl Cursor {
    /// A cursor in front of `offset`.
    pub(crate) fn starting_at(offset: u64) -> Self {
        Self { committed: offset, held: None }
    }

    /// The first offset not acked.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// When the queue gives messages again, while a delivery of it is out and not due.
    pub(crate) fn blocked_until(&self, now: Moment) -> Option<Duration> {
        let held = self.held.as_ref().filter(|held| held.contains(self.committed))?;
        let due = held.due_from(self.committed);
        (due > now.since_start).then_some(due)
    }

    /// Hands out the next batch up to `end`, or nothing while the queue is blocked or has been read through.
    pub(crate) fn take(&mut self, now: Moment, end: u64, ask: Take<'_>) -> Option<Batch> {
        if self.blocked_until(now).is_some() || self.committed >= end || ask.count_max == 0 {
            return None;
        }
        let count = u32::try_from(end - self.committed).unwrap_or(u32::MAX).min(ask.count_max).min(64);
        let attempt = self.next_attempt(self.committed + u64::from(count), ask.holder);
        let again = self.held.as_ref().is_some_and(|held| held.contains(self.committed));
        let popped_ms = match &self.held {
            // A redelivery within the same millisecond must not revive the handles of the delivery before it.
            Some(held) if again => now.wall_ms.max(held.popped_ms + 1),
            _ => now.wall_ms,
        };
        self.held = Some(Held {
            first: self.committed,
            count,
            popped_ms,
            due: now.since_start.saturating_add(ask.invisible),
            changed: Vec::new(),
            suspended_until: None,
            acked: 0,
            attempt,
            holder: Arc::clone(ask.holder),
        });
        Some(Batch { first: self.committed, count, attempt, popped_ms })
    }

    /// Acks `offset` of the delivery made at `popped_ms`. `end` is the queue's end.
    pub(crate) fn ack(&mut self, popped_ms: u64, offset: u64, end: u64) -> Effect {
        if offset < self.committed {
            return Effect::None;
        }
        if offset >= end {
            return Effect::Abnormal;
        }
        let Some(held) = &mut self.held else {
            // The broker has no record of any delivery (it was restarted): it believes the handle.
            self.committed = offset + 1;
            return Effect::Done;
        };
        if held.popped_ms != popped_ms {
            return Effect::None;
        }
        let Some(bit) = held.bit_of(offset) else { return Effect::Abnormal };
        held.acked |= bit;
        while held.bit_of(self.committed).is_some_and(|bit| held.acked & bit != 0) {
            self.committed += 1;
        }
        Effect::Done
    }

    /// Moves the time at which the delivery made at `popped_ms` is due, by its open message at `offset`.
    pub(crate) fn change(&mut self, popped_ms: u64, offset: u64, due: Duration, suspended: bool) -> Effect {
        let committed = self.committed;
        let Some(held) = &mut self.held else { return Effect::None };
        if offset < committed {
            return Effect::Acked;
        }
        if held.popped_ms != popped_ms {
            return Effect::None;
        }
        let Some(bit) = held.bit_of(offset) else { return Effect::Abnormal };
        if held.acked & bit == 0 {
            held.changed.retain(|(changed, _)| *changed != offset);
            held.changed.push((offset, due));
            held.suspended_until = suspended.then_some(due);
        }
        Effect::Done
    }

    /// Skips what the log no longer has.
    pub(crate) fn skip_to(&mut self, offset: u64) {
        self.committed = self.committed.max(offset);
    }

    /// Forgets what is out, as a broker does that is killed.
    pub(crate) fn forget_held(&mut self) {
        self.held = None;
    }

    /// One while the delivered set is new, else one more than last time; a suspended deferral does not go beyond two.
    fn next_attempt(&self, end: u64, holder: &Arc<str>) -> u32 {
        let Some(held) = &self.held else { return 1 };
        let same_set = held.contains(self.committed) && end <= held.first + u64::from(held.count);
        if !same_set || held.holder != *holder {
            return 1;
        }
        if held.suspended_until.is_some() { held.attempt.max(2) } else { held.attempt.saturating_add(1) }
    }
}

impl Held {
    fn contains(&self, offset: u64) -> bool {
        offset >= self.first && offset < self.first + u64::from(self.count)
    }

    /// When the queue gives messages again, seen from its first open offset.
    fn due_from(&self, first_open: u64) -> Duration {
        if let Some(until) = self.suspended_until {
            return until;
        }
        let open = (first_open..self.first + u64::from(self.count))
            .filter(|offset| self.bit_of(*offset).is_some_and(|bit| self.acked & bit == 0));
        let due = |offset: u64| {
            let own = self.changed.iter().find(|(changed, _)| *changed == offset);
            own.map_or(self.due, |(_, due)| *due)
        };
        open.map(due).max().unwrap_or(self.due)
    }

    fn bit_of(&self, offset: u64) -> Option<u64> {
        self.contains(offset).then(|| 1 << (offset - self.first))
    }
}

#[cfg(test)]
mod tests;
