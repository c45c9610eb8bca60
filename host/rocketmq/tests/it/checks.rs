//! What `check` finds, and what a source says about a subscription that cannot work.

use tidegate_connector::check::{CheckOutcome, CheckReport};
use tidegate_devbroker::{Call, Group};
use tidegate_rocketmq::{SourceOptions, TopicKind, check};

use crate::support::{Stage, options};

#[tokio::test]
async fn a_good_subscription_passes_every_step() {
    let stage = Stage::start().await;
    let report = look(&stage, stage.lite()).await;
    assert!(report.is_good(), "{report}");
    let names: Vec<_> = report.steps.iter().map(|step| step.name).collect();
    assert_eq!(
        names,
        ["reach", "tls", "route", "topic", "session", "access", "group", "wildcard", "events"],
        "{report}"
    );
    let receives =
        stage.control.requests().into_iter().filter(|seen| matches!(seen.call, Call::ReceiveMessage { .. }));
    assert_eq!(receives.count(), 0);
    assert!(stage.control.lite_clients("T", "G").is_empty(), "a check does not stay subscribed");
    for (topic, group, kind) in
        [("N", "GN", TopicKind::Normal), ("F", "GF", TopicKind::Fifo), ("D", "GD", TopicKind::Delay)]
    {
        let report = look(&stage, stage.of(topic, group, kind)).await;
        assert!(report.is_good(), "{report}");
    }
}

#[tokio::test]
async fn each_mistake_is_found_and_its_remedy_named() {
    let stage = Stage::start().await;
    stage.control.create_group(Group::regular("unbound"));
    for (options, step, remedy) in [
        (stage.of("nowhere", "G", TopicKind::Lite), "route", "+message.type=LITE"),
        (stage.of("N", "GN", TopicKind::Lite), "topic", "`rocketmq.source.topic-kind` is `lite`"),
        (stage.of("T", "elsewhere", TopicKind::Lite), "group", "+lite.bind.topic=T"),
        (stage.of("T", "unbound", TopicKind::Lite), "group", "+lite.bind.topic=T"),
        (stage.of("T", "narrow", TopicKind::Lite), "wildcard", "+lite.sub.wildcard=true"),
        (stage.of("N", "G", TopicKind::Normal), "group", "set `rocketmq.source.topic-kind` to `lite`"),
    ] {
        let report = look(&stage, options).await;
        let failed = report.steps.iter().find(|found| found.outcome == CheckOutcome::Failed);
        let failed = failed.unwrap_or_else(|| panic!("{step} did not fail\n{report}"));
        assert_eq!(failed.name, step, "{report}");
        assert!(failed.detail.contains(remedy), "{}", failed.detail);
    }
}

/// The server accepts the subscription and serves nothing, for ever (measured).
#[tokio::test(start_paused = true)]
async fn a_source_says_that_its_group_lacks_the_wildcard_attribute() {
    let stage = Stage::with(options()).await;
    let consumer = stage.consumer(stage.of("T", "narrow", TopicKind::Lite)).await;
    let looking = async {
        loop {
            if let Some(status) = consumer.source.status()
                && status.contains("lacks the attribute")
            {
                return status;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    let status = tokio::time::timeout(std::time::Duration::from_secs(120), looking).await.expect("said");
    assert!(status.contains("+lite.bind.topic=T,+lite.sub.wildcard=true"), "{status}");
    consumer.source.close().await;
}

#[tokio::test]
async fn a_group_bound_elsewhere_is_said_by_the_source_itself() {
    let stage = Stage::start().await;
    for (group, said) in [("elsewhere", "bind topic U"), ("unbound", "regular group")] {
        stage.control.create_group(Group::regular("unbound"));
        let consumer = stage.consumer(stage.of("T", group, TopicKind::Lite)).await;
        let status = consumer.status(|status| status.contains(said)).await;
        assert!(status.contains("+lite.bind.topic=T"), "{status}");
        consumer.source.close().await;
    }
}

async fn look(stage: &Stage, options: SourceOptions) -> CheckReport {
    check(&options, stage.clock, stage.telemetry.clone()).await
}
