//! What a scenario plays with: a cluster, names of its own, and members with a test's patience.

mod foreign;
mod member;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_connector::Clock;
use tidegate_kafka_share::{
    BootstrapServers, ClientOptions, Connector, ConsumerSettings, FetchSettings, MemberSettings,
    ShareConsumer, Subscription,
};
use tidegate_share_broker::Service;
use tidegate_test_brokers::kafka::Record;
use tokio::time::{Instant, sleep};

pub(crate) use self::foreign::{Client, Does, Line};
pub(crate) use self::member::{Got, Heard, Member, is_all_ok, numbers};
use crate::stage::Door;
use crate::stands::Taken;

/// Longest wait for anything that a scenario expects, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long a broker may take to answer, unless told otherwise.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

static MEMBERS: AtomicU64 = AtomicU64::new(1);

/// One scenario's cluster, and names that are its own.
pub struct Play {
    pub(crate) stage: Taken,
    name: &'static str,
    clock: Clock,
}

/// What a member is made of, to be changed before it is started.
pub(crate) struct Wants {
    pub(crate) settings: ConsumerSettings,
    pub(crate) client: ClientOptions,
}

impl Play {
    /// The scenario `name` on `stage`.
    pub fn new(stage: Taken, name: &'static str) -> Self {
        Self { stage, name, clock: Clock::start() }
    }

    /// A name that no other scenario uses.
    pub(crate) fn own(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    /// A new topic.
    pub(crate) async fn topic(&self, part: &str, partitions: i32) -> String {
        let name = self.own(part);
        self.create(&name, partitions).await;
        name
    }

    /// Makes a topic of a given name.
    pub(crate) async fn create(&self, name: &str, partitions: i32) {
        self.stage.create_compressed(name, partitions, "none").await;
    }

    /// A new group that begins at the beginning of topics, with more settings by Kafka's names.
    pub(crate) async fn group(&self, part: &str, settings: &[(&str, &str)]) -> String {
        let name = self.own(part);
        let earliest = [("share.auto.offset.reset", "earliest")];
        self.stage.configure_group(&name, &[&earliest[..], settings].concat()).await;
        name
    }

    /// The cluster in memory.
    pub(crate) fn service(&self) -> &Service {
        self.stage.service().expect("a scenario that plays in memory only")
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// What a member of a group on these topics is made of.
    pub(crate) fn wants(&self, group: &str, topics: &[&str]) -> Wants {
        let number = MEMBERS.fetch_add(1, Ordering::Relaxed);
        let subscription = Subscription::topics(topics.iter().copied());
        let member = MemberSettings::new(group, format!("member-{number}"), subscription, number);
        let settings = ConsumerSettings {
            request_timeout: REQUEST_TIMEOUT,
            ..ConsumerSettings::new(member, servers(&self.stage.bootstrap(Door::Plain)))
        };
        Wants { settings, client: ClientOptions::default() }
    }

    /// A member of a group on one topic, as most are.
    pub(crate) fn member(&self, group: &str, topic: &str) -> Member {
        self.start(self.wants(group, &[topic]))
    }

    pub(crate) fn start(&self, wants: Wants) -> Member {
        let heard = Arc::new(Heard::default());
        let name = wants.settings.member.member_id.to_string();
        let connector = Connector::new(wants.client).expect("options that can be used");
        let consumer =
            ShareConsumer::start(wants.settings, connector, self.clock, Arc::<Heard>::clone(&heard));
        Member::new(consumer, heard, name)
    }

    /// Appends one batch of records whose values are these numbers.
    pub(crate) async fn append(&self, topic: &str, partition: i32, numbers: Range<usize>) {
        self.stage.append(topic, partition, &numbered(numbers)).await;
    }

    /// Makes a node the leader of a partition, if it is not.
    pub(crate) async fn lead(&self, topic: &str, partition: i32, node: i32) {
        if self.stage.leader(topic, partition).await != node {
            self.stage.move_leader(topic, partition, node).await;
        }
    }

    /// Waits until a group is done with a topic.
    pub(crate) async fn until_done(&self, group: &str, topic: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lag = self.stage.lag(group, topic).await;
            if lag == Some(0) {
                return;
            }
            assert!(Instant::now() < deadline, "the lag of {group} on {topic} is still {lag:?}");
            sleep(LOOK_AGAIN_AFTER).await;
        }
    }

    /// Waits until a group has so many members.
    pub(crate) async fn until_members(&self, group: &str, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let members = self.stage.members(group).await;
            if members == count {
                return;
            }
            assert!(Instant::now() < deadline, "{group} has still {members} members, not {count}");
            sleep(LOOK_AGAIN_AFTER).await;
        }
    }
}

impl Wants {
    pub(crate) fn subscribed_to(mut self, subscription: Subscription) -> Self {
        self.settings.member.subscription = subscription;
        self
    }

    pub(crate) fn fetching(mut self, change: impl FnOnce(&mut FetchSettings)) -> Self {
        change(&mut self.settings.member.fetch);
        self
    }

    pub(crate) fn at(mut self, bootstrap: &str) -> Self {
        self.settings.bootstrap = servers(bootstrap);
        self
    }
}

pub(crate) fn servers(list: &str) -> BootstrapServers {
    BootstrapServers::parse(list).expect("bootstrap servers")
}

/// Records whose values are these numbers.
pub(crate) fn numbered(numbers: Range<usize>) -> Vec<Record> {
    numbers.map(|number| Record::new(number.to_string())).collect()
}

/// Waits until something is the case.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {} s: {what}", PATIENCE.as_secs());
        sleep(LOOK_AGAIN_AFTER).await;
    }
}
