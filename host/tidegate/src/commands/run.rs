//! `tidegate run`: the flows of a configuration, until told to stop.

mod open_files;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, anyhow};
use tidegate_admin::Bound;
use tidegate_config::{Config, LogFormat, plan};
use tidegate_connector::Clock;
use tidegate_pipeline::{Extras, FlowStatus, Host, open_files_max};
use tidegate_telemetry::events::host::{
    ConfigLoaded, ConfigReloaded, ConfigWarned, Draining, OpenFilesFew, ReloadResult, Started, Stopped,
};
use tidegate_telemetry::{LogHandle, Telemetry, init_logging};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::block_on;
use crate::catalog;
use crate::cli::RunArgs;
use crate::exit::Failure;
use crate::inspect::View;
use crate::output::Output;

/// How often the configuration file is looked at. A glance at its metadata sees every way of changing it: in place, by
/// rename, by swapped symlinks, on file systems without events.
const CONFIG_GLANCE: Duration = Duration::from_secs(1);
/// How long admin answers under way may take when the host ends.
const ADMIN_GRACE: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &RunArgs, output: &Output) -> Result<(), Failure> {
    // Before it is read, so that no edit that comes while the host starts is missed.
    let seen = file_state(&args.config);
    let (config, prepared) = catalog::ready(&args.config)?;
    // Whoever wrote it into the configuration meant it for every way of starting.
    let format = match config.host.log_format {
        Some(LogFormat::Json) => tidegate_telemetry::LogFormat::Json,
        None if output.is_json() => tidegate_telemetry::LogFormat::Json,
        Some(LogFormat::Text) | None => tidegate_telemetry::LogFormat::Text,
    };
    let log = init_logging(config.host.log_level.as_str(), format).map_err(Failure::config)?;
    block_on(serve(args, config, seen, prepared.remarks(), log))
}

async fn serve(
    args: &RunArgs,
    config: Config,
    mut seen: Option<(SystemTime, u64)>,
    remarks: &[String],
    log: LogHandle,
) -> Result<(), Failure> {
    let mut terminated = termination().map_err(Failure::environment)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(Failure::environment)?;
    let clock = Clock::start();
    let telemetry = Telemetry::default();
    telemetry.emit(Started { at: clock.wall() });
    telemetry.emit(ConfigLoaded {
        file: &args.config,
        at: clock.wall(),
        sources: config.sources.len(),
        sinks: config.sinks.len(),
        policies: config.policies.len(),
        flows: config.flows.len(),
    });
    for warning in &config.warnings {
        telemetry.emit(ConfigWarned { warning: &warning.to_string() });
    }
    for remark in remarks {
        telemetry.emit(ConfigWarned { warning: remark });
    }

    let drain_timeout = config.host.drain_timeout;
    let admin_options = tidegate_admin::Options {
        allow_remote: config.host.admin_allow_remote,
        ..tidegate_admin::Options::new(config.host.admin_listen)
    };
    let wanted = open_files_max(&config) + admin_options.connections_max as u64;
    if let Some(limit) = open_files::raise_limit().filter(|limit| *limit < wanted) {
        telemetry.emit(OpenFilesFew { limit, wanted });
    }
    // The port first: a host that cannot have it joins nothing.
    let admin = Bound::bind(admin_options).await.map_err(Failure::environment)?;
    let extras = Extras { require_policies: args.strict, ..Extras::default() };
    let host = Host::start(&config, clock, &telemetry, extras).await.map_err(start_failure)?;
    let host = Arc::new(host);
    let admin = admin.serve(Arc::new(View(Arc::clone(&host))), telemetry.clone());
    let mut live = Live {
        path: &args.config,
        started: config.clone(),
        applied: config,
        clock,
        telemetry: &telemetry,
        log,
        host: &host,
        refused: false,
    };
    let mut glance = tokio::time::interval(CONFIG_GLANCE);
    let (cause, mut result) = loop {
        tokio::select! {
            cause = terminated.recv() => break (cause, Ok(())),
            () = host.ended() => {
                let error = anyhow!("every flow has ended: {}", endings(&host));
                break ("the end of all flows", Err(Failure::Runtime(error)));
            }
            _ = hangup.recv() => {
                seen = file_state(&args.config);
                live.reload().await;
            }
            _ = glance.tick() => {
                let now = file_state(&args.config);
                if now.is_some() && now != seen {
                    seen = now;
                    live.reload().await;
                }
            }
        }
    };
    // Before the API that gives them out.
    host.end_recordings();
    admin.stop(ADMIN_GRACE).await;
    telemetry.emit(Draining { cause, timeout: drain_timeout });
    let began = clock.now();
    let report = host.drain(drain_timeout).await;
    if result.is_ok() && !report.failed.is_empty() {
        result = Err(Failure::Runtime(anyhow!("these flows had failed: {}", report.failed.join(", "))));
    }
    let drained_in = clock.now().saturating_since(began);
    telemetry.emit(Stopped { drained_in, left_behind: report.left_behind });
    result
}

/// What a reload works on.
struct Live<'a> {
    path: &'a Path,
    /// What the host was started with: decides what needs a restart.
    started: Config,
    /// What was last applied: decides what changes now.
    applied: Config,
    clock: Clock,
    telemetry: &'a Telemetry,
    log: LogHandle,
    host: &'a Host,
    /// Whether the last look found a configuration that is wrong.
    refused: bool,
}

impl Live<'_> {
    /// Reads the configuration again and applies what can change live; a wrong one changes nothing.
    async fn reload(&mut self) {
        let at = self.clock.wall();
        let say = |result, detail: &str| {
            self.telemetry.emit(ConfigReloaded { file: self.path, at, result, detail });
        };
        let new = match catalog::load(self.path) {
            Ok(new) => new,
            Err(failure) => {
                self.refused = true;
                return say(ReloadResult::Refused, &failure.to_string());
            }
        };
        let was_refused = std::mem::replace(&mut self.refused, false);
        let live = plan(&self.applied, &new);
        let restart = plan(&self.started, &new).restart;
        if live.live.is_empty() && restart.is_empty() {
            if was_refused {
                say(ReloadResult::TakenBack, "the refused edit is gone");
            } else if !live.is_empty() {
                say(ReloadResult::TakenBack, "nothing waits for a restart any more");
            }
            self.applied = new;
            return;
        }
        if live.is_empty() && !was_refused {
            return;
        }
        self.host.apply(&new, &live).await;
        if live.changes_log_level()
            && let Err(error) = self.log.set_filter(new.host.log_level.as_str())
        {
            return say(ReloadResult::Refused, &error.to_string());
        }
        let changes = |changes: &[tidegate_config::Change]| {
            changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        if restart.is_empty() {
            say(ReloadResult::Applied, &changes(&live.live));
        } else {
            say(ReloadResult::NeedsRestart, &changes(&restart));
        }
        self.applied = new;
    }
}

/// Signals that ask for an end.
#[derive(Debug)]
pub(crate) struct Termination(mpsc::Receiver<&'static str>);

impl Termination {
    /// The first signal's name. A second one ends the process at once.
    pub(crate) async fn recv(&mut self) -> &'static str {
        match self.0.recv().await {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }
}

/// Listens for SIGTERM and SIGINT: the first asks to drain, the second exits at once with 128 + its number.
pub(crate) fn termination() -> anyhow::Result<Termination> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let (sender, receiver) = mpsc::channel(1);
    // Ends with the runtime: until the process is over a second signal may come.
    tokio::spawn(async move {
        let (name, _) = either(&mut terminate, &mut interrupt).await;
        let _ = sender.send(name).await;
        let (_, number) = either(&mut terminate, &mut interrupt).await;
        std::process::exit(128 + number);
    });
    Ok(Termination(receiver))
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) -> (&'static str, i32) {
    tokio::select! {
        _ = terminate.recv() => ("SIGTERM", SignalKind::terminate().as_raw_value()),
        _ = interrupt.recv() => ("SIGINT", SignalKind::interrupt().as_raw_value()),
    }
}

fn endings(host: &Host) -> String {
    let ending =
        |flow: FlowStatus| format!("`{}` {}: {}", flow.name, flow.state.name(), flow.remarks.join("; "));
    host.flows().into_iter().map(ending).collect::<Vec<_>>().join(", ")
}

fn start_failure(error: tidegate_pipeline::StartError) -> Failure {
    if error.is_config() { Failure::config(error) } else { Failure::environment(error) }
}

fn file_state(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
