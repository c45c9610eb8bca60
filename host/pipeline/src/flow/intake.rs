//! How much a flow takes in, by what its sink has room for.

/// What a flow keeps at hand at least, beside what its sink has room for: enough that a policy sees whom the next messages
/// belong to, and little enough that one slow worker gets it all before its leases end.
const RESERVE_MIN: usize = 16;
/// And as much as is done in this time, in seconds. Policies look at how long the queue lasts before they slow anybody; half of
/// the shortest lease that brokers give.
const RESERVE_LASTS: f64 = 5.0;

/// A flow's rule for its intake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intake {
    /// What it may hold in all.
    budget: usize,
    /// The part of it that is for the sink, when that has all its room.
    credits: usize,
}

impl Intake {
    pub(super) const fn new(budget: usize, credits: usize) -> Self {
        Self { budget, credits }
    }

    /// The most deliveries to have open while `limit` may be with the sink, which finishes so many in a second: these, and a
    /// reserve. Nothing when nobody is there to work: leases would run out, and attempts with them.
    pub(super) fn open_max(self, limit: usize, throughput: f64) -> usize {
        if limit == 0 || limit >= self.credits {
            return if limit == 0 { 0 } else { self.budget };
        }
        let queue = self.budget.saturating_sub(self.credits);
        let at_once = limit.max(RESERVE_MIN).min(queue);
        // Saturates, and is zero for what is no number.
        let soon = (throughput * RESERVE_LASTS) as usize;
        limit.saturating_add(at_once.max(soon)).min(self.budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_room_of_the_sink() {
        let intake = Intake::new(10_128, 10_000);
        let open: Vec<_> = [0, 1, 100, 5_000, 10_000].map(|limit| intake.open_max(limit, 0.0)).into();
        assert_eq!(open, [0, 17, 200, 5_128, 10_128]);
    }

    #[test]
    fn fast_workers_have_as_much_at_hand_as_they_do_in_a_while() {
        let intake = Intake::new(10_128, 10_000);
        assert_eq!(intake.open_max(4, 200.0), 1_004);
        assert_eq!(intake.open_max(4, 1e9), 10_128);
        assert_eq!(intake.open_max(4, f64::NAN), 20);
        assert_eq!(intake.open_max(0, 200.0), 0, "they have left");
    }

    #[test]
    fn a_sink_with_all_its_room_has_the_whole_queue_before_it() {
        assert_eq!(Intake::new(64, 1).open_max(1, 0.0), 64);
        assert_eq!(Intake::new(12, 10).open_max(3, 0.0), 5, "a small queue is all there is");
    }
}
