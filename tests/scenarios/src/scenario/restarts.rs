//! Crashes of the other side.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::stage::{Consumer, Lite, Producer, Stage};

/// A proxy forgets every client when it restarts; the client introduces itself again and goes on.
pub(crate) async fn a_proxy_restart_is_survived(stage: Stage) {
    let (lite, producer, consumer) = warmed_up(&stage).await;
    stage.broker.restart_proxy().await;
    nothing_is_lost(&stage, &lite, &producer, &consumer).await;
}

/// After a broker came back the proxy denies topics and groups for a while; the client asks again until all is well.
pub(crate) async fn a_broker_restart_is_survived(stage: Stage) {
    let (lite, producer, consumer) = warmed_up(&stage).await;
    stage.broker.restart_broker().await;
    nothing_is_lost(&stage, &lite, &producer, &consumer).await;
}

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
    /// A proxy remembers for windows of 20 s that a broker was away, and groups came back after 50 s.
    const LIMIT: Duration = Duration::from_secs(120);
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
