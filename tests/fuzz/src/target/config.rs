//! Configuration texts.

use tidegate_config::{Catalog, Connector, parse, plan};

use super::Target;
use crate::mutate;
use crate::random::Random;

pub(super) struct Configurations;

impl Target for Configurations {
    fn name(&self) -> &'static str {
        "config"
    }

    fn mutate(&self, random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let (seed, other) = (String::from_utf8_lossy(seed), String::from_utf8_lossy(other));
        mutate::text(random, &seed, &other).into_bytes()
    }

    /// A valid configuration has nothing to change against itself; a mistake has a place inside the text and a
    /// sentence.
    fn run(&mut self, input: &[u8]) {
        let text = String::from_utf8_lossy(input);
        match parse("fuzz.toml", &text, &catalog()) {
            Ok(config) => assert!(plan(&config, &config).is_empty(), "differs from itself"),
            Err(errors) => {
                let lines = text.lines().count() + 1;
                for error in errors.iter() {
                    let (line, message) = (error.place.line, error.message());
                    assert!((1..=lines).contains(&line), "line {line} of {lines}: {message}");
                    assert!(!message.is_empty());
                }
            }
        }
    }
}

/// The connectors of the binary that read options: their tables are part of what is decoded.
fn catalog() -> Catalog<'static> {
    const CONNECTORS: [Connector<'static>; 1] = [Connector::source_and_sink(&tidegate_rocketmq::TABLE)];
    Catalog { connectors: &CONNECTORS }
}
