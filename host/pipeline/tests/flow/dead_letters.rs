//! What becomes of messages that are rejected.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_connector::{Inbox, News, Notice, Sink, SinkError};
use tidegate_devbroker::TopicKind;
use tidegate_model::{DeliveryId, Outcome, Report, SettleError};
use tidegate_pipeline::{FlowState, Pause};

use crate::rig::{Rig, Says, Setup, by_hand};

fn rejected() -> Outcome {
    Outcome::Rejected { reason: "cannot be read".into() }
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
async fn the_dead_letter_sink_is_told_the_story() {
    let (sink, mut work) = by_hand();
    let (dead_letter, mut dead) = by_hand();
    let rig = Rig::start(sink, Some(dead_letter), &[("tenant", &["bad"])]).await;
    let first = work.take().await;
    // Far enough apart for a clock of milliseconds.
    tokio::time::sleep(Duration::from_millis(20)).await;
    work.report(&first, Outcome::Released).await;
    let again = work.take().await;
    work.report(&again, rejected()).await;
    let buried = dead.take().await;
    assert_eq!((buried.attempt, &*buried.key), (2, "tenant"));
    assert_eq!(buried.received_at, again.received_at);
    let story = buried.dead_letter.clone().expect("a story");
    assert_eq!((&*story.flow, &story.policy, &*story.reason), ("flow", &None, "cannot be read"));
    let apart = story.last_received_at.saturating_since(story.first_received_at);
    assert!(apart >= Duration::from_millis(20), "{story:?}");
    dead.report(&buried, Outcome::Accepted).await;
    rig.wait_until_acknowledged().await;
    assert_eq!(rig.stop().await, FlowState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_sink_is_used_where_the_broker_has_dead_letters_of_its_own_as_well() {
    let worker = Says::new(rejected());
    for has_sink in [true, false] {
        let graves = Says::new(Outcome::Accepted);
        let setup = Setup {
            kind: TopicKind::Normal,
            dead_letter: has_sink.then(|| graves.sink()),
            ..Setup::new(worker.sink())
        };
        let rig = Rig::start_with(setup, &[("", &["bad"])]).await;
        rig.wait_until_acknowledged().await;
        let buried_by_broker = rig.audit().messages.iter().any(|message| message.dead_lettered);
        assert_eq!((graves.given.lock().len(), buried_by_broker), (usize::from(has_sink), !has_sink));
        let result = if has_sink { "taken" } else { "broker" };
        rig.wait("it is counted", |rig| {
            rig.counts(&format!("tidegate_flow_dead_letters_total{{flow=\"flow\",result=\"{result}\"}} 1"))
                && rig.counts("tidegate_flow_settled_total{flow=\"flow\",verb=\"reject\",result=\"done\"} 1")
        })
        .await;
        assert_eq!(rig.flow.status().totals.accepted, 0, "a burial is no success");
        assert_eq!(rig.stop().await, FlowState::Stopped);
    }
}

/// It comes again after a while, whatever the sink says, and no sooner.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_dead_letter_sink_does_not_take_comes_again() {
    let (sink, mut work) = by_hand();
    let (dead_letter, mut dead) = by_hand();
    let rig = Rig::start(sink, Some(dead_letter), &[("tenant", &["bad", "good"])]).await;
    let mut turns = Vec::new();
    for outcome in [Outcome::Released, Outcome::Deferred { delay: Duration::ZERO }, Outcome::Accepted] {
        let emission = work.take().await;
        assert_eq!(&*emission.message.body, b"bad");
        turns.push(tokio::time::Instant::now());
        work.report(&emission, rejected()).await;
        let buried = dead.take().await;
        dead.report(&buried, outcome).await;
        // Dropped behind a message that comes again, or there after the last.
        let good = work.take().await;
        assert_eq!(&*good.message.body, b"good");
        work.report(&good, Outcome::Accepted).await;
    }
    rig.wait_until_acknowledged().await;
    assert!(turns[1] - turns[0] >= Duration::from_millis(700), "no hot loop: {turns:?}");
    assert!(rig.counts("tidegate_flow_dead_letters_total{flow=\"flow\",result=\"refused\"} 2"));
    assert_eq!(rig.stop().await, FlowState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_sink_that_gives_up_fails_the_flow_and_loses_nothing() {
    let worker = Says::new(rejected());
    let (dead_letter, mut dead) = by_hand();
    let rig = Rig::start(worker.sink(), Some(dead_letter), &[("a", &["0"]), ("b", &["1"])]).await;
    dead.take_bodies(2).await;
    drop(dead);
    rig.wait("the flow has failed", |rig| rig.flow.status().state == FlowState::Failed).await;
    assert!(rig.flow.status().remarks.join("; ").contains("the test let go"), "{:?}", rig.flow.status());
    assert_eq!(rig.audit().unacked().count(), 2);
    assert_eq!(rig.flow.status().in_flight, 0, "given back, not left to the end of the leases");
    assert_eq!(rig.stop().await, FlowState::Failed);
}

/// Everything is rejected: a topic is not emptied by that.
#[tokio::test(flavor = "multi_thread")]
async fn a_flow_that_rejects_everything_pauses_itself() {
    const BURST: u32 = 100;
    let bodies: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    let tenants: Vec<String> = (0..100).map(|tenant| format!("tenant-{tenant}")).collect();
    let backlog: Vec<(&str, &[&str])> = tenants.iter().map(|tenant| (&**tenant, &bodies[..])).collect();
    let (worker, graves) = (Says::new(rejected()), Says::new(Outcome::Accepted));
    let setup = Setup { dead_letter: Some(graves.sink()), burst: BURST, ..Setup::new(worker.sink()) };
    let rig = Rig::start_with(setup, &backlog).await;
    let cause = Pause::DeadLetters { burst: BURST, window: Duration::from_secs(60) };
    for round in 1..=2 {
        let buried = round * BURST as usize;
        rig.wait("it has paused itself", |rig| rig.flow.status().state == FlowState::Paused).await;
        rig.wait("nothing is held", |rig| rig.flow.status().in_flight == 0).await;
        assert_eq!(graves.given.lock().len(), buried, "no more than the burst");
        rig.wait("they are acknowledged", |rig| rig.audit().unacked().count() == 5_000 - buried).await;
        assert_eq!(rig.audit().lost().count(), 0);
        let status = rig.flow.status();
        assert_eq!((status.state, status.pause), (FlowState::Paused, Some(cause)));
        assert!(status.remarks[0].contains("more than 100 messages"), "{status:?}");
        for sample in [
            &*format!("tidegate_flow_dead_letters_total{{flow=\"flow\",result=\"taken\"}} {buried}"),
            &format!("tidegate_flow_dead_letter_pauses_total{{flow=\"flow\"}} {round}"),
            "tidegate_flow_state{flow=\"flow\",state=\"paused\"} 1",
            "tidegate_flow_state{flow=\"flow\",state=\"running\"} 0",
        ] {
            assert!(rig.counts(sample), "{sample}");
        }
        if round == 1 {
            assert_eq!(rig.flow.resume().await, Ok(true));
        }
    }
    assert_eq!(rig.stop().await, FlowState::Stopped);
}

/// A sink that rejects everything and wants to know what became of that.
struct Curious(Arc<Mutex<Vec<Settled>>>);

type Settled = (DeliveryId, Result<(), SettleError>);

#[async_trait]
impl Sink for Curious {
    fn credits(&self) -> usize {
        16
    }

    fn wants_notices(&self) -> bool {
        true
    }

    async fn run(self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        while let Some(news) = inbox.news().await {
            match news {
                News::Emissions(emissions) => {
                    let report = |id| Report { id, outcome: rejected(), cost: None };
                    inbox.report(emissions.iter().map(|emission| report(emission.id)).collect()).await;
                }
                News::Notices(notices) => {
                    let settled = notices.into_iter().filter_map(|notice| match notice {
                        Notice::Settled { id, result } => Some((id, result)),
                        _ => None,
                    });
                    self.0.lock().extend(settled);
                }
            }
        }
        Ok(())
    }
}

/// A worker is not told that its rejection counts when it does not.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_rejected_is_told_when_that_has_no_effect() {
    let told = Arc::default();
    let graves = Says::new(Outcome::Accepted);
    let setup = Setup {
        dead_letter: Some(graves.sink()),
        burst: 1,
        ..Setup::new(Box::new(Curious(Arc::clone(&told))))
    };
    let rig = Rig::start_with(setup, &[("a", &["0"]), ("b", &["1"])]).await;
    let of =
        |id: DeliveryId| told.lock().iter().find(|(told, _)| *told == id).map(|(_, result)| result.clone());
    let failed = || told.lock().iter().find_map(|(id, result)| Some((*id, result.clone().err()?)));
    rig.wait("one is buried", |_| graves.given.lock().len() == 1).await;
    let buried = graves.given.lock()[0].id;
    rig.wait("both are told of", |_| of(buried).is_some() && failed().is_some()).await;
    assert_eq!(of(buried), Some(Ok(())));
    let (id, error) = failed().expect("a failure");
    assert_ne!(id, buried);
    assert!(error.verb == "reject" && error.detail.contains("rejected too many"), "{error}");
    assert_eq!(rig.audit().unacked().count(), 1);
    assert_eq!(rig.stop().await, FlowState::Stopped);
}
