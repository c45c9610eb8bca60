//! A host whose flow an operator has paused, beside another one of its group.

use std::time::Duration;

use tidegate_pipeline::FlowState;

use super::end;
use crate::stage::{Setup, Stage};

/// One lite topic each, one after the other. A broker that offers every second one to a consumer that does not ask waits
/// ten seconds for it, each time.
const ROUNDS: usize = 24;
/// For all of them: no slow machine needs it, and half of the rounds at ten seconds each do not fit.
const LIMIT: Duration = Duration::from_secs(60);

/// While one host is paused the other gets everything, and at once; what the paused one held for its workers is
/// settled all the same. Resumed, it receives again.
pub(crate) async fn a_paused_hosts_messages_come_to_the_other(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let setup = Setup::new(&stage, &lite);
    let (paused, mut paused_hands) = setup.start().await;
    producer.send_lite(&lite.topic, "held", "held").await;
    let held = paused_hands.take().await;
    let (other, mut hands) = setup.start().await;
    stage.until("both have joined", || async { paused.flow().joined && other.flow().joined }).await;

    paused.set_paused(true).await;
    let deadline = tokio::time::Instant::now() + LIMIT;
    for round in 0..ROUNDS {
        let name = format!("lite-{round}");
        producer.send_lite(&lite.topic, &name, &name).await;
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        hands.accept_until_within(left, [name]).await;
    }
    assert_eq!(paused.flow().state, FlowState::Paused);
    assert!(paused.flow().joined, "it is known to its broker all the same");
    paused_hands.accept(&held).await;
    stage.all_acknowledged(&lite).await;

    paused.set_paused(false).await;
    end(other).await;
    producer.send_lite(&lite.topic, "later", "later").await;
    paused_hands.accept_until_within(LIMIT, ["later".to_owned()]).await;
    stage.all_acknowledged(&lite).await;
    end(paused).await;
}
