//! One broker's store behind its lock, with those who wait for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::store::{Moment, Store, StoreOptions, Wake};

/// A store, its waiters and its timer.
#[derive(Debug)]
pub(crate) struct Cell {
    name: Arc<str>,
    state: Mutex<State>,
    timer: Notify,
}

#[derive(Debug)]
struct State {
    store: Store,
    waiters: HashMap<Wake, Waiters>,
    outage: Outage,
    /// What the time keeper sleeps towards.
    timer_at: Option<Duration>,
}

#[derive(Debug, Default)]
struct Waiters {
    notify: Arc<Notify>,
    count: usize,
}

/// A killed broker's times.
#[derive(Clone, Copy, Debug, Default)]
struct Outage {
    down_until: Duration,
    unknown_until: Duration,
    restarts: u64,
}

/// Whether a broker can be asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Availability {
    /// Yes.
    Up,
    /// Its process is dead: the proxy cannot connect.
    Down,
    /// It is back, but the proxy remembers for a while that its topics and groups were not found.
    Unknown,
}

/// A place in the line of those who wait for messages. Leaving the line is dropping it.
pub(crate) struct Waiting<'a> {
    cell: &'a Cell,
    wake: Wake,
    notify: Arc<Notify>,
    restarts: u64,
}

impl Cell {
    pub(crate) fn new(options: StoreOptions) -> Self {
        Self {
            name: Arc::clone(&options.broker),
            state: Mutex::new(State {
                store: Store::new(options),
                waiters: HashMap::new(),
                outage: Outage::default(),
                timer_at: None,
            }),
            timer: Notify::new(),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Runs a command, wakes whom it woke, and tells the time keeper of an earlier deadline.
    pub(crate) fn run<T>(&self, clock: &Clock, command: impl FnOnce(&mut Store, Moment) -> T) -> T {
        let mut state = self.state.lock();
        let value = command(&mut state.store, clock.now());
        state.wake();
        if state.store.poll_timeout() != state.timer_at && state.must_hurry() {
            self.timer.notify_one();
        }
        value
    }

    /// Joins the line of a wake.
    pub(crate) fn wait(&self, wake: Wake) -> Waiting<'_> {
        let mut state = self.state.lock();
        let restarts = state.outage.restarts;
        let waiters = state.waiters.entry(wake.clone()).or_default();
        waiters.count += 1;
        Waiting { cell: self, wake, notify: Arc::clone(&waiters.notify), restarts }
    }

    pub(crate) fn availability(&self, now: Moment) -> Availability {
        let outage = self.state.lock().outage;
        match now.since_start {
            at if at < outage.down_until => Availability::Down,
            at if at < outage.unknown_until => Availability::Unknown,
            _ => Availability::Up,
        }
    }

    /// Kills the broker and starts it again.
    pub(crate) fn restart(&self, clock: &Clock, down: Duration, unknown: Duration) {
        let now = clock.now();
        let mut state = self.state.lock();
        state.store.forget_deliveries(now);
        let down_until = now.since_start.saturating_add(down);
        let restarts = state.outage.restarts + 1;
        state.outage = Outage { down_until, unknown_until: down_until.saturating_add(unknown), restarts };
        while state.store.poll_wake().is_some() {}
        for waiters in state.waiters.values() {
            waiters.notify.notify_waiters();
        }
        self.timer.notify_one();
    }

    /// The next deadline, which the time keeper now sleeps towards.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        state.timer_at = state.store.poll_timeout();
        state.timer_at
    }

    /// Ends when there is an earlier deadline.
    pub(crate) async fn timeout_changed(&self) {
        self.timer.notified().await;
    }
}

impl State {
    fn wake(&mut self) {
        while let Some(wake) = self.store.poll_wake() {
            if let Some(waiters) = self.waiters.get(&wake) {
                waiters.notify.notify_one();
            }
        }
    }

    fn must_hurry(&self) -> bool {
        match (self.store.poll_timeout(), self.timer_at) {
            (Some(due), Some(at)) => due < at,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

impl Waiting<'_> {
    /// Whether the broker was killed since the wait began.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.cell.state.lock().outage.restarts != self.restarts
    }

    /// A future that ends at the next wake. Make it before looking for messages, or a wake in between is lost.
    pub(crate) fn notified(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.cell.state.lock();
        if let Some(waiters) = state.waiters.get_mut(&self.wake) {
            waiters.count -= 1;
            if waiters.count == 0 {
                state.waiters.remove(&self.wake);
            }
        }
    }
}
