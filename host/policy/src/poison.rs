//! Messages that make a policy fail each time they come.
//!
//! A message whose policy failed follows `on-error`, and with `defer` it comes again. One that always makes the policy
//! trap would cost an instance each time, for ever; after [`FAILURES_MAX`] failures it follows `on-error` without the
//! policy being asked. That says nothing about other messages, and a new generation is asked about it again.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tidegate_model::MessageId;

use crate::lru::Lru;

/// Failures of one message after which the policy is not asked about it any more.
pub(crate) const FAILURES_MAX: u32 = 3;

/// Messages that are remembered; the one that failed longest ago goes first.
const MESSAGES_MAX: usize = 4_096;

/// The messages that made one policy fail.
#[derive(Debug)]
pub(crate) struct Poison {
    /// So that nobody can choose ids that collide.
    hasher: RandomState,
    /// Whether there is anything to look for, so that a healthy policy's calls take no lock.
    known: AtomicBool,
    failures: Mutex<Lru<u32>>,
}

impl Poison {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            known: AtomicBool::new(false),
            failures: Mutex::new(Lru::new(MESSAGES_MAX)),
        }
    }

    /// Whether the policy failed on the message so often that it is not asked any more.
    pub(crate) fn holds(&self, message: &MessageId) -> bool {
        self.known.load(Ordering::Acquire)
            && self.failures.lock().peek(self.key(message)).is_some_and(|count| *count >= FAILURES_MAX)
    }

    /// Counts a failure; answers how many there were of the message. After [`FAILURES_MAX`] the policy is not asked
    /// about it any more.
    pub(crate) fn handle_failure(&self, message: &MessageId) -> u32 {
        let key = self.key(message);
        let mut failures = self.failures.lock();
        let (count, _) = failures.touch(key, || 0);
        *count = count.saturating_add(1);
        let count = *count;
        self.known.store(true, Ordering::Release);
        count
    }

    /// Another generation came into force.
    pub(crate) fn forget(&self) {
        *self.failures.lock() = Lru::new(MESSAGES_MAX);
        self.known.store(false, Ordering::Release);
    }

    fn key(&self, message: &MessageId) -> u64 {
        self.hasher.hash_one(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_given_up_after_its_third_failure_and_others_are_not() {
        let poison = Poison::new();
        let (bad, good) = (MessageId::from("bad"), MessageId::from("good"));
        assert!(poison.handle_failure(&bad) == 1 && !poison.holds(&bad));
        assert!(poison.handle_failure(&bad) == 2 && !poison.holds(&bad));
        assert_eq!(poison.handle_failure(&bad), FAILURES_MAX);
        assert!(poison.holds(&bad) && !poison.holds(&good));
        assert_eq!(poison.handle_failure(&bad), FAILURES_MAX + 1, "by a call that had begun before");
        poison.forget();
        assert!(!poison.holds(&bad));
    }
}
