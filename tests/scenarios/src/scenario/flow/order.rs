//! Deferrals and workers that finish in any order, and the order in which the broker hears of it.

use std::time::Duration;

use super::{HOLD, LONG_LEASE, PASS, deferred, end, send, unacknowledged};
use crate::stage::{Setup, Stage, bodies_of};

/// A policy puts off a message in the middle of a batch. It is put off at the broker only when those before it are
/// settled, or they would come again with it; what is behind it waits with it.
pub(crate) async fn a_deferral_in_the_middle_of_a_batch_keeps_the_order(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    send(&producer, &lite, "a", 5, &[0, 2]).await;
    unacknowledged(&stage, &lite, 5).await;
    let setup = Setup::new(&stage, &lite).with_lease(LONG_LEASE).with_rules(HOLD);
    let (program, mut hands) = setup.start().await;

    let first = hands.take_some(2).await;
    assert_eq!(bodies_of(&first), ["a-0", "a-1"]);
    deferred(&stage, &program, 1).await;
    // Longer than the deferral, which must not begin yet.
    hands.silence(Duration::from_secs(2)).await;
    for emission in &first {
        hands.accept(emission).await;
    }
    unacknowledged(&stage, &lite, 3).await;
    deferred(&stage, &program, 3).await;
    assert!(hands.take_ready().is_none(), "nothing overtakes what is deferred");

    setup.write_rules(PASS);
    let rest = hands.take_some(3).await;
    assert_eq!(bodies_of(&rest), ["a-2", "a-3", "a-4"]);
    assert!(rest[0].attempt >= 4, "one hand-out more than deferrals: {}", rest[0].attempt);
    for emission in &rest {
        hands.accept(emission).await;
    }
    stage.all_acknowledged(&lite).await;
    end(program).await;
}

/// Workers finish the last first, in two lite topics by turns. The broker hears of it in order within each, and
/// nothing comes again.
pub(crate) async fn workers_finish_in_any_order(stage: Stage) {
    const EACH: usize = 5;
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    send(&producer, &lite, "a", EACH, &[]).await;
    send(&producer, &lite, "b", EACH, &[]).await;
    unacknowledged(&stage, &lite, 10).await;
    let (program, mut hands) = Setup::new(&stage, &lite).with_lease(LONG_LEASE).start().await;

    let taken = hands.take_some(2 * EACH).await;
    let of = |name: &str| {
        let own = taken.iter().filter(|emission| emission.order.as_deref() == Some(name));
        own.cloned().collect::<Vec<_>>()
    };
    let (a, b) = (of("a"), of("b"));
    assert_eq!(bodies_of(&a), ["a-0", "a-1", "a-2", "a-3", "a-4"]);
    assert_eq!(bodies_of(&b), ["b-0", "b-1", "b-2", "b-3", "b-4"]);
    for (a, b) in a[1..].iter().zip(&b[1..]).rev() {
        hands.accept(b).await;
        hands.accept(a).await;
    }
    hands.accept(&b[0]).await;
    unacknowledged(&stage, &lite, 5).await;
    // The broker knows it before its answers are here.
    stage.until("all five are accepted", || async { program.flow().totals.accepted >= 5 }).await;
    assert_eq!(program.flow().totals.accepted, 5, "nothing of the other lite topic was settled");
    hands.accept(&a[0]).await;
    stage.all_acknowledged(&lite).await;
    assert_eq!(program.flow().totals.redelivered, 0);
    end(program).await;
}
