//! The connector's source and settler on real sockets, against a cluster in memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in the helpers of a test, a failure is the test's failure"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::options::{Raw, Side};
use tidegate_connector::{Clock, Settler, Source};
use tidegate_kafka_share::connector::{NAMESPACE, SourceOptions, TABLE, connect};
use tidegate_model::{Capacity, Delivery, DeliveryId, Handle, SettleError, SettleFault, Settlement, Verb};
use tidegate_share_broker::{GroupOptions, Options, Record, Service};
use tidegate_telemetry::Telemetry;

/// Longest wait for anything that a test expects.
const PATIENCE: Duration = Duration::from_secs(30);

struct Rig {
    service: Service,
    source: Arc<dyn Source>,
    settler: Arc<dyn Settler>,
    clock: Clock,
    telemetry: Telemetry,
}

impl Rig {
    /// One topic `t`, a source with these options on top of the least.
    async fn start(partitions: i32, group: GroupOptions, more: &[(&str, &str)]) -> Self {
        let options = Options { group, ..Options::quick() };
        let service = Service::start(options).await.unwrap();
        service.with(|cluster, _| cluster.create_topic("t", partitions));
        let (clock, telemetry) = (Clock::start(), Telemetry::default());
        let link = connect(options_of(&service, more), Path::new("."), clock, telemetry.clone(), "s".into())
            .unwrap();
        Self { service, source: link.source, settler: link.settler, clock, telemetry }
    }

    fn append(&self, partition: i32, records: impl IntoIterator<Item = Record>) {
        self.service.with(|cluster, _| cluster.append("t", partition, records).unwrap());
    }

    /// Receives until there are so many.
    async fn receive(&self, count: usize) -> Vec<Delivery> {
        let mut received = Vec::new();
        let receiving = async {
            while received.len() < count {
                let capacity = Capacity { messages: count - received.len(), bytes: usize::MAX };
                received.extend(self.source.receive(capacity).await.unwrap());
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, receiving).await;
        assert!(in_time.is_ok(), "{} of {count}; {:?}", received.len(), self.source.status());
        received
    }

    async fn settle(&self, deliveries: &[Delivery], verb: Verb) -> Vec<Result<Option<Handle>, SettleError>> {
        let batch = deliveries.iter().enumerate().map(|(at, delivery)| Settlement {
            id: DeliveryId(at as u64),
            verb: verb.clone(),
            message: Arc::clone(&delivery.message),
            handle: delivery.handle.clone(),
            attempt: delivery.attempt,
        });
        self.settler.settle(batch.collect()).await
    }

    async fn settle_well(&self, deliveries: &[Delivery], verb: Verb) {
        let results = self.settle(deliveries, verb).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    fn tally(&self) -> tidegate_share_broker::Tally {
        self.service.with(|cluster, _| cluster.tally("g"))
    }

    fn counts(&self, sample: &str) -> bool {
        self.telemetry.encode().lines().any(|line| line == sample)
    }

    async fn stop(self) {
        tokio::time::timeout(PATIENCE, self.source.close()).await.expect("bounded");
        self.service.stop().await;
    }
}

fn options_of(service: &Service, more: &[(&str, &str)]) -> SourceOptions {
    let servers = service.bootstrap_servers();
    let least = [("properties.bootstrap.servers", &*servers), ("share-group-id", "g"), ("topic", "t")];
    let raw: BTreeMap<String, Raw> = least
        .iter()
        .chain(more)
        .map(|(key, value)| ((*key).to_owned(), Raw::Text((*value).to_owned())))
        .collect();
    SourceOptions::from_values(&TABLE.read(Side::Source, &raw).unwrap()).unwrap()
}

/// Read from the start, with locks of so long.
fn locks(lock: Duration) -> GroupOptions {
    GroupOptions { record_lock_duration: lock, ..Options::quick().group }
}

fn quick() -> GroupOptions {
    Options::quick().group
}

fn numbered(count: usize) -> impl Iterator<Item = Record> {
    (0..count).map(|number| Record::new(number.to_string()))
}

#[tokio::test]
async fn records_become_messages() {
    let rig = Rig::start(1, quick(), &[]).await;
    let first =
        Record::new("body").keyed("key").with_header("h", "1").with_header("g", "x").with_header("h", "2");
    rig.append(0, [first, Record::new("raw").keyed(vec![0xff, 0])]);
    let received = rig.receive(2).await;
    let id = rig.service.with(|cluster, _| cluster.topic_id("t")).unwrap();
    let topic = tidegate_kafka_share::TopicId(id.to_bytes());
    let message = &received[0].message;
    assert_eq!((message.id.as_str(), &*message.topic), (&*format!("{topic}-0-0"), "t"));
    assert_eq!((&*message.body, &message.keys[..]), (&b"body"[..], &["key".into()][..]));
    let properties: Vec<_> = message
        .properties
        .iter()
        .map(|(name, value)| (&**name, std::str::from_utf8(value).unwrap()))
        .collect();
    assert_eq!(properties, [("h", "1"), ("g", "x"), ("h", "2")]);
    assert!(message.born_at.is_some() && message.stored_at.is_none(), "{message:?}");
    let raw = &received[1].message;
    assert_eq!((raw.keys.len(), raw.properties.len()), (0, 1));
    assert_eq!((&*raw.properties[0].0, &raw.properties[0].1[..]), ("kafka.record-key", &[0xff, 0][..]));
    let delivery = &received[0];
    assert_eq!(
        (delivery.attempt, delivery.lease, delivery.order.is_none()),
        (1, Duration::from_secs(30), true)
    );
    assert_eq!((&*delivery.handle.routing.namespace, &*delivery.handle.routing.group), (NAMESPACE, "g"));
    assert!(rig.source.is_joined() && rig.source.status().is_none(), "{:?}", rig.source.status());
    rig.settle_well(&received, Verb::Accept).await;
    assert_eq!((rig.tally().accepted, rig.tally().acquired), (2, 2));
    assert!(rig.counts("tidegate_kafka_share_received_records_total{source=\"s\"} 2"));
    assert!(
        rig.counts("tidegate_kafka_share_settlements_total{source=\"s\",verb=\"accept\",result=\"ok\"} 2")
    );
    rig.stop().await;
}

#[tokio::test]
async fn what_is_released_comes_again_and_what_is_rejected_does_not() {
    let rig = Rig::start(1, quick(), &[]).await;
    rig.append(0, numbered(3));
    let received = rig.receive(3).await;
    rig.settle_well(&received[..1], Verb::Release).await;
    rig.settle_well(&received[1..2], Verb::Reject { reason: "no".into() }).await;
    rig.settle_well(&received[2..], Verb::Accept).await;
    let again = rig.receive(1).await;
    assert_eq!((&again[0].message.id, again[0].attempt), (&received[0].message.id, 2));
    rig.settle_well(&again, Verb::Accept).await;
    let tally = rig.tally();
    assert_eq!((tally.accepted, tally.released, tally.rejected), (2, 1, 1));
    // The lock of the first delivery is gone with its release; the second one's accept was about another acquisition.
    let late = rig.settle(&received[..1], Verb::Accept).await;
    assert!(matches!(&late[0], Err(error) if error.fault == SettleFault::LeaseGone), "{late:?}");
    rig.stop().await;
}

#[tokio::test]
async fn a_deferred_record_keeps_its_lock_and_comes_again_when_due() {
    let rig = Rig::start(1, locks(Duration::from_secs(2)), &[]).await;
    rig.append(0, numbered(2));
    let received = rig.receive(2).await;
    let delay = Duration::from_secs(5);
    let deferred_at = rig.clock.now();
    rig.settle_well(&received[..1], Verb::Defer(delay)).await;
    rig.settle_well(&received[1..], Verb::Accept).await;
    let too_early = rig.source.receive(Capacity { messages: 9, bytes: usize::MAX }).await.unwrap();
    assert!(too_early.is_empty(), "{too_early:?}");
    let again = rig.receive(1).await;
    assert!(again[0].received_at >= deferred_at + delay);
    assert_eq!((&again[0].message.id, again[0].attempt), (&received[0].message.id, 1));
    rig.settle_well(&again, Verb::Accept).await;
    let tally = rig.tally();
    assert_eq!((tally.acquired, tally.accepted, tally.expired), (2, 2, 0));
    assert!(tally.renewed >= 3, "{tally:?}");
    assert!(rig.counts("tidegate_kafka_share_hold_ends_total{source=\"s\",end=\"due\"} 1"));
    rig.stop().await;
}

#[tokio::test]
async fn without_renewal_a_deferral_lasts_as_long_as_the_lock() {
    let group = GroupOptions { renew_acknowledge: false, ..locks(Duration::from_secs(2)) };
    let rig = Rig::start(1, group, &[]).await;
    rig.append(0, numbered(1));
    let received = rig.receive(1).await;
    rig.settle_well(&received, Verb::Defer(Duration::from_secs(600))).await;
    let again = rig.receive(1).await;
    assert_eq!((&again[0].message.id, again[0].attempt), (&received[0].message.id, 2));
    let tally = rig.tally();
    assert_eq!((tally.released, tally.expired, tally.renewed), (1, 0, 0));
    rig.stop().await;
}

#[tokio::test]
async fn beyond_the_hold_a_record_is_released_at_the_end_of_its_lock() {
    let rig = Rig::start(1, locks(Duration::from_secs(2)), &[("defer-hold-records", "1")]).await;
    rig.append(0, numbered(2));
    let received = rig.receive(2).await;
    rig.settle_well(&received, Verb::Defer(Duration::from_secs(600))).await;
    let again = rig.receive(1).await;
    assert_eq!((&again[0].message.id, again[0].attempt), (&received[1].message.id, 2));
    assert_eq!((rig.tally().released, rig.tally().expired), (1, 0));
    rig.stop().await;
}

#[tokio::test]
async fn a_deferred_record_keeps_its_place_in_the_queue() {
    let more = [("max-queue-size", "4"), ("properties.share.acquire.mode", "record_limit")];
    let rig = Rig::start(1, quick(), &more).await;
    rig.append(0, numbered(8));
    let received = rig.receive(4).await;
    rig.settle_well(&received, Verb::Defer(Duration::from_secs(2))).await;
    let capacity = Capacity { messages: 100, bytes: usize::MAX };
    assert!(rig.source.receive(capacity).await.unwrap().is_empty());
    assert_eq!(rig.tally().acquired, 4);
    let again = rig.receive(4).await;
    assert_eq!(again[0].message.id, received[0].message.id);
    rig.settle_well(&again, Verb::Accept).await;
    let rest = rig.receive(4).await;
    rig.settle_well(&rest, Verb::Accept).await;
    assert_eq!(rig.tally().accepted, 8);
    rig.stop().await;
}

#[tokio::test]
async fn a_renewal_lasts_as_long_as_it_was_asked_for() {
    let rig = Rig::start(1, locks(Duration::from_secs(2)), &[]).await;
    rig.append(0, numbered(1));
    let received = rig.receive(1).await;
    rig.settle_well(&received, Verb::Renew(Duration::from_secs(5))).await;
    // Nothing can be waited for: that a lock does not run out.
    tokio::time::sleep(Duration::from_secs(4)).await;
    rig.settle_well(&received, Verb::Accept).await;
    let tally = rig.tally();
    assert_eq!((tally.expired, tally.accepted), (0, 1));
    assert!(tally.renewed >= 3, "{tally:?}");
    rig.stop().await;
}

#[tokio::test]
async fn a_record_at_its_limit_is_rejected_without_being_handed_out() {
    let rig = Rig::start(1, quick(), &[("delivery-count-limit", "2")]).await;
    rig.append(0, numbered(2));
    let received = rig.receive(2).await;
    rig.settle_well(&received[..1], Verb::Release).await;
    rig.settle_well(&received[1..], Verb::Accept).await;
    let until = tokio::time::Instant::now() + PATIENCE;
    while rig.tally().rejected == 0 {
        assert!(tokio::time::Instant::now() < until, "{:?}", rig.tally());
        let none = rig.source.receive(Capacity { messages: 10, bytes: usize::MAX }).await.unwrap();
        assert!(none.is_empty(), "{none:?}");
    }
    assert!(rig.counts("tidegate_kafka_share_limit_rejections_total{source=\"s\"} 1"));
    rig.stop().await;
}

#[tokio::test]
async fn several_members_share_the_work() {
    let rig = Rig::start(6, quick(), &[("source.parallelism", "3")]).await;
    for partition in 0..6 {
        rig.append(partition, numbered(100));
    }
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 600 {
        let capacity = Capacity { messages: 50, bytes: usize::MAX };
        let receive = || async { rig.source.receive(capacity).await.unwrap() };
        let (first, second, third) = tokio::join!(receive(), receive(), receive());
        for deliveries in [first, second, third] {
            seen.extend(deliveries.iter().map(|delivery| delivery.message.id.clone()));
            rig.settle_well(&deliveries, Verb::Accept).await;
        }
    }
    assert_eq!(rig.service.with(|cluster, _| cluster.members("g")).len(), 3);
    assert_eq!((rig.tally().accepted, rig.tally().acquired), (600, 600));
    rig.stop().await;
}

#[tokio::test]
async fn handles_of_others_are_refused() {
    let rig = Rig::start(1, quick(), &[]).await;
    rig.append(0, numbered(1));
    let mut received = rig.receive(1).await;
    let text = received[0].handle.text.to_string();
    let life = text.split(' ').nth(1).unwrap();
    received[0].handle.text = text.replace(life, "1").into();
    let other_life = rig.settle(&received, Verb::Accept).await;
    assert!(matches!(&other_life[0], Err(error) if error.fault == SettleFault::LeaseGone), "{other_life:?}");
    received[0].handle.text = "0 1764450000000 60000".into();
    let other_broker = rig.settle(&received, Verb::Defer(Duration::ZERO)).await;
    assert!(
        matches!(&other_broker[0], Err(error) if error.fault == SettleFault::Refused),
        "{other_broker:?}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn what_is_deferred_at_the_end_is_given_back() {
    let rig = Rig::start(1, quick(), &[]).await;
    rig.append(0, numbered(3));
    let received = rig.receive(3).await;
    rig.settle_well(&received, Verb::Defer(Duration::from_secs(600))).await;
    let second = connect(
        options_of(&rig.service, &[]),
        Path::new("."),
        rig.clock,
        Telemetry::default(),
        "other".into(),
    )
    .unwrap();
    rig.source.close().await;
    let again = second.source.receive(Capacity { messages: 3, bytes: usize::MAX });
    let again = tokio::time::timeout(PATIENCE, again).await.unwrap().unwrap();
    assert_eq!(again.iter().map(|delivery| delivery.attempt).max(), Some(2));
    let late = rig.settle(&received, Verb::Accept).await;
    assert!(late.iter().all(Result::is_err), "{late:?}");
    second.source.close().await;
    rig.service.stop().await;
}

#[tokio::test]
async fn a_cluster_out_of_reach_is_told_and_closing_does_not_wait() {
    let rig = Rig::start(1, quick(), &[("properties.request.timeout.ms", "2000")]).await;
    rig.append(0, numbered(1));
    rig.receive(1).await;
    rig.service.with(|cluster, now| cluster.stop_node(now, 1));
    let until = tokio::time::Instant::now() + PATIENCE;
    while rig.source.status().is_none() {
        assert!(tokio::time::Instant::now() < until, "no remark");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    rig.stop().await;
}

/// As the broker of a flow that is paused sees it: the group has everything, but for what a worker still has.
#[tokio::test]
async fn while_nothing_is_received_the_group_has_everything() {
    let rig = Rig::start(2, locks(Duration::from_secs(60)), &[("source.parallelism", "2")]).await;
    for partition in 0..2 {
        rig.append(partition, numbered(20));
    }
    // Each batch comes whole, so that some of it lies ready behind what is received.
    let received = rig.receive(12).await;
    let (with_worker, deferred) = received.split_at(6);
    rig.settle_well(&deferred[..3], Verb::Defer(Duration::from_millis(1))).await;
    rig.settle_well(&deferred[3..], Verb::Defer(Duration::from_secs(3600))).await;
    let members = || rig.service.with(|cluster, _| cluster.members("g").len());
    assert_eq!(members(), 2);
    rig.source.set_receiving(false);
    // All but what the worker has and what is due in an hour, of which the lock is not renewed any more.
    eventually("it is given back", || rig.tally().acquired - rig.tally().released == 9).await;
    eventually("it has left", || members() == 0).await;
    assert!(rig.source.is_joined(), "it is as it should be: {:?}", rig.source.status());
    assert_eq!(rig.source.status(), None);

    let (clock, telemetry) = (Clock::start(), Telemetry::default());
    let other = connect(options_of(&rig.service, &[]), Path::new("."), clock, telemetry, "o".into()).unwrap();
    let capacity = Capacity { messages: 100, bytes: usize::MAX };
    let mut came = Vec::new();
    let receiving = async {
        while came.len() < 31 {
            came.extend(other.source.receive(capacity).await.unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, receiving).await.expect("the group has everything");
    assert_eq!(came.len(), 31);
    other.source.close().await;

    // A worker's is settled where it was.
    rig.settle_well(with_worker, Verb::Accept).await;
    rig.source.set_receiving(true);
    eventually("it is back", || members() == 2).await;
    rig.append(0, numbered(1));
    rig.receive(1).await;
    rig.stop().await;
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
