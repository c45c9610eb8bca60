//! The sink to lite topics: order, attempts, quotas.

use tidegate_pipeline::DrainReport;
use tidegate_rocketmq::{Outgoing, TopicKind};
use tokio::time::Instant;

use super::flow::{LONG_LEASE, assert_first_deliveries_in_order, end, send, send_many};
use crate::broker::{GroupKind, LITE_TOPICS_MAX, Member};
use crate::stage::{ATTEMPTS_MAX, Consumer, PATIENCE, Program, Setup, Stage, bodies};

const LITE_TOPICS: usize = 8;
const MESSAGES: usize = 20;
/// Names of lite topics on the other side.
const TEMPLATE: &str = "out-{lite-topic}";

/// What comes from many lite topics goes to as many others, each in its order, all side by side.
pub(crate) async fn a_lite_sink_keeps_the_order_of_each_lite_topic(stage: Stage) {
    let (from, to) = (stage.lite().await, stage.lite_named("out-").await);
    let producer = stage.producer().await;
    let sent = send_many(&producer, &from, LITE_TOPICS, 0..MESSAGES).await;
    let endpoint = stage.broker.endpoint();
    let setup =
        Setup::new(&stage, &from).with_lease(LONG_LEASE).with_lite_sink(&endpoint, &to.topic, TEMPLATE);
    let program = setup.start_alone().await;
    let reader = stage.consumer(&to).await;
    let seen = read(&reader, sent).await;
    assert_first_deliveries_in_order(&seen);
    stage.all_acknowledged(&from).await;
    stage.all_acknowledged(&to).await;
    end(program).await;
}

/// The proxy that the sink sends through gives no answer twice, and then does: the message is sent by the third attempt.
/// Then that proxy is gone for longer than three attempts take. What is taken from the other one meanwhile is held, comes
/// in its order once there is a proxy again, and nothing is lost.
pub(crate) async fn a_lite_sink_tries_three_times_and_outlives_its_proxy(stage: Stage) {
    const THEIRS: Member = Member::Proxy(1);
    let endpoints = stage.broker.endpoint();
    let (ours, theirs) = endpoints.split_once(';').expect("two proxies");
    let (from, to) = (stage.lite().await, stage.lite_named("out-").await);
    let producer = stage.producer_with(stage.client_at(ours)).await;
    let reader = stage.consumer_with(&to, |options| options.client = stage.client_at(ours)).await;
    let setup = Setup::new(&stage, &from)
        .with_endpoint(ours)
        .with_lease(LONG_LEASE)
        .with_lite_sink(theirs, &to.topic, TEMPLATE);
    let program = setup.start_alone().await;

    send(&producer, &from, "warm", 1, &[]).await;
    read(&reader, ["warm-0".to_owned()]).await;
    stage.broker.freeze(THEIRS).await;
    send(&producer, &from, "slow", 1, &[]).await;
    stage.until("two attempts have failed", || async { retries(&program) == 2 }).await;
    stage.broker.thaw(THEIRS).await;
    read(&reader, ["slow-0".to_owned()]).await;
    stage.until("the flow has heard", || async { program.flow().totals.accepted == 2 }).await;
    assert_eq!(retries(&program), 2, "the third attempt was the last");
    assert_eq!(failures(&program, "NO_ANSWER"), 0, "and it was a good one");

    stage.broker.take_away(THEIRS).await;
    let sent = send_many(&producer, &from, LITE_TOPICS, 0..MESSAGES).await;
    stage.until("all attempts of one have failed", || async { failures(&program, "NO_ANSWER") > 0 }).await;
    stage
        .until("the sink says so", || async { program.metric("rocketmq_held_sinks{source=\"out\"}") == 1 })
        .await;
    stage.broker.bring_back(THEIRS).await;
    let seen = read(&reader, sent).await;
    assert_first_deliveries_in_order(&seen);
    assert_eq!(program.metric("rocketmq_held_sinks{source=\"out\"}"), 0);
    stage.all_acknowledged(&from).await;
    end(program).await;
}

/// A broker with room for a few lite topics refuses the next one by code and name. What goes to the others goes on, and
/// the message that has no place is not lost.
pub(crate) async fn a_lite_topic_quota_is_named_and_keeps_only_its_own_out(stage: Stage) {
    const QUOTA: &str = "LITE_TOPIC_QUOTA_EXCEEDED";
    // A lite topic of the source would count as well.
    let from = stage.plain(TopicKind::Normal, GroupKind::Normal, ATTEMPTS_MAX).await;
    let to = stage.lite_named("out-").await;
    let producer = stage.producer().await;
    let send = |tenant: String| {
        let message = Outgoing::normal(from.topic.as_str(), tenant.clone()).with_property("tenant", tenant);
        producer.send(message)
    };
    let endpoint = stage.broker.endpoint();
    let setup = Setup::new(&stage, &from).with_lite_sink(&endpoint, &to.topic, "{property:tenant}");
    let program = setup.start_alone().await;

    let tenants: Vec<String> = (0..LITE_TOPICS_MAX).map(|number| format!("tenant-{number}")).collect();
    for tenant in &tenants {
        send(tenant.clone()).await;
    }
    // The broker counts lite topics by their queues.
    stage.all_queued(&to, LITE_TOPICS_MAX.into()).await;
    send("one-too-many".to_owned()).await;
    stage.until("the refusal is told by name", || async { failures(&program, QUOTA) > 0 }).await;
    send(tenants[0].clone()).await;
    let accepted = u64::from(LITE_TOPICS_MAX) + 1;
    stage.until("the others go on", || async { program.flow().totals.accepted == accepted }).await;
    assert_eq!(program.metric("rocketmq_held_sinks{source=\"out\"}"), 0, "nobody else waits for it");

    assert_eq!(program.drain().await, DrainReport::default(), "it is given back");
    let next = stage.consumer(&from).await;
    let again = next.take(1).await;
    assert_eq!(bodies(&again), ["one-too-many"]);
    next.accept(&again).await;
}

fn retries(program: &Program) -> u64 {
    program.metric("rocketmq_send_retries_total{source=\"out\"}")
}

fn failures(program: &Program, code: &str) -> u64 {
    program.metric(&format!("rocketmq_send_failures_total{{source=\"out\",code=\"{code}\"}}"))
}

/// Takes and acknowledges until each of `expected` has come at least once. Gives all bodies, in the order in which they
/// came; each must be in the lite topic that it was sent to.
async fn read(reader: &Consumer, expected: impl IntoIterator<Item = String>) -> Vec<String> {
    let deadline = Instant::now() + 2 * PATIENCE;
    let mut missing: std::collections::BTreeSet<String> = expected.into_iter().collect();
    let mut seen = Vec::new();
    while !missing.is_empty() {
        assert!(Instant::now() < deadline, "these did not come: {missing:?}; these did: {seen:?}");
        let batch = reader.poll().await;
        for delivery in &batch {
            let body = bodies(std::slice::from_ref(delivery))[0];
            let (name, _) = body.rsplit_once('-').expect("NAME-NUMBER");
            assert_eq!(delivery.message.lite_topic.as_deref(), Some(&*format!("out-{name}")));
            missing.remove(body);
            seen.push(body.to_owned());
        }
        reader.accept(&batch).await;
    }
    seen
}
