//! Which client of a group gets which ready queue.
//!
//! A ready queue is an *event* that goes to one registered client id, chosen at random, and waits there until that
//! client receives. A client that leaves events lying is passed over for a while, and its events go to others. When no
//! client has room the queue waits for a scan. All of it is as measured on 5.5.0; the numbers are [`Rules`].

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::super::random::Random;

/// The times and bounds of dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Ready queues that wait at one client at most.
    pub(crate) events_max: usize,
    /// From a client's registration to the scan that shows it the backlog.
    pub(crate) backlog_scan_delay: Duration,
    /// From the moment no client had room to the scan that tries again. Zero: as soon as a client made room.
    pub(crate) full_scan_delay: Duration,
    /// A client with events that does not poll for so long loses them.
    pub(crate) inactive_after: Duration,
    /// A client that has not polled at all for so long is not chosen.
    pub(crate) silent_after: Duration,
    /// How long a client that lost its events is passed over.
    pub(crate) blocked_for: Duration,
    /// A registration not renewed for so long ends.
    pub(crate) registration_expires_after: Duration,
}

/// What a registration covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Interest {
    /// Every lite topic of the bound topic.
    Everything,
    /// Only these lite topics.
    Names(HashSet<Arc<str>>),
}

/// The registered clients of a group and the events given to them.
#[derive(Debug)]
pub(crate) struct Dispatch {
    members: Vec<Member>,
    /// Ready queues no client had room for, oldest first.
    unassigned: VecDeque<u32>,
    scan_at: Option<Duration>,
    random: Random,
}

/// What became of an offered queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Offer {
    /// It waits at this client.
    Given(Arc<str>),
    /// It waits for a scan.
    Waits,
    /// Clients are registered, but none for this queue.
    Unwanted,
}

#[derive(Debug)]
struct Member {
    client: Arc<str>,
    interest: Interest,
    events: VecDeque<u32>,
    last_poll: Duration,
    /// When the oldest of `events` began to wait.
    waiting_since: Duration,
    blocked_until: Duration,
    renewed_at: Duration,
}

impl Dispatch {
    pub(crate) fn new(random: Random) -> Self {
        Self { members: Vec::new(), unassigned: VecDeque::new(), scan_at: None, random }
    }

    /// The registered client ids.
    pub(crate) fn clients(&self) -> impl Iterator<Item = &Arc<str>> {
        self.members.iter().map(|member| &member.client)
    }

    /// What a client is registered for.
    pub(crate) fn interest(&self, client: &str) -> Option<&Interest> {
        self.members.iter().find(|member| *member.client == *client).map(|member| &member.interest)
    }

    /// Registers a client or renews its registration. Says whether that changed what it gets.
    pub(crate) fn join(
        &mut self,
        now: Duration,
        client: &Arc<str>,
        interest: Interest,
        rules: &Rules,
    ) -> bool {
        if let Some(member) = self.members.iter_mut().find(|member| member.client == *client) {
            member.renewed_at = now;
            let grown = member.interest != interest;
            member.interest = interest;
            if !grown {
                return false;
            }
        } else {
            self.members.push(Member {
                client: Arc::clone(client),
                interest,
                events: VecDeque::new(),
                last_poll: now,
                waiting_since: now,
                blocked_until: Duration::ZERO,
                renewed_at: now,
            });
        }
        if !self.unassigned.is_empty() {
            self.scan_no_later_than(now + rules.backlog_scan_delay);
        }
        true
    }

    /// Ends a client's registration. Its events go back to the caller, to be offered again.
    pub(crate) fn leave(&mut self, client: &str) -> Vec<u32> {
        let Some(at) = self.members.iter().position(|member| *member.client == *client) else {
            return Vec::new();
        };
        self.members.swap_remove(at).events.into()
    }

    /// Forgets every client and every event, as a broker does that is killed.
    pub(crate) fn clear(&mut self) {
        self.members.clear();
        self.unassigned.clear();
        self.scan_at = None;
    }

    /// Gives a ready queue to a client; without room anywhere the queue waits for the next scan.
    pub(crate) fn offer(
        &mut self,
        now: Duration,
        queue: u32,
        name: Option<&Arc<str>>,
        rules: &Rules,
    ) -> Offer {
        let Some(at) = self.choose(now, name, rules) else {
            if !self.members.is_empty() && !self.members.iter().any(|member| member.interest.covers(name)) {
                return Offer::Unwanted;
            }
            self.unassigned.push_back(queue);
            self.schedule_scan(now, rules);
            return Offer::Waits;
        };
        let member = &mut self.members[at];
        if member.events.is_empty() {
            member.waiting_since = now;
        }
        member.events.push_back(queue);
        Offer::Given(Arc::clone(&member.client))
    }

    /// The queues waiting at a client, to be taken from the front. Marks the client as polling.
    pub(crate) fn poll(&mut self, now: Duration, client: &str) -> Option<&mut VecDeque<u32>> {
        let member = self.members.iter_mut().find(|member| *member.client == *client)?;
        member.last_poll = now;
        member.waiting_since = now;
        Some(&mut member.events)
    }

    /// Whether room made by a poll is to be filled at once.
    pub(crate) fn refills_at_once(&self, rules: &Rules) -> bool {
        rules.full_scan_delay.is_zero() && !self.unassigned.is_empty()
    }

    /// Takes the queues that wait for a client, to be offered again.
    pub(crate) fn take_unassigned(&mut self) -> VecDeque<u32> {
        self.scan_at = None;
        std::mem::take(&mut self.unassigned)
    }

    /// Puts queues that found no room back in front of the others.
    pub(crate) fn put_back(&mut self, now: Duration, mut waiting: VecDeque<u32>, rules: &Rules) {
        if waiting.is_empty() {
            return;
        }
        waiting.append(&mut self.unassigned);
        self.unassigned = waiting;
        self.schedule_scan(now, rules);
    }

    /// Whether any client could take an event now.
    pub(crate) fn has_room(&self, now: Duration, rules: &Rules) -> bool {
        self.members.iter().any(|member| member.may_take(now, rules))
    }

    /// Drops what is due to be dropped; gives the events to offer again and whether a scan is due.
    pub(crate) fn handle_timeout(&mut self, now: Duration, rules: &Rules) -> (Vec<u32>, bool) {
        let mut freed = Vec::new();
        self.members.retain_mut(|member| {
            let expired = now >= member.renewed_at + rules.registration_expires_after;
            let idle_since = member.last_poll.max(member.waiting_since);
            if expired || (!member.events.is_empty() && now >= idle_since + rules.inactive_after) {
                freed.extend(member.events.drain(..));
                member.blocked_until = now + rules.blocked_for;
            }
            !expired
        });
        let scan = self.scan_at.is_some_and(|at| at <= now);
        if scan {
            self.scan_at = None;
        }
        (freed, scan)
    }

    /// When [`Dispatch::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self, rules: &Rules) -> Option<Duration> {
        let members = self.members.iter().map(|member| member.next_check(rules));
        members.chain(self.scan_at).min()
    }

    /// With a delay of zero only the end of a client's penalty needs a timer: room is otherwise made by polls.
    fn schedule_scan(&mut self, now: Duration, rules: &Rules) {
        if rules.full_scan_delay.is_zero() {
            let freed_at =
                self.members.iter().map(|member| member.blocked_until).filter(|until| *until > now);
            if let Some(at) = freed_at.min() {
                self.scan_no_later_than(at);
            }
        } else if !self.members.is_empty() {
            self.scan_no_later_than(now + rules.full_scan_delay);
        }
    }

    fn scan_no_later_than(&mut self, at: Duration) {
        self.scan_at = Some(self.scan_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn choose(&mut self, now: Duration, name: Option<&Arc<str>>, rules: &Rules) -> Option<usize> {
        let count = self.members.len();
        if count == 0 {
            return None;
        }
        let start = self.random.below(count);
        (0..count).map(|step| (start + step) % count).find(|at| {
            let member = &self.members[*at];
            member.may_take(now, rules) && member.interest.covers(name)
        })
    }
}

impl Member {
    fn may_take(&self, now: Duration, rules: &Rules) -> bool {
        now >= self.blocked_until
            && self.events.len() < rules.events_max
            && now < self.last_poll.max(self.waiting_since) + rules.silent_after
    }

    fn next_check(&self, rules: &Rules) -> Duration {
        let expiry = self.renewed_at + rules.registration_expires_after;
        if self.events.is_empty() {
            return expiry;
        }
        expiry.min(self.last_poll.max(self.waiting_since) + rules.inactive_after)
    }
}

impl Interest {
    fn covers(&self, name: Option<&Arc<str>>) -> bool {
        match self {
            Self::Everything => true,
            Self::Names(names) => name.is_some_and(|name| names.contains(name)),
        }
    }
}
