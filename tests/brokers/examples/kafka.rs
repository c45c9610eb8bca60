//! Starts a Kafka cluster for people to play with, until Ctrl-C.
//!
//! `cargo run -p tidegate-test-brokers --example kafka -- nodes=3 orders:6 payments:1`
#![allow(clippy::print_stdout, reason = "talks to the person who started it")]

use std::error::Error;

use tidegate_test_brokers::kafka::{Cluster, ClusterOptions, Listener, Pace, Version};

const USAGE: &str =
    "each argument is TOPIC:PARTITIONS; `nodes=3` starts three, `version=4.4.0` another release";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // People wait longer than tests before they settle a record.
    let mut options = ClusterOptions { pace: Pace::Stock, ..ClusterOptions::default() };
    let mut topics = Vec::new();
    for argument in std::env::args().skip(1) {
        if let Some((topic, partitions)) = argument.split_once(':') {
            topics.push((topic.to_owned(), partitions.parse()?));
        } else {
            match argument.split_once('=') {
                Some(("nodes", count @ ("1" | "3"))) => options.nodes = count.parse()?,
                Some(("version", wanted)) => {
                    let known = Version::ALL.into_iter().find(|version| version.to_string() == wanted);
                    options.version = known.ok_or(USAGE)?;
                }
                _ => return Err(USAGE.into()),
            }
        }
    }
    let cluster = Cluster::start(options).await?;
    let driver = cluster.driver();
    for (topic, partitions) in topics {
        driver.create_topic(&topic, partitions).await?;
    }
    println!("bootstrap servers {}", cluster.bootstrap(Listener::Plaintext));
    println!("logs {}", cluster.directory().display());
    println!("ready, Ctrl-C ends it");
    tokio::signal::ctrl_c().await?;
    cluster.stop().await;
    Ok(())
}
