//! Starts a RocketMQ 5.5.0 cluster for people to play with, until Ctrl-C.
//!
//! `cargo run -p tidegate-test-brokers --example rocketmq -- lite:T:G normal:N:GN fifo:F:GF delay:D:GD`
#![allow(clippy::print_stdout, reason = "talks to the person who started it")]

use std::error::Error;

use tidegate_test_brokers::{Cluster, ClusterOptions, GroupKind, Node, TopicType};

const USAGE: &str = "each argument is KIND:TOPIC or KIND:TOPIC:GROUP, with KIND one of lite, normal, fifo, delay; \
                     `brokers=2` and `proxies=2` start two";
const RETRY_MAX: u32 = 16;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut options = ClusterOptions::default();
    let mut wanted = Vec::new();
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("brokers", count)) => options.brokers = count.parse()?,
            Some(("proxies", count)) => options.proxies = count.parse()?,
            Some(_) => return Err(USAGE.into()),
            None => wanted.push(Wanted::parse(&argument)?),
        }
    }
    let cluster = Cluster::start(options.clone()).await?;
    for one in wanted {
        one.create(&cluster).await?;
    }
    for index in 0..options.proxies {
        println!("endpoint {}", cluster.address(Node::Proxy(index)));
    }
    println!("name server {}", cluster.address(Node::NameServer));
    println!("logs {}", cluster.directory().display());
    println!("ready, Ctrl-C ends it");
    tokio::signal::ctrl_c().await?;
    cluster.stop().await;
    Ok(())
}

struct Wanted {
    kind: TopicType,
    topic: String,
    group: Option<String>,
}

impl Wanted {
    fn parse(argument: &str) -> Result<Self, Box<dyn Error>> {
        let mut parts = argument.split(':');
        let kind = match parts.next() {
            Some("lite") => TopicType::Lite,
            Some("normal") => TopicType::Normal,
            Some("fifo") => TopicType::Fifo,
            Some("delay") => TopicType::Delay,
            _ => return Err(USAGE.into()),
        };
        let topic = parts.next().ok_or(USAGE)?.to_owned();
        Ok(Self { kind, topic, group: parts.next().map(str::to_owned) })
    }

    async fn create(self, cluster: &Cluster) -> Result<(), Box<dyn Error>> {
        cluster.create_topic(&self.topic, self.kind).await?;
        if let Some(group) = self.group {
            let kind = match self.kind {
                TopicType::Lite => GroupKind::wildcard(&self.topic),
                TopicType::Fifo => GroupKind::Orderly,
                TopicType::Normal | TopicType::Delay => GroupKind::Normal,
            };
            cluster.create_group(&group, kind, RETRY_MAX).await?;
        }
        Ok(())
    }
}
