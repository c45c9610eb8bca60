//! Fetches the jars of the real brokers and of RocketMQ's Java client, which tests and lab otherwise do at their first use.
#![allow(clippy::print_stdout, reason = "talks to the person who started it")]

use std::error::Error;

use tidegate_test_brokers::artifacts;
use tidegate_test_brokers::kafka::Version;

fn main() -> Result<(), Box<dyn Error>> {
    println!("RocketMQ {}", artifacts::rocketmq()?.argument());
    println!("RocketMQ client {}", artifacts::client(&[])?.argument());
    for version in Version::ALL {
        println!("Kafka {version} {}", artifacts::kafka(version)?.argument());
    }
    Ok(())
}
