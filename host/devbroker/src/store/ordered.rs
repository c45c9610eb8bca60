//! One group's ordered consumption: many queues, each strictly in order, spread over the group's clients.
//!
//! Serves lite groups (a queue is a lite topic) and orderly groups on FIFO topics (a queue is a queue). Every queue is
//! in exactly one [`Place`], so no two receivers ever hold the same head.

mod cursor;
mod dispatch;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::cursor::{Effect, Take};
pub use self::dispatch::Interest;
pub(crate) use self::dispatch::Rules;

use self::cursor::Cursor;
use self::dispatch::{Dispatch, Offer};
use super::queue::{Entry, Queue};
use super::random::Random;
use super::time::Moment;

/// The client id under which all receivers of an orderly FIFO group share one set of ready queues.
const SHARED: &str = "";

/// A group's consumption of a family of ordered queues.
#[derive(Debug)]
pub(crate) struct Ordered {
    lines: Vec<Line>,
    /// When held queues are due; stale entries are skipped, at most two live ones per queue.
    due: BinaryHeap<Reverse<(Duration, u32)>>,
    dispatch: Dispatch,
    rules: Rules,
    /// What everybody in the group shares, when the group is not dispatched by client.
    shared: Option<Arc<str>>,
    /// Clients (or the shared set) that have something to fetch since the last drain.
    wakes: Vec<Arc<str>>,
}

#[derive(Debug)]
struct Line {
    cursor: Cursor,
    place: Place,
    /// The earliest entry in `due`, so that each queue has few of them.
    armed: Option<Duration>,
}

/// Where a queue stands: idle → ready (waits at a client, or for one) → held → idle or ready again. A ready queue
/// nobody asks for stands aside until a registration changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// Everything in it is acked.
    Idle,
    /// It waits in a client's events or for a scan.
    Ready,
    /// A delivery of it is out.
    Held,
    /// No registered client asks for it.
    Unwanted,
}

/// A delivery out of [`Ordered::take`].
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) queue: u32,
    pub(crate) attempt: u32,
    pub(crate) popped_ms: u64,
    pub(crate) entries: Vec<Entry>,
}

impl Ordered {
    /// A lite group: queues are dispatched to registered clients.
    pub(crate) fn dispatched(rules: Rules, random: Random) -> Self {
        Self {
            lines: Vec::new(),
            due: BinaryHeap::new(),
            dispatch: Dispatch::new(random),
            rules,
            shared: None,
            wakes: Vec::new(),
        }
    }

    /// An orderly group on a FIFO topic: any receiver takes any ready queue.
    pub(crate) fn shared(random: Random) -> Self {
        let forever = Duration::MAX / 4;
        let rules = Rules {
            events_max: usize::MAX,
            backlog_scan_delay: Duration::ZERO,
            full_scan_delay: Duration::ZERO,
            inactive_after: forever,
            silent_after: forever,
            blocked_for: Duration::ZERO,
            registration_expires_after: forever,
        };
        let mut group = Self::dispatched(rules, random);
        let everyone: Arc<str> = Arc::from(SHARED);
        group.dispatch.join(Duration::ZERO, &everyone, Interest::Everything, &rules);
        group.shared = Some(everyone);
        group
    }

    /// Sets the bound of events that wait at one client.
    pub(crate) fn set_events_max(&mut self, events_max: usize) {
        self.rules.events_max = events_max;
    }

    /// Takes note of a queue that got a message, and of queues it has not seen before.
    pub(crate) fn handle_appended(&mut self, now: Moment, queues: &[Queue], queue: u32) {
        self.learn(now, queues);
        self.place(now, queues, queue);
    }

    /// Learns all queues there are.
    pub(crate) fn learn(&mut self, now: Moment, queues: &[Queue]) {
        for (index, queue) in queues.iter().enumerate().skip(self.lines.len()) {
            let cursor = Cursor::starting_at(queue.base());
            self.lines.push(Line { cursor, place: Place::Idle, armed: None });
            self.place(now, queues, u32::try_from(index).unwrap_or(u32::MAX));
        }
    }

    /// Registers a client for dispatch, or renews it.
    pub(crate) fn join(&mut self, now: Moment, queues: &[Queue], client: &Arc<str>, interest: Interest) {
        let changed = self.dispatch.join(now.since_start, client, interest, &self.rules);
        if changed {
            for queue in 0..u32::try_from(self.lines.len()).unwrap_or(u32::MAX) {
                if self.lines[queue as usize].place == Place::Unwanted {
                    self.place(now, queues, queue);
                }
            }
        }
        if self.rules.backlog_scan_delay.is_zero() {
            self.scan(now, queues);
        }
    }

    /// Ends a client's registration; what waited there goes to others.
    pub(crate) fn leave(&mut self, now: Moment, queues: &[Queue], client: &str) {
        for queue in self.dispatch.leave(client) {
            self.offer_again(now, queues, queue);
        }
    }

    /// What a client is registered for.
    pub(crate) fn interest(&self, client: &str) -> Option<&Interest> {
        self.dispatch.interest(client)
    }

    /// The registered client ids.
    pub(crate) fn clients(&self) -> impl Iterator<Item = &Arc<str>> {
        self.dispatch.clients()
    }

    /// Gives the next deliveries of the queues that wait at `client`, up to `ask.count_max` messages.
    pub(crate) fn take(&mut self, now: Moment, queues: &[Queue], client: &str, ask: Take<'_>) -> Vec<Taken> {
        let mut all = Vec::new();
        let mut left = ask.count_max;
        let events_of = self.shared.clone();
        let events_of = events_of.as_deref().unwrap_or(client);
        let holder = self.shared.clone().unwrap_or_else(|| Arc::clone(ask.holder));
        while left > 0 {
            let Some(queue) = self.dispatch.poll(now.since_start, events_of).and_then(|all| all.pop_front())
            else {
                break;
            };
            let Some(line) = self.lines.get_mut(queue as usize) else { continue };
            let log = &queues[queue as usize];
            line.cursor.skip_to(log.base());
            let ask = Take { count_max: left, holder: &holder, ..ask };
            if let Some(batch) = line.cursor.take(now, log.end(), ask) {
                let offsets = batch.first..batch.first + u64::from(batch.count);
                let entries: Vec<Entry> = offsets.filter_map(|offset| log.get(offset).cloned()).collect();
                left = left.saturating_sub(batch.count);
                all.push(Taken { queue, attempt: batch.attempt, popped_ms: batch.popped_ms, entries });
            }
            line.place = Place::Idle;
            self.place(now, queues, queue);
        }
        if self.dispatch.refills_at_once(&self.rules) {
            self.scan(now, queues);
        }
        all
    }

    /// Acks the offset a handle shows.
    pub(crate) fn ack(
        &mut self,
        now: Moment,
        queues: &[Queue],
        queue: u32,
        popped_ms: u64,
        offset: u64,
    ) -> Effect {
        self.learn(now, queues);
        let Some(line) = self.lines.get_mut(queue as usize) else { return Effect::None };
        let log = &queues[queue as usize];
        line.cursor.skip_to(log.base());
        let effect = line.cursor.ack(popped_ms, offset, log.end());
        self.settle(now, queues, queue);
        effect
    }

    /// Moves the time at which the offset a handle shows is due.
    pub(crate) fn change(
        &mut self,
        now: Moment,
        queues: &[Queue],
        delivery: (u32, u64, u64),
        (invisible, suspended): (Duration, bool),
    ) -> Effect {
        let (queue, popped_ms, offset) = delivery;
        let Some(line) = self.lines.get_mut(queue as usize) else { return Effect::None };
        let due = now.since_start.saturating_add(invisible);
        let effect = line.cursor.change(popped_ms, offset, due, suspended);
        self.settle(now, queues, queue);
        effect
    }

    /// The offset below which this group needs nothing of a queue.
    pub(crate) fn committed(&self, queue: u32) -> u64 {
        self.lines.get(queue as usize).map_or(0, |line| line.cursor.committed())
    }

    /// Forgets registrations and deliveries that are out, as a broker does that is killed.
    pub(crate) fn forget(&mut self, now: Moment, queues: &[Queue]) {
        if let Some(everyone) = self.shared.clone() {
            self.dispatch.clear();
            self.dispatch.join(now.since_start, &everyone, Interest::Everything, &self.rules);
        } else {
            self.dispatch.clear();
        }
        self.due.clear();
        for line in &mut self.lines {
            line.cursor.forget_held();
            line.place = Place::Idle;
            line.armed = None;
        }
        for queue in 0..u32::try_from(self.lines.len()).unwrap_or(u32::MAX) {
            self.place(now, queues, queue);
        }
    }

    /// Does what time has made due.
    pub(crate) fn handle_timeout(&mut self, now: Moment, queues: &[Queue]) {
        while let Some(Reverse((due, queue))) = self.due.peek().copied() {
            if due > now.since_start {
                break;
            }
            self.due.pop();
            let Some(line) = self.lines.get_mut(queue as usize) else { continue };
            if line.armed == Some(due) {
                line.armed = None;
            }
            self.settle(now, queues, queue);
        }
        let (freed, scan) = self.dispatch.handle_timeout(now.since_start, &self.rules);
        for queue in freed {
            self.offer_again(now, queues, queue);
        }
        if scan {
            self.scan(now, queues);
        }
    }

    /// When [`Ordered::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        let due = self.due.peek().map(|Reverse((due, _))| *due);
        due.into_iter().chain(self.dispatch.poll_timeout(&self.rules)).min()
    }

    /// Clients that have something to fetch since the last call; for a shared group the empty id.
    pub(crate) fn drain_wakes(&mut self) -> std::vec::Drain<'_, Arc<str>> {
        self.wakes.drain(..)
    }

    /// Looks again at a held or idle queue; a ready one waits where it is.
    fn settle(&mut self, now: Moment, queues: &[Queue], queue: u32) {
        if self.lines.get(queue as usize).is_some_and(|line| line.place != Place::Ready) {
            self.place(now, queues, queue);
        }
    }

    /// Puts a queue that is not ready into the place it belongs to.
    fn place(&mut self, now: Moment, queues: &[Queue], queue: u32) {
        let Some(line) = self.lines.get_mut(queue as usize) else { return };
        if line.place == Place::Ready {
            return;
        }
        if line.cursor.committed() >= queues[queue as usize].end() {
            line.place = Place::Idle;
            return;
        }
        if let Some(due) = line.cursor.blocked_until(now) {
            line.place = Place::Held;
            if line.armed.is_none_or(|armed| due < armed) {
                line.armed = Some(due);
                self.due.push(Reverse((due, queue)));
            }
            return;
        }
        line.place = Place::Ready;
        self.offer_again(now, queues, queue);
    }

    fn offer_again(&mut self, now: Moment, queues: &[Queue], queue: u32) {
        let name = queues[queue as usize].name.as_ref();
        match self.dispatch.offer(now.since_start, queue, name, &self.rules) {
            Offer::Given(client) if self.wakes.last() != Some(&client) => self.wakes.push(client),
            Offer::Given(_) | Offer::Waits => {}
            Offer::Unwanted => self.lines[queue as usize].place = Place::Unwanted,
        }
    }

    /// Offers the queues that wait for a client, until there is no room.
    fn scan(&mut self, now: Moment, queues: &[Queue]) {
        let mut waiting = self.dispatch.take_unassigned();
        while self.dispatch.has_room(now.since_start, &self.rules) {
            let Some(queue) = waiting.pop_front() else { break };
            self.offer_again(now, queues, queue);
        }
        self.dispatch.put_back(now.since_start, waiting, &self.rules);
    }
}

#[cfg(test)]
mod tests;
