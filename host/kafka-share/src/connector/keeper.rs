//! Locks that are kept on: of deferred records until they are due, of others for as long as a renewal shall last. Sans-io.
//!
//! A lock is renewed when half of it is left, so that a record that is handed out again has at least half of it. A record
//! that may not be renewed, or cannot be, is handed out again when it is due before that, and else released when it is due
//! or at the last moment of its lock, whichever comes first: never earlier, since each release costs it one delivery.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tidegate_model::{Delivery, Instant};

use super::handle::Key;
use super::options::HoldLimits;
use crate::AcknowledgeError;

/// The wait before a renewal is tried again while another one is under way.
const SPACING: Duration = Duration::from_millis(100);

/// Locks that are kept on.
#[derive(Debug)]
pub(super) struct Keeper {
    limits: HoldLimits,
    entries: HashMap<Key, Entry>,
    /// When something is to be done about each that nothing is being done about.
    wheel: BTreeSet<(Instant, Key)>,
    /// Those that are due, the first one first; some of them may be gone.
    due: VecDeque<Key>,
    held: Amount,
    /// Of those held: what is renewed.
    renewed: Amount,
    ended: Ended,
    /// Whether anything is handed out again. While nothing is, what is held is given back instead.
    hands_out: bool,
}

/// A lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Lock {
    /// When it ends.
    pub(super) ends: Instant,
    /// How long it is when it is new.
    pub(super) length: Duration,
}

/// So many records.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Amount {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// Deferred records that are not held any more, since the last look.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Ended {
    pub(super) due: u64,
    pub(super) released: u64,
    pub(super) lease_gone: u64,
}

/// What to tell a broker. It is owed [`Keeper::handle_result`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Action {
    Renew,
    Release,
}

#[derive(Debug)]
struct Entry {
    lock: Lock,
    plan: Plan,
    /// When this delivery was first deferred.
    deferred_at: Option<Instant>,
    /// Whether a broker is being told something.
    is_busy: bool,
    not_before: Instant,
    /// Its place in the wheel.
    at: Option<Instant>,
}

#[derive(Debug)]
enum Plan {
    /// With the flow, which counts on the lock until then.
    Out { until: Instant },
    /// Deferred.
    Held(Box<Held>),
    /// A release is on its way.
    Releasing,
}

#[derive(Debug)]
struct Held {
    delivery: Delivery,
    due: Instant,
    /// Whether its lock is renewed.
    renews: bool,
    /// Whether it waits to be handed out.
    is_due: bool,
    bytes: usize,
}

impl Keeper {
    pub(super) fn new(limits: HoldLimits) -> Self {
        Self {
            limits,
            entries: HashMap::new(),
            wheel: BTreeSet::new(),
            due: VecDeque::new(),
            held: Amount::default(),
            renewed: Amount::default(),
            ended: Ended::default(),
            hands_out: true,
        }
    }

    /// Holds a record until it is due. `lock` is what the delivery came with. False when it has run out.
    pub(super) fn defer(
        &mut self,
        now: Instant,
        key: Key,
        lock: Lock,
        delivery: Delivery,
        due: Instant,
    ) -> bool {
        let (lock, deferred_at, is_busy) = match self.take(&key) {
            Some(entry) => (entry.lock, entry.deferred_at, entry.is_busy),
            None => (lock, None, false),
        };
        if lock.ends <= now {
            return false;
        }
        let deferred_at = deferred_at.unwrap_or(now);
        let bytes = delivery.message.size_bytes();
        let renews = self.hands_out
            && self.renewed.records < self.limits.records
            && self.renewed.bytes.saturating_add(bytes) <= self.limits.bytes
            && now < deferred_at + self.limits.time;
        let plan = Plan::Held(Box::new(Held { delivery, due, renews, is_due: false, bytes }));
        let entry = Entry { lock, plan, deferred_at: Some(deferred_at), is_busy, not_before: now, at: None };
        self.put(key, entry);
        true
    }

    /// Says whether anything is handed out again. While nothing is, a record is released when it is due or at the end of its
    /// lock, whichever comes first, and one that is due already at once.
    pub(super) fn set_handing_out(&mut self, now: Instant, hands_out: bool) {
        self.hands_out = hands_out;
        if hands_out {
            return;
        }
        let is_held = |(key, entry): (&Key, &Entry)| matches!(entry.plan, Plan::Held(_)).then_some(*key);
        for key in self.entries.iter().filter_map(is_held).collect::<Vec<_>>() {
            let Some(mut entry) = self.take(&key) else { continue };
            if let Plan::Held(held) = &mut entry.plan {
                held.renews = false;
                if std::mem::take(&mut held.is_due) {
                    held.due = now;
                }
            }
            self.put(key, entry);
        }
    }

    /// A record that the flow has was renewed, and shall be kept until then.
    pub(super) fn keep(&mut self, now: Instant, key: Key, lock: Lock, until: Instant) {
        let known = self.take(&key);
        let deferred_at = known.as_ref().and_then(|entry| entry.deferred_at);
        let is_busy = known.is_some_and(|entry| entry.is_busy);
        self.put(
            key,
            Entry { lock, plan: Plan::Out { until }, deferred_at, is_busy, not_before: now, at: None },
        );
    }

    /// Something final is said about a record.
    pub(super) fn forget(&mut self, key: &Key) {
        // On the regular road nothing was deferred or renewed.
        if !self.entries.is_empty() {
            self.take(key);
        }
    }

    pub(super) const fn held(&self) -> Amount {
        self.held
    }

    /// Whether so much is deferred that nothing more should be received.
    pub(super) const fn is_full(&self) -> bool {
        self.held.bytes >= self.limits.bytes
    }

    pub(super) fn has_due(&self) -> bool {
        self.due.iter().any(|key| self.is_due(key))
    }

    /// What ended since the last look.
    pub(super) fn take_ended(&mut self) -> Ended {
        std::mem::take(&mut self.ended)
    }

    /// What is to be told to brokers now.
    pub(super) fn poll(&mut self, now: Instant) -> Vec<(Key, Action)> {
        let mut actions = Vec::new();
        while let Some((at, key)) = self.wheel.first().copied()
            && at <= now
        {
            let Some(mut entry) = self.take(&key) else { break };
            match self.next(now, &mut entry) {
                Next::Wait => self.put(key, entry),
                Next::Due => {
                    if let Plan::Held(held) = &mut entry.plan {
                        held.is_due = true;
                    }
                    self.due.push_back(key);
                    self.put(key, entry);
                }
                Next::Tell(action) => {
                    if action == Action::Release {
                        entry.plan = Plan::Releasing;
                    }
                    entry.is_busy = true;
                    self.put(key, entry);
                    actions.push((key, action));
                }
                Next::Over => {
                    if matches!(entry.plan, Plan::Held(_)) {
                        self.ended.lease_gone += 1;
                    }
                }
            }
        }
        actions
    }

    /// When to look again.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.first().map(|(at, _)| *at)
    }

    /// What came of an action.
    pub(super) fn handle_result(
        &mut self,
        now: Instant,
        key: Key,
        action: Action,
        sent_at: Instant,
        result: &Result<(), AcknowledgeError>,
    ) {
        let Some(mut entry) = self.take(&key) else { return };
        entry.is_busy = false;
        match (action, result) {
            (Action::Renew, Ok(())) => {
                entry.lock.ends = entry.lock.ends.max(sent_at + entry.lock.length);
            }
            (Action::Renew, Err(error)) if error.is_lease_gone() => {
                self.ended.lease_gone += u64::from(matches!(entry.plan, Plan::Held(_)));
                return;
            }
            (Action::Renew, Err(AcknowledgeError::RenewalUnderWay)) => entry.not_before = now + SPACING,
            (Action::Renew, Err(_)) => match &mut entry.plan {
                Plan::Held(held) => held.renews = false,
                Plan::Out { until } => *until = entry.lock.ends,
                Plan::Releasing => {}
            },
            (Action::Release, result) => {
                match result {
                    Ok(()) => self.ended.released += 1,
                    Err(_) => self.ended.lease_gone += 1,
                }
                return;
            }
        }
        self.put(key, entry);
    }

    /// Records that are due, at most so many and so many bytes, but one at least.
    pub(super) fn take_due(&mut self, now: Instant, records: usize, bytes: usize) -> Vec<Delivery> {
        let mut taken = Vec::new();
        let mut bytes_left = bytes;
        while taken.len() < records
            && let Some(key) = self.due.front().copied()
        {
            if !self.is_due(&key) {
                self.due.pop_front();
                continue;
            }
            let size = match self.entries.get(&key).map(|entry| &entry.plan) {
                Some(Plan::Held(held)) => held.bytes,
                _ => 0,
            };
            if size > bytes_left && !taken.is_empty() {
                break;
            }
            bytes_left = bytes_left.saturating_sub(size);
            self.due.pop_front();
            let Some(mut entry) = self.take(&key) else { continue };
            let until = entry.lock.ends;
            let Plan::Held(held) = std::mem::replace(&mut entry.plan, Plan::Out { until }) else { continue };
            if until <= now {
                self.ended.lease_gone += 1;
                continue;
            }
            taken.push(Delivery {
                received_at: now,
                lease: entry.lock.length,
                expires_at: until,
                ..held.delivery
            });
            self.ended.due += 1;
            self.put(key, entry);
        }
        taken
    }

    fn is_due(&self, key: &Key) -> bool {
        let plan = self.entries.get(key).map(|entry| &entry.plan);
        matches!(plan, Some(Plan::Held(held)) if held.is_due)
    }

    /// What to do about an entry whose time has come.
    fn next(&self, now: Instant, entry: &mut Entry) -> Next {
        if entry.lock.ends <= now {
            return Next::Over;
        }
        let at = entry.next_at();
        match &mut entry.plan {
            Plan::Releasing => Next::Wait,
            Plan::Out { .. } if at < entry.lock.ends && at <= now => Next::Tell(Action::Renew),
            Plan::Out { .. } => Next::Wait,
            Plan::Held(_) if at > now => Next::Wait,
            Plan::Held(held) if !held.is_due && held.due <= entry.lock.half() && self.hands_out => Next::Due,
            Plan::Held(held) if held.renews => {
                if entry.deferred_at.is_some_and(|since| since + self.limits.time <= now) {
                    held.renews = false;
                    return Next::Wait;
                }
                Next::Tell(Action::Renew)
            }
            Plan::Held(_) => Next::Tell(Action::Release),
        }
    }

    /// Takes an entry out, with all that is counted of it.
    fn take(&mut self, key: &Key) -> Option<Entry> {
        let mut entry = self.entries.remove(key)?;
        if let Some(at) = entry.at.take() {
            self.wheel.remove(&(at, *key));
        }
        if let Plan::Held(held) = &entry.plan {
            self.held.subtract(held.bytes);
            if held.renews {
                self.renewed.subtract(held.bytes);
            }
        }
        Some(entry)
    }

    fn put(&mut self, key: Key, mut entry: Entry) {
        if let Plan::Held(held) = &entry.plan {
            self.held.add(held.bytes);
            if held.renews {
                self.renewed.add(held.bytes);
            }
        }
        // While a broker is being told something its answer is the next thing to happen.
        if !entry.is_busy {
            let at = entry.next_at();
            entry.at = Some(at);
            self.wheel.insert((at, key));
        }
        self.entries.insert(key, entry);
    }
}

/// What to do about an entry.
enum Next {
    Wait,
    /// It can be handed out again.
    Due,
    Tell(Action),
    /// Its lock has run out.
    Over,
}

impl Entry {
    /// When something is to be done about it.
    fn next_at(&self) -> Instant {
        let Lock { ends, length } = self.lock;
        let renew_at = self.lock.half().max(self.not_before).min(ends);
        // The last moment at which a broker still hears of it in time.
        let last = ends - length / 10;
        match &self.plan {
            Plan::Releasing => ends,
            Plan::Out { until } if *until > ends => renew_at,
            Plan::Out { .. } => ends,
            Plan::Held(held) if !held.is_due && held.due <= self.lock.half() => held.due,
            Plan::Held(held) if held.renews => renew_at,
            Plan::Held(held) if held.is_due => last,
            Plan::Held(held) => held.due.min(last),
        }
    }
}

impl Lock {
    /// When half of it is left.
    fn half(&self) -> Instant {
        self.ends - self.length / 2
    }
}

impl Amount {
    const fn add(&mut self, bytes: usize) {
        self.records += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    const fn subtract(&mut self, bytes: usize) {
        self.records = self.records.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests;
