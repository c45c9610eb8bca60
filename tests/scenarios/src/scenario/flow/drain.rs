//! A host that is stopped in order while it holds messages.

use tidegate_pipeline::{DrainReport, FlowState};

use super::{HOLD, LONG_LEASE, PASS, deferred, send, unacknowledged};
use crate::stage::{Setup, Stage, bodies_of};

/// What workers hold is finished, what the policy has put off and what waits behind it comes to the next host, in order.
pub(crate) async fn a_stopped_host_finishes_and_leaves_the_rest_to_the_next(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    send(&producer, &lite, "a", 4, &[0, 1]).await;
    send(&producer, &lite, "b", 2, &[]).await;
    unacknowledged(&stage, &lite, 6).await;
    let setup = Setup::new(&stage, &lite).with_lease(LONG_LEASE).with_rules(HOLD);
    let (program, mut hands) = setup.start().await;
    let taken = hands.take_some(3).await;
    deferred(&stage, &program, 1).await;

    let status = program.status();
    let draining = program.drain();
    let finishing = async {
        stage.until("the drain has begun", || async { status().state == FlowState::Draining }).await;
        for emission in &taken {
            hands.accept(emission).await;
        }
    };
    let (report, ()) = tokio::join!(draining, finishing);
    assert_eq!(report, DrainReport::default(), "all that workers held was finished");
    unacknowledged(&stage, &lite, 3).await;
    assert!(hands.take_ready().is_none(), "nothing was handed over during the drain");

    setup.write_rules(PASS);
    let (next, mut hands) = setup.start().await;
    let rest = hands.take_some(3).await;
    assert_eq!(bodies_of(&rest), ["a-1", "a-2", "a-3"]);
    for emission in &rest {
        hands.accept(emission).await;
    }
    stage.all_acknowledged(&lite).await;
    super::end(next).await;
}
