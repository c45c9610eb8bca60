//! What a ready session does by the clock: heartbeats, and the renewal of the wildcard subscription.

use std::time::Duration;

use tidegate_model::Instant;

use crate::fault::CallError;

/// After a session is ready, and from then on. Brokers drop a client that is silent for 35 s.
const HEARTBEAT_FIRST: Duration = Duration::from_secs(1);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Brokers drop a subscription that was not renewed for three minutes.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);
/// After broker trouble, until the server says OK: with the normal interval a consumer got nothing for 62 s
/// (measured), because the renewal fell into a gap of the proxy's cache.
const SYNC_INTERVAL_TROUBLE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Heartbeats {
    due: Instant,
    in_flight: bool,
    /// In a row, without an answer.
    pub(super) timeouts: u32,
}

impl Heartbeats {
    pub(super) fn new(now: Instant) -> Self {
        Self { due: now + HEARTBEAT_FIRST, in_flight: false, timeouts: 0 }
    }

    /// The next one soon: a session has become ready.
    pub(super) fn hasten(&mut self, now: Instant) {
        self.due = now + HEARTBEAT_FIRST;
    }

    pub(super) fn due(&self) -> Option<Instant> {
        (!self.in_flight).then_some(self.due)
    }

    /// True when one is due: it is then in flight.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let begins = !self.in_flight && self.due <= now;
        self.in_flight |= begins;
        begins
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.in_flight = false;
        self.due = now + HEARTBEAT_INTERVAL;
    }
}

/// What is said to the server about the wildcard subscription.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SyncKind {
    /// It is wanted, as before.
    Add,
    /// It is wanted anew: first take it back.
    Fresh,
    /// It is not wanted now.
    Remove,
}

#[derive(Debug)]
pub(super) struct Subscription {
    due: Instant,
    in_flight: Option<SyncKind>,
    /// Whether it is to be in force. A subscribed client that does not receive is offered lite topics all the same, and
    /// holds each of them up for ten seconds before another gets it.
    wanted: bool,
    /// The server has taken it since the session began.
    taken: bool,
    /// The server has taken it back since the session began.
    taken_back: bool,
    /// Asked for while one was in flight.
    again: bool,
    /// The next one is to be made anew.
    fresh: bool,
    problem: Option<CallError>,
}

impl Subscription {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            due: now,
            in_flight: None,
            wanted: true,
            taken: false,
            taken_back: false,
            again: false,
            fresh: false,
            problem: None,
        }
    }

    pub(super) const fn is_taken(&self) -> bool {
        self.taken
    }

    pub(super) const fn problem(&self) -> Option<&CallError> {
        self.problem.as_ref()
    }

    /// Nothing is due while it is neither wanted nor in force.
    pub(super) fn due(&self) -> Option<Instant> {
        let idle = self.in_flight.is_none() && (self.wanted || !self.taken_back);
        idle.then_some(self.due)
    }

    /// Whether it is to be in force from now on.
    pub(super) const fn want(&mut self, now: Instant, wanted: bool) {
        if self.wanted != wanted {
            self.wanted = wanted;
            self.hasten(now);
        }
    }

    /// The next one now.
    pub(super) const fn hasten(&mut self, now: Instant) {
        self.due = now;
        self.again = self.in_flight.is_some();
    }

    /// Made anew now, if it is in force.
    pub(super) const fn refresh(&mut self, now: Instant) {
        if self.taken && self.wanted {
            self.fresh = true;
            self.hasten(now);
        }
    }

    /// Brokers may have lost it.
    pub(super) fn trouble(&mut self, now: Instant) {
        self.due = self.due.min(now + SYNC_INTERVAL_TROUBLE);
    }

    /// The session is gone.
    pub(super) const fn lose(&mut self) {
        self.taken = false;
        self.taken_back = false;
    }

    /// What is to be said, when that is due: it is then in flight.
    pub(super) fn begin(&mut self, now: Instant) -> Option<SyncKind> {
        if self.due()? > now {
            return None;
        }
        let fresh = std::mem::take(&mut self.fresh);
        let sync = match (self.wanted, fresh) {
            (false, _) => SyncKind::Remove,
            (true, true) => SyncKind::Fresh,
            (true, false) => SyncKind::Add,
        };
        self.in_flight = Some(sync);
        Some(sync)
    }

    /// Takes the result of the one in flight; gives what is worth telling, which a repeated failure is not.
    #[allow(clippy::option_option, reason = "nothing to tell, told that it worked, told that it did not")]
    pub(super) fn end(&mut self, now: Instant, result: Result<(), CallError>) -> Option<Option<CallError>> {
        let removed = self.in_flight.take() == Some(SyncKind::Remove);
        match result {
            Ok(()) => {
                (self.taken, self.taken_back) = (!removed, removed);
                self.problem = None;
                self.due = if std::mem::take(&mut self.again) { now } else { now + SYNC_INTERVAL };
                (!removed).then_some(None)
            }
            Err(error) => {
                self.again = false;
                self.due = now + SYNC_INTERVAL_TROUBLE;
                if removed {
                    // Nobody misses what could not be taken back; it is tried again.
                    return None;
                }
                let repeated = self.problem.as_ref() == Some(&error);
                self.problem = Some(error.clone());
                (!repeated).then_some(Some(error))
            }
        }
    }
}
