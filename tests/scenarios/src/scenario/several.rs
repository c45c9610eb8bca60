//! Two brokers behind two proxies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_model::Emission;
use tokio::time::Instant;

use crate::broker::Member;
use crate::stage::{Hands, Lite, Producer, Setup, Stage, body};

/// Enough that each of two brokers has some, whatever their hashes.
const LITE_TOPICS: usize = 16;
/// A proxy takes up to 20 s to see that a broker came back, a client up to 30 s to ask for the route again.
const LIMIT: Duration = Duration::from_secs(120);

/// Messages of both brokers come through one flow. While one broker is away the other's go on, and what the lost one
/// had comes when it is back. Which proxy is there does not matter as long as one is.
pub(crate) async fn two_brokers_and_two_proxies(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let setup = Setup::new(&stage, &lite);
    let (program, mut hands) = setup.start().await;
    let mut round =
        Rounds { lite: &lite, producer: &producer, hands: &mut hands, number: 0, seen: BTreeSet::new() };

    let homes = round.all_come().await;
    let brokers: BTreeSet<&str> = homes.values().map(String::as_str).collect();
    assert_eq!(brokers.len(), 2, "both brokers have lite topics: {homes:?}");
    // The second in the order of names, as clusters count.
    let lost = brokers.last().expect("two");
    let (away, kept): (Vec<&String>, Vec<&String>) =
        homes.keys().partition(|lite_topic| homes[*lite_topic] == **lost);

    // With the lost broker go a message that a worker holds and one that waits behind it, in each of its lite topics.
    let held = round.hold(&away).await;
    let behind = round.send(&away, Instant::now() + LIMIT).await;
    stage.broker.take_away(Member::Broker(1)).await;
    round.come(&kept).await;
    stage.broker.bring_back(Member::Broker(1)).await;

    // It takes its time to be seen again. Meanwhile one proxy goes, and then the other one.
    stage.broker.take_away(Member::Proxy(0)).await;
    round.come(&kept).await;
    stage.broker.bring_back(Member::Proxy(0)).await;
    stage.broker.take_away(Member::Proxy(1)).await;
    round.come(&kept).await;

    for emission in &held {
        round.hands.accept(emission).await;
    }
    let expected: BTreeSet<String> = behind.into_iter().filter(|body| !round.seen.contains(body)).collect();
    round.hands.accept_until_within(LIMIT, expected).await;
    round.all_come().await;
    let report = tokio::select! {
        () = stage.all_acknowledged(&lite) => program.drain().await,
        () = hands.accept_all() => panic!("the flow ended: {:?}", program.flow()),
    };
    assert_eq!(report, tidegate_pipeline::DrainReport::default());
}

/// Sends a message to each lite topic and looks for it.
struct Rounds<'a> {
    lite: &'a Lite,
    producer: &'a Producer,
    hands: &'a mut Hands,
    number: usize,
    seen: BTreeSet<String>,
}

impl Rounds<'_> {
    /// All lite topics; gives the broker of each.
    async fn all_come(&mut self) -> BTreeMap<String, String> {
        let names: Vec<String> = (0..LITE_TOPICS).map(|name| format!("lite-{name}")).collect();
        self.send(&names.iter().collect::<Vec<_>>(), Instant::now() + LIMIT).await;
        let mut homes = BTreeMap::new();
        while homes.len() < LITE_TOPICS {
            let emission = self.hands.take_within(LIMIT).await;
            self.hands.accept(&emission).await;
            if body(&emission).ends_with(&self.suffix()) {
                homes.insert(lite_topic(&emission), broker_of(&emission));
            }
        }
        homes
    }

    /// These lite topics.
    async fn come(&mut self, names: &[&String]) {
        let bodies = self.send(names, Instant::now() + LIMIT).await;
        let seen = self.hands.accept_until_within(LIMIT, bodies).await;
        self.seen.extend(seen);
    }

    /// Gives back what came, held.
    async fn hold(&mut self, names: &[&String]) -> Vec<Emission> {
        self.send(names, Instant::now() + LIMIT).await;
        self.hands.take_some(names.len()).await
    }

    async fn send(&mut self, names: &[&String], deadline: Instant) -> Vec<String> {
        self.number += 1;
        let mut bodies = Vec::new();
        for name in names {
            let body = format!("{name}{}", self.suffix());
            self.producer.send_lite_until(&self.lite.topic, name, &body, deadline).await;
            bodies.push(body);
        }
        bodies
    }

    fn suffix(&self) -> String {
        format!("-round-{}", self.number)
    }
}

fn lite_topic(emission: &Emission) -> String {
    emission.message.lite_topic.as_deref().expect("a lite message").to_owned()
}

/// The name of the broker that handed a delivery out: the sixth word of a handle, as measured.
fn broker_of(emission: &Emission) -> String {
    emission.handle.text.split(' ').nth(5).expect("a handle of nine words").to_owned()
}
