//! Fetches the jars of the real brokers and of the Java client, which tests and lab otherwise do at their first use.
#![allow(clippy::print_stdout, reason = "talks to the person who started it")]

use std::error::Error;

use tidegate_test_brokers::artifacts;

fn main() -> Result<(), Box<dyn Error>> {
    println!("server {}", artifacts::server()?.argument());
    println!("client {}", artifacts::client(&[])?.argument());
    Ok(())
}
