//! `tidegate broker`: an in-memory RocketMQ 5 lite broker to play with.

use std::io::ErrorKind;

use anyhow::anyhow;
use serde_json::json;
use tidegate_devbroker::{Broker, Group, Options, Profile, StartError, Topic, TopicKind};

use super::block_on;
use crate::cli::{BrokerArgs, BrokerProfile};
use crate::commands::run::termination;
use crate::exit::Failure;
use crate::output::Output;

pub(crate) fn run(args: &BrokerArgs, output: &Output) -> Result<(), Failure> {
    let topics = args.topics.iter().map(|text| parse_topic(text)).collect::<Result<Vec<_>, _>>()?;
    let groups = args.groups.iter().map(|text| parse_group(text)).collect::<Result<Vec<_>, _>>()?;
    for group in &groups {
        let bound = group.lite_bind_topic.as_deref();
        if let Some(topic) = bound.filter(|topic| !topics.iter().any(|t| *t.name == **topic)) {
            return Err(Failure::config(anyhow!(
                "group `{}` is bound to `{topic}`, which is no topic here; add --topic lite:{topic}",
                group.name
            )));
        }
    }
    let profile = match args.profile {
        BrokerProfile::V550 => Profile::V5_5_0,
        BrokerProfile::V551 => Profile::V5_5_1,
    };
    let options = Options { topics, groups, profile, ..Options::new(args.listen) };
    block_on(serve(options, output))
}

async fn serve(options: Options, output: &Output) -> Result<(), Failure> {
    let topics: Vec<_> =
        options.topics.iter().map(|topic| format!("{}:{}", topic.kind.name(), topic.name)).collect();
    let groups: Vec<_> = options.groups.iter().map(|group| group.name.to_string()).collect();
    let mut terminated = termination().map_err(Failure::environment)?;
    let broker = Broker::start(options).await.map_err(start_failure)?;
    if output.is_json() {
        let address = broker.address().to_string();
        output.data(&json!({ "listening": address, "topics": topics, "groups": groups }).to_string());
    } else {
        output.data(&format!("listening on {} (gRPC, plaintext), everything in memory", broker.address()));
        output.data(&format!("topics {}   groups {}", topics.join(" "), groups.join(" ")));
    }
    terminated.recv().await;
    broker.stop().await;
    Ok(())
}

fn start_failure(error: StartError) -> Failure {
    let StartError::Listen { address, source } = &error else { return Failure::environment(error) };
    let what = match source.kind() {
        ErrorKind::AddrInUse => {
            "another program uses the port; stop it, or give another port, 0 for a free one".to_owned()
        }
        ErrorKind::PermissionDenied => {
            "this user may not listen on that port; give one from 1024 up, 0 for a free one".to_owned()
        }
        ErrorKind::AddrNotAvailable => {
            "this machine does not have that address; give one of its own, such as 127.0.0.1".to_owned()
        }
        _ => source.to_string(),
    };
    Failure::environment(anyhow!("--listen {address}: {what}"))
}

fn parse_topic(text: &str) -> Result<Topic, Failure> {
    let (kind, name) = text.split_once(':').filter(|(_, name)| !name.is_empty()).ok_or_else(|| {
        Failure::config(anyhow!("--topic `{text}` must be KIND:NAME, such as lite:LiteMainTopic"))
    })?;
    let kind = match kind {
        "lite" => TopicKind::Lite,
        "normal" => TopicKind::Normal,
        "fifo" => TopicKind::Fifo,
        "delay" => TopicKind::Delay,
        _ => {
            return Err(Failure::config(anyhow!(
                "--topic `{text}`: the kinds are lite, normal, fifo, delay"
            )));
        }
    };
    Ok(Topic::new(name, kind))
}

fn parse_group(text: &str) -> Result<Group, Failure> {
    if let Some((name, topic)) = text.split_once('@') {
        return Ok(Group::lite(name, topic));
    }
    match text.split_once(':') {
        None => Ok(Group::regular(text)),
        Some((name, "orderly")) => Ok(Group::orderly(name)),
        Some(_) => {
            Err(Failure::config(anyhow!("--group `{text}` must be NAME, NAME:orderly or NAME@LITETOPIC")))
        }
    }
}
