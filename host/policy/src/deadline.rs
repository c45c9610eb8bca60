//! The computing time of one entry into a guest.
//!
//! Epochs count wall time, and on a busy machine a thread may stand still for longer than a decision's whole
//! deadline. A guest is not to blame for that, so the deadline is looked at twice: half way, when the thread's
//! processor time is noted, and at the end, when the guest is stopped if the thread was really running in between.
//! If it was not, the guest gets another half, up to [`HALVES_MAX`] in all. A loop is therefore stopped after the
//! deadline and at most two ticks, and a decision that was only waiting for a processor is not.

use std::time::Duration;

use wasmtime::UpdateDeadline;

/// Length of an epoch: the ticker's period.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Wall time after which even a guest that hardly ran is stopped, in halves of the deadline: ten deadlines.
const HALVES_MAX: u32 = 20;

/// It ran for longer than it may.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it was stopped after its {} ms of computing time", limit.as_millis())]
pub(crate) struct DeadlineExceeded {
    limit: Duration,
}

/// The watch over one entry; armed before each.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    limit: Duration,
    half_ticks: u32,
    halves: u32,
    /// Processor time of the thread at the first look.
    noted: Option<Duration>,
    /// The host made the guest wait since the last look.
    waited: bool,
}

impl Deadline {
    /// Begins the watch; answers the ticks until [`Deadline::handle_expiry`] is to be called.
    pub(crate) fn arm(&mut self, limit: Duration) -> u64 {
        // Nearly always the same as before, and the division of 128 bits takes as long as a host call.
        if self.limit != limit || self.half_ticks == 0 {
            let half = limit.as_nanos().div_ceil(2 * TICK.as_nanos()).max(1);
            self.limit = limit;
            self.half_ticks = u32::try_from(half).unwrap_or(u32::MAX);
        }
        self.halves = 0;
        self.noted = None;
        self.waited = false;
        u64::from(self.half_ticks)
    }

    /// Tells that the host made the guest wait: that was no time of its own, so the watch begins anew at the next
    /// look, which is due at once when the wait was long. Whoever makes guests wait bounds how often.
    pub(crate) const fn handle_wait(&mut self) {
        self.waited = true;
    }

    /// Computing time of an entry that failed, given the thread's processor time: nothing when it ended before the
    /// first look, else twice what it used since, for the half before it was no other.
    pub(crate) fn spent(&self, running: Option<Duration>) -> Duration {
        match (self.noted, running) {
            (None, _) => Duration::ZERO,
            (Some(noted), Some(running)) => running.saturating_sub(noted) * 2,
            (Some(_), None) => TICK * self.half_ticks * self.halves,
        }
    }

    /// Decides at an expiry, given the thread's processor time, if the system tells it.
    pub(crate) fn handle_expiry(&mut self, running: Option<Duration>) -> wasmtime::Result<UpdateDeadline> {
        if std::mem::take(&mut self.waited) {
            self.halves = 0;
            self.noted = None;
            return Ok(UpdateDeadline::Continue(u64::from(self.half_ticks)));
        }
        let half = TICK * self.half_ticks;
        self.halves += 1;
        let ran = match (self.noted, running) {
            (None, _) => {
                self.noted = Some(running.unwrap_or_default());
                Duration::ZERO
            }
            (Some(noted), Some(running)) => running.saturating_sub(noted),
            (Some(_), None) => half,
        };
        // Three quarters of a half: the two looks are whole ticks apart, give or take the ticker's own delay.
        if ran >= half * 3 / 4 || self.halves >= HALVES_MAX {
            return Err(DeadlineExceeded { limit: self.limit }.into());
        }
        Ok(UpdateDeadline::Continue(u64::from(self.half_ticks)))
    }
}

/// Processor time that the calling thread has used, where the system tells it.
pub(crate) fn thread_time() -> Option<Duration> {
    #[cfg(unix)]
    {
        let spec = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let seconds = u64::try_from(spec.tv_sec).ok()?;
        let nanos = u32::try_from(spec.tv_nsec).ok()?;
        Some(Duration::new(seconds, nanos))
    }
    #[cfg(not(unix))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Option<Duration> {
        Some(Duration::from_millis(millis))
    }

    #[test]
    fn a_running_guest_is_stopped_at_the_second_look() {
        let mut deadline = Deadline::default();
        assert_eq!(deadline.arm(Duration::from_millis(5)), 3);
        assert!(matches!(deadline.handle_expiry(ms(100)), Ok(UpdateDeadline::Continue(3))));
        assert!(deadline.handle_expiry(ms(103)).is_err());
    }

    #[test]
    fn a_guest_that_waits_for_a_processor_is_not_stopped_until_the_wall_cap() {
        let mut deadline = Deadline::default();
        deadline.arm(Duration::from_millis(5));
        for _ in 1..HALVES_MAX {
            assert!(deadline.handle_expiry(ms(100)).is_ok());
        }
        assert!(deadline.handle_expiry(ms(100)).is_err());
    }

    #[test]
    fn without_processor_time_the_wall_counts() {
        let mut deadline = Deadline::default();
        deadline.arm(Duration::from_millis(1));
        assert!(deadline.handle_expiry(None).is_ok());
        assert!(deadline.handle_expiry(None).is_err());
    }

    #[test]
    fn only_computing_is_counted_as_spent() {
        let mut deadline = Deadline::default();
        deadline.arm(Duration::from_millis(5));
        assert_eq!(deadline.spent(ms(100)), Duration::ZERO, "ended at once");
        assert!(deadline.handle_expiry(ms(100)).is_ok());
        assert_eq!(deadline.spent(ms(100)), Duration::ZERO, "waited for a processor");
        assert!(deadline.handle_expiry(ms(103)).is_err());
        assert_eq!(deadline.spent(ms(103)), Duration::from_millis(6), "a loop");
    }

    #[test]
    fn a_wait_in_the_host_is_not_the_guests() {
        let mut deadline = Deadline::default();
        deadline.arm(Duration::from_millis(5));
        // More waits than a guest may stand still for, with no processor time at all.
        for _ in 0..3 * HALVES_MAX {
            deadline.handle_wait();
            assert!(deadline.handle_expiry(ms(100)).is_ok());
            assert_eq!(deadline.spent(ms(100)), Duration::ZERO);
        }
        // And where the system tells no processor time.
        deadline.handle_wait();
        assert!(deadline.handle_expiry(None).is_ok());
        assert!(deadline.handle_expiry(ms(100)).is_ok(), "half way, counted from the end of the wait");
        assert!(deadline.handle_expiry(ms(103)).is_err(), "a loop after a wait is stopped");
    }

    #[test]
    fn arming_begins_anew() {
        let mut deadline = Deadline::default();
        deadline.arm(Duration::from_millis(5));
        assert!(deadline.handle_expiry(ms(100)).is_ok());
        deadline.arm(Duration::from_millis(5));
        assert!(deadline.handle_expiry(ms(200)).is_ok());
        assert!(deadline.handle_expiry(ms(203)).is_err());
    }
}
