//! A host whose flow an operator has paused, beside another one of its group.

use std::time::Duration;

use tidegate_pipeline::FlowState;
use tokio::time::sleep;

use super::{LONG_LEASE, end};
use crate::stage::{POLL, Setup, Stage};

/// One lite topic each, all at once.
const MESSAGES: usize = 24;
/// A broker that offers a lite topic to a subscriber that does not ask waits ten seconds for it. Who is offered everything
/// has all of it long before that.
const LIMIT: Duration = Duration::from_secs(9);
/// A paused host gives back what its last polls bring. Only after these would one that is subscribed hold anything up.
const POLLS_END: Duration = POLL.saturating_add(Duration::from_secs(2));

/// While one host is paused the other gets everything, and at once; what the paused one held for its workers is
/// settled all the same. Resumed, it receives again.
pub(crate) async fn a_paused_hosts_messages_come_to_the_other(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let setup = Setup::new(&stage, &lite).with_lease(LONG_LEASE);
    let (paused, mut paused_hands) = setup.start().await;
    stage.until("the first has joined", || async { paused.flow().joined }).await;
    producer.send_lite(&lite.topic, "held", "held").await;
    let held = paused_hands.take().await;
    let (other, mut hands) = setup.start().await;
    stage.until("both have joined", || async { paused.flow().joined && other.flow().joined }).await;

    paused.set_paused(true).await;
    stage.subscribers(&lite, 1).await;
    sleep(POLLS_END).await;
    let names: Vec<String> = (0..MESSAGES).map(|number| format!("lite-{number}")).collect();
    for name in &names {
        producer.send_lite(&lite.topic, name, name).await;
    }
    hands.accept_until_within(LIMIT, names).await;
    assert_eq!(paused.flow().state, FlowState::Paused);
    assert!(paused.flow().joined, "it is known to its broker all the same");
    paused_hands.accept(&held).await;
    stage.all_acknowledged(&lite).await;

    paused.set_paused(false).await;
    stage.subscribers(&lite, 2).await;
    end(other).await;
    producer.send_lite(&lite.topic, "later", "later").await;
    paused_hands.accept_until(["later".to_owned()]).await;
    stage.all_acknowledged(&lite).await;
    end(paused).await;
}
