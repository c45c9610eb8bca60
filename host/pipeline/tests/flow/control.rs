//! What an operator does to a flow.

use std::time::Duration;

use tidegate_model::Outcome;
use tidegate_pipeline::{ControlError, FlowState, Pause};

use crate::rig::{Rig, by_hand};

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_flow_finishes_what_workers_hold_and_gives_the_rest_back() {
    let (sink, mut work) = by_hand();
    let tenants: Vec<String> = (0..40).map(|tenant| format!("tenant-{tenant}")).collect();
    let backlog: Vec<(&str, &[&str])> = tenants.iter().map(|tenant| (&**tenant, &["x"][..])).collect();
    let rig = Rig::start(sink, None, &backlog).await;
    rig.wait("the sink is full and others wait", |rig| {
        let status = rig.flow.status();
        status.emitted == 16 && status.queued > 0
    })
    .await;
    assert_eq!(rig.flow.pause().await, Ok(true));
    let status = rig.flow.status();
    assert_eq!((status.state, status.pause), (FlowState::Paused, Some(Pause::Operator)));
    assert!(status.remarks[0].contains("an operator paused it"), "{status:?}");
    rig.wait("the rest is given back", |rig| rig.flow.status().in_flight == 16).await;
    for (emission, _) in work.take_bodies(16).await {
        work.report(&emission, Outcome::Accepted).await;
    }
    rig.wait("nothing is held", |rig| rig.flow.status().in_flight == 0).await;
    rig.send("late", "y").await;
    // What a receive brings that was under way goes back at once.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(work.taken.try_recv().is_err(), "nothing is handed over");
    assert_eq!(rig.audit().unacked().count(), 25, "neither acknowledged nor lost");
    assert_eq!(rig.flow.pause().await, Ok(false), "it is paused already");

    assert_eq!(rig.flow.resume().await, Ok(true));
    assert_eq!(rig.flow.resume().await, Ok(false), "it runs already");
    for _ in 0..25 {
        let emission = work.take().await;
        work.report(&emission, Outcome::Accepted).await;
    }
    rig.wait_until_acknowledged().await;
    assert_eq!(rig.flow.status().pause, None);
    assert_eq!(rig.stop().await, FlowState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_flow_can_be_drained_and_a_drained_one_neither_paused_nor_resumed() {
    let (sink, mut work) = by_hand();
    let rig = Rig::start(sink, None, &[("a", &["0"])]).await;
    let held = work.take().await;
    assert_eq!(rig.flow.pause().await, Ok(true));
    let drain = async {
        assert!(rig.flow.drain(Duration::from_secs(30)).await, "{:?}", rig.flow.status());
    };
    let finish = async {
        rig.wait("it drains", |rig| rig.flow.status().state == FlowState::Draining).await;
        assert_eq!(rig.flow.resume().await, Err(ControlError::Ending(FlowState::Draining)));
        work.report(&held, Outcome::Accepted).await;
    };
    tokio::join!(drain, finish);
    rig.wait_until_acknowledged().await;
    assert_eq!(rig.flow.pause().await, Err(ControlError::Ending(FlowState::Stopped)));
    let ended = tokio::time::timeout(Duration::from_millis(100), rig.flow.ended()).await;
    assert!(ended.is_err(), "a flow that was told to end is no failure to act on");
    assert!(rig.flow.drain(Duration::from_secs(1)).await, "over is over");
    assert_eq!(rig.stop().await, FlowState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_takes_too_long_is_cut_off_though_nobody_waits_for_it() {
    let (sink, mut work) = by_hand();
    let rig = Rig::start(sink, None, &[("a", &["0"])]).await;
    let _held = work.take().await;
    let waited = tokio::time::timeout(Duration::from_millis(50), rig.flow.drain(Duration::from_millis(400)));
    assert!(waited.await.is_err(), "its worker holds on");
    assert_eq!(rig.flow.status().state, FlowState::Draining);
    rig.wait("it is over", |rig| rig.flow.status().state == FlowState::Stopped).await;
    let status = rig.flow.status();
    assert_eq!((status.in_flight, status.joined), (1, false));
    assert!(status.remarks[0].starts_with("1 deliveries were not finished in time"), "{status:?}");
    assert!(!rig.flow.drain(Duration::from_secs(10)).await, "not in time");
    assert_eq!(rig.audit().unacked().count(), 1);
    rig.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_that_fails_has_ended() {
    let (sink, work) = by_hand();
    let rig = Rig::start(sink, None, &[]).await;
    drop(work);
    let ended = tokio::time::timeout(Duration::from_secs(30), rig.flow.ended());
    ended.await.expect("in time");
    assert_eq!(rig.flow.status().state, FlowState::Failed);
    assert_eq!(rig.flow.resume().await, Err(ControlError::Ending(FlowState::Failed)));
    assert_eq!(rig.stop().await, FlowState::Failed);
}
