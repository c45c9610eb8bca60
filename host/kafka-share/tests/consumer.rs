//! A consumer on real sockets, against a cluster in memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in the helpers of a test, a failure is the test's failure"
)]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_connector::Clock;
use tidegate_kafka_share::{
    Acknowledge, AcknowledgeError, AcknowledgeType, BootstrapServers, ClientOptions, Connector,
    ConsumerSettings, DeliveredBatch, Event, MemberSettings, Observer, ShareConsumer, Subscription,
};
use tidegate_share_broker::{Options, Record, Service};

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Observer for Heard {
    fn observe(&self, event: &Event) {
        self.0.lock().push(format!("{event:?}"));
    }
}

async fn cluster(nodes: i32) -> Service {
    Service::start(Options { nodes, ..Options::quick() }).await.unwrap()
}

fn consumer(service: &Service, member_id: &str) -> ShareConsumer {
    let member = MemberSettings::new("g", member_id, Subscription::topics(["t"]), 1);
    let settings = ConsumerSettings {
        request_timeout: Duration::from_secs(5),
        held_records_max: 5_000,
        close_timeout: Duration::from_secs(5),
        ..ConsumerSettings::new(member, BootstrapServers::parse(&service.bootstrap_servers()).unwrap())
    };
    let connector = Connector::new(ClientOptions::default()).unwrap();
    ShareConsumer::start(settings, connector, Clock::start(), Arc::new(Heard::default()))
}

fn append(service: &Service, partition: i32, count: usize) {
    service.with(|cluster, _| {
        cluster.append("t", partition, (0..count).map(|_| Record::new("x"))).unwrap();
    });
}

fn each(batches: &[DeliveredBatch], kind: AcknowledgeType) -> Vec<Acknowledge> {
    let records = batches
        .iter()
        .flat_map(|batch| batch.records.iter().map(move |delivered| batch.lease(delivered.record.offset)));
    records.map(|lease| Acknowledge { lease, last: lease.offset, kind }).collect()
}

#[tokio::test]
async fn records_are_received_and_acknowledged() {
    let service = cluster(3).await;
    service.with(|cluster, _| cluster.create_topic("t", 3));
    for partition in 0..3 {
        append(&service, partition, 500);
    }
    let consumer = consumer(&service, "m");
    let mut received = 0;
    while received < 1_500 {
        let batches = consumer.receive(400, usize::MAX, Duration::from_secs(5)).await.unwrap();
        let count: usize = batches.iter().map(|batch| batch.records.len()).sum();
        assert!(count > 0 && count <= 400, "{count}; {:?}", consumer.status());
        received += count;
        let results = consumer.acknowledge(each(&batches, AcknowledgeType::Accept)).await;
        assert_eq!(results, vec![Ok(()); count]);
    }
    let status = consumer.status();
    assert!(status.is_joined && status.troubles.is_empty(), "{status:?}");
    consumer.close().await;
    assert!(consumer.status().is_over);
    let tally = service.with(|cluster, _| cluster.tally("g"));
    assert_eq!((tally.accepted, tally.acquired), (1_500, 1_500));
    assert_eq!(service.with(|cluster, _| cluster.members("g")), Vec::<String>::new());
    service.stop().await;
}

#[tokio::test]
async fn what_is_not_acknowledged_at_the_end_is_given_back() {
    let service = cluster(1).await;
    service.with(|cluster, _| cluster.create_topic("t", 1));
    append(&service, 0, 10);
    let first = consumer(&service, "first");
    let batches = first.receive(100, usize::MAX, Duration::from_secs(5)).await.unwrap();
    assert_eq!(batches[0].records.len(), 10);
    first.close().await;
    let late = first.acknowledge(each(&batches, AcknowledgeType::Accept)).await;
    assert_eq!(late, vec![Err(AcknowledgeError::Closed); 10]);
    let second = consumer(&service, "second");
    let again = second.receive(100, usize::MAX, Duration::from_secs(5)).await.unwrap();
    assert_eq!(again[0].records.iter().map(|delivered| delivered.delivery_count).max(), Some(2));
    second.close().await;
    service.stop().await;
}

#[tokio::test]
async fn a_cluster_that_comes_later_is_waited_for_and_closing_does_not_wait() {
    let service = cluster(1).await;
    service.with(|cluster, _| cluster.create_topic("t", 1));
    service.with(|cluster, now| cluster.stop_node(now, 1));
    let consumer = consumer(&service, "m");
    let none = consumer.receive(10, usize::MAX, Duration::from_millis(500)).await.unwrap();
    assert!(none.is_empty());
    assert!(!consumer.status().is_joined);
    assert_eq!(consumer.status().troubles.len(), 1, "{:?}", consumer.status());
    service.with(|cluster, _| cluster.start_node(1));
    append(&service, 0, 10);
    let batches = consumer.receive(10, usize::MAX, Duration::from_secs(10)).await.unwrap();
    assert_eq!(batches.len(), 1, "{:?}", consumer.status());
    service.with(|cluster, now| cluster.stop_node(now, 1));
    tokio::time::timeout(Duration::from_secs(8), consumer.close()).await.unwrap();
    service.stop().await;
}
