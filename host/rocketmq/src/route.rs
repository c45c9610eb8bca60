//! Where a topic's messages are, and whom to ask next, without I/O.
//!
//! A route lists queues; each broker pops from all of its queues whatever queue it is asked for, so one readable queue
//! of the master is kept per broker name. Receives rotate over brokers: the one with the fewest receives in flight,
//! then the one asked longest ago. A broker that fails is left alone for 100 ms, doubling to 30 s: one that is down
//! answers at once, and would be asked in a hot loop.

mod table;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use table::{Queue, queues_of};
use tidegate_connector::Backoff;
use tidegate_model::{Instant, Routing};
use tidegate_proto::rocketmq as proto;

use crate::endpoints::Endpoints;
use crate::fault::CallError;

const REFRESH_FIRST: Duration = Duration::from_secs(10);
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Wait after a failed query: short at first, so that a start is quick, then as often as a route is refreshed at all.
const QUERY_WAIT_FIRST: Duration = Duration::from_millis(200);
const QUERY_WAIT_MAX: Duration = Duration::from_secs(5);
const PENALTY_FIRST: Duration = Duration::from_millis(100);
const PENALTY_MAX: Duration = Duration::from_secs(30);
/// Proxies hold an empty poll for at least 5 s; an empty answer before this time came from no poll at all.
const EMPTY_POLL_MIN: Duration = Duration::from_secs(1);
/// So many of them in a row are let pass: several receives that wake up for one message are normal.
const QUICK_EMPTY_MAX: u32 = 3;
/// Longest wait after quick empty answers.
const QUICK_EMPTY_WAIT_MAX: Duration = Duration::from_secs(1);
/// After a failure, a receive that has been in flight for so long is being held by a broker that is there again: one
/// that is down answers at once.
const HELD_MIN: Duration = Duration::from_secs(2);
/// What proxies make of a shorter poll.
pub(crate) const POLL_MIN: Duration = Duration::from_secs(5);

/// The state machine of a consumer's route.
#[derive(Debug)]
pub(crate) struct Route {
    seats: Vec<Seat>,
    endpoints: Vec<Endpoints>,
    query_due: Option<Instant>,
    query_backoff: Backoff,
    started: bool,
    problem: Option<CallError>,
    turns: u64,
    seed: u64,
}

/// One broker as a place to receive from.
#[derive(Debug)]
struct Seat {
    queue: Arc<Queue>,
    in_flight: usize,
    last_turn: u64,
    penalty: Backoff,
    quick_empties: u32,
    not_before: Instant,
    /// When the last receive began.
    asked_at: Instant,
    /// Whether the last receive that ended had failed.
    failing: bool,
}

/// Whom to ask now.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// This broker; ends with [`Route::end`].
    Ask(Arc<Queue>),
    /// Everyone who could be asked is left alone until this time.
    Wait(Instant),
    /// There is no route, or no session with any of its endpoints.
    Nobody,
}

/// How a receive ended, as far as the route cares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    Messages,
    Empty {
        after: Duration,
    },
    Failed,
    /// For want of keys or rights.
    Refused,
}

/// The route as it is now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Change {
    /// Every endpoint behind which a broker is.
    pub(crate) endpoints: Vec<Endpoints>,
    /// Readable brokers.
    pub(crate) brokers: usize,
}

impl Route {
    pub(crate) fn new(now: Instant, seed: u64) -> Self {
        Self {
            seats: Vec::new(),
            endpoints: Vec::new(),
            query_due: Some(now),
            query_backoff: Backoff::new(QUERY_WAIT_FIRST, QUERY_WAIT_MAX, seed),
            started: false,
            problem: None,
            turns: 0,
            seed,
        }
    }

    /// Why the last query failed, if it did.
    pub(crate) const fn problem(&self) -> Option<&CallError> {
        self.problem.as_ref()
    }

    /// When the next query is due; `None` while one is in flight.
    pub(crate) const fn query_due(&self) -> Option<Instant> {
        self.query_due
    }

    /// True when a query is due: it is then in flight.
    pub(crate) fn begin_query(&mut self, now: Instant) -> bool {
        let due = self.query_due.is_some_and(|due| due <= now);
        if due {
            self.query_due = None;
        }
        due
    }

    /// A query ended. An old route outlives failures: proxies forget topics for some seconds after broker trouble.
    pub(crate) fn handle_queues(
        &mut self,
        now: Instant,
        result: Result<Vec<proto::MessageQueue>, CallError>,
        routing: impl Fn(&Endpoints) -> Arc<Routing>,
    ) -> Option<Change> {
        let queues = match result {
            Ok(queues) => queues,
            Err(error) => {
                self.query_due = Some(now + self.query_backoff.next_wait());
                self.problem = Some(error);
                return None;
            }
        };
        let wait = if self.started { REFRESH_INTERVAL } else { REFRESH_FIRST };
        self.query_due = Some(now + wait);
        self.query_backoff.reset();
        self.problem = None;
        self.started = true;
        let (readable, endpoints) = table::readable_masters(queues, routing);
        let brokers_before: Vec<_> = self.seats.iter().map(|seat| Arc::clone(&seat.queue)).collect();
        self.seat(now, readable);
        let same = self.endpoints == endpoints
            && brokers_before.len() == self.seats.len()
            && self.seats.iter().zip(&brokers_before).all(|(seat, before)| seat.queue == *before);
        if same {
            return None;
        }
        self.endpoints.clone_from(&endpoints);
        Some(Change { endpoints, brokers: self.seats.len() })
    }

    /// Chooses whom to ask. `is_ready` tells whether there is a session with an endpoint.
    pub(crate) fn begin(&mut self, now: Instant, is_ready: impl Fn(&Endpoints) -> bool) -> Next {
        let ready = self.seats.iter_mut().filter(|seat| is_ready(&seat.queue.endpoints));
        let (mut best, mut earliest) = (None::<&mut Seat>, None::<Instant>);
        for seat in ready {
            if seat.not_before > now {
                earliest = Some(earliest.map_or(seat.not_before, |at| at.min(seat.not_before)));
                continue;
            }
            let order = (seat.in_flight, seat.last_turn);
            if best.as_ref().is_none_or(|best| order < (best.in_flight, best.last_turn)) {
                best = Some(seat);
            }
        }
        match (best, earliest) {
            (Some(seat), _) => {
                self.turns += 1;
                seat.last_turn = self.turns;
                seat.in_flight += 1;
                seat.asked_at = now;
                Next::Ask(Arc::clone(&seat.queue))
            }
            (None, Some(at)) => Next::Wait(at),
            (None, None) => Next::Nobody,
        }
    }

    /// A receive that [`begin`](Self::begin) chose has ended.
    pub(crate) fn end(&mut self, now: Instant, broker: &str, ended: Ended) {
        let Some(seat) = self.seats.iter_mut().find(|seat| &*seat.queue.broker == broker) else { return };
        seat.in_flight = seat.in_flight.saturating_sub(1);
        match ended {
            Ended::Messages => seat.clear(),
            Ended::Empty { after } if after >= EMPTY_POLL_MIN => seat.clear(),
            Ended::Empty { .. } => {
                seat.failing = false;
                seat.quick_empties += 1;
                if seat.quick_empties > QUICK_EMPTY_MAX {
                    seat.not_before = now + seat.penalty.next_wait().min(QUICK_EMPTY_WAIT_MAX);
                }
            }
            Ended::Failed => seat.fail(now),
            // Any broker refuses them, and whoever receives waits before it asks again: a wait here would come on top.
            Ended::Refused => seat.failing = true,
        }
    }

    /// Whether a broker serves us now, as far as its last answers tell. `is_joined` tells whether there is a session with
    /// an endpoint in which everything is agreed.
    pub(crate) fn is_served(&self, now: Instant, is_joined: impl Fn(&Endpoints) -> bool) -> bool {
        let mut joined = self.seats.iter().filter(|seat| is_joined(&seat.queue.endpoints));
        joined.any(|seat| !seat.failing || seat.is_held(now))
    }

    /// How long one receive may wait at the broker: all of `await_duration`, unless there are more brokers than
    /// receives in flight, when each broker gets its turn at least every ten seconds or so. (A broker drops a client
    /// with pending events that has not polled for ten seconds.)
    pub(crate) fn poll_duration(&self, await_duration: Duration, concurrency: usize) -> Duration {
        let brokers = self.seats.len();
        if brokers <= concurrency {
            return await_duration;
        }
        let share = u32::try_from(brokers.div_ceil(concurrency.max(1))).unwrap_or(u32::MAX);
        (await_duration / share).max(POLL_MIN).min(await_duration)
    }

    /// Takes over seats of brokers that stay, with what is known about them.
    fn seat(&mut self, now: Instant, readable: Vec<Queue>) {
        let mut old = std::mem::take(&mut self.seats);
        for queue in readable {
            let at = old.iter().position(|seat| seat.queue.broker == queue.broker);
            let mut seat = match at {
                Some(at) => old.swap_remove(at),
                None => Seat {
                    queue: Arc::new(queue.clone()),
                    in_flight: 0,
                    last_turn: 0,
                    penalty: Backoff::new(PENALTY_FIRST, PENALTY_MAX, self.seed ^ self.turns),
                    quick_empties: 0,
                    not_before: now,
                    asked_at: now,
                    failing: false,
                },
            };
            if *seat.queue != queue {
                seat.queue = Arc::new(queue);
            }
            self.seats.push(seat);
        }
    }
}

impl Seat {
    fn fail(&mut self, now: Instant) {
        self.failing = true;
        // Receives that were in flight together fail together: that is one failure.
        if self.not_before <= now {
            self.not_before = now + self.penalty.next_wait();
        }
    }

    fn clear(&mut self) {
        self.penalty.reset();
        self.quick_empties = 0;
        self.not_before = Instant::ZERO;
        self.failing = false;
    }

    /// Whether the broker holds a receive open.
    fn is_held(&self, now: Instant) -> bool {
        self.in_flight > 0 && now.saturating_since(self.asked_at) >= HELD_MIN
    }
}

#[cfg(test)]
mod tests;
