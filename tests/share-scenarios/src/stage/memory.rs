//! The cluster in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_connector::Clock;
use tidegate_share_broker::{
    Access, Batch, GroupOptions, Options, Record as Written, RecordState, Reset, Service,
};
use tidegate_test_brokers::kafka::{Certificates, Record, Version};

use super::{Door, NARROW, PLAIN_USER, Stage, Stand};

/// How long the other nodes need to miss one that crashed: shorter than real ones, which take three seconds.
const MISSED_AFTER: Duration = Duration::from_millis(700);
/// Requests kept by the journal: a scenario reads the last ones only.
const JOURNAL_MAX: usize = 50_000;

/// The cluster in memory.
pub(crate) struct MemoryStage {
    service: Arc<Service>,
    clock: Clock,
    groups: Mutex<BTreeMap<String, GroupOptions>>,
    compressions: Mutex<BTreeMap<String, String>>,
    down: Mutex<BTreeSet<i32>>,
}

impl MemoryStage {
    pub(crate) async fn start(stand: Stand) -> Self {
        let mut options = Options { group: quick(), journal_max: JOURNAL_MAX, ..Options::quick() };
        match stand {
            Stand::One | Stand::Crash => {}
            Stand::Three => options.nodes = 3,
            Stand::Guarded => options.users = vec![(PLAIN_USER.0.to_owned(), PLAIN_USER.1.to_owned())],
            Stand::Narrow => (options.group_size_max, options.sessions_max) = (NARROW, NARROW),
            Stand::Without => options.share_groups = false,
        }
        Self {
            service: Arc::new(Service::start(options).await.expect("a port")),
            clock: Clock::start(),
            groups: Mutex::default(),
            compressions: Mutex::default(),
            down: Mutex::default(),
        }
    }

    fn written(&self, record: &Record) -> Written {
        Written {
            timestamp: i64::try_from(self.clock.wall().as_unix_millis()).expect("a time of this age"),
            key: record.key.clone(),
            value: record.value.clone(),
            headers: record.headers.clone(),
        }
    }

    fn batch(&self, topic: &str, records: &[Record]) -> Batch {
        let batch = Batch::of(records.iter().map(|record| self.written(record)));
        let compressions = self.compressions.lock();
        let Some(name) = compressions.get(topic) else { return batch };
        let plain = batch.plain_records();
        let (codec, payload) = compress(name, &plain);
        // The codec 0 stands for records as they are.
        if codec == 0 {
            return batch;
        }
        Batch::compressed(codec, i32::try_from(records.len()).expect("a batch counts in 31 bits"), payload)
            .from_timestamp(records.first().map_or(0, |record| self.written(record).timestamp))
    }
}

/// As the real clusters' groups are: locks of 2 s, heartbeats every 500 ms, sessions of 5 s, assignments at once.
fn quick() -> GroupOptions {
    GroupOptions {
        record_lock_duration: Duration::from_secs(2),
        heartbeat_interval: Duration::from_millis(500),
        session_timeout: Duration::from_secs(5),
        assignment_interval: Duration::ZERO,
        ..GroupOptions::default()
    }
}

fn compress(name: &str, plain: &[u8]) -> (i16, Bytes) {
    match name {
        "none" => (0, Bytes::copy_from_slice(plain)),
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(plain).expect("memory");
            (1, encoder.finish().expect("memory").into())
        }
        "snappy" => (2, snap::raw::Encoder::new().compress_vec(plain).expect("memory").into()),
        "lz4" => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(plain).expect("memory");
            (3, encoder.finish().expect("memory").into())
        }
        "zstd" => (4, zstd::bulk::compress(plain, 0).expect("memory").into()),
        other => panic!("`{other}` is no compression"),
    }
}

fn set(options: &mut GroupOptions, name: &str, value: &str) {
    let number = || value.parse::<u64>().expect("a number");
    let millis = || Duration::from_millis(number());
    match name {
        "share.auto.offset.reset" => {
            options.reset = if value == "earliest" { Reset::Earliest } else { Reset::Latest };
        }
        "share.record.lock.duration.ms" => options.record_lock_duration = millis(),
        "share.delivery.count.limit" => {
            options.delivery_count_limit = i16::try_from(number()).expect("a small number");
        }
        "share.partition.max.record.locks" => {
            options.partition_max_record_locks = i64::try_from(number()).expect("a small number");
        }
        "share.session.timeout.ms" => options.session_timeout = millis(),
        "share.heartbeat.interval.ms" => options.heartbeat_interval = millis(),
        "share.assignment.interval.ms" => options.assignment_interval = millis(),
        "share.renew.acknowledge.enable" => options.renew_acknowledge = value == "true",
        other => panic!("`{other}` is no setting of a group in memory"),
    }
}

#[async_trait(?Send)]
impl Stage for MemoryStage {
    fn bootstrap(&self, _door: Door) -> String {
        self.service.bootstrap_servers()
    }

    fn nodes(&self) -> Vec<i32> {
        (1..=self.service.with(|cluster, _| cluster.options().nodes)).collect()
    }

    fn certificates(&self) -> Option<&Certificates> {
        None
    }

    fn version(&self) -> Option<Version> {
        None
    }

    fn service(&self) -> Option<&Service> {
        Some(&self.service)
    }

    async fn create_compressed(&self, topic: &str, partitions: i32, compression: &str) {
        if compression != "none" {
            self.compressions.lock().insert(topic.to_owned(), compression.to_owned());
        }
        self.service.with(|cluster, _| cluster.create_topic(topic, partitions));
    }

    async fn delete_topic(&self, topic: &str) {
        assert!(self.service.with(|cluster, _| cluster.delete_topic(topic)), "no topic {topic}");
    }

    async fn add_partitions(&self, topic: &str, total: i32) {
        self.service.with(|cluster, _| cluster.grow_topic(topic, total));
    }

    async fn append(&self, topic: &str, partition: i32, records: &[Record]) {
        let batch = self.batch(topic, records);
        self.service.with(|cluster, _| cluster.append_batches(topic, partition, [batch])).unwrap();
    }

    async fn transact(&self, topic: &str, partition: i32, records: &[Record], commits: bool) {
        let batches = [self.batch(topic, records), Batch::marker(commits)];
        self.service.with(|cluster, _| cluster.append_batches(topic, partition, batches)).unwrap();
    }

    async fn configure_group(&self, group: &str, settings: &[(&str, &str)]) {
        let mut groups = self.groups.lock();
        let options = groups.entry(group.to_owned()).or_insert_with(quick);
        for (name, value) in settings {
            set(options, name, value);
        }
        self.service.with(|cluster, _| cluster.configure_group(group, options.clone()));
    }

    async fn lag(&self, group: &str, topic: &str) -> Option<i64> {
        self.service.with(|cluster, _| {
            (0..).map_while(|number| cluster.log_end(topic, number).map(|end| (number, end))).try_fold(
                0,
                |sum, (number, end)| {
                    let state = cluster.share_state(group, topic, number)?;
                    let open = state
                        .runs
                        .iter()
                        .filter(|run| matches!(run.state, RecordState::Available | RecordState::Acquired));
                    let open: i64 = open.map(|run| run.last - run.first + 1).sum();
                    Some(sum + open + end - state.end)
                },
            )
        })
    }

    async fn members(&self, group: &str) -> usize {
        self.service.with(|cluster, now| {
            cluster.expire_members(now, group);
            cluster.members(group).len()
        })
    }

    async fn leader(&self, topic: &str, partition: i32) -> i32 {
        self.service.with(|cluster, _| cluster.leader(topic, partition)).expect("a leader")
    }

    async fn move_leader(&self, topic: &str, partition: i32, to: i32) {
        self.service.with(|cluster, _| cluster.move_leader(topic, partition, to));
    }

    async fn coordinator(&self, group: &str) -> i32 {
        self.service.with(|cluster, _| cluster.coordinator(group))
    }

    async fn kill(&self, node: i32) {
        self.down.lock().insert(node);
        self.service.with(|cluster, now| cluster.stop_node(now, node));
        let service = Arc::clone(&self.service);
        tokio::spawn(async move {
            tokio::time::sleep(MISSED_AFTER).await;
            service.with(|cluster, _| {
                if !cluster.is_up(node) {
                    cluster.fail_over(node);
                }
            });
        });
    }

    async fn terminate(&self, node: i32) {
        self.down.lock().insert(node);
        self.service.with(|cluster, now| {
            cluster.fail_over(node);
            cluster.stop_node(now, node);
        });
    }

    async fn revive(&self, node: i32) {
        self.down.lock().remove(&node);
        self.service.with(|cluster, _| cluster.start_node(node));
    }

    async fn freeze(&self, node: i32) {
        self.service.with(|cluster, _| cluster.freeze_node(node));
        let service = Arc::clone(&self.service);
        tokio::spawn(async move {
            tokio::time::sleep(MISSED_AFTER).await;
            service.with(|cluster, _| {
                if cluster.is_frozen(node) {
                    cluster.fail_over(node);
                }
            });
        });
    }

    async fn thaw(&self, node: i32) {
        self.service.with(|cluster, now| {
            cluster.thaw_node(now, node);
            cluster.start_node(node);
        });
    }

    async fn heal(&self) {}

    async fn let_read(&self, _user: &str, topic: &str, allowed: bool) {
        let access = if allowed { Access::Read } else { Access::Nothing };
        self.service.with(|cluster, _| cluster.set_topic_access(topic, access));
    }

    async fn let_join(&self, _user: &str, group: &str) {
        self.service.with(|cluster, _| cluster.set_group_access(group, true));
    }
}
