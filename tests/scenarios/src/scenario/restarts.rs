//! Crashes of the other side, as a client sees them and as a flow with a policy does: one crash for both, since it takes
//! a cluster most of a minute to come to itself.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_model::Emission;
use tokio::time::Instant;

use super::flow;
use crate::stage::{Consumer, Hands, Lite, Producer, Program, Setup, Stage, body};

/// A proxy forgets every client when it restarts; the client introduces itself again and goes on.
pub(crate) async fn a_proxy_restart_is_survived(stage: Stage) {
    let (lite, producer, consumer) = warmed_up(&stage).await;
    let flow = RunningFlow::start(&stage).await;
    stage.broker.restart_proxy().await;
    tokio::join!(nothing_is_lost(&stage, &lite, &producer, &consumer), flow.loses_nothing(&stage));
}

/// After a broker came back the proxy denies topics and groups for a while; the client asks again until all is well.
pub(crate) async fn a_broker_restart_is_survived(stage: Stage) {
    let (lite, producer, consumer) = warmed_up(&stage).await;
    let flow = RunningFlow::start(&stage).await;
    stage.broker.restart_broker().await;
    tokio::join!(nothing_is_lost(&stage, &lite, &producer, &consumer), flow.loses_nothing(&stage));
}

/// A proxy remembers for windows of 20 s that a broker was away, and groups came back after 50 s.
const LIMIT: Duration = Duration::from_secs(120);

/// One message has gone through, one is held when the crash comes.
async fn warmed_up(stage: &Stage) -> (Lite, Producer, Consumer) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let consumer = stage.consumer(&lite).await;
    producer.send_lite(&lite.topic, "before", "through").await;
    let through = consumer.take(1).await;
    consumer.accept(&through).await;
    producer.send_lite(&lite.topic, "held", "held").await;
    let held = consumer.take(1).await;
    assert_eq!(crate::stage::bodies(&held), ["held"]);
    (lite, producer, consumer)
}

/// What was held comes again, and what is sent now comes too, on the same client.
async fn nothing_is_lost(stage: &Stage, lite: &Lite, producer: &Producer, consumer: &Consumer) {
    let deadline = Instant::now() + LIMIT;
    let send = producer.send_lite_until(&lite.topic, "after", "after", deadline);
    let receive = async {
        let mut missing = BTreeSet::from(["held".to_owned(), "after".to_owned()]);
        while !missing.is_empty() {
            assert!(Instant::now() < deadline, "within {LIMIT:?} these did not come: {missing:?}");
            let batch = consumer.poll().await;
            for delivery in batch {
                let body = crate::stage::bodies(std::slice::from_ref(&delivery)).concat();
                // An acknowledgement in troubled times may fail: then the message comes again.
                if consumer.settle(tidegate_model::Verb::Accept, &delivery).await.is_ok() {
                    missing.remove(&body);
                }
            }
        }
    };
    tokio::join!(send, receive);
    // Acknowledgements of the last moments may have been lost with the broker's memory; such messages come again.
    while Instant::now() < deadline {
        let batch = consumer.poll().await;
        if batch.is_empty() && stage.broker.unacknowledged(&lite.group, &lite.topic).await == 0 {
            return;
        }
        for delivery in batch {
            let _ = consumer.settle(tidegate_model::Verb::Accept, &delivery).await;
        }
    }
    panic!("after {LIMIT:?} the broker still counts messages as not acknowledged");
}

/// A flow whose policy puts some messages off again and again, with others at its workers.
struct RunningFlow {
    lite: Lite,
    producer: Producer,
    setup: Setup,
    program: Program,
    hands: Hands,
    held: Vec<Emission>,
}

impl RunningFlow {
    /// At the crash two messages are with workers, one is deferred, one waits behind it.
    async fn start(stage: &Stage) -> Self {
        let lite = stage.lite_named("flow").await;
        let producer = stage.producer().await;
        flow::send(&producer, &lite, "deferred", 3, &[0, 1]).await;
        flow::send(&producer, &lite, "working", 1, &[]).await;
        flow::unacknowledged(stage, &lite, 4).await;
        let setup = Setup::new(stage, &lite).with_rules(flow::HOLD);
        let (program, mut hands) = setup.start().await;
        let held = hands.take_some(2).await;
        flow::deferred(stage, &program, 1).await;
        Self { lite, producer, setup, program, hands, held }
    }

    /// Nothing of it is lost, new messages come too, and each lite topic keeps its order.
    async fn loses_nothing(self, stage: &Stage) {
        let Self { lite, producer, setup, program, mut hands, held } = self;
        for emission in &held {
            hands.accept(emission).await;
        }
        setup.write_rules(flow::PASS);
        let deadline = Instant::now() + LIMIT;
        for name in ["deferred-3", "working-1", "new-0"] {
            let (lite_topic, _) = name.rsplit_once('-').expect("NAME-NUMBER");
            producer.send_lite_until(&lite.topic, lite_topic, name, deadline).await;
        }
        let expected = ["deferred-1", "deferred-2", "deferred-3", "working-1", "new-0"].map(str::to_owned);
        let mut seen: Vec<String> = held.iter().map(body).collect();
        seen.extend(hands.accept_until_within(LIMIT, expected).await);
        flow::assert_first_deliveries_in_order(&seen);
        tokio::select! {
            () = stage.all_acknowledged(&lite) => {}
            () = hands.accept_all() => panic!("the flow ended: {:?}", program.flow()),
        }
        flow::end(program).await;
    }
}
