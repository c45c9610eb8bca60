//! A whole host: configuration, connector, lease book, policy, as `tidegate run` has them, on a runtime of its own so
//! that it can be frozen and killed like a process.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_config::{Catalog, Config, Connector};
use tidegate_connector::{Clock, Sink};
use tidegate_pipeline::{DrainReport, Extras, FlowStatus, Host, Identity};
use tidegate_policy::PolicyStatus;
use tidegate_telemetry::Telemetry;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::hands::{Hands, by_hand};
use super::{LEASE, POLL, Stage, Subscription};
use crate::broker::Login;

const CONNECTORS: &[Connector<'static>] = &[
    Connector::source_and_sink(&tidegate_rocketmq::TABLE),
    Connector::sink(&tidegate_sinks::STDOUT),
    Connector::sink(&tidegate_sinks::DISCARD),
];
/// Where the repository keeps its policies.
const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies");
/// The names of the policy's files.
const COMPONENT: &str = "throttle.wasm";
const RULES: &str = "throttle.toml";
/// Longest drain. Nothing takes so long unless a scenario keeps what it was given.
const DRAIN_WITHIN: Duration = Duration::from_secs(20);

/// A host to be started, once or several times.
pub(crate) struct Setup {
    directory: TempDir,
    endpoint: String,
    subscription: Subscription,
    policy: Option<String>,
    lease: Duration,
    /// More lines of the source, and another policy.
    source: String,
    resolver: String,
    flow: String,
    /// The sink in place of hands.
    sink: Option<String>,
    dead_letter: bool,
}

/// A running host.
pub(crate) struct Program {
    runtime: Option<Runtime>,
    host: Arc<Host>,
    telemetry: Telemetry,
    thaw: Option<SyncSender<()>>,
}

impl Setup {
    /// A host with one flow from `subscription` to hands, without a policy.
    pub(crate) fn new(stage: &Stage, subscription: &Subscription) -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
            endpoint: stage.broker.endpoint(),
            subscription: subscription.clone(),
            policy: None,
            lease: LEASE,
            source: String::new(),
            resolver: String::new(),
            flow: String::new(),
            sink: None,
            dead_letter: false,
        }
    }

    /// With the shipped policy `rate-rules` and these rules.
    pub(crate) fn with_rules(mut self, rules: &str) -> Self {
        self.ship_component();
        self.write_rules(rules);
        self.policy = Some(format!("rules = \"{RULES}\"\n{}", limits("1s")));
        self
    }

    /// With a component made for tests, which has `deadline` for a decision.
    pub(crate) fn with_component(mut self, component: &[u8], on_error: &str, deadline: &str) -> Self {
        self.write_component(component);
        self.policy = Some(format!("on-error = \"{on_error}\"\n{}", limits(deadline)));
        self
    }

    /// With another lease than the shortest.
    pub(crate) const fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// With more lines for the flow.
    pub(crate) fn with_flow(mut self, lines: &str) -> Self {
        self.flow.push_str(lines);
        self
    }

    /// With the source at another address.
    pub(crate) fn with_endpoint(mut self, endpoint: &str) -> Self {
        endpoint.clone_into(&mut self.endpoint);
        self
    }

    /// With a sink `out` to the lite topics of `topic` at `endpoint`, named by a template, in place of hands.
    pub(crate) fn with_lite_sink(mut self, endpoint: &str, topic: &str, lite_topic: &str) -> Self {
        self.sink = Some(format!(
            "connector = \"rocketmq-grpc\"\nrocketmq.client.endpoints = \"{endpoint}\"\n\
             rocketmq.sink.topic = \"{topic}\"\nrocketmq.sink.lite-topic = \"{lite_topic}\""
        ));
        self
    }

    /// With TLS, and with keys that the shipped resolver `mounted-files` reads from a directory, anew each second.
    pub(crate) fn with_mounted_keys(mut self, login: &Login, authority: &Path) -> Self {
        let shipped = fs::read(Path::new(POLICIES).join("mounted-files.wasm")).expect("a shipped policy");
        self.replace("keys.wasm", &shipped);
        self.replace("keys.toml", b"id = \"keys/id\"\nsecret = \"keys/secret\"\nvalid-for = \"1s\"\n");
        self.write_keys(login);
        self.resolver = format!(
            "[policies.keys]\ncomponent = \"keys.wasm\"\nrules = \"keys.toml\"\n\
             grants.directories = {{ keys = \"{}\" }}\nlimits.start-deadline = \"10s\"\n",
            self.file("keys").display()
        );
        self.source = format!(
            "rocketmq.client.credentials-resolver = \"keys\"\nrocketmq.client.tls-enabled = true\n\
             rocketmq.client.tls-ca-file = \"{}\"\n",
            authority.display()
        );
        self
    }

    /// Replaces the mounted keys, both at once, as Kubernetes does: a link that is swapped.
    pub(crate) fn write_keys(&self, login: &Login) {
        let fresh = tempfile::Builder::new().prefix("keys-").tempdir_in(self.directory.path());
        let fresh = fresh.expect("a directory in our own").keep();
        fs::write(fresh.join("id"), &login.access_key).expect("a file in our own directory");
        fs::write(fresh.join("secret"), &login.secret_key).expect("a file in our own directory");
        let draft = self.file("keys-link");
        std::os::unix::fs::symlink(&fresh, &draft).expect("a link in our own directory");
        fs::rename(&draft, self.file("keys")).expect("a link in our own directory");
    }

    /// Replaces the rules.
    pub(crate) fn write_rules(&self, rules: &str) {
        self.replace(RULES, rules.as_bytes());
    }

    /// Replaces the component by the shipped policy `rate-rules`.
    pub(crate) fn ship_component(&self) {
        let shipped = fs::read(Path::new(POLICIES).join("rate-rules.wasm")).expect("a shipped policy");
        self.write_component(&shipped);
    }

    /// Replaces the component.
    pub(crate) fn write_component(&self, component: &[u8]) {
        self.replace(COMPONENT, component);
    }

    /// In one step, as careful editors do.
    fn replace(&self, name: &str, content: &[u8]) {
        let draft = self.file("draft");
        fs::write(&draft, content).expect("a file in our own directory");
        fs::rename(&draft, self.file(name)).expect("a file in our own directory");
    }

    /// Starts a host; what its flow delivers comes into the hands.
    pub(crate) async fn start(&self) -> (Program, Hands) {
        let (sink, hands) = by_hand();
        (self.start_with(BTreeMap::from([("hands".into(), sink)])).await, hands)
    }

    /// Starts a host with a sink of its own.
    pub(crate) async fn start_alone(&self) -> Program {
        assert!(self.sink.is_some(), "nobody would take what it delivers");
        self.start_with(BTreeMap::new()).await
    }

    /// Starts a host whose rejected messages go to `dead_letter`.
    pub(crate) async fn start_burying(&mut self, dead_letter: Box<dyn Sink>) -> (Program, Hands) {
        let (sink, hands) = by_hand();
        self.dead_letter = true;
        let sinks = BTreeMap::from([("hands".into(), sink), ("dead".into(), dead_letter)]);
        (self.start_with(sinks).await, hands)
    }

    async fn start_with(&self, sinks: BTreeMap<Arc<str>, Box<dyn Sink>>) -> Program {
        let config = self.config();
        let extras = Extras {
            sinks,
            identity: Some(Identity::ephemeral().expect("random bytes")),
            require_policies: true,
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let telemetry = Telemetry::default();
        let told = telemetry.clone();
        let starting =
            runtime.spawn(async move { Host::start(&config, Clock::start(), &told, extras).await });
        let host = starting.await.expect("no panic").unwrap_or_else(|error| panic!("{error}"));
        Program { runtime: Some(runtime), host: Arc::new(host), telemetry, thaw: None }
    }

    fn config(&self) -> Config {
        let text = self.text();
        let file = self.file("tidegate.toml").display().to_string();
        tidegate_config::parse(&file, &text, &Catalog { connectors: CONNECTORS })
            .unwrap_or_else(|errors| panic!("{errors}\n{text}"))
    }

    fn text(&self) -> String {
        let Self {
            endpoint, subscription: Subscription { topic, group, kind }, source, resolver, flow, ..
        } = self;
        let (policy, throttle) = match &self.policy {
            Some(lines) => (
                format!("[policies.throttle]\ncomponent = \"{COMPONENT}\"\n{lines}"),
                "throttle = \"throttle\"",
            ),
            None => (String::new(), ""),
        };
        let (sink, options) = match &self.sink {
            Some(options) => ("out", options.as_str()),
            None => ("hands", "connector = \"discard\""),
        };
        let dead_letter = if self.dead_letter { "dead-letter = \"dead\"" } else { "" };
        format!(
            r#"
[host]
policy-dir = "{directory}"

{policy}

{resolver}

[sources.tenants]
connector = "rocketmq-grpc"
rocketmq.client.endpoints = "{endpoint}"
rocketmq.source.main-topic = "{topic}"
rocketmq.source.consumer-group = "{group}"
rocketmq.source.topic-kind = "{kind}"
rocketmq.source.await-duration = "{await_s}s"
rocketmq.source.invisible-duration = "{lease_s}s"
{source}

[sinks.{sink}]
{options}

[sinks.dead]
connector = "discard"

[flows.tenants]
source = "tenants"
{throttle}
sink = "{sink}"
{dead_letter}
{flow}
"#,
            directory = self.directory.path().display(),
            kind = kind.name(),
            await_s = POLL.as_secs(),
            lease_s = self.lease.as_secs(),
        )
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Limits that a slow machine does not reach by itself, except for the one that a scenario is about.
fn limits(deadline: &str) -> String {
    format!(
        "[policies.throttle.limits]\ndeadline = \"{deadline}\"\nstart-deadline = \"10s\"\ncompile-timeout = \"60s\"\n"
    )
}

impl Program {
    /// How its flow is doing.
    pub(crate) fn flow(&self) -> FlowStatus {
        self.host.flows().remove(0)
    }

    /// The same for later, also while it drains.
    pub(crate) fn status(&self) -> impl Fn() -> FlowStatus + use<> {
        let host = Arc::clone(&self.host);
        move || host.flows().remove(0)
    }

    /// The value of a counter or gauge with its labels, such as `sink_retries_total{sink="out"}`; 0 when it was never
    /// moved.
    pub(crate) fn metric(&self, sample: &str) -> u64 {
        let text = self.telemetry.encode();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("tidegate_")?.strip_prefix(sample)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().expect("a number"))
    }

    /// How its policy is doing.
    pub(crate) fn policy(&self) -> PolicyStatus {
        self.host.policies().remove(0)
    }

    /// Stops it in order.
    pub(crate) async fn drain(self) -> DrainReport {
        let host = Arc::clone(&self.host);
        let draining = self.runtime().spawn(async move { host.drain(DRAIN_WITHIN).await });
        draining.await.expect("no panic")
    }

    /// Pauses its flow as an operator does, or lets it go on.
    pub(crate) async fn set_paused(&self, paused: bool) {
        let host = Arc::clone(&self.host);
        let changing = self.runtime().spawn(async move {
            let flow = host.flows().remove(0).name;
            if paused { host.pause_flow(&flow).await } else { host.resume_flow(&flow).await }
        });
        let changed = changing.await.expect("no panic").expect("it has this flow");
        assert_eq!(changed, Ok(true));
    }

    /// Ends it at once, as SIGKILL would: nothing is finished, nobody is told, connections break.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Freezes it, as SIGSTOP would: its connections stay open and nothing answers. What its flow has handed over
    /// stays with the hands.
    pub(crate) async fn freeze(&mut self) {
        let (frozen, is_frozen) = oneshot::channel();
        let (thaw, thawed) = sync_channel::<()>(0);
        self.runtime().spawn(async move {
            let _ = frozen.send(());
            // Keeps the only thread of the runtime. An error is the end of the scenario.
            let _ = thawed.recv();
        });
        is_frozen.await.expect("the runtime runs");
        self.thaw = Some(thaw);
    }

    /// Lets a frozen one run on.
    pub(crate) fn thaw(&mut self) {
        self.thaw = None;
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("a runtime until the end")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.thaw = None;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
