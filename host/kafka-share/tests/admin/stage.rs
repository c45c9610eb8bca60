//! Where a case plays: a cluster, with topics, records and members.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_connector::Clock;
use tidegate_kafka_share::admin::{AdminOptions, ShareGroupAdmin};
use tidegate_kafka_share::{
    Acknowledge, AcknowledgeType, BootstrapServers, ClientOptions, Connector, ConsumerSettings, Event,
    MemberSettings, Observer, ShareConsumer, Subscription,
};
use tidegate_share_broker::Service;
use tidegate_test_brokers::kafka::Driver;

/// How long anything may take. Only waited for when something is wrong.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What clients call themselves.
pub(crate) const CLIENT: &str = "case";

pub(crate) struct Stage {
    pub(crate) bootstrap: String,
    pub(crate) cluster: Cluster,
}

pub(crate) enum Cluster {
    Memory(Service),
    #[cfg_attr(not(feature = "real"), allow(dead_code, reason = "there are no real ones then"))]
    Real(Driver),
}

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl Observer for Heard {
    fn observe(&self, event: &Event) {
        self.0.lock().push(format!("{event:?}"));
    }
}

pub(crate) fn now_millis() -> u64 {
    Clock::start().wall().as_unix_millis()
}

pub(crate) fn options() -> ClientOptions {
    ClientOptions { client_id: CLIENT.into(), ..ClientOptions::default() }
}

pub(crate) fn admin_with(bootstrap: &str, options: ClientOptions) -> ShareGroupAdmin {
    let servers = BootstrapServers::parse(bootstrap).unwrap();
    let waits = AdminOptions { timeout: PATIENCE, ..AdminOptions::default() };
    ShareGroupAdmin::new(Connector::new(options).unwrap(), servers, waits, 7)
}

impl Stage {
    pub(crate) fn admin(&self) -> ShareGroupAdmin {
        admin_with(&self.bootstrap, options())
    }

    pub(crate) async fn create_topic(&self, name: &str, partitions: i32) {
        match &self.cluster {
            Cluster::Memory(service) => {
                service.with(|cluster, _| cluster.create_topic(name, partitions));
            }
            Cluster::Real(driver) => drop(driver.create_topic(name, partitions).await.unwrap()),
        }
    }

    /// Records of now.
    pub(crate) async fn append(&self, topic: &str, partition: i32, count: usize) {
        match &self.cluster {
            Cluster::Memory(service) => {
                let timestamp = i64::try_from(now_millis()).unwrap();
                let record =
                    tidegate_share_broker::Record { timestamp, ..tidegate_share_broker::Record::new("x") };
                let records = vec![record; count];
                service.with(|cluster, _| cluster.append(topic, partition, records)).unwrap();
            }
            Cluster::Real(driver) => {
                let records = vec![tidegate_test_brokers::kafka::Record::new("x"); count];
                driver.produce(topic, partition, &records).await.unwrap();
            }
        }
    }

    /// A member, once it is in its group.
    pub(crate) async fn member(&self, group: &str, id: &str, topic: &str) -> ShareConsumer {
        let member = MemberSettings {
            rack: Some("r1".into()),
            ..MemberSettings::new(group, id, Subscription::topics([topic]), 1)
        };
        let settings = ConsumerSettings {
            request_timeout: Duration::from_secs(10),
            ..ConsumerSettings::new(member, BootstrapServers::parse(&self.bootstrap).unwrap())
        };
        let connector = Connector::new(options()).unwrap();
        let consumer = ShareConsumer::start(settings, connector, Clock::start(), Arc::new(Heard::default()));
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !consumer.status().is_joined || consumer.status().partitions == 0 {
            assert!(tokio::time::Instant::now() < deadline, "no member: {:?}", consumer.status());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        consumer
    }

    /// Takes and accepts records, as many as that; gives the lowest offset of each partition.
    pub(crate) async fn accept(&self, consumer: &ShareConsumer, count: usize) -> Vec<(i32, i64)> {
        let mut firsts = std::collections::BTreeMap::new();
        let mut taken = 0;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while taken < count {
            assert!(tokio::time::Instant::now() < deadline, "{taken} of {count}: {:?}", consumer.status());
            let batches = consumer.receive(count - taken, usize::MAX, Duration::from_secs(1)).await.unwrap();
            for batch in &batches {
                let offsets: Vec<i64> = batch.records.iter().map(|of| of.record.offset).collect();
                let first = firsts.entry(batch.partition.partition).or_insert(offsets[0]);
                *first = offsets[0].min(*first);
                taken += offsets.len();
                let accepts = offsets.iter().map(|offset| Acknowledge {
                    lease: batch.lease(*offset),
                    last: *offset,
                    kind: AcknowledgeType::Accept,
                });
                for result in consumer.acknowledge(accepts.collect()).await {
                    result.unwrap();
                }
            }
        }
        firsts.into_iter().collect()
    }
}
