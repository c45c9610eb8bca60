//! A broker, one flow, and sinks whose work the test does.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_connector::{Clock, Inbox, Sink, SinkError};
use tidegate_devbroker::{Audit, Broker, Group, Options, Topic, TopicKind};
use tidegate_model::{Emission, Outcome, Report};
use tidegate_pipeline::{Flow, FlowOptions, FlowParts, FlowState, KeyRule};
use tidegate_rocketmq::{ClientOptions, Endpoints, Outgoing, Producer, SourceOptions};
use tidegate_telemetry::Telemetry;
use tokio::sync::mpsc;

const TOPIC: &str = "topic";
const GROUP: &str = "group";
/// Longest wait for anything that a test expects.
const PATIENCE: Duration = Duration::from_secs(60);

/// A sink whose work the test does by hand.
struct Hands {
    taken: mpsc::Sender<Emission>,
    reports: mpsc::Receiver<Report>,
}

/// The test's side of it.
pub(crate) struct Work {
    pub(crate) taken: mpsc::Receiver<Emission>,
    reports: mpsc::Sender<Report>,
}

pub(crate) fn by_hand() -> (Box<dyn Sink>, Work) {
    let (taken_sender, taken) = mpsc::channel(64);
    let (reports, report_receiver) = mpsc::channel(64);
    (Box::new(Hands { taken: taken_sender, reports: report_receiver }), Work { taken, reports })
}

#[async_trait]
impl Sink for Hands {
    fn credits(&self) -> usize {
        16
    }

    async fn run(mut self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        loop {
            tokio::select! {
                batch = inbox.next() => {
                    let Some(batch) = batch else { return Ok(()) };
                    for emission in batch {
                        self.taken.send(emission).await.expect("the test takes");
                    }
                }
                report = self.reports.recv() => match report {
                    Some(report) => inbox.report(vec![report]).await,
                    None => return Err(SinkError { sink: "hands".into(), detail: "the test let go".into() }),
                },
            }
        }
    }
}

impl Work {
    pub(crate) async fn take(&mut self) -> Emission {
        tokio::time::timeout(PATIENCE, self.taken.recv()).await.expect("in time").expect("a sink")
    }

    pub(crate) async fn take_bodies(&mut self, count: usize) -> Vec<(Emission, String)> {
        let mut taken = Vec::new();
        for _ in 0..count {
            let emission = self.take().await;
            let body = String::from_utf8(emission.message.body.to_vec()).expect("text");
            taken.push((emission, body));
        }
        taken
    }

    pub(crate) async fn report(&self, emission: &Emission, outcome: Outcome) {
        let report = Report { id: emission.id, outcome, cost: None };
        self.reports.send(report).await.expect("a sink");
    }
}

/// A sink that says the same about everything, and keeps what it was given.
#[derive(Clone)]
pub(crate) struct Says {
    outcome: Outcome,
    pub(crate) given: Arc<Mutex<Vec<Emission>>>,
}

impl Says {
    pub(crate) fn new(outcome: Outcome) -> Self {
        Self { outcome, given: Arc::default() }
    }

    pub(crate) fn sink(&self) -> Box<dyn Sink> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Sink for Says {
    fn credits(&self) -> usize {
        64
    }

    async fn run(self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        while let Some(batch) = inbox.next().await {
            let report =
                |emission: &Emission| Report { id: emission.id, outcome: self.outcome.clone(), cost: None };
            let reports = batch.iter().map(report).collect();
            self.given.lock().extend(batch);
            inbox.report(reports).await;
        }
        Ok(())
    }
}

/// What a flow is to be like.
pub(crate) struct Setup {
    pub(crate) kind: TopicKind,
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) dead_letter: Option<Box<dyn Sink>>,
    pub(crate) burst: u32,
}

impl Setup {
    /// Of lite topics, without dead letters.
    pub(crate) fn new(sink: Box<dyn Sink>) -> Self {
        Self { kind: TopicKind::Lite, sink, dead_letter: None, burst: 1_000 }
    }
}

/// A broker, one flow, and a producer.
pub(crate) struct Rig {
    pub(crate) broker: Broker,
    producer: Producer,
    pub(crate) flow: Flow,
    telemetry: Telemetry,
    kind: TopicKind,
}

impl Rig {
    pub(crate) async fn start(
        sink: Box<dyn Sink>,
        dead_letter: Option<Box<dyn Sink>>,
        backlog: &[(&str, &[&str])],
    ) -> Self {
        Self::start_with(Setup { dead_letter, ..Setup::new(sink) }, backlog).await
    }

    /// Sends the backlog before it starts the flow: the broker hands out a lite topic's messages together or, once one
    /// of them is out, not at all.
    pub(crate) async fn start_with(setup: Setup, backlog: &[(&str, &[&str])]) -> Self {
        let Setup { kind, sink, dead_letter, burst } = setup;
        let group = if kind == TopicKind::Lite { Group::lite(GROUP, TOPIC) } else { Group::regular(GROUP) };
        let broker = Broker::start(Options {
            topics: vec![Topic::new(TOPIC, kind)],
            groups: vec![group],
            ..Options::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        })
        .await
        .expect("broker");
        let clock = Clock::start();
        let telemetry = Telemetry::default();
        let client = ClientOptions::new(Endpoints::parse(&broker.address().to_string()).expect("address"));
        let producer = Producer::connect(client.clone(), clock, telemetry.clone(), "test".into())
            .await
            .expect("producer");
        for (lite_topic, bodies) in backlog {
            for body in *bodies {
                send(&producer, kind, lite_topic, body).await;
            }
        }
        let source = SourceOptions {
            topic_kind: if kind == TopicKind::Lite {
                tidegate_rocketmq::TopicKind::Lite
            } else {
                tidegate_rocketmq::TopicKind::Normal
            },
            await_duration: Duration::from_secs(5),
            ..SourceOptions::new(client, TOPIC, GROUP)
        };
        let connection = tidegate_rocketmq::connect(source, clock, telemetry.clone(), "tenants".into())
            .await
            .expect("source");
        let options = FlowOptions {
            name: "flow".into(),
            source_name: "tenants".into(),
            sink_names: vec!["hands".into()],
            dead_letter_name: dead_letter.is_some().then(|| Arc::from("dead")),
            throttle_name: None,
            shadow_name: None,
            key_rule: KeyRule::LiteTopic,
            receive_workers: 1,
            renewal: tidegate_lease::RenewalOptions {
                ahead: Duration::from_secs(5),
                renew_emitted: false,
                length_max: Duration::from_secs(60),
            },
            dead_letter_burst: burst,
            dead_letter_window: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(10),
            book: tidegate_lease::Options {
                budget_messages: 64,
                seed: 7,
                ..tidegate_lease::Options::default()
            },
        };
        let parts = FlowParts {
            source: connection.source,
            settler: connection.settler,
            throttle: None,
            shadow: None,
            renewing: None,
            sink,
            dead_letter,
        };
        let flow = Flow::start(options, parts, clock, telemetry.clone());
        Self { broker, producer, flow, telemetry, kind }
    }

    pub(crate) async fn send(&self, lite_topic: &str, body: &str) {
        send(&self.producer, self.kind, lite_topic, body).await;
    }

    pub(crate) fn audit(&self) -> Audit {
        self.broker.control().audit()
    }

    /// Whether the metrics have this sample.
    pub(crate) fn counts(&self, sample: &str) -> bool {
        self.telemetry.encode().lines().any(|line| line == sample)
    }

    pub(crate) async fn wait_until_acknowledged(&self) {
        self.wait("all acknowledged", |rig| rig.audit().unacked().next().is_none()).await;
    }

    pub(crate) async fn wait(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !is(self) {
            assert!(
                tokio::time::Instant::now() < deadline,
                "waited in vain: {what}: {:?}",
                self.flow.status()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn stop(self) -> FlowState {
        assert!(self.flow.drain(Duration::from_secs(10)).await, "drained in time: {:?}", self.flow.status());
        let state = self.flow.status().state;
        self.end().await;
        state
    }

    /// Ends what is around the flow.
    pub(crate) async fn end(self) {
        self.producer.close().await;
        self.broker.stop().await;
    }
}

async fn send(producer: &Producer, kind: TopicKind, lite_topic: &str, body: &str) {
    let message = match kind {
        TopicKind::Lite => Outgoing::lite(TOPIC, lite_topic, body.to_owned()),
        _ => Outgoing::normal(TOPIC, body.to_owned()),
    };
    producer.send(message).await.expect("sent");
}
