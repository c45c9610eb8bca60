//! One lane: a source, a policy and a sink around one lease book.
//!
//! One task owns the book. It turns: take what happened (deliveries, reports, results, time), then do what the book
//! asks (decide, emit, settle, grant receives), until neither is left. Everything slow happens in other tasks, which
//! this one owns: receive workers, batches of settlements, the sinks.

mod dead_letter;
mod decider;
mod endings;
mod presence;
mod question;
mod receive;
mod recording;
mod renewer;
mod settle;
mod shadow;
mod sink;
mod status;
mod tap;
mod turn;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_connector::{Clock, Settler, Sink, Source};
use tidegate_lease::{RenewalOptions, Valves};
use tidegate_policy::{Comparison, Header, Renewing, Throttle};
use tidegate_telemetry::Telemetry;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use self::shadow::Shadows;
use self::tap::Taps;
use crate::key::KeyRule;

pub use presence::AWAY_GRACE;
pub use recording::{Recording, RecordingOptions};
pub use status::{FlowState, FlowStatus, Totals};
pub use tap::TooManyOnlookers;

/// What a flow is told.
#[derive(Clone, Debug)]
pub struct FlowOptions {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Its source's name.
    pub source_name: Arc<str>,
    /// Its sink's name.
    pub sink_name: Arc<str>,
    /// Its dead-letter sink's name, if it has one.
    pub dead_letter_name: Option<Arc<str>>,
    /// Its policy's name, if it has one.
    pub throttle_name: Option<Arc<str>>,
    /// The name of the policy that is only compared with it.
    pub shadow_name: Option<Arc<str>>,
    /// What fairness is counted by.
    pub key_rule: KeyRule,
    /// Receives at one time.
    pub receive_workers: usize,
    /// How leases are renewed, when there is a policy for it.
    pub renewal: RenewalOptions,
    /// The lease book's bounds and valves.
    pub book: tidegate_lease::Options,
}

/// What a flow is made of.
pub struct FlowParts {
    /// Where deliveries come from.
    pub source: Arc<dyn Source>,
    /// How they are settled.
    pub settler: Arc<dyn Settler>,
    /// Who decides; without one everything is delivered.
    pub throttle: Option<Throttle>,
    /// Who is asked as well, and not followed.
    pub shadow: Option<Throttle>,
    /// Who decides about leases that end soon; without one they run out.
    pub renewing: Option<Renewing>,
    /// Where accepted deliveries go.
    pub sink: Box<dyn Sink>,
    /// Where rejected ones go when the broker has no dead letters of its own.
    pub dead_letter: Option<Box<dyn Sink>>,
}

/// A running flow.
#[derive(Debug)]
pub struct Flow {
    name: Arc<str>,
    source: SourceRef,
    commands: mpsc::Sender<Command>,
    status: Arc<Mutex<FlowStatus>>,
    shadows: Shadows,
    taps: Taps,
    ended: watch::Receiver<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What a flow can be told while it runs.
#[derive(Debug)]
enum Command {
    Drain,
    Valves(Valves),
}

/// Debug for a trait object that has none.
struct SourceRef(Arc<dyn Source>);

impl std::fmt::Debug for SourceRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

/// Commands are rare: a drain and edits of the valves.
const COMMANDS_MAX: usize = 8;

impl Flow {
    /// Starts the flow's tasks on the current runtime.
    #[must_use]
    pub fn start(options: FlowOptions, parts: FlowParts, clock: Clock, telemetry: Telemetry) -> Self {
        let status = Arc::new(Mutex::new(FlowStatus {
            name: Arc::clone(&options.name),
            source: Arc::clone(&options.source_name),
            throttle: options.throttle_name.clone(),
            shadow: options.shadow_name.clone(),
            sink: Arc::clone(&options.sink_name),
            state: FlowState::Running,
            joined: false,
            remarks: Vec::new(),
            in_flight: 0,
            in_flight_bytes: 0,
            undecided: 0,
            queued: 0,
            emitted: 0,
            active_keys: 0,
            totals: Totals::default(),
        }));
        let (commands, command_receiver) = mpsc::channel(COMMANDS_MAX);
        let (ended_sender, ended) = watch::channel(false);
        let name = Arc::clone(&options.name);
        let source = SourceRef(Arc::clone(&parts.source));
        let (shadows, taps) = (Shadows::default(), Taps::default());
        let turner = turn::Turner::new(
            options,
            parts,
            clock,
            telemetry,
            Arc::clone(&status),
            shadows.clone(),
            taps.clone(),
        );
        let onlookers = taps.clone();
        let task = tokio::spawn(async move {
            turner.run(command_receiver).await;
            onlookers.close();
            // Whoever waits may be gone already.
            let _ = ended_sender.send(true);
        });
        Self { name, source, commands, status, shadows, taps, ended, task: Mutex::new(Some(task)) }
    }

    /// The flow's name.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How it is doing now.
    #[must_use]
    pub fn status(&self) -> FlowStatus {
        let mut status = self.status.lock().clone();
        if status.state == FlowState::Running {
            status.remarks.extend(self.source.0.status());
        }
        status
    }

    /// Begins a recording of its decisions, with this first line.
    ///
    /// # Errors
    /// When there are too many already.
    pub(crate) fn record(
        &self,
        header: Header,
        options: RecordingOptions,
        clock: Clock,
        telemetry: Telemetry,
    ) -> Result<Recording, TooManyOnlookers> {
        let source = Arc::clone(&self.status.lock().source);
        let (recording, recorder) = recording::start(&self.name, &source, header, options, clock, telemetry);
        self.taps.attach(recorder)?;
        Ok(recording)
    }

    /// Ends all recordings.
    pub(crate) fn end_recordings(&self) {
        self.taps.close();
    }

    /// What policies in shadow mode would have said, by their names.
    #[must_use]
    pub fn comparisons(&self) -> BTreeMap<Arc<str>, Comparison> {
        self.shadows.all()
    }

    /// Changes its safety valves from the next verdict on.
    pub async fn set_valves(&self, valves: Valves) {
        // A flow that has ended needs no valves.
        let _ = self.commands.send(Command::Valves(valves)).await;
    }

    /// Resolves when the flow has ended, for whatever reason.
    pub async fn ended(&self) {
        let mut ended = self.ended.clone();
        // An error means that the task is gone, which is an end as well.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Stops receiving, finishes what workers hold, releases the rest, takes leave of the broker; after `deadline`
    /// the rest is left to the leases' end. True when all was finished in time.
    pub async fn drain(&self, deadline: Duration) -> bool {
        let drained = async {
            let _ = self.commands.send(Command::Drain).await;
            self.ended().await;
        };
        let in_time = tokio::time::timeout(deadline, drained).await.is_ok();
        let task = self.task.lock().take();
        if let Some(task) = task {
            if !in_time {
                task.abort();
            }
            // Aborted or over: either way nothing is left to learn from it.
            let _ = task.await;
            self.source.0.close().await;
        }
        in_time
    }
}
