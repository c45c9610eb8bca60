//! Whole flows: what a policy and workers do to messages, and what the broker then thinks of them.

pub(super) mod credentials;
pub(super) mod drain;
pub(super) mod failures;
pub(super) mod order;
pub(super) mod pause;
pub(super) mod rejection;
pub(super) mod room;
pub(super) mod rules;
pub(super) mod takeover;
pub(super) mod valves;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use tidegate_pipeline::DrainReport;

use crate::stage::{Lite, Producer, Program, Stage};

/// Of the messages with the property `hold` the first of each lite topic passes; the others are deferred by a second,
/// again and again.
pub(super) const HOLD: &str = r#"
[[rule]]
property.hold = "*"
rate = 0.001
burst = 1
delay = "1s"
max-delay = "1s"
jitter = 0
"#;
/// Everything passes.
pub(super) const PASS: &str = "[[rule]]\ndeliver = true\n";

/// Longer than anybody holds a message here.
pub(super) const LONG_LEASE: Duration = Duration::from_secs(120);

/// Sends bodies `NAME-0`, `NAME-1`, … to the lite topic `name`, those in `held` with the property `hold`.
pub(super) async fn send(producer: &Producer, lite: &Lite, name: &str, count: usize, held: &[usize]) {
    for number in 0..count {
        let properties: &[(&str, &str)] = if held.contains(&number) { &[("hold", "yes")] } else { &[] };
        producer
            .send_lite_with(&lite.topic, name, &format!("{name}-{number}"), properties)
            .await
            .expect("sent");
    }
}

/// Sends `count` messages to each of the lite topics `lite-0`, `lite-1`, …; gives their bodies.
pub(super) async fn send_many(
    producer: &Producer,
    lite: &Lite,
    lite_topics: usize,
    numbers: std::ops::Range<usize>,
) -> Vec<String> {
    let names: Vec<String> = (0..lite_topics).map(|name| format!("lite-{name}")).collect();
    let sending = names.iter().map(|name| {
        let numbers = numbers.clone();
        async move {
            for number in numbers {
                producer.send_lite(&lite.topic, name, &format!("{name}-{number}")).await;
            }
        }
    });
    join_all(sending).await;
    names.iter().flat_map(|name| numbers.clone().map(move |number| format!("{name}-{number}"))).collect()
}

/// Waits until the broker counts so many messages as not acknowledged.
pub(super) async fn unacknowledged(stage: &Stage, lite: &Lite, count: u64) {
    stage
        .until(&format!("{count} messages are unacknowledged"), || async {
            stage.broker.unacknowledged(&lite.group, &lite.topic).await == count
        })
        .await;
}

/// Waits until the policy has deferred so often.
pub(super) async fn deferred(stage: &Stage, program: &Program, times: u64) {
    stage.until(&format!("{times} deferrals"), || async { program.flow().totals.deferred >= times }).await;
}

/// Asserts that the first deliveries of each lite topic came in the order of their numbers, none missing before another.
pub(super) fn assert_first_deliveries_in_order(bodies: &[String]) {
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    for body in bodies {
        let (name, number) = body.rsplit_once('-').expect("NAME-NUMBER");
        let number: usize = number.parse().expect("a number");
        let expected = next.entry(name).or_default();
        assert!(number <= *expected, "{name}-{number} came before {name}-{expected}: {bodies:?}");
        *expected = (*expected).max(number + 1);
    }
}

/// Stops a host that has nothing left.
pub(super) async fn end(program: Program) {
    assert_eq!(program.drain().await, DrainReport::default());
}
