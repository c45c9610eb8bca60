//! How fast a consumer is against a cluster in memory, on real sockets in one process: `cargo bench --bench consumer`.
//!
//! Prints records per second, for acknowledgements of whole batches and of each record alone. Figures of one run compare with
//! each other; those of two machines, or two days, do not.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench answers to nobody but its reader")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::Clock;
use tidegate_kafka_share::{
    Acknowledge, AcknowledgeType, BootstrapServers, ClientOptions, Connector, ConsumerSettings,
    DeliveredBatch, Event, MemberSettings, Observer, ShareConsumer, Subscription,
};
use tidegate_share_broker::{Batch, Options, Record, Service};
use tokio::time::Instant;

const RECORDS: usize = 3_000_000;
const PARTITIONS: i32 = 3;
const BATCH: usize = 100;

struct Nobody;

impl Observer for Nobody {
    fn observe(&self, _: &Event) {}
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for size in [1_000, 100] {
        for each in [false, true] {
            let rate = runtime.block_on(run(size, each));
            let how = if each { "each record alone" } else { "whole batches" };
            println!("{size} bytes, acknowledged {how}: {rate:.0} records/s");
        }
    }
}

async fn run(size: usize, each: bool) -> f64 {
    let service = Service::start(Options { journal_max: 0, ..Options::quick() }).await.unwrap();
    let batch = Batch::of((0..BATCH).map(|_| Record::new(vec![b'x'; size])));
    service.with(|cluster, _| {
        cluster.create_topic("t", PARTITIONS);
        for partition in 0..PARTITIONS {
            let times = RECORDS / BATCH / usize::try_from(PARTITIONS).unwrap();
            cluster.append_repeated("t", partition, &batch, times).unwrap();
        }
    });
    let member = MemberSettings::new("g", "m", Subscription::topics(["t"]), 1);
    let bootstrap = BootstrapServers::parse(&service.bootstrap_servers()).unwrap();
    let settings = ConsumerSettings { held_records_max: 12_000, ..ConsumerSettings::new(member, bootstrap) };
    let connector = Connector::new(ClientOptions::default()).unwrap();
    let consumer = ShareConsumer::start(settings, connector, Clock::start(), Arc::new(Nobody));
    let (mut received, mut began) = (0, None);
    let mut settling = tokio::task::JoinSet::new();
    while received < RECORDS {
        let batches = consumer.receive(2_000, usize::MAX, Duration::from_secs(5)).await.unwrap();
        assert!(!batches.is_empty(), "{:?}", consumer.status());
        began.get_or_insert_with(Instant::now);
        received += batches.iter().map(|batch| batch.records.len()).sum::<usize>();
        let acks: Vec<Acknowledge> = batches.iter().flat_map(|batch| acknowledge(batch, each)).collect();
        let consumer = consumer.clone();
        settling.spawn(async move {
            assert!(consumer.acknowledge(acks).await.iter().all(Result::is_ok));
        });
        while settling.len() > 4 {
            settling.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(done) = settling.join_next().await {
        done.unwrap();
    }
    let took = began.unwrap().elapsed();
    consumer.close().await;
    service.stop().await;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = received as f64 / took.as_secs_f64();
    rate
}

fn acknowledge(batch: &DeliveredBatch, each: bool) -> Vec<Acknowledge> {
    let kind = AcknowledgeType::Accept;
    let offsets = || batch.records.iter().map(|delivered| delivered.record.offset);
    if each {
        return offsets().map(|o| Acknowledge { lease: batch.lease(o), last: o, kind }).collect();
    }
    let mut acks: Vec<Acknowledge> = Vec::new();
    for offset in offsets() {
        match acks.last_mut() {
            Some(ack) if ack.last + 1 == offset => ack.last = offset,
            _ => acks.push(Acknowledge { lease: batch.lease(offset), last: offset, kind }),
        }
    }
    acks
}
