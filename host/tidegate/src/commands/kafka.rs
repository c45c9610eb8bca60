//! `tidegate kafka`: what is at a Kafka cluster.

mod cluster;
mod describe;
mod settings;

use anyhow::anyhow;
use serde_json::{Value, json};
use tidegate_kafka_share::Fault;
use tidegate_kafka_share::admin::{Position, ResetPlan, ResetTarget, ShareGroupAdmin, TopicOffsets};

use super::block_on;
use super::live::table;
use crate::cli::{ClusterArgs, DeleteArgs, GroupCommand, KafkaCommand, ResetArgs, To};
use crate::exit::Failure;
use crate::output::{Output, talk};

pub(crate) fn run(command: &KafkaCommand, output: &Output) -> Result<(), Failure> {
    let KafkaCommand::Group(command) = command;
    match command {
        GroupCommand::List { cluster } => block_on(list(cluster, output)),
        GroupCommand::Describe(args) => block_on(describe::run(args, output)),
        GroupCommand::Offsets { group, cluster } => block_on(offsets(group, cluster, output)),
        GroupCommand::Reset(args) => block_on(reset(args, output)),
        GroupCommand::Configure(args) => block_on(settings::run(args, output)),
        GroupCommand::Delete(args) => block_on(delete(args, output)),
    }
}

/// Whose it is to mend what went wrong.
fn failure(fault: Fault, error: impl Into<anyhow::Error>) -> Failure {
    match fault {
        Fault::Network | Fault::Access => Failure::environment(error),
        Fault::Configuration => Failure::config(error),
        Fault::Broker => Failure::runtime(error),
    }
}

/// Does something with an administrator, who takes leave afterwards.
async fn with_admin<T>(
    cluster: &ClusterArgs,
    act: impl AsyncFnOnce(&mut ShareGroupAdmin) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // Resolvers live as long as the secrets that they give.
    let (mut admin, _resolvers) = cluster::admin(cluster).await?;
    let result = act(&mut admin).await;
    admin.close().await;
    result
}

async fn list(cluster: &ClusterArgs, output: &Output) -> Result<(), Failure> {
    let listing =
        async |admin: &mut ShareGroupAdmin| admin.list().await.map_err(|error| failure(error.fault(), error));
    let groups = with_admin(cluster, listing).await?;
    if output.is_json() {
        let groups: Vec<Value> = groups
            .iter()
            .map(|group| {
                json!({ "group": group.id, "state": group.state, "coordinator": group.coordinator.0 })
            })
            .collect();
        output.data(&json!({ "groups": groups }).to_string());
        return Ok(());
    }
    if groups.is_empty() {
        talk("there is no share group that the client may see");
        return Ok(());
    }
    let mut rows = vec![["GROUP", "STATE", "COORDINATOR"].map(str::to_owned).to_vec()];
    rows.extend(
        groups
            .iter()
            .map(|group| vec![group.id.to_string(), group.state.to_string(), group.coordinator.to_string()]),
    );
    show(&rows, output);
    Ok(())
}

async fn offsets(group: &str, cluster: &ClusterArgs, output: &Output) -> Result<(), Failure> {
    let reading = async |admin: &mut ShareGroupAdmin| {
        admin.offsets(group).await.map_err(|error| failure(error.fault(), error))
    };
    let topics = with_admin(cluster, reading).await?;
    if output.is_json() {
        output.data(&json!({ "group": group, "topics": offsets_json(&topics) }).to_string());
        return Ok(());
    }
    if topics.is_empty() {
        talk(&format!("share group `{group}` stands in no topic"));
        return Ok(());
    }
    let mut rows = vec![["TOPIC", "PARTITION", "START", "EPOCH", "LAG", ""].map(str::to_owned).to_vec()];
    for topic in &topics {
        for of in &topic.partitions {
            rows.push(vec![
                topic.topic.to_string(),
                of.partition.to_string(),
                or_dash(of.start),
                or_dash(of.leader_epoch),
                or_dash(of.lag),
                of.complaint.as_ref().map(ToString::to_string).unwrap_or_default(),
            ]);
        }
    }
    show(&rows, output);
    Ok(())
}

fn offsets_json(topics: &[TopicOffsets]) -> Vec<Value> {
    let partitions = |topic: &TopicOffsets| {
        let partitions = topic.partitions.iter().map(|of| {
            json!({
                "partition": of.partition,
                "start": of.start,
                "leader-epoch": of.leader_epoch,
                "lag": of.lag,
                "error": of.complaint.as_ref().map(ToString::to_string),
            })
        });
        partitions.collect::<Vec<Value>>()
    };
    topics.iter().map(|topic| json!({ "topic": topic.topic, "partitions": partitions(topic) })).collect()
}

async fn reset(args: &ResetArgs, output: &Output) -> Result<(), Failure> {
    let boxed = |text: &String| text.as_str().into();
    let target = match args.to {
        Some(to) => ResetTarget::Position {
            position: match to {
                To::Earliest => Position::Earliest,
                To::Latest => Position::Latest,
                To::Time(millis) => Position::Time(millis),
            },
            topics: args.topics.iter().map(boxed).collect(),
        },
        None => {
            let offsets = args.offsets.iter().map(|(topic, partition, to)| ((boxed(topic), *partition), *to));
            ResetTarget::Offsets(offsets.collect())
        }
    };
    let group = args.group.as_str();
    let plan = with_admin(&args.cluster, async |admin: &mut ShareGroupAdmin| {
        let plan = admin.plan_reset(group, &target).await.map_err(|error| failure(error.fault(), error))?;
        if args.execute {
            admin.reset(&plan).await.map_err(|error| failure(error.fault(), error))?;
        }
        Ok(plan)
    })
    .await?;
    show_plan(&plan, args.execute, output);
    Ok(())
}

fn show_plan(plan: &ResetPlan, is_done: bool, output: &Output) {
    if output.is_json() {
        let moves = plan.moves.iter().map(
            |one| json!({ "topic": one.topic, "partition": one.partition, "from": one.from, "to": one.to }),
        );
        let moves: Vec<Value> = moves.collect();
        let told = json!({
            "group": plan.group, "executed": is_done, "moves": moves, "members": plan.members,
        });
        output.data(&told.to_string());
        return;
    }
    let mut rows = vec![["TOPIC", "PARTITION", "FROM", "TO"].map(str::to_owned).to_vec()];
    rows.extend(plan.moves.iter().map(|one| {
        vec![one.topic.to_string(), one.partition.to_string(), or_dash(one.from), one.to.to_string()]
    }));
    show(&rows, output);
    if is_done {
        talk(&format!("share group `{}` is set to these offsets", plan.group));
        return;
    }
    talk("nothing was changed; --execute does it");
    if !plan.members.is_empty() {
        talk(&format!("not while somebody is in the group: {}", plan.members.join(", ")));
    }
}

async fn delete(args: &DeleteArgs, output: &Output) -> Result<(), Failure> {
    let group = args.group.as_str();
    let topics: Vec<Box<str>> = args.topics.iter().map(|topic| topic.as_str().into()).collect();
    with_admin(&args.cluster, async |admin: &mut ShareGroupAdmin| {
        if topics.is_empty() {
            admin.delete(group).await.map_err(|error| failure(error.fault(), error))
        } else {
            admin.delete_offsets(group, &topics).await.map_err(|error| failure(error.fault(), error))
        }
    })
    .await?;
    if output.is_json() {
        output.data(&json!({ "group": group, "topics": topics, "deleted": true }).to_string());
    } else if topics.is_empty() {
        talk(&format!("share group `{group}` is deleted"));
    } else {
        talk(&format!("share group `{group}` begins anew in `{}`", topics.join("`, `")));
    }
    Ok(())
}

fn show(rows: &[Vec<String>], output: &Output) {
    for line in table::lines(rows) {
        output.data(&line);
    }
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A group that is kept from its records is a failure of `describe --explain`.
fn kept_away(group: &str, blocks: usize) -> Failure {
    let what = if blocks == 1 { "one thing keeps".to_owned() } else { format!("{blocks} things keep") };
    Failure::Runtime(anyhow!("{what} records away from share group `{group}`"))
}
