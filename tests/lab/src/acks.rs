//! How fast receipts are settled through the ack pool, beside the settler of the client that took the messages: on a real
//! broker, in one run, by turns.
//!
//! One client takes a round of messages, and then they are acknowledged: by its own settler as a flow does it, or through a
//! pool that knows nothing of that client, as the host would that somebody gave the receipts to. Only the settling is
//! timed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use tidegate_connector::{Clock, ReceiptSettler as _, SettleByReceipt};
use tidegate_model::{
    Capacity, Delivery, DeliveryId, Receipt, SettleError, SettleFault, Settlement, Timestamp, Verb,
};
use tidegate_rocketmq::{
    AckClient, AckPool, AckScope, ClientOptions, Connection, Endpoints, Outgoing, Producer, SourceOptions,
    Start, TopicKind, connect,
};
use tidegate_telemetry::Telemetry;
use tidegate_test_brokers::{Cluster, ClusterOptions, GroupKind, Sizes, TopicType};
use tokio::time::Instant;

const GROUP: &str = "lab-acks";
const TOPIC: &str = "lab-acks-topic";
/// The most that a proxy gives, far below any bound in bytes.
const BATCH: Capacity = Capacity { messages: 32, bytes: 64 << 20 };
const RECEIVES: usize = 8;
const SENDS_IN_FLIGHT: usize = 64;
/// As a flow: so many batches of its settler at the same time.
const BATCHES_IN_FLIGHT: usize = 8;
/// Longer than any round takes.
const LEASE: Duration = Duration::from_secs(600);
/// The shortest poll that servers grant: at the end there is nothing more to come.
const POLL: Duration = Duration::from_secs(5);
/// Receives without anything, one after the other, after which nothing more is expected.
const EMPTY_MAX: u32 = 6;
/// Nothing becomes a dead letter here.
const RETRY_MAX: u32 = 1_000;

/// How much.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Receipts that each of the two settles
    #[arg(long, default_value_t = 102_400)]
    receipts: u64,
    /// Messages taken and settled in one round
    #[arg(long, default_value_t = 10_240)]
    round: usize,
    /// Lite topics that the messages are spread over; 0 takes a normal topic. A broker gives 32 messages of a lite topic
    /// before it waits for their acknowledgement
    #[arg(id = "acks_lite_topics", long = "lite-topics", default_value_t = 320)]
    lite_topics: u64,
    /// Body of each message, in bytes
    #[arg(id = "acks_body_bytes", long = "body-bytes", default_value_t = 64)]
    body_bytes: usize,
}

/// Who settles.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    Own,
    Pool,
}

/// What one of them did.
#[derive(Debug, Default)]
struct Done {
    receipts: usize,
    time: Duration,
    /// Of each round, receipts a second.
    rates: Vec<f64>,
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
pub(crate) async fn run(args: &Args) -> Result<()> {
    let options = ClusterOptions { sizes: Sizes::Lab, ..ClusterOptions::default() };
    let cluster = Cluster::start(options).await.context("starting a cluster")?;
    let (clock, telemetry) = (Clock::start(), Telemetry::default());
    let client = ClientOptions::new(Endpoints::parse(&cluster.endpoint())?);
    let kind = if args.lite_topics > 0 { TopicKind::Lite } else { TopicKind::Normal };
    prepare(&cluster, kind).await?;
    fill(args, &client, clock, &telemetry).await?;

    let source = SourceOptions {
        topic_kind: kind,
        fetch_concurrency: RECEIVES,
        invisible_duration: LEASE,
        await_duration: POLL,
        start: Start::Within(Duration::from_secs(30)),
        ..SourceOptions::new(client.clone(), TOPIC, GROUP)
    };
    let connection = connect(source, clock, telemetry.clone(), "lab".into()).await?;
    let others = AckClient { name: "others".into(), client, scope: AckScope::Namespace, endpoint: None };
    let pool = AckPool::start(vec![others], clock, telemetry)?;

    let (mut own, mut pooled) = (Done::default(), Done::default());
    let mut left = total(args);
    let mut way = Way::Own;
    while left > 0 {
        let round = take(&connection, args.round.min(left)).await?;
        left = left.saturating_sub(round.len());
        let began = Instant::now();
        match way {
            Way::Own => settle_as_a_flow(&connection, &round).await?,
            Way::Pool => settle_by_receipt(&pool, &round).await?,
        }
        let done = if way == Way::Own { &mut own } else { &mut pooled };
        done.note(round.len(), began.elapsed());
        println!("{way:?}: {} receipts at {:.0} a second", round.len(), rate(round.len(), began.elapsed()));
        way = if way == Way::Own { Way::Pool } else { Way::Own };
    }
    let unsettled = match kind {
        TopicKind::Lite => cluster.lite_lag(GROUP, TOPIC).await?,
        _ => cluster.lag(GROUP, TOPIC).await?,
    };
    pool.close().await;
    connection.source.close().await;
    cluster.stop().await;
    ensure!(unsettled == 0, "the broker counts {unsettled} messages as not acknowledged");
    show(args, &own, &pooled);
    Ok(())
}

impl Done {
    fn note(&mut self, receipts: usize, time: Duration) {
        self.receipts += receipts;
        self.time += time;
        self.rates.push(rate(receipts, time));
    }
}

#[allow(clippy::print_stdout, reason = "the table is what it is for")]
fn show(args: &Args, own: &Done, pooled: &Done) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let (own_rate, pool_rate) = (rate(own.receipts, own.time), rate(pooled.receipts, pooled.time));
    let mut ratios: Vec<f64> =
        pooled.rates.iter().zip(&own.rates).map(|(pooled, own)| pooled / own).collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "\nreal broker, {} lite topics (0: a normal topic), rounds of {}, everything on one machine of {cores} cores:\n\n\
         | who settles | receipts | receipts/s |\n|---|---|---|\n\
         | the client that took them, as a flow does | {} | {own_rate:.0} |\n\
         | the ack pool, by receipt | {} | {pool_rate:.0} |\n\n\
         pool : own = {:.2} x the rate, median over pairs of rounds {:.2}, lowest {:.2}",
        args.lite_topics,
        args.round,
        own.receipts,
        pooled.receipts,
        pool_rate / own_rate,
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN),
        ratios.first().copied().unwrap_or(f64::NAN),
    );
}

#[allow(clippy::cast_precision_loss, reason = "counts of messages are far below 2^52")]
fn rate(receipts: usize, time: Duration) -> f64 {
    receipts as f64 / time.as_secs_f64()
}

fn total(args: &Args) -> usize {
    usize::try_from(2 * args.receipts).unwrap_or(usize::MAX)
}

async fn prepare(cluster: &Cluster, kind: TopicKind) -> Result<()> {
    let (topic, group) = match kind {
        TopicKind::Lite => (TopicType::Lite, GroupKind::wildcard(TOPIC)),
        _ => (TopicType::Normal, GroupKind::Normal),
    };
    cluster.create_topic(TOPIC, topic).await?;
    cluster.create_group(GROUP, group, RETRY_MAX).await?;
    Ok(())
}

async fn fill(args: &Args, client: &ClientOptions, clock: Clock, telemetry: &Telemetry) -> Result<()> {
    let producer = Producer::connect(client.clone(), clock, telemetry.clone(), "lab".into()).await?;
    let body = bytes::Bytes::from(vec![b'x'; args.body_bytes]);
    let message = |number: usize| match (number as u64).checked_rem(args.lite_topics) {
        Some(lite_topic) => Outgoing::lite(TOPIC, format!("lite-{lite_topic}"), body.clone()),
        None => Outgoing::normal(TOPIC, body.clone()),
    };
    let mut sends = stream::iter((0..total(args)).map(|number| producer.send(message(number))))
        .buffer_unordered(SENDS_IN_FLIGHT);
    while let Some(sent) = sends.next().await {
        sent.context("filling the backlog")?;
    }
    drop(sends);
    producer.close().await;
    Ok(())
}

/// Takes so many messages, or a few more, or what there is.
async fn take(connection: &Connection, wanted: usize) -> Result<Vec<Delivery>> {
    let mut taken = Vec::with_capacity(wanted + RECEIVES * BATCH.messages);
    let mut empty = 0;
    while taken.len() < wanted {
        let before = taken.len();
        for batch in join_all((0..RECEIVES).map(|_| connection.source.receive(BATCH))).await {
            // A broker under load may be late with one; the others go on.
            taken.extend(batch.unwrap_or_default());
        }
        empty = if taken.len() == before { empty + 1 } else { 0 };
        if empty == EMPTY_MAX || (empty > 0 && !taken.is_empty()) {
            break;
        }
    }
    if taken.is_empty() {
        bail!("nothing comes any more: {:?}", connection.source.status());
    }
    Ok(taken)
}

/// Batches side by side, those of one lite topic one after the other.
async fn settle_as_a_flow(connection: &Connection, round: &[Delivery]) -> Result<()> {
    let mut keys: HashMap<&str, Vec<&Delivery>> = HashMap::new();
    for delivery in round {
        let message = &delivery.message;
        let key = message.lite_topic.as_deref().unwrap_or(message.id.as_str());
        keys.entry(key).or_default().push(delivery);
    }
    let mut lanes: Vec<Vec<Settlement>> = vec![Vec::new(); BATCHES_IN_FLIGHT];
    for (at, deliveries) in keys.into_values().enumerate() {
        lanes[at % BATCHES_IN_FLIGHT].extend(deliveries.into_iter().map(settlement));
    }
    let batch_max = connection.settler.batch_max();
    let settling = lanes.into_iter().map(|lane| async move {
        for batch in lane.chunks(batch_max) {
            all_settled(connection.settler.settle(batch.to_vec()).await)?;
        }
        anyhow::Ok(())
    });
    join_all(settling).await.into_iter().collect()
}

async fn settle_by_receipt(pool: &AckPool, round: &[Delivery]) -> Result<()> {
    let batch = round
        .iter()
        .map(|delivery| SettleByReceipt { receipt: receipt(delivery), verb: Verb::Accept })
        .collect();
    all_settled(pool.settle(batch).await)
}

fn all_settled<T>(results: Vec<Result<T, SettleError>>) -> Result<()> {
    for result in results {
        match result {
            Ok(_) => {}
            // Only of what came twice, while the broker was slow.
            Err(error) if error.fault == SettleFault::LeaseGone => {}
            Err(error) => return Err(error).context("settling"),
        }
    }
    Ok(())
}

fn settlement(delivery: &Delivery) -> Settlement {
    Settlement {
        id: DeliveryId(1),
        verb: Verb::Accept,
        message: Arc::clone(&delivery.message),
        handle: delivery.handle.clone(),
        attempt: delivery.attempt,
    }
}

/// What a worker would bring.
fn receipt(delivery: &Delivery) -> Receipt {
    Receipt {
        routing: (*delivery.handle.routing).clone(),
        topic: Arc::clone(&delivery.message.topic),
        lite_topic: delivery.message.lite_topic.clone(),
        message_id: delivery.message.id.clone(),
        handle: delivery.handle.text.clone(),
        attempt: delivery.attempt,
        owner: "lab".into(),
        flow: "lab".into(),
        delivery: DeliveryId(1),
        expires_at: Timestamp::from_unix_millis(0),
    }
}
