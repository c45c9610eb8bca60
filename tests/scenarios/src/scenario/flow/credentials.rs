//! Keys that a resolver reads from mounted files, and that change under load.

use std::time::Duration;

use tidegate_rocketmq::TopicKind;
use tokio::time::sleep;

use super::{assert_first_deliveries_in_order, end};
use crate::broker::{GroupKind, ROTATED_GROUP, ROTATED_TOPIC};
use crate::stage::{ATTEMPTS_MAX, Setup, Stage, Subscription};

const LITE_TOPICS: usize = 4;
/// Messages of one lite topic between two changes of the keys.
const EACH: usize = 20;
const CHANGES: usize = 4;
/// Longer than a resolved secret may be used in this scenario.
const BETWEEN: Duration = Duration::from_secs(3);

/// Two users take turns in the mounted files while messages flow. No receive and no settlement fails, and no secret shows
/// in what the host tells.
pub(crate) async fn keys_change_while_messages_flow(stage: Stage) {
    let rotated =
        Subscription { topic: ROTATED_TOPIC.into(), group: ROTATED_GROUP.into(), kind: TopicKind::Lite };
    stage.broker.create_topic(&rotated.topic, rotated.kind).await;
    stage.broker.create_group(&rotated.group, GroupKind::wildcard(&rotated.topic), ATTEMPTS_MAX).await;
    let logins = [stage.security().admin.clone(), stage.security().limited.clone()];
    let producer = stage.producer_with(stage.signed(&logins[0])).await;
    let setup = Setup::new(&stage, &rotated).with_mounted_keys(&logins[0], &stage.security().authority_file);
    let (program, mut hands) = setup.start().await;

    let mut seen = Vec::new();
    for change in 0..CHANGES {
        let numbers = change * EACH..(change + 1) * EACH;
        let sending = super::send_many(&producer, &rotated, LITE_TOPICS, numbers.clone());
        let bodies = (0..LITE_TOPICS)
            .flat_map(|name| numbers.clone().map(move |number| format!("lite-{name}-{number}")))
            .collect::<Vec<_>>();
        let (_, taken) = futures::join!(sending, hands.accept_until(bodies));
        seen.extend(taken);
        setup.write_keys(&logins[(change + 1) % 2]);
        sleep(BETWEEN).await;
    }

    assert_first_deliveries_in_order(&seen);
    assert_eq!(seen.len(), LITE_TOPICS * EACH * CHANGES, "nothing came twice: {seen:?}");
    stage.all_acknowledged(&rotated).await;
    let status = program.flow();
    let totals = status.totals;
    assert_eq!((totals.settle_failures, totals.receive_errors), (0, 0), "{totals:?}");
    let policy = program.policy();
    let resolved = policy.counts.verdicts.get("resolved").copied().unwrap_or_default();
    assert!(resolved > CHANGES as u64, "the files were read again: {policy:?}");
    for told in [format!("{status:?}"), format!("{policy:?}")] {
        assert!(logins.iter().all(|login| !told.contains(&login.secret_key)), "a secret shows: {told}");
    }
    end(program).await;
}
