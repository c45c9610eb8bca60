//! A second client of the same group.

use std::time::Duration;

use tokio::time::Instant;

use crate::stage::{LEASE, Stage, bodies};

/// What a client held when it took leave comes to another one when its leases end, in order; what is sent meanwhile
/// to other lite topics comes at once.
pub(crate) async fn another_client_gets_what_the_first_one_held(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let first = stage.consumer(&lite).await;
    stage.send_numbered(&producer, &lite, "a", 3).await;
    let before = Instant::now();
    let held = first.take(3).await;
    assert_eq!(bodies(&held), ["0", "1", "2"]);
    first.close().await;

    let second = stage.consumer(&lite).await;
    producer.send_lite(&lite.topic, "b", "other").await;
    // Acknowledged as they come: what is held while the first one's lease runs out could outlive its own.
    let mut taken = Vec::new();
    while taken.len() < 4 {
        let batch = second.take_some().await;
        second.accept(&batch).await;
        taken.extend(batch);
    }
    assert!(before.elapsed() >= LEASE, "all came after {:?} of a lease of {LEASE:?}", before.elapsed());
    taken.sort_by_key(|delivery| delivery.message.lite_topic.clone());
    assert_eq!(bodies(&taken), ["0", "1", "2", "other"]);
    stage.all_acknowledged(&lite).await;
}

/// Two clients at the same time: every message goes to one of them, and each lite topic keeps its order.
pub(crate) async fn two_clients_share_without_duplicates(stage: Stage) {
    const LITE_TOPICS: usize = 10;
    const MESSAGES: usize = 5;
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let (left, right) = (stage.consumer(&lite).await, stage.consumer(&lite).await);
    for number in 0..MESSAGES {
        for name in 0..LITE_TOPICS {
            producer.send_lite(&lite.topic, &format!("lite-{name}"), &format!("{number}")).await;
        }
    }

    let counted = std::sync::atomic::AtomicUsize::new(0);
    let log = parking_lot::Mutex::new(Vec::new());
    let drain = |consumer| {
        let (counted, log) = (&counted, &log);
        async move {
            let consumer: &crate::stage::Consumer = consumer;
            let deadline = Instant::now() + Duration::from_secs(60);
            while counted.load(std::sync::atomic::Ordering::Relaxed) < LITE_TOPICS * MESSAGES {
                assert!(Instant::now() < deadline, "only {counted:?} of all messages came");
                let batch = consumer.poll().await;
                consumer.accept(&batch).await;
                log.lock().extend(batch.iter().map(|delivery| {
                    (delivery.message.lite_topic.clone(), bodies(std::slice::from_ref(delivery)).concat())
                }));
                counted.fetch_add(batch.len(), std::sync::atomic::Ordering::Relaxed);
            }
        }
    };
    tokio::join!(drain(&left), drain(&right));

    let mut log = log.into_inner();
    let count = log.len();
    log.sort();
    log.dedup();
    assert_eq!((log.len(), count), (LITE_TOPICS * MESSAGES, LITE_TOPICS * MESSAGES), "{log:?}");
    stage.all_acknowledged(&lite).await;
}
