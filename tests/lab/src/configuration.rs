//! The configuration of every host that the lab measures: one flow from a source to one sink, with a policy.

use std::path::Path;

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
        let rules = self.rules.map_or_else(String::new, |rules| format!("rules = \"{rules}\"\n"));
        format!(
            r#"[host]
policy-dir = "{policies}"
state-dir = "{state}"
admin-listen = "127.0.0.1:0"
log-level = "{log_level}"

[policies.measured]
component = "{component}"
on-error = "deliver"
{rules}
[sources.lab]
connector = "rocketmq-grpc"
rocketmq.client.endpoints = "{endpoint}"
rocketmq.source.main-topic = "{topic}"
rocketmq.source.topic-kind = "{topic_kind}"
rocketmq.source.consumer-group = "{group}"
rocketmq.source.fetch-concurrency = {receives}

[sinks.{name}]
{sink}

[flows.lab]
source = "lab"
throttle = "measured"
sink = "{name}"
key = "{key}"
"#,
            policies = self.policies.display(),
            state = self.state.display(),
            name = Self::SINK,
        )
    }
}
