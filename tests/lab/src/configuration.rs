//! The configuration of every host that the lab measures: one flow from a source to one sink, with a policy.

use std::path::Path;

use tidegate_process_tests::{Configuration as Host, Consumed};

/// What differs from one measurement to the next.
pub(crate) struct Configuration<'a> {
    /// The directory of policies.
    pub(crate) policies: &'a Path,
    /// Where the host may keep its identity.
    pub(crate) state: &'a Path,
    pub(crate) log_level: &'a str,
    /// The policy's file, and that of its rules.
    pub(crate) component: &'a str,
    pub(crate) rules: Option<&'a str>,
    pub(crate) endpoint: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) topic_kind: &'a str,
    pub(crate) group: &'a str,
    /// Receives in flight.
    pub(crate) receives: usize,
    /// What fairness is counted by.
    pub(crate) key: &'a str,
    /// The sink's connector and options, as TOML.
    pub(crate) sink: &'a str,
}

impl Configuration<'_> {
    /// The shipped policy that is measured unless a measurement is about others.
    pub(crate) const FAIR_SHARE: (&'static str, Option<&'static str>) =
        ("fair-share.wasm", Some("fair-share.toml"));
    /// The name of the sink.
    pub(crate) const SINK: &'static str = "out";
    /// The sink of most measurements: everything is accepted at once.
    pub(crate) const DISCARD: &'static str = "connector = \"discard\"";

    pub(crate) fn toml(&self) -> String {
        let Self { log_level, component, endpoint, topic, topic_kind, group, receives, key, sink, .. } = self;
        let (policies, state) = (self.policies.display(), self.state.display());
        let host =
            format!("policy-dir = \"{policies}\"\nstate-dir = \"{state}\"\nlog-level = \"{log_level}\"");
        let rules = self.rules.map_or_else(String::new, |rules| format!("rules = \"{rules}\""));
        let policy = format!("component = \"{component}\"\non-error = \"deliver\"\n{rules}");
        let source = format!(
            "rocketmq.source.topic-kind = \"{topic_kind}\"\nrocketmq.source.fetch-concurrency = {receives}"
        );
        let flow = format!("throttle = \"measured\"\nkey = \"{key}\"");
        Host::new(&host)
            .section("policies.measured", &policy)
            .source("lab", Consumed { endpoint, topic, group }, &source)
            .section(&format!("sinks.{}", Self::SINK), sink)
            .flow("lab", "lab", Self::SINK, &flow)
            .toml()
            .to_owned()
    }
}
