//! Whether anything is sent at all, without I/O: shut while all fails, opened by a single try.

use std::time::Duration;

use tidegate_connector::Backoff;
use tidegate_model::Instant;

/// Waits of a sink that can send nothing: the first, then doubling to the longest, as receives do.
pub(super) const WAIT_FIRST: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Shut after a failure that was the last word, until a try works.
#[derive(Debug)]
pub(super) struct Gate {
    backoff: Backoff,
    shut: Option<Shut>,
    last_success: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Shut {
    /// When it was shut first.
    since: Instant,
    /// When it was shut last.
    at: Instant,
    /// When the next try may be made.
    until: Instant,
}

impl Gate {
    pub(super) const fn new(seed: u64) -> Self {
        Self { backoff: Backoff::new(WAIT_FIRST, WAIT_MAX, seed), shut: None, last_success: None }
    }

    pub(super) const fn is_shut(&self) -> bool {
        self.shut.is_some()
    }

    /// When the next try may be made, while it is shut.
    pub(super) fn until(&self) -> Option<Instant> {
        self.shut.map(|shut| shut.until)
    }

    /// Whether something may be sent now beside `in_flight` others. After a wait it is one alone.
    pub(super) fn lets_pass(&self, now: Instant, in_flight: usize) -> bool {
        self.shut.is_none_or(|shut| shut.until <= now && in_flight == 0)
    }

    /// Something was sent. When that opens the gate: for how long it was shut.
    pub(super) fn handle_sent(&mut self, now: Instant) -> Option<Duration> {
        self.last_success = Some(now);
        self.backoff.reset();
        self.shut.take().map(|shut| now.saturating_since(shut.since))
    }

    /// Something that was begun at `began` failed. When that shuts the gate, or keeps it shut: the wait, and the
    /// failures in a row. A failure beside a success, or one of several begun before the gate was shut, says nothing
    /// new.
    pub(super) fn handle_failed(&mut self, now: Instant, began: Instant) -> Option<(Duration, u32)> {
        let beside_a_success = self.last_success.is_some_and(|at| at >= began);
        let known = self.shut.is_some_and(|shut| began <= shut.at);
        if beside_a_success || known {
            return None;
        }
        let wait = self.backoff.next_wait();
        let since = self.shut.map_or(now, |shut| shut.since);
        self.shut = Some(Shut { since, at: now, until: now + wait });
        Some((wait, self.backoff.failures()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_at_once_are_one_and_the_wait_grows_with_each_try() {
        let mut gate = Gate::new(7);
        assert!(gate.lets_pass(at(0), 63));
        assert_eq!(gate.handle_failed(at(10), at(0)).expect("shut").1, 1);
        assert_eq!(gate.handle_failed(at(11), at(5)), None, "begun before");
        assert!(!gate.lets_pass(at(11), 0));
        let until = gate.until().expect("shut");
        assert!(!gate.lets_pass(until, 1), "one alone");
        assert!(gate.lets_pass(until, 0));
        let (wait, failures) = gate.handle_failed(until + WAIT_FIRST, until).expect("shut again");
        assert_eq!(failures, 2);
        assert!(wait > WAIT_FIRST);
        let mut now = gate.until().expect("shut");
        for _ in 0..20 {
            let (wait, _) = gate.handle_failed(now, now).expect("shut again");
            assert!(wait <= WAIT_MAX);
            now = gate.until().expect("shut");
        }
        assert!(gate.handle_sent(now).expect("opened") > WAIT_MAX);
        assert!(gate.lets_pass(now, 63));
        assert_eq!(gate.handle_failed(now + WAIT_FIRST, now + Duration::from_millis(1)).expect("shut").1, 1);
    }

    /// Of several brokers one is down: the others are not to wait for it.
    #[test]
    fn a_failure_beside_a_success_shuts_nothing() {
        let mut gate = Gate::new(7);
        gate.handle_sent(at(10));
        assert_eq!(gate.handle_failed(at(11), at(9)), None);
        assert!(gate.lets_pass(at(11), 63));
        assert!(gate.handle_failed(at(12), at(11)).is_some());
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }
}
