//! Safety valves: a policy that always defers does not have the last word.

use std::ops::Range;

use super::{HOLD, LONG_LEASE, end, send, unacknowledged};
use crate::stage::{Hands, Lite, Program, Setup, Stage, bodies_of, body};

/// At the last attempt the worker gets the message after all.
pub(crate) async fn the_last_attempt_is_delivered(stage: Stage) {
    let lite = backlog(&stage).await;
    let setup = held(&stage, &lite).with_flow("max-delivery-attempt = 3\nexhausted = \"accept\"\n");
    let (program, hands) = setup.start().await;
    delivered_at_attempt(&stage, &lite, program, hands, 3..4).await;
}

/// A message that was deferred for so long in all is delivered as well.
pub(crate) async fn the_longest_deferral_in_all_ends_in_a_delivery(stage: Stage) {
    let lite = backlog(&stage).await;
    // Each deferral is one second.
    let setup = held(&stage, &lite).with_flow("max-total-deferral = \"3s\"\nexhausted = \"accept\"\n");
    let (program, hands) = setup.start().await;
    // Three whole deferrals and, since the time that the first spent in the host does not count, rests of one. At the
    // sixteenth attempt it would be another valve.
    delivered_at_attempt(&stage, &lite, program, hands, 4..16).await;
}

/// Or it becomes a dead letter, if the flow says so.
pub(crate) async fn the_last_attempt_is_a_dead_letter(stage: Stage) {
    let lite = backlog(&stage).await;
    let (graveyard, graves) = stage.graveyard().await;
    let mut setup = held(&stage, &lite).with_flow("max-delivery-attempt = 3\nexhausted = \"reject\"\n");
    let (program, mut hands) = setup.start_burying(Box::new(graveyard)).await;
    for expected in ["a-0", "a-2"] {
        let emission = hands.take().await;
        assert_eq!(body(&emission), expected);
        hands.accept(&emission).await;
    }
    stage.all_acknowledged(&lite).await;
    let visitor = stage.consumer(&graves).await;
    let buried = visitor.take(1).await;
    assert_eq!(crate::stage::bodies(&buried), ["a-1"]);
    visitor.accept(&buried).await;
    end(program).await;
}

/// Three messages of a lite topic, the second of which will be deferred, together at the broker.
async fn backlog(stage: &Stage) -> Lite {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    send(&producer, &lite, "a", 3, &[0, 1]).await;
    unacknowledged(stage, &lite, 3).await;
    lite
}

fn held(stage: &Stage, lite: &Lite) -> Setup {
    Setup::new(stage, lite).with_lease(LONG_LEASE).with_rules(HOLD)
}

async fn delivered_at_attempt(
    stage: &Stage,
    lite: &Lite,
    program: Program,
    mut hands: Hands,
    attempts: Range<u32>,
) {
    let first = hands.take().await;
    assert_eq!(body(&first), "a-0");
    hands.accept(&first).await;
    let rest = hands.take_some(2).await;
    assert_eq!(bodies_of(&rest), ["a-1", "a-2"]);
    assert!(attempts.contains(&rest[0].attempt), "at attempt {}, not in {attempts:?}", rest[0].attempt);
    for emission in &rest {
        hands.accept(emission).await;
    }
    stage.all_acknowledged(lite).await;
    end(program).await;
}
