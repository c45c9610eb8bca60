//! Whole flows on the development broker: what workers do to deliveries, and what the broker then thinks of them.
#![allow(clippy::expect_used, reason = "helpers of tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_connector::{Clock, Inbox, Sink, SinkError};
use tidegate_devbroker::{Broker, Group, Options, Topic, TopicKind};
use tidegate_model::{Emission, Outcome, Report};
use tidegate_pipeline::{Flow, FlowOptions, FlowParts, FlowState, KeyRule};
use tidegate_rocketmq::{ClientOptions, Endpoints, Outgoing, Producer, SourceOptions};
use tidegate_telemetry::Telemetry;
use tokio::sync::mpsc;

const TOPIC: &str = "LiteMainTopic";
const GROUP: &str = "GID-lite";

/// A sink whose work the test does by hand.
struct Hands {
    taken: mpsc::Sender<Emission>,
    reports: mpsc::Receiver<Report>,
}

/// The test's side of it.
struct Work {
    taken: mpsc::Receiver<Emission>,
    reports: mpsc::Sender<Report>,
}

fn by_hand() -> (Box<dyn Sink>, Work) {
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
    async fn take(&mut self) -> Emission {
        tokio::time::timeout(Duration::from_secs(30), self.taken.recv())
            .await
            .expect("in time")
            .expect("a sink")
    }

    async fn take_bodies(&mut self, count: usize) -> Vec<(Emission, String)> {
        let mut taken = Vec::new();
        for _ in 0..count {
            let emission = self.take().await;
            let body = String::from_utf8(emission.message.body.to_vec()).expect("text");
            taken.push((emission, body));
        }
        taken
    }

    async fn report(&self, emission: &Emission, outcome: Outcome) {
        let report = Report { id: emission.id, outcome, cost: None };
        self.reports.send(report).await.expect("a sink");
    }
}

/// A broker, one flow, and a producer.
struct Rig {
    broker: Broker,
    producer: Producer,
    flow: Flow,
}

impl Rig {
    /// Sends the backlog before it starts the flow: the broker hands out a lite topic's messages together or, once one
    /// of them is out, not at all.
    async fn start(
        sink: Box<dyn Sink>,
        dead_letter: Option<Box<dyn Sink>>,
        backlog: &[(&str, &[&str])],
    ) -> Self {
        let broker = Broker::start(Options {
            topics: vec![Topic::new(TOPIC, TopicKind::Lite)],
            groups: vec![Group::lite(GROUP, TOPIC)],
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
                let message = Outgoing::lite(TOPIC, *lite_topic, (*body).to_owned());
                producer.send(message).await.expect("sent");
            }
        }
        let source = SourceOptions::new(client, TOPIC, GROUP);
        let connection = tidegate_rocketmq::connect(source, clock, telemetry.clone(), "tenants".into())
            .await
            .expect("source");
        let options = FlowOptions {
            name: "flow".into(),
            source_name: "tenants".into(),
            sink_name: "hands".into(),
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
        let flow = Flow::start(options, parts, clock, telemetry);
        Self { broker, producer, flow }
    }

    async fn wait_until_acknowledged(&self) {
        self.wait("all acknowledged", |rig| rig.broker.control().audit().unacked().next().is_none()).await;
    }

    async fn wait(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while !is(self) {
            assert!(
                tokio::time::Instant::now() < deadline,
                "waited in vain: {what}: {:?}",
                self.flow.status()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn stop(self) -> FlowState {
        assert!(self.flow.drain(Duration::from_secs(10)).await, "drained in time: {:?}", self.flow.status());
        let state = self.flow.status().state;
        self.producer.close().await;
        self.broker.stop().await;
        state
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_finish_out_of_order_cause_no_redelivery() {
    let (sink, mut work) = by_hand();
    let rig = Rig::start(sink, None, &[("tenant", &["0", "1", "2", "3"])]).await;
    let mut taken = work.take_bodies(4).await;
    assert_eq!(taken.iter().map(|(_, body)| &**body).collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    taken.reverse();
    for (emission, _) in &taken[..3] {
        work.report(emission, Outcome::Accepted).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(
        rig.broker.control().audit().unacked().count(),
        4,
        "acknowledgements wait for their predecessor"
    );
    work.report(&taken[3].0, Outcome::Accepted).await;
    rig.wait_until_acknowledged().await;
    assert_eq!(rig.broker.control().audit().redelivered().count(), 0);
    assert_eq!(rig.stop().await, FlowState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_gives_back_comes_again_and_what_follows_it_too() {
    let (sink, mut work) = by_hand();
    let rig = Rig::start(sink, None, &[("tenant", &["0", "1", "2"])]).await;
    let first = work.take_bodies(3).await;
    work.report(&first[0].0, Outcome::Accepted).await;
    work.report(&first[1].0, Outcome::Released).await;
    work.report(&first[2].0, Outcome::Accepted).await;
    let again = work.take_bodies(2).await;
    assert_eq!(again.iter().map(|(_, body)| &**body).collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(again[0].0.attempt, 2, "the host counts attempts");
    for (emission, _) in &again {
        work.report(emission, Outcome::Accepted).await;
    }
    rig.wait_until_acknowledged().await;
    assert_eq!(rig.stop().await, FlowState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_message_goes_to_the_dead_letter_sink_before_it_is_acknowledged() {
    let (sink, mut work) = by_hand();
    let (dead_letter, mut dead) = by_hand();
    let rig = Rig::start(sink, Some(dead_letter), &[("tenant", &["bad", "good"])]).await;
    let taken = work.take_bodies(2).await;
    work.report(&taken[0].0, Outcome::Rejected { reason: "cannot be read".into() }).await;
    work.report(&taken[1].0, Outcome::Accepted).await;
    let (buried, body) = dead.take_bodies(1).await.remove(0);
    assert_eq!(body, "bad");
    assert_eq!(rig.broker.control().audit().unacked().count(), 2, "not acknowledged before it is buried");
    dead.report(&buried, Outcome::Accepted).await;
    rig.wait_until_acknowledged().await;
    assert_eq!(rig.stop().await, FlowState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_dead_letter_sink_a_rejected_message_is_dropped_and_counted() {
    let (sink, mut work) = by_hand();
    let rig = Rig::start(sink, None, &[("tenant", &["bad", "good"])]).await;
    let taken = work.take_bodies(2).await;
    work.report(&taken[0].0, Outcome::Rejected { reason: "cannot be read".into() }).await;
    work.report(&taken[1].0, Outcome::Accepted).await;
    rig.wait_until_acknowledged().await;
    assert_eq!(rig.broker.control().audit().redelivered().count(), 0);
    assert_eq!(rig.stop().await, FlowState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_gives_up_fails_the_flow_and_loses_nothing() {
    let (sink, mut work) = by_hand();
    let rig = Rig::start(sink, None, &[("tenant", &["0"])]).await;
    work.take().await;
    drop(work);
    rig.wait("the flow has failed", |rig| rig.flow.status().state == FlowState::Failed).await;
    let remarks = rig.flow.status().remarks.join("; ");
    assert!(remarks.contains("hands") && remarks.contains("the test let go"), "{remarks}");
    assert_eq!(rig.broker.control().audit().unacked().count(), 1);
    assert_eq!(rig.stop().await, FlowState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_what_workers_hold_and_releases_the_rest() {
    let (sink, work) = by_hand();
    let work = Arc::new(tokio::sync::Mutex::new(work));
    let tenants: Vec<String> = (0..40).map(|tenant| format!("tenant-{tenant}")).collect();
    let backlog: Vec<(&str, &[&str])> = tenants.iter().map(|tenant| (&**tenant, &["x"][..])).collect();
    let rig = Rig::start(sink, None, &backlog).await;
    rig.wait("the sink is full and others wait", |rig| {
        let status = rig.flow.status();
        status.emitted == 16 && status.queued > 0
    })
    .await;
    let accepted = Arc::new(Mutex::new(0));
    let worker = {
        let (work, accepted) = (Arc::clone(&work), Arc::clone(&accepted));
        tokio::spawn(async move {
            let mut work = work.lock().await;
            // Begins only after the drain has begun.
            tokio::time::sleep(Duration::from_millis(300)).await;
            while let Some(emission) = work.taken.recv().await {
                work.report(&emission, Outcome::Accepted).await;
                *accepted.lock() += 1;
            }
        })
    };
    assert!(rig.flow.drain(Duration::from_secs(10)).await);
    worker.abort();
    assert_eq!(*accepted.lock(), 16, "what the sink held was finished, and nothing more was given to it");
    assert_eq!(rig.broker.control().audit().unacked().count(), 24);
    rig.producer.close().await;
    rig.broker.stop().await;
}
