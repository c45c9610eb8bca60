//! Policies that fail on some messages: each such message follows `on-error`, and the flow goes on.

use tidegate_test_guests::Guest;

use super::{LONG_LEASE, assert_first_deliveries_in_order, end, unacknowledged};
use crate::stage::{Setup, Stage};

const LITE_TOPICS: usize = 8;
const EACH: usize = 8;
/// Every so many decisions fail: in a prime number's steps, so that all lite topics are met.
const EVERY: u32 = 7;
/// What a loop may take.
const DEADLINE: &str = "20ms";

/// Traps, and the message is delivered.
pub(crate) async fn a_policy_that_traps_delivers_in_the_end(stage: Stage) {
    failing(stage, &Guest::trapping_every(EVERY), "deliver").await;
}

/// Traps, and the message comes again after a while, with those behind it.
pub(crate) async fn a_policy_that_traps_defers_in_the_end(stage: Stage) {
    failing(stage, &Guest::trapping_every(EVERY), "defer:1s").await;
}

/// Loops for ever, until its deadline, and the message is delivered.
pub(crate) async fn a_policy_that_loops_delivers_in_the_end(stage: Stage) {
    failing(stage, &Guest::looping_every(EVERY), "deliver").await;
}

/// Loops for ever, until its deadline, and the message comes again after a while.
pub(crate) async fn a_policy_that_loops_defers_in_the_end(stage: Stage) {
    failing(stage, &Guest::looping_every(EVERY), "defer:1s").await;
}

async fn failing(stage: Stage, guest: &Guest, on_error: &str) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let bodies = super::send_many(&producer, &lite, LITE_TOPICS, 0..EACH).await;
    unacknowledged(&stage, &lite, bodies.len() as u64).await;
    let setup = Setup::new(&stage, &lite).with_lease(LONG_LEASE).with_component(
        &guest.component(),
        on_error,
        DEADLINE,
    );
    let (program, mut hands) = setup.start().await;

    let seen = hands.accept_until(bodies).await;
    assert_first_deliveries_in_order(&seen);
    stage.all_acknowledged(&lite).await;
    let totals = program.flow().totals;
    assert!(totals.on_error > 0, "{totals:?}");
    assert_eq!(totals.deferred > 0, on_error != "deliver", "{totals:?}");
    assert_eq!(seen.len(), LITE_TOPICS * EACH, "no message was handed over twice: {seen:?}");
    end(program).await;
}
