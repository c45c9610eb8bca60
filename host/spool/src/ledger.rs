//! What is in a spool, what of it is handed out, what is due, and what is to be written. Sans-io.
//!
//! An entry is *writing* until the store has it; then *ready* until somebody takes it, *out* until it is settled or its lease
//! runs out, or *deferred* until it is due. Accepted or rejected it is *removing*: never handed out again, and gone once the
//! store has heard of it. Ready entries are taken in the order they came in, so that those of an earlier life come first.
//!
//! Bodies are here only while an entry is written and until it is first taken, or when it comes right back; otherwise they are
//! loaded from the store.
//!
//! Attempts are durable from the second on. An entry that is found in the store without a due time may have been handed out
//! by whoever ended, so that its attempt counts one more. A deferral with a delay counts none here: a policy's means that nobody had
//! the message, and whoever hands it to workers counts theirs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{Capacity, Instant, Message, MessageId, Timestamp, Verb};

use crate::entry::Sequence;

/// Settled messages that are remembered because their broker has not confirmed that it heard of them, and may hand them out
/// again; about 200 bytes each.
const SETTLED_MAX: usize = 100_000;
/// The longest time that a due time from the store may lie ahead: a clock that was set back must not hold anything for ever.
const DUE_AHEAD_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// How much may be in a spool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Messages.
    pub records: usize,
    /// Their bytes, as [`Message::size_bytes`] has them.
    pub bytes: u64,
}

/// What is in a spool.
#[derive(Debug)]
pub(crate) struct Ledger {
    limits: Limits,
    lease: Duration,
    entries: BTreeMap<Sequence, Entry>,
    ids: HashMap<MessageId, Sequence>,
    ready: BTreeSet<Sequence>,
    /// When leases end and deferred entries are due.
    wheel: BTreeSet<(Instant, Sequence)>,
    bytes: u64,
    next: Sequence,
    /// The first one that came in in this life.
    first_new: Sequence,
    changes: Changes,
    settled: Settled,
}

#[derive(Debug)]
struct Entry {
    id: MessageId,
    bytes: usize,
    /// Of the hand-out that is under way, or else of the next one.
    attempt: u32,
    /// What the store knows, or will with the next changes.
    stored: State,
    /// In this life.
    hand_outs: u32,
    stage: Stage,
    /// Whether the broker has confirmed that it will not hand it out again.
    is_confirmed: bool,
}

#[derive(Debug)]
enum Stage {
    Writing(Arc<Message>),
    Ready(Body),
    Out { until: Instant },
    Deferred { due: Instant },
    Removing,
}

#[derive(Debug)]
enum Body {
    Here(Arc<Message>),
    Stored,
    Loading,
}

/// What the store keeps of an entry beside its message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct State {
    /// Of the last hand-out, or of the next one when there is a due time.
    pub(crate) attempt: u32,
    pub(crate) due: Option<Timestamp>,
}

/// An entry that was found in the store.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) sequence: Sequence,
    pub(crate) id: MessageId,
    pub(crate) bytes: usize,
    pub(crate) state: State,
}

/// What came of a message that wants in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Admission {
    /// It is to be written under this sequence.
    New(Sequence),
    /// It is in the store, or was settled from it.
    Known,
    /// The same is being written.
    Pending,
}

/// What is to be written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Changes {
    pub(crate) removed: BTreeSet<Sequence>,
    pub(crate) states: BTreeMap<Sequence, State>,
}

/// A hand-out.
#[derive(Clone, Debug)]
pub(crate) struct HandOut {
    pub(crate) sequence: Sequence,
    pub(crate) hand_out: u32,
    pub(crate) message: Arc<Message>,
    pub(crate) attempt: u32,
    pub(crate) expires_at: Instant,
}

/// What a settlement came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Effect {
    /// It counts; what it removes is removed once the changes are written.
    Removes,
    /// It counts.
    Keeps,
    /// The hand-out is over: it was settled before, or handed out again.
    Gone,
}

/// Settled messages that their broker may hand out again, the oldest first.
#[derive(Debug, Default)]
struct Settled {
    ids: HashSet<MessageId>,
    order: VecDeque<MessageId>,
}

impl Ledger {
    pub(crate) fn new(limits: Limits, lease: Duration) -> Self {
        Self {
            limits,
            lease,
            entries: BTreeMap::new(),
            ids: HashMap::new(),
            ready: BTreeSet::new(),
            wheel: BTreeSet::new(),
            bytes: 0,
            next: Sequence(1),
            first_new: Sequence(1),
            changes: Changes::default(),
            settled: Settled::default(),
        }
    }

    /// Takes over what an earlier life left in the store, and goes on behind `next`.
    pub(crate) fn restore(&mut self, now: Instant, wall: Timestamp, found: Vec<Found>, next: Sequence) {
        self.next = self.next.max(next);
        for Found { sequence, id, bytes, state } in found {
            self.next = self.next.max(sequence.next());
            if self.ids.contains_key(&id) {
                // Written twice by whoever ended; one is enough.
                self.changes.removed.insert(sequence);
                continue;
            }
            let due = state.due.map(|due| due.saturating_since(wall).min(DUE_AHEAD_MAX));
            let (attempt, stage) = match due {
                Some(ahead) if !ahead.is_zero() => (state.attempt, Stage::Deferred { due: now + ahead }),
                Some(_) => (state.attempt, Stage::Ready(Body::Stored)),
                None => (state.attempt.saturating_add(1), Stage::Ready(Body::Stored)),
            };
            let entry = Entry { id, bytes, attempt, stored: state, hand_outs: 0, stage, is_confirmed: false };
            self.put(sequence, entry);
            if due.is_none() {
                self.note_state(sequence);
            }
        }
        self.first_new = self.next;
    }

    /// The store has something there that cannot be read.
    pub(crate) fn forget(&mut self, sequences: Vec<Sequence>) {
        self.changes.removed.extend(sequences);
    }

    /// Compares with what the store has after it was opened again.
    pub(crate) fn handle_reopened(&mut self, found: &[Found]) {
        let unknown = found.iter().map(|found| found.sequence);
        self.changes.removed.extend(unknown.filter(|sequence| !self.entries.contains_key(sequence)));
    }

    /// Lets a message in, unless it is known.
    pub(crate) fn admit(&mut self, message: &Arc<Message>, attempt: u32) -> Admission {
        if let Some(sequence) = self.ids.get(&message.id) {
            return match self.entries.get(sequence).map(|entry| &entry.stage) {
                Some(Stage::Writing(_)) => Admission::Pending,
                _ => Admission::Known,
            };
        }
        if self.settled.ids.contains(&message.id) {
            return Admission::Known;
        }
        let sequence = self.next;
        self.next = sequence.next();
        let entry = Entry {
            id: message.id.clone(),
            bytes: message.size_bytes(),
            attempt,
            stored: State { attempt, due: None },
            hand_outs: 0,
            stage: Stage::Writing(Arc::clone(message)),
            is_confirmed: false,
        };
        self.put(sequence, entry);
        Admission::New(sequence)
    }

    /// The store has them.
    pub(crate) fn handle_written(&mut self, sequences: impl IntoIterator<Item = Sequence>) {
        for sequence in sequences {
            let Some(mut entry) = self.take_out(sequence) else { continue };
            if let Stage::Writing(message) = entry.stage {
                entry.stage = Stage::Ready(Body::Here(message));
            }
            self.put(sequence, entry);
        }
    }

    /// They will not be written. One of them may be in the store all the same, when the store failed after it wrote.
    pub(crate) fn handle_given_up(&mut self, sequences: impl IntoIterator<Item = Sequence>) {
        for sequence in sequences {
            self.take_out(sequence);
            self.changes.removed.insert(sequence);
        }
    }

    /// Makes ready what is due and whose lease has run out.
    pub(crate) fn tick(&mut self, now: Instant) {
        while let Some((at, sequence)) = self.wheel.first().copied()
            && at <= now
        {
            let Some(mut entry) = self.take_out(sequence) else {
                self.wheel.pop_first();
                continue;
            };
            if matches!(entry.stage, Stage::Out { .. }) {
                entry.attempt = entry.attempt.saturating_add(1);
            }
            entry.stage = Stage::Ready(Body::Stored);
            self.put(sequence, entry);
        }
    }

    /// When to [tick](Self::tick) next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.first().map(|(at, _)| *at)
    }

    /// Hands out what is ready, in order, at most so much, but one at least; what is not here yet ends it.
    pub(crate) fn take(&mut self, now: Instant, capacity: Capacity) -> Vec<HandOut> {
        let mut taken = Vec::new();
        let mut bytes_left = capacity.bytes;
        while taken.len() < capacity.messages
            && let Some(sequence) = self.ready.first().copied()
            && let Some(entry) = self.entries.get(&sequence)
            && matches!(entry.stage, Stage::Ready(Body::Here(_)))
            && (taken.is_empty() || entry.bytes <= bytes_left)
        {
            bytes_left = bytes_left.saturating_sub(entry.bytes);
            let expires_at = now + self.lease;
            let Some(mut entry) = self.take_out(sequence) else { break };
            let stage = std::mem::replace(&mut entry.stage, Stage::Out { until: expires_at });
            let Stage::Ready(Body::Here(message)) = stage else { break };
            entry.hand_outs += 1;
            let (hand_out, attempt) = (entry.hand_outs, entry.attempt);
            self.put(sequence, entry);
            self.note_state(sequence);
            taken.push(HandOut { sequence, hand_out, message, attempt, expires_at });
        }
        taken
    }

    /// Which entries to load so that so much can be taken. Each is owed [`Self::handle_loaded`].
    pub(crate) fn poll_load(&mut self, capacity: Capacity) -> Vec<Sequence> {
        let mut bytes_left = capacity.bytes;
        let mut wanted = Vec::new();
        for (at, sequence) in self.ready.iter().take(capacity.messages).enumerate() {
            let Some(entry) = self.entries.get_mut(sequence) else { continue };
            if at > 0 && entry.bytes > bytes_left {
                break;
            }
            bytes_left = bytes_left.saturating_sub(entry.bytes);
            if matches!(entry.stage, Stage::Ready(Body::Stored)) {
                entry.stage = Stage::Ready(Body::Loading);
                wanted.push(*sequence);
            }
        }
        // Whoever reads the store writes first, so that what is handed out again is counted before it is.
        wanted.iter().for_each(|sequence| self.note_state(*sequence));
        wanted
    }

    /// What the store had. False when it had nothing that can be read, and the entry is given up.
    pub(crate) fn handle_loaded(&mut self, sequence: Sequence, message: Option<Arc<Message>>) -> bool {
        let Some(entry) = self.entries.get_mut(&sequence) else { return true };
        if !matches!(entry.stage, Stage::Ready(Body::Loading)) {
            return true;
        }
        match message {
            Some(message) => entry.stage = Stage::Ready(Body::Here(message)),
            None => {
                self.take_out(sequence);
                self.changes.removed.insert(sequence);
                return false;
            }
        }
        true
    }

    /// The store could not be read; it is asked again.
    pub(crate) fn handle_not_loaded(&mut self, sequences: impl IntoIterator<Item = Sequence>) {
        for sequence in sequences {
            if let Some(entry) = self.entries.get_mut(&sequence)
                && matches!(entry.stage, Stage::Ready(Body::Loading))
            {
                entry.stage = Stage::Ready(Body::Stored);
            }
        }
    }

    /// Something is said about a hand-out.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        wall: Timestamp,
        (sequence, hand_out): (Sequence, u32),
        verb: &Verb,
        message: &Arc<Message>,
    ) -> Effect {
        let is_final = matches!(verb, Verb::Accept | Verb::Reject { .. });
        let is_open = self.entries.get(&sequence).is_some_and(|entry| {
            entry.hand_outs == hand_out
                && match entry.stage {
                    Stage::Out { .. } => true,
                    // Its lease has run out, and nobody else has got it: done is done.
                    Stage::Ready(_) => is_final,
                    Stage::Writing(_) | Stage::Deferred { .. } | Stage::Removing => false,
                }
        });
        if !is_open {
            return Effect::Gone;
        }
        let Some(mut entry) = self.take_out(sequence) else { return Effect::Gone };
        let mut has_new_state = false;
        entry.stage = match verb {
            Verb::Accept | Verb::Reject { .. } => {
                self.changes.states.remove(&sequence);
                self.changes.removed.insert(sequence);
                Stage::Removing
            }
            Verb::Renew(length) => Stage::Out { until: now + *length },
            Verb::Defer(delay) if !delay.is_zero() => {
                let delay_millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let due = wall.as_unix_millis().saturating_add(delay_millis.max(1));
                entry.stored = State { attempt: entry.attempt, due: Some(Timestamp::from_unix_millis(due)) };
                has_new_state = true;
                Stage::Deferred { due: now + *delay }
            }
            Verb::Defer(_) | Verb::Release => {
                entry.attempt = entry.attempt.saturating_add(1);
                Stage::Ready(Body::Here(Arc::clone(message)))
            }
        };
        let stored = entry.stored;
        self.put(sequence, entry);
        if has_new_state {
            self.changes.states.insert(sequence, stored);
        }
        if is_final { Effect::Removes } else { Effect::Keeps }
    }

    /// The broker has confirmed that it does not hand out this message again.
    pub(crate) fn confirm(&mut self, id: &MessageId) {
        if let Some(entry) = self.ids.get(id).and_then(|sequence| self.entries.get_mut(sequence)) {
            entry.is_confirmed = true;
        } else {
            self.settled.ids.remove(id);
        }
    }

    /// What is to be written now. It is owed [`Self::handle_changed`] or [`Self::handle_not_changed`].
    pub(crate) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// The store has them.
    pub(crate) fn handle_changed(&mut self, changes: &Changes) {
        for sequence in &changes.removed {
            if let Some(entry) = self.take_out(*sequence)
                && !entry.is_confirmed
            {
                self.settled.remember(entry.id);
            }
        }
    }

    /// The store could not take them; they are written later.
    pub(crate) fn handle_not_changed(&mut self, changes: Changes) {
        self.changes.removed.extend(changes.removed);
        for (sequence, state) in changes.states {
            if !self.changes.removed.contains(&sequence) {
                self.changes.states.entry(sequence).or_insert(state);
            }
        }
    }

    /// How much may be received now; `None` when nothing may.
    pub(crate) fn room(&self) -> Option<Capacity> {
        let is_replaying = self.ready.first().is_some_and(|first| *first < self.first_new);
        let messages = self.limits.records.saturating_sub(self.entries.len());
        let bytes = usize::try_from(self.limits.bytes.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        (!is_replaying && messages > 0 && bytes > 0).then_some(Capacity { messages, bytes })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.limits.records <= self.entries.len() || self.limits.bytes <= self.bytes
    }

    pub(crate) fn records(&self) -> usize {
        self.entries.len()
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lowest sequence in the spool, or the next one.
    pub(crate) fn low_water(&self) -> Sequence {
        self.entries.first_key_value().map_or(self.next, |(first, _)| *first)
    }

    /// The sequence of what comes next.
    pub(crate) const fn next(&self) -> Sequence {
        self.next
    }

    /// Notes the attempt of an entry that is handed out, unless the store has it.
    fn note_state(&mut self, sequence: Sequence) {
        let Some(entry) = self.entries.get_mut(&sequence) else { return };
        let state = State { attempt: entry.attempt, due: None };
        if entry.stored != state {
            entry.stored = state;
            self.changes.states.insert(sequence, state);
        }
    }

    /// Takes an entry out, with all that is counted of it.
    fn take_out(&mut self, sequence: Sequence) -> Option<Entry> {
        let entry = self.entries.remove(&sequence)?;
        self.ids.remove(&entry.id);
        self.bytes = self.bytes.saturating_sub(entry.bytes as u64);
        match entry.stage {
            Stage::Ready(_) => {
                self.ready.remove(&sequence);
            }
            Stage::Out { until: at } | Stage::Deferred { due: at } => {
                self.wheel.remove(&(at, sequence));
            }
            Stage::Writing(_) | Stage::Removing => {}
        }
        Some(entry)
    }

    fn put(&mut self, sequence: Sequence, entry: Entry) {
        self.ids.insert(entry.id.clone(), sequence);
        self.bytes = self.bytes.saturating_add(entry.bytes as u64);
        match entry.stage {
            Stage::Ready(_) => {
                self.ready.insert(sequence);
            }
            Stage::Out { until: at } | Stage::Deferred { due: at } => {
                self.wheel.insert((at, sequence));
            }
            Stage::Writing(_) | Stage::Removing => {}
        }
        self.entries.insert(sequence, entry);
    }
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.states.is_empty()
    }
}

impl Settled {
    fn remember(&mut self, id: MessageId) {
        if self.ids.insert(id.clone()) {
            self.order.push_back(id);
        }
        while self.order.len() > SETTLED_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.ids.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests;
