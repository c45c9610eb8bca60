//! Events of the host itself: its start and end, its configuration, its listeners.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Unit;
use tidegate_model::Timestamp;

use crate::metrics::{Registry, words};
use crate::{Event, Metrics};

words!(Section, ReloadResult);

/// The metric families that these events move.
#[derive(Debug)]
pub(crate) struct Families {
    start_timestamp: Gauge,
    configured: Family<SectionLabel, Gauge>,
    reloads: Family<ReloadLabel, Counter>,
    last_reload_successful: Gauge,
    last_reload_success_timestamp: Gauge,
    draining: Gauge,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SectionLabel {
    section: Section,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Section {
    Sources,
    Sinks,
    Policies,
    Flows,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReloadLabel {
    result: ReloadResult,
}

/// What came of reading the configuration again.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ReloadResult {
    /// Everything that had changed is in force.
    Applied,
    /// What can change live is in force, the rest waits for a restart.
    NeedsRestart,
    /// The new configuration is wrong; the old one goes on.
    Refused,
    /// What was refused, or waited for a restart, was taken back: the file holds what runs.
    TakenBack,
}

impl Families {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            start_timestamp: Gauge::default(),
            configured: Family::default(),
            reloads: Family::default(),
            last_reload_successful: Gauge::default(),
            last_reload_success_timestamp: Gauge::default(),
            draining: Gauge::default(),
        };
        let build = Info::new([
            ("version", env!("CARGO_PKG_VERSION")),
            ("arch", std::env::consts::ARCH),
            ("os", std::env::consts::OS),
        ]);
        registry.register("build", "What is running", build);

        let registry = registry.sub_registry_with_prefix("host");
        registry.register_with_unit(
            "start_timestamp",
            "Unix time at which the host started",
            Unit::Seconds,
            families.start_timestamp.clone(),
        );
        registry.register(
            "configured",
            "What the configuration in force has, by section",
            families.configured.clone(),
        );
        registry.register(
            "config_reloads",
            "Times that the configuration was read again, by what came of it",
            families.reloads.clone(),
        );
        registry.register(
            "config_last_reload_successful",
            "1 when the configuration on disk is in force as a whole, 0 when it is not",
            families.last_reload_successful.clone(),
        );
        registry.register_with_unit(
            "config_last_reload_success_timestamp",
            "Unix time at which a whole configuration last came into force",
            Unit::Seconds,
            families.last_reload_success_timestamp.clone(),
        );
        registry.register("draining", "1 while the host is on its way out", families.draining.clone());
        families
    }

    fn config_in_force(&self, at: Timestamp) {
        self.last_reload_successful.set(1);
        self.last_reload_success_timestamp.set(unix_seconds(at));
    }
}

/// The process began.
#[derive(Debug)]
pub struct Started {
    /// Now, by the wall clock.
    pub at: Timestamp,
}

impl Event for Started {
    fn record(self, metrics: &Metrics) {
        metrics.host.start_timestamp.set(unix_seconds(self.at));
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "tidegate starts");
    }
}

/// The configuration of this run was read and is valid.
#[derive(Debug)]
pub struct ConfigLoaded<'a> {
    /// The file.
    pub file: &'a Path,
    /// Now, by the wall clock.
    pub at: Timestamp,
    /// Sources in it.
    pub sources: usize,
    /// Sinks in it.
    pub sinks: usize,
    /// Policies in it.
    pub policies: usize,
    /// Flows in it.
    pub flows: usize,
}

impl Event for ConfigLoaded<'_> {
    fn record(self, metrics: &Metrics) {
        let Self { file, at, sources, sinks, policies, flows } = self;
        for (section, count) in [
            (Section::Sources, sources),
            (Section::Sinks, sinks),
            (Section::Policies, policies),
            (Section::Flows, flows),
        ] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            metrics.host.configured.get_or_create(&SectionLabel { section }).set(count);
        }
        metrics.host.config_in_force(at);
        tracing::info!(file = %file.display(), sources, sinks, policies, flows, "configuration loaded");
    }
}

/// The configuration has something odd in it that does not stop the host.
#[derive(Debug)]
pub struct ConfigWarned<'a> {
    /// The file, the place and the sentence.
    pub warning: &'a str,
}

impl Event for ConfigWarned<'_> {
    fn record(self, _metrics: &Metrics) {
        tracing::warn!("{}", self.warning);
    }
}

/// The process may have fewer files and connections open than its configuration may need.
#[derive(Debug)]
pub struct OpenFilesFew {
    /// How many it may.
    pub limit: u64,
    /// How many it may need.
    pub wanted: u64,
}

impl Event for OpenFilesFew {
    fn record(self, _metrics: &Metrics) {
        let Self { limit, wanted } = self;
        tracing::warn!(
            limit,
            wanted,
            "the system lets this process have {limit} files and connections open, and its configuration may need {wanted}: \
             what comes beyond waits; raise the hard limit (`ulimit -Hn`, `LimitNOFILE=` of a systemd unit)"
        );
    }
}

/// The configuration was read again, because its file changed or somebody asked.
#[derive(Debug)]
pub struct ConfigReloaded<'a> {
    /// The file.
    pub file: &'a Path,
    /// Now, by the wall clock.
    pub at: Timestamp,
    /// What came of it.
    pub result: ReloadResult,
    /// For people: what changed, what needs a restart, or what is wrong. No values of secrets.
    pub detail: &'a str,
}

impl Event for ConfigReloaded<'_> {
    fn record(self, metrics: &Metrics) {
        let families = &metrics.host;
        families.reloads.get_or_create(&ReloadLabel { result: self.result }).inc();
        let file = self.file.display();
        match self.result {
            ReloadResult::Applied => {
                families.config_in_force(self.at);
                tracing::info!(%file, "configuration reloaded: {}", self.detail);
            }
            ReloadResult::TakenBack => {
                families.config_in_force(self.at);
                tracing::info!(%file, "configuration holds what runs again: {}", self.detail);
            }
            ReloadResult::NeedsRestart => {
                families.last_reload_successful.set(0);
                tracing::warn!(%file, "configuration reloaded in part, the rest needs a restart: {}", self.detail);
            }
            ReloadResult::Refused => {
                families.last_reload_successful.set(0);
                tracing::error!(%file, "new configuration refused, the old one goes on: {}", self.detail);
            }
        }
    }
}

/// Something accepts connections.
#[derive(Debug)]
pub struct Listening<'a> {
    /// What, such as `admin`.
    pub what: &'a str,
    /// Where, with the port that was really taken.
    pub address: SocketAddr,
}

impl Event for Listening<'_> {
    fn record(self, _metrics: &Metrics) {
        tracing::info!(address = %self.address, "{} listens", self.what);
    }
}

/// The host stops receiving, finishes what workers hold and releases the rest.
#[derive(Debug)]
pub struct Draining<'a> {
    /// What made it, such as `SIGTERM`.
    pub cause: &'a str,
    /// The longest that it takes.
    pub timeout: Duration,
}

impl Event for Draining<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.host.draining.set(1);
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        tracing::info!(timeout_ms, "draining after {}; a second signal exits at once", self.cause);
    }
}

/// The host is done.
#[derive(Debug)]
pub struct Stopped {
    /// How long draining took.
    pub drained_in: Duration,
    /// Deliveries that were still held when time ran out. They come again after their leases.
    pub left_behind: usize,
}

impl Event for Stopped {
    fn record(self, _metrics: &Metrics) {
        let drained_in_ms = u64::try_from(self.drained_in.as_millis()).unwrap_or(u64::MAX);
        if self.left_behind == 0 {
            tracing::info!(drained_in_ms, "stopped, nothing left behind");
        } else {
            tracing::warn!(
                drained_in_ms,
                "stopped with {} deliveries unsettled; the broker hands them out again",
                self.left_behind
            );
        }
    }
}

fn unix_seconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_unix_millis() / 1_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Telemetry;

    fn reload(telemetry: &Telemetry, result: ReloadResult, at_seconds: u64) {
        let at = Timestamp::from_unix_millis(at_seconds * 1_000);
        telemetry.emit(ConfigReloaded { file: Path::new("tidegate.toml"), at, result, detail: "for a test" });
    }

    #[track_caller]
    fn assert_says(telemetry: &Telemetry, line: &str) {
        let text = telemetry.encode();
        assert!(text.lines().any(|said| said == line), "{line} is not in\n{text}");
    }

    #[test]
    fn a_refused_configuration_shows_until_a_good_one_comes() {
        const SUCCESSFUL: &str = "tidegate_host_config_last_reload_successful";
        const SUCCESS_TIME: &str = "tidegate_host_config_last_reload_success_timestamp_seconds";
        let telemetry = Telemetry::default();
        reload(&telemetry, ReloadResult::Applied, 7);
        assert_says(&telemetry, &format!("{SUCCESSFUL} 1"));
        for result in [ReloadResult::Refused, ReloadResult::NeedsRestart] {
            reload(&telemetry, result, 8);
            assert_says(&telemetry, &format!("{SUCCESSFUL} 0"));
            assert_says(&telemetry, &format!("{SUCCESS_TIME} 7"));
        }
        reload(&telemetry, ReloadResult::Applied, 9);
        assert_says(&telemetry, &format!("{SUCCESSFUL} 1"));
        assert_says(&telemetry, &format!("{SUCCESS_TIME} 9"));
        reload(&telemetry, ReloadResult::Refused, 10);
        reload(&telemetry, ReloadResult::TakenBack, 11);
        assert_says(&telemetry, &format!("{SUCCESSFUL} 1"));
        assert_says(&telemetry, &format!("{SUCCESS_TIME} 11"));
        assert_says(&telemetry, "tidegate_host_config_reloads_total{result=\"applied\"} 2");
    }

    #[test]
    fn the_configuration_is_counted_by_section() {
        let telemetry = Telemetry::default();
        let at = Timestamp::from_unix_millis(0);
        let file = Path::new("tidegate.toml");
        telemetry.emit(ConfigLoaded { file, at, sources: 1, sinks: 2, policies: 0, flows: 3 });
        for line in ["{section=\"sources\"} 1", "{section=\"policies\"} 0", "{section=\"flows\"} 3"] {
            assert_says(&telemetry, &format!("tidegate_host_configured{line}"));
        }
    }
}
