//! A second host of the same group, and a first one that goes without taking leave.

use std::time::Duration;

use super::{assert_first_deliveries_in_order, end, send_many};
use crate::stage::{Hands, Lite, Producer, Program, Setup, Stage, body};

const LITE_TOPICS: usize = 6;
/// A message that a frozen client's open poll still gets comes to another only at the end of its lease; the worst was
/// 32 s after the freeze.
const LIMIT: Duration = Duration::from_secs(90);

/// Killed while it holds messages: the other one delivers them when their leases end, in order, and all later ones.
pub(crate) async fn a_killed_hosts_messages_come_to_the_other(stage: Stage) {
    let Scene { lite, producer, first, second, mut seen } = Scene::set(&stage).await;
    first.0.kill();
    send_many(&producer, &lite, LITE_TOPICS, 2..4).await;
    let (program, mut hands) = second;
    seen.extend(hands.accept_until_within(LIMIT, all_but_the_first()).await);
    assert_first_deliveries_in_order(&seen);
    stage.all_acknowledged(&lite).await;
    end(program).await;
}

/// Frozen while it holds messages, and awake again when the other one has delivered them: what it still held is of no
/// use any more and does no harm, and both go on together.
pub(crate) async fn a_frozen_hosts_messages_come_to_the_other(stage: Stage) {
    let Scene { lite, producer, first, second, mut seen } = Scene::set(&stage).await;
    let (mut frozen, mut frozen_hands) = first;
    let (program, mut hands) = second;
    frozen.freeze().await;
    send_many(&producer, &lite, LITE_TOPICS, 2..4).await;
    seen.extend(hands.accept_until_within(LIMIT, all_but_the_first()).await);
    frozen.thaw();

    let later = send_many(&producer, &lite, LITE_TOPICS, 4..6).await;
    let deadline = tokio::time::Instant::now() + LIMIT;
    while !later.iter().all(|body| seen.contains(body)) {
        let emission = tokio::select! {
            emission = frozen_hands.take() => (emission, &frozen_hands),
            emission = hands.take() => (emission, &hands),
            () = tokio::time::sleep_until(deadline) => panic!("within {LIMIT:?} only these came: {seen:?}"),
        };
        seen.push(body(&emission.0));
        emission.1.accept(&emission.0).await;
    }
    assert_first_deliveries_in_order(&seen);
    let settling = async {
        stage.all_acknowledged(&lite).await;
    };
    tokio::select! {
        () = settling => {}
        () = frozen_hands.accept_all() => panic!("the thawed host ended"),
        () = hands.accept_all() => panic!("the other host ended"),
    }
    end(frozen).await;
    end(program).await;
}

/// Two hosts. The first has taken two messages of each lite topic before there was a second, and accepted the first of
/// each.
struct Scene {
    lite: Lite,
    producer: Producer,
    first: (Program, Hands),
    second: (Program, Hands),
    seen: Vec<String>,
}

impl Scene {
    async fn set(stage: &Stage) -> Self {
        let lite = stage.lite().await;
        let producer = stage.producer().await;
        let setup = Setup::new(stage, &lite);
        let mut first = setup.start().await;
        send_many(&producer, &lite, LITE_TOPICS, 0..1).await;
        let mut seen = first.1.accept_until((0..LITE_TOPICS).map(|name| format!("lite-{name}-0"))).await;
        stage.all_acknowledged(&lite).await;
        send_many(&producer, &lite, LITE_TOPICS, 1..2).await;
        let held = first.1.take_some(LITE_TOPICS).await;
        seen.extend(held.iter().map(body));
        let second = setup.start().await;
        Self { lite, producer, first, second, seen }
    }
}

fn all_but_the_first() -> Vec<String> {
    (0..LITE_TOPICS).flat_map(|name| (1..4).map(move |number| format!("lite-{name}-{number}"))).collect()
}
