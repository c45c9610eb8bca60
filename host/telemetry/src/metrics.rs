//! Every metric of the host: one struct of families per area, each registered once.

mod buckets;
mod label;
mod registry;

pub(crate) use buckets::call_seconds;
pub(crate) use label::{Name, encode_word, words};
pub(crate) use registry::Registry;

use crate::events;

/// What every metric name begins with.
const PREFIX: &str = "tidegate";

/// Every metric of the host.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub(crate) flow: events::flow::Families,
    pub(crate) handoff: events::handoff::Families,
    pub(crate) host: events::host::Families,
    pub(crate) kafka: events::kafka::Families,
    pub(crate) peer: events::peer::Families,
    pub(crate) policy: events::policy::Families,
    pub(crate) resolver: events::resolver::Families,
    pub(crate) rocketmq: events::rocketmq::Families,
    pub(crate) sink: events::sink::Families,
    pub(crate) spool: events::spool::Families,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::new(PREFIX);
        Self {
            flow: events::flow::Families::register(&mut registry),
            handoff: events::handoff::Families::register(&mut registry),
            host: events::host::Families::register(&mut registry),
            kafka: events::kafka::Families::register(&mut registry),
            peer: events::peer::Families::register(&mut registry),
            policy: events::policy::Families::register(&mut registry),
            resolver: events::resolver::Families::register(&mut registry),
            rocketmq: events::rocketmq::Families::register(&mut registry),
            sink: events::sink::Families::register(&mut registry),
            spool: events::spool::Families::register(&mut registry),
            registry,
        }
    }
}

impl Metrics {
    pub(crate) fn encode(&self) -> String {
        self.registry.encode()
    }
}

#[cfg(test)]
mod tests;
