//! From what the book knows of a delivery to what a policy is asked about it.

use std::time::Duration;

use tidegate_lease::Decide;
use tidegate_model::{Instant, Timestamp};
use tidegate_policy::Question;

/// The question about one delivery of the source; `seed` begins the random numbers that the policy sees.
pub(super) fn question<'a>(
    source: &'a str,
    about: &'a Decide,
    now: Instant,
    wall: Timestamp,
    seed: u64,
) -> Question<'a> {
    Question {
        source,
        message: &about.message,
        key: &about.key,
        attempt: about.attempt,
        age: about.message.born_at.map_or(Duration::ZERO, |born| wall.saturating_since(born)),
        waited: about.waited,
        deferred: about.deferred,
        standing: about.standing,
        wall,
        now,
        seed,
    }
}
