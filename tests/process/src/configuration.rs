//! The host's configuration, put together section by section.

use std::fmt::Write as _;

/// A `tidegate.toml`. What all hosts of tests have in common is here, and nothing but that.
#[derive(Clone, Debug)]
pub struct Configuration(String);

/// What a source consumes.
#[derive(Clone, Copy, Debug)]
pub struct Consumed<'a> {
    /// The cluster's access point.
    pub endpoint: &'a str,
    /// The topic; of lite topics the main one.
    pub topic: &'a str,
    /// The consumer group.
    pub group: &'a str,
}

impl Configuration {
    /// A host whose admin API has a free port of the loopback interface, with these lines more.
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self(String::new()).section("host", &format!("admin-listen = \"127.0.0.1:0\"\n{host}"))
    }

    /// Any section, with these lines.
    #[must_use]
    pub fn section(mut self, name: &str, lines: &str) -> Self {
        // Writing to a text cannot fail.
        let _ = writeln!(self.0, "[{name}]\n{lines}\n");
        self
    }

    /// A policy of `policy-dir`, by the name of its component, with the rules beside it.
    #[must_use]
    pub fn policy(self, name: &str, file: &str) -> Self {
        let lines = format!("component = \"{file}.wasm\"\nrules = \"{file}.toml\"");
        self.section(&format!("policies.{name}"), &lines)
    }

    /// A source, with these lines more.
    #[must_use]
    pub fn source(self, name: &str, consumed: Consumed<'_>, more: &str) -> Self {
        let Consumed { endpoint, topic, group } = consumed;
        let lines = format!(
            "connector = \"rocketmq-grpc\"\n\
             rocketmq.client.endpoints = \"{endpoint}\"\n\
             rocketmq.source.main-topic = \"{topic}\"\n\
             rocketmq.source.consumer-group = \"{group}\"\n\
             {more}"
        );
        self.section(&format!("sources.{name}"), &lines)
    }

    /// A source of a Kafka share group, with these lines more, what it consumes among them.
    #[must_use]
    pub fn share_source(self, name: &str, servers: &str, group: &str, more: &str) -> Self {
        let lines = format!(
            "connector = \"kafka-sharegroup\"\n\
             properties.bootstrap.servers = \"{servers}\"\n\
             share-group-id = \"{group}\"\n\
             {more}"
        );
        self.section(&format!("sources.{name}"), &lines)
    }

    /// Something that settles what others gave out, with these lines more.
    #[must_use]
    pub fn settler(self, name: &str, endpoint: &str, more: &str) -> Self {
        let lines =
            format!("connector = \"rocketmq-grpc\"\nrocketmq.client.endpoints = \"{endpoint}\"\n{more}");
        self.section(&format!("settlers.{name}"), &lines)
    }

    /// A sink, with these lines more.
    #[must_use]
    pub fn sink(self, name: &str, connector: &str, more: &str) -> Self {
        self.section(&format!("sinks.{name}"), &format!("connector = \"{connector}\"\n{more}"))
    }

    /// The service for workers at an address, with these lines more.
    #[must_use]
    pub fn workers(self, name: &str, listen: &str, more: &str) -> Self {
        self.sink(name, "handoff", &format!("listen = \"{listen}\"\n{more}"))
    }

    /// A flow from a source to a sink, with these lines more.
    #[must_use]
    pub fn flow(self, name: &str, source: &str, sink: &str, more: &str) -> Self {
        let lines = format!("source = \"{source}\"\nsink = \"{sink}\"\n{more}");
        self.section(&format!("flows.{name}"), &lines)
    }

    /// The file's text.
    #[must_use]
    pub fn toml(&self) -> &str {
        &self.0
    }
}
