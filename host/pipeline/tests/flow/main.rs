//! Whole flows on the development broker: what workers do to deliveries, and what the broker then thinks of them.
#![allow(clippy::expect_used, reason = "helpers of tests")]

mod control;
mod dead_letters;
mod rig;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_model::Outcome;
use tidegate_pipeline::FlowState;

use crate::rig::{Rig, by_hand};

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
    rig.end().await;
}
