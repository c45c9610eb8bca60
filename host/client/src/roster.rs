//! Which address is next, and when, without I/O.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Jitter;

/// Waits between tries at one address.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long an address is left alone when its host has said that it is about to end. It may come back there soon.
const DRAINING_WAIT: Duration = Duration::from_secs(1);
/// A stream that lasted so long was none of a row of failures.
const STEADY: Duration = Duration::from_secs(10);

/// A worker's addresses, and how they did.
#[derive(Debug)]
pub(crate) struct Roster {
    marks: Vec<Mark>,
    /// The one to begin with when all are alike.
    preferred: usize,
    jitter: Jitter,
}

#[derive(Clone, Debug)]
struct Mark {
    failures: u32,
    not_before: Instant,
    opened_at: Option<Instant>,
    /// The last word was a refusal.
    refusal: Option<String>,
}

impl Roster {
    /// So many addresses, of which the first is tried first.
    pub(crate) fn new(addresses: usize, now: Instant, jitter: Jitter) -> Self {
        let mark = Mark { failures: 0, not_before: now, opened_at: None, refusal: None };
        Self { marks: vec![mark; addresses], preferred: 0, jitter }
    }

    /// The address to subscribe at next, and when: the first in the round that may be tried now, or else the one that may
    /// be tried first.
    pub(crate) fn next(&self, now: Instant) -> (usize, Instant) {
        let key = |address: &usize| (self.marks[*address].not_before.max(now), self.distance(*address));
        let address = (0..self.marks.len()).min_by_key(key).unwrap_or_default();
        (address, self.marks[address].not_before)
    }

    /// Messages come from there.
    pub(crate) fn handle_opened(&mut self, address: usize, now: Instant) {
        self.preferred = address;
        let mark = &mut self.marks[address];
        (mark.opened_at, mark.refusal) = (Some(now), None);
    }

    /// A stream ended, or there was none to be had.
    pub(crate) fn handle_failed(&mut self, address: usize, now: Instant) {
        let mark = &mut self.marks[address];
        let was_steady = mark.opened_at.take().is_some_and(|opened_at| now - opened_at >= STEADY);
        mark.failures = if was_steady { 1 } else { mark.failures.saturating_add(1) };
        mark.refusal = None;
        mark.not_before = now + self.jitter.wait(FIRST_WAIT, LONGEST_WAIT, mark.failures);
        self.preferred = (address + 1) % self.marks.len();
    }

    /// The host does not let this worker in.
    pub(crate) fn handle_refused(&mut self, address: usize, now: Instant, detail: String) {
        self.handle_failed(address, now);
        self.marks[address].refusal = Some(detail);
    }

    /// The host is about to end.
    pub(crate) fn handle_draining(&mut self, address: usize, now: Instant) {
        let mark = &mut self.marks[address];
        (mark.failures, mark.opened_at) = (0, None);
        mark.not_before = now + DRAINING_WAIT;
        self.preferred = (address + 1) % self.marks.len();
    }

    /// A call past the streams had no answer: what is settled next goes elsewhere first. A stream that is open stays.
    pub(crate) fn handle_uncalled(&mut self, address: usize, now: Instant) {
        let mark = &mut self.marks[address];
        if mark.opened_at.is_none() {
            mark.failures = mark.failures.saturating_add(1);
            mark.not_before = now + self.jitter.wait(FIRST_WAIT, LONGEST_WAIT, mark.failures);
        }
    }

    /// When every address has refused: what the last one said, and which it was.
    pub(crate) fn refusal(&self) -> Option<(usize, &str)> {
        let refusals = self.marks.iter().map(|mark| mark.refusal.as_deref());
        let all: Option<Vec<&str>> = refusals.collect();
        all.and_then(|all| all.into_iter().enumerate().next_back())
    }

    /// Where to settle a message by its receipt: at the host that gave it, then where messages come from, then elsewhere;
    /// those that failed lately come last. `None` when all of them have been tried.
    pub(crate) fn for_settling(&self, now: Instant, origin: usize, tried: &[usize]) -> Option<usize> {
        let open = (0..self.marks.len()).filter(|address| !tried.contains(address));
        open.min_by_key(|address| {
            let failed = self.marks[*address].not_before > now && self.marks[*address].failures > 0;
            (failed, *address != origin, self.distance(*address))
        })
    }

    fn distance(&self, address: usize) -> usize {
        let count = self.marks.len();
        (address + count - self.preferred) % count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(addresses: usize) -> (Roster, Instant) {
        let now = Instant::now();
        (Roster::new(addresses, now, Jitter::from_seed(5)), now)
    }

    #[test]
    fn goes_round_and_waits_only_when_all_have_failed() {
        let (mut roster, now) = roster(3);
        for expected in 0..3 {
            let (address, at) = roster.next(now);
            assert_eq!((address, at), (expected, now));
            roster.handle_failed(address, now);
        }
        let (_, at) = roster.next(now);
        assert!(at > now && at <= now + FIRST_WAIT, "{:?}", at - now);
    }

    #[test]
    fn waits_grow_until_a_stream_lasts() {
        let (mut roster, mut now) = roster(1);
        for _ in 0..20 {
            // One that ends at once is a failure like any other.
            roster.handle_opened(0, now);
            roster.handle_failed(0, now);
            now = roster.next(now).1;
        }
        roster.handle_failed(0, now);
        let wait = roster.next(now).1 - now;
        assert!(wait >= LONGEST_WAIT / 2 && wait <= LONGEST_WAIT, "{wait:?}");
        roster.handle_opened(0, now);
        roster.handle_failed(0, now + STEADY);
        assert!(roster.next(now + STEADY).1 <= now + STEADY + FIRST_WAIT);
    }

    #[test]
    fn a_draining_host_is_left_alone_for_a_while() {
        let (mut roster, now) = roster(2);
        roster.handle_opened(0, now);
        roster.handle_draining(0, now);
        assert_eq!(roster.next(now), (1, now));
        roster.handle_failed(1, now);
        assert_eq!(roster.next(now).0, 1, "its wait is shorter");
        let (mut alone, now) = self::roster(1);
        alone.handle_draining(0, now);
        assert_eq!(alone.next(now), (0, now + DRAINING_WAIT));
    }

    #[test]
    fn only_when_all_refuse_it_is_over() {
        let (mut roster, now) = roster(2);
        roster.handle_refused(0, now, "no".to_owned());
        assert_eq!(roster.refusal(), None);
        roster.handle_refused(1, now, "never".to_owned());
        assert_eq!(roster.refusal(), Some((1, "never")));
        roster.handle_failed(0, now);
        assert_eq!(roster.refusal(), None);
    }

    #[test]
    fn settles_at_home_then_where_it_is_now_then_elsewhere() {
        let (mut roster, now) = roster(3);
        roster.handle_opened(1, now);
        assert_eq!(roster.for_settling(now, 2, &[]), Some(2));
        assert_eq!(roster.for_settling(now, 2, &[2]), Some(1));
        roster.handle_failed(2, now);
        roster.handle_opened(1, now);
        assert_eq!(roster.for_settling(now, 2, &[]), Some(1));
        assert_eq!(roster.for_settling(now, 2, &[1]), Some(0));
        assert_eq!(roster.for_settling(now, 2, &[0, 1]), Some(2));
        assert_eq!(roster.for_settling(now, 2, &[0, 1, 2]), None);
    }
}
