//! `tidegate demo`: one tenant's flood held back by a policy while the others flow, in one process.
//!
//! The broker is the in-memory one; everything else is what `tidegate run` runs: configuration, connector, lease book,
//! policy host with its watcher. The policy arrives the way users bring theirs: as a file in the policy directory.

mod load;
mod record;
mod report;
mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tempfile::TempDir;
use tidegate_config::Config;
use tidegate_connector::{Clock, Sink};
use tidegate_devbroker::{Broker, Group, Options, Profile, Topic, TopicKind};
use tidegate_pipeline::{Extras, Host, Identity};
use tidegate_policy::PolicyStatus;
use tidegate_rocketmq::{ClientOptions, Endpoints, Producer};
use tidegate_telemetry::Telemetry;
use tokio::time::{Instant, sleep};

use self::load::{Load, QUIET_TENANTS, TENANT};
use self::record::{RecordFile, RecordTask};
use self::report::{Account, Phase, Shadowed};
use self::worker::{Workbench, Worker};
use super::block_on;
use crate::catalog::CATALOG;
use crate::cli::DemoArgs;
use crate::exit::Failure;
use crate::output::Output;

/// The component and rules that this build ships.
const COMPONENT: &[u8] = include_bytes!("../../../../policies/fair-share.wasm");
const RULES: &str = include_str!("../../../../policies/fair-share.toml");
/// The edit of phase 3: the hot tenant may not even take what nobody else wants.
const EDIT: [(&str, &str); 2] =
    [("min-queued = 10", "min-queued = 0"), ("min-in-flight = 10", "min-in-flight = 2")];
/// The edit at the end: nobody is noisy any more.
const AMNESTY: [(&str, &str); 1] = [("min-in-flight = 10", "min-in-flight = 1000000")];

const FLOW: &str = "tenants";
/// The policy of `--shadow`.
const TRIAL: &str = "trial";
const TRIAL_RULES: &str = "trial.toml";
const TOPIC: &str = "LiteMainTopic";
const GROUP: &str = "GID-demo";
/// One message's work: 250 messages a second, and the tenants send 390.
const WORK: Duration = Duration::from_millis(4);
/// A new file or an edit must be in force within this time.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(2);
/// What the phase before has left in the broker is not counted in a phase.
const SETTLING: Duration = Duration::from_secs(3);
/// What is left of the flood must be worked off within this time, with many more hands.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &DemoArgs, output: &Output) -> Result<(), Failure> {
    block_on(async {
        let account = play(args, output).await?;
        if output.is_json() {
            let json = serde_json::to_string(&account).map_err(Failure::runtime)?;
            output.data(&json);
        } else {
            account.show(output);
        }
        match account.broken.first() {
            None => Ok(()),
            Some(broken) => Err(Failure::Runtime(anyhow::anyhow!("the demo broke a promise: {broken}"))),
        }
    })
}

async fn play(args: &DemoArgs, output: &Output) -> Result<Account, Failure> {
    let shadow = args.shadow.as_deref().map(read_rules).transpose()?;
    let record = args.record.as_deref().map(RecordFile::create).transpose()?;
    let stage = Stage::set(shadow.as_deref(), record, output).await.map_err(Failure::Runtime)?;
    if let Some(rules) = &args.shadow {
        stage.ensure_shadow(rules)?;
    }
    stage.play(args.phase).await.map_err(Failure::Runtime)
}

fn read_rules(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file)
        .with_context(|| format!("cannot read `{}`", file.display()))
        .map_err(Failure::Config)
}

/// Everything that runs.
struct Stage<'o> {
    output: &'o Output,
    directory: TempDir,
    broker: Broker,
    producer: Producer,
    load: Load,
    bench: Arc<Workbench>,
    host: Host,
    record: Option<RecordTask>,
}

impl<'o> Stage<'o> {
    async fn set(
        shadow: Option<&str>,
        record: Option<RecordFile>,
        output: &'o Output,
    ) -> anyhow::Result<Self> {
        let clock = Clock::start();
        let broker = Broker::start(Options {
            topics: vec![Topic::new(TOPIC, TopicKind::Lite)],
            groups: vec![Group { events_max: 5_000, ..Group::lite(GROUP, TOPIC) }],
            profile: Profile::V5_5_1,
            ..Options::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        })
        .await
        .context("the embedded broker does not start")?;
        let directory = tempfile::tempdir().context("no temporary directory")?;
        fs::create_dir(directory.path().join("policies"))?;
        if let Some(rules) = shadow {
            fs::write(directory.path().join("policies").join(TRIAL_RULES), rules)?;
            fs::write(directory.path().join("policies/trial.wasm"), COMPONENT)?;
        }
        let config = config(directory.path(), broker.address(), shadow.is_some())?;
        let bench = Workbench::new(clock, WORK)?;
        let worker: Box<dyn Sink> = Box::new(Worker(Arc::clone(&bench)));
        let extras = Extras {
            sinks: BTreeMap::from([(Arc::from("worker"), worker)]),
            identity: Some(Identity::ephemeral()?),
            require_policies: false,
        };
        let telemetry = Telemetry::default();
        let host = Host::start(&config, clock, &telemetry, extras).await?;
        let record = record.map(|file| file.record(&host, FLOW)).transpose()?;
        let endpoints = Endpoints::parse(&broker.address().to_string())?;
        let producer =
            Producer::connect(ClientOptions::new(endpoints), clock, telemetry, "demo".into()).await?;
        let load = Load::start(&producer, &TOPIC.into());
        Ok(Self { output, directory, broker, producer, load, bench, host, record })
    }

    async fn play(self, phase: Duration) -> anyhow::Result<Account> {
        let mut broken = Vec::new();
        let mut phases = Vec::new();

        self.say(&format!(
            "{QUIET_TENANTS} quiet tenants, one that floods, and a worker that does {:.0} messages a second\n",
            1.0 / WORK.as_secs_f64()
        ));
        phases.push(self.phase("1  no policy", phase).await);

        fs::write(self.policies().join("fair-share.toml"), RULES)?;
        fs::write(self.policies().join("fair-share.wasm"), COMPONENT)?;
        let generation = self.wait_for_generation(0).await?;
        phases.push(self.phase("2  fair-share.wasm dropped in", phase).await);

        fs::write(self.policies().join("fair-share.toml"), edited(&EDIT)?)?;
        self.wait_for_generation(generation).await?;
        phases.push(self.phase("3  its rules edited", phase).await);

        if let [without, with, _] = phases.as_slice()
            && with.quiet_p50_ms * 2 > without.quiet_p50_ms
        {
            broken.push(format!(
                "the policy does not help: quiet tenants' p50 is {} ms with it and {} ms without",
                with.quiet_p50_ms, without.quiet_p50_ms
            ));
        }
        self.end(phases, broken).await
    }

    /// Rules that are wrong are told before half a minute of demo, and by the name that the user knows.
    fn ensure_shadow(&self, rules: &Path) -> Result<(), Failure> {
        match policy(&self.host, TRIAL) {
            Some(PolicyStatus { active: None, last_error: Some(error), .. }) => {
                let copy = self.policies().join(TRIAL_RULES).display().to_string();
                let reason = error.reason.replace(&copy, &rules.display().to_string());
                Err(Failure::Config(anyhow::anyhow!("the rules for --shadow are refused: {reason}")))
            }
            _ => Ok(()),
        }
    }

    fn policies(&self) -> std::path::PathBuf {
        self.directory.path().join("policies")
    }

    fn say(&self, line: &str) {
        if !self.output.is_json() {
            self.output.data(line);
        }
    }

    async fn phase(&self, title: &'static str, length: Duration) -> Phase {
        sleep(SETTLING).await;
        self.bench.take_tally();
        let began = Instant::now();
        while began.elapsed() < length {
            sleep(Duration::from_millis(200)).await;
            let flow = self.host.flows().into_iter().next();
            let (totals, in_flight) = flow.map(|flow| (flow.totals, flow.in_flight)).unwrap_or_default();
            let left = length.saturating_sub(began.elapsed()).as_secs_f64();
            self.output.progress(&format!(
                "phase {title}   {left:>3.0} s left   received {}  deferred {}  delivered {}  in flight {}",
                totals.received, totals.deferred, totals.emitted, in_flight
            ));
        }
        self.output.progress("");
        let phase = Phase::new(title, &self.bench.take_tally(), began.elapsed());
        self.say(&format!("phase {title}"));
        if !self.output.is_json() {
            phase.show(self.output);
        }
        phase
    }

    /// Waits until a generation newer than `before` is in force.
    async fn wait_for_generation(&self, before: u64) -> anyhow::Result<u64> {
        let deadline = Instant::now() + IN_FORCE_WITHIN;
        loop {
            let status = policy(&self.host, "fair").context("the demo has a policy")?;
            if let Some(active) = status.active.filter(|active| active.generation > before) {
                return Ok(active.generation);
            }
            if Instant::now() > deadline {
                let reason =
                    status.last_error.map_or_else(|| "it was not noticed".to_owned(), |error| error.reason);
                bail!("the policy is not in force after {IN_FORCE_WITHIN:?}: {reason}");
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops the tenants, works off what is left, and draws up the account.
    async fn end(mut self, phases: Vec<Phase>, mut broken: Vec<String>) -> anyhow::Result<Account> {
        self.load.stop().await;
        fs::write(self.policies().join("fair-share.toml"), edited(&AMNESTY)?)?;
        self.bench.set_work(Duration::ZERO);
        let control = self.broker.control();
        let deadline = Instant::now() + DRAIN_WITHIN;
        while control.audit().unacked().next().is_some() && Instant::now() < deadline {
            self.output.progress("the tenants are done, the worker has more hands now");
            sleep(Duration::from_millis(100)).await;
        }
        self.output.progress("");
        let drained = self.host.drain(Duration::from_secs(3)).await;
        self.producer.close().await;
        let totals = self.host.flows().first().map(|flow| flow.totals).unwrap_or_default();
        let shadow = self.host.comparisons(FLOW).and_then(|mut compared| compared.remove(TRIAL));
        let recording = match self.record.take() {
            Some(record) => Some(record.end().await?),
            None => None,
        };

        let audit = control.audit();
        let lost = audit.lost().count() as u64;
        let unacked = audit.unacked().count() as u64;
        let (delivered, _) = self.bench.totals();
        if lost > 0 || delivered != self.load.sent() {
            broken
                .push(format!("{} messages were sent, {delivered} delivered, {lost} lost", self.load.sent()));
        }
        if unacked > 0 {
            broken.push(format!("{unacked} messages are not acknowledged"));
        }
        if self.load.failed() > 0 {
            broken.push(format!("the broker refused {} messages", self.load.failed()));
        }
        if !drained.failed.is_empty() || !drained.unfinished.is_empty() {
            broken.push("the flow did not end well".to_owned());
        }
        self.broker.stop().await;
        Ok(Account {
            phases,
            sent: self.load.sent(),
            received: totals.received,
            deferred: totals.deferred,
            delivered,
            acknowledged: self.load.sent() - unacked,
            lost,
            shadow: shadow.map(|comparison| Shadowed::of(&comparison)),
            recording,
            broken,
        })
    }
}

fn policy(host: &Host, name: &str) -> Option<PolicyStatus> {
    host.policies().into_iter().find(|status| &*status.name == name)
}

/// The configuration, read like a user's.
fn config(directory: &Path, broker: SocketAddr, shadow: bool) -> anyhow::Result<Config> {
    let mut text = format!(
        r#"
[policies.fair]
component = "fair-share.wasm"
rules = "fair-share.toml"

[sources.tenants]
connector = "rocketmq-grpc"
rocketmq.client.endpoints = "{broker}"
rocketmq.source.main-topic = "{TOPIC}"
rocketmq.source.consumer-group = "{GROUP}"
rocketmq.source.fetch-concurrency = 4
rocketmq.source.await-duration = "5s"

[sinks.worker]
connector = "discard"

[flows.{FLOW}]
source = "tenants"
throttle = "fair"
sink = "worker"
key = "property:{TENANT}"
"#
    );
    if shadow {
        text.push_str(&format!(
            "shadow = \"{TRIAL}\"\n\n[policies.{TRIAL}]\ncomponent = \"trial.wasm\"\nrules = \"trial.toml\"\n"
        ));
    }
    let file = directory.join("tidegate.toml");
    fs::write(&file, &text)?;
    Ok(tidegate_config::load(&file, &CATALOG)?)
}

/// The shipped rules with these texts replaced.
fn edited(edits: &[(&str, &str)]) -> anyhow::Result<String> {
    let mut rules = RULES.to_owned();
    for (from, to) in edits {
        if !rules.contains(from) {
            bail!("the shipped rules have no `{from}` to edit");
        }
        rules = rules.replacen(from, to, 1);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edits_fit_the_shipped_rules() {
        assert_ne!(edited(&EDIT).expect("an edit"), RULES);
        assert_ne!(edited(&AMNESTY).expect("an edit"), RULES);
    }
}
