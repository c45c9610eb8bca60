//! A development broker in this process and a producer that fills it over the loopback interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use tidegate_connector::Clock;
use tidegate_devbroker::{Audit, Broker, Group, Options, Profile, Retention, Topic, TopicKind};
use tidegate_rocketmq::{ClientOptions, Endpoints, Outgoing, Producer};
use tidegate_telemetry::Telemetry;
use tokio::time::{Instant, MissedTickBehavior, interval};

pub(crate) const TOPIC: &str = "lab-lite";
pub(crate) const GROUP: &str = "lab";
/// The property that says whose message it is.
pub(crate) const TENANT: &str = "tenant";
/// Lite topics that wait at one client at most: more than any run has.
const EVENTS_MAX: usize = 5_000;
/// Messages of one batch when there is no rate to keep.
const BATCH: u64 = 1_024;
/// With a rate, what is due goes out so often: often enough that the batches are no bursts, and the shortest that the
/// runtime's timer knows apart.
const TICK: Duration = Duration::from_millis(1);
/// When the broker's clock began is known from how long its start took; a start that took longer is done again, a few
/// times at most.
const DOUBT_MAX: Duration = Duration::from_micros(200);
const STARTS_MAX: usize = 50;

/// What is sent.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) messages: u64,
    pub(crate) lite_topics: u64,
    pub(crate) body_bytes: usize,
    /// Messages a second; as fast as it goes when not given.
    pub(crate) rate: Option<u64>,
    /// Whose message the one of this number is.
    pub(crate) tenant: fn(u64) -> String,
}

/// The broker and its producer.
pub(crate) struct Loopback {
    broker: Broker,
    producer: Producer,
    /// When the broker's clock began, or up to [`Self::began_within`] before.
    began: Instant,
    began_within: Duration,
}

impl Loopback {
    /// Starts a broker with room for so many messages of so many bytes, which records what happens to each of them or
    /// to none.
    pub(crate) async fn start(load: &Load, audited: bool) -> Result<Self> {
        let body_bytes = u64::try_from(load.body_bytes)?;
        let options = Options {
            topics: vec![Topic::new(TOPIC, TopicKind::Lite)],
            groups: vec![Group { events_max: EVENTS_MAX, ..Group::lite(GROUP, TOPIC) }],
            profile: Profile::V5_5_1,
            retention: Retention {
                messages_max: 2 * load.messages,
                // Properties are far below a kilobyte.
                bytes_max: 2 * load.messages * (body_bytes + 1024),
                ..Retention::default()
            },
            audited_messages_max: if audited { usize::try_from(load.messages)? } else { 0 },
            journal_max: 0,
            ..Options::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        };
        let mut started = start_broker(&options).await?;
        for _ in 1..STARTS_MAX {
            if started.began_within <= DOUBT_MAX {
                break;
            }
            let slow = std::mem::replace(&mut started, start_broker(&options).await?);
            slow.broker.stop().await;
        }
        let Started { broker, began, began_within } = started;
        let options = ClientOptions::new(Endpoints::parse(&broker.address().to_string())?);
        let producer = Producer::connect(options, Clock::start(), Telemetry::default(), "lab".into()).await?;
        Ok(Self { broker, producer, began, began_within })
    }

    pub(crate) fn endpoint(&self) -> String {
        self.broker.address().to_string()
    }

    /// The moment that the broker's clock calls `since_start`, or up to [`Self::began_within`] before.
    pub(crate) fn moment(&self, since_start: Duration) -> Instant {
        self.began + since_start
    }

    pub(crate) const fn began_within(&self) -> Duration {
        self.began_within
    }

    /// Sends all of a load, and says how long that took.
    pub(crate) async fn send(&self, load: &Load) -> Result<Duration> {
        let body = Bytes::from(vec![b'x'; load.body_bytes]);
        let started = Instant::now();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sent = 0;
        while sent < load.messages {
            let due = match load.rate {
                None => sent + BATCH,
                Some(rate) => {
                    ticks.tick().await;
                    let due = u128::from(rate) * started.elapsed().as_micros() / 1_000_000;
                    u64::try_from(due)?
                }
            };
            let due = due.min(load.messages);
            let batch = (sent..due).map(|number| {
                let lite_topic = lite_topic(number % load.lite_topics);
                Outgoing::lite(TOPIC, lite_topic, body.clone()).with_property(TENANT, (load.tenant)(number))
            });
            for result in self.producer.send_batch(batch.collect()).await {
                result.context("sending to the development broker")?;
            }
            sent = due;
        }
        Ok(started.elapsed())
    }

    /// What happened to every message.
    pub(crate) fn audit(&self) -> Audit {
        self.broker.control().audit()
    }

    pub(crate) async fn stop(self) {
        self.producer.close().await;
        self.broker.stop().await;
    }
}

/// The lite topic of this number. Its name never has nine bytes.
pub(crate) fn lite_topic(number: u64) -> String {
    format!("lite-topic-{number}")
}

/// A broker, and between which moments its clock began.
struct Started {
    broker: Broker,
    began: Instant,
    began_within: Duration,
}

async fn start_broker(options: &Options) -> Result<Started> {
    let began = Instant::now();
    let broker = Broker::start(options.clone()).await.context("starting a development broker")?;
    Ok(Started { broker, began, began_within: began.elapsed() })
}

/// Sixty-four tenants with names of nine bytes.
pub(crate) fn tenant(number: u64) -> String {
    format!("tenant-{:02}", number % 64)
}
