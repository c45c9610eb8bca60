//! One lane: a source, a policy and a sink around one lease book.
//!
//! One task owns the book. It turns: take what happened (deliveries, reports, results, time), then do what the book
//! asks (decide, emit, settle, grant receives), until neither is left. Everything slow happens in other tasks, which
//! this one owns: receive workers, batches of settlements, the sinks.

mod breaker;
mod dead_letter;
mod decider;
mod end;
mod endings;
mod feed;
mod intake;
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
mod tapping;
mod turn;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_connector::{Clock, Settler, Sink, SinkMonitor, SinkStatus, Source};
use tidegate_lease::{RenewalOptions, Valves};
use tidegate_policy::{Comparison, Header, Renewing, Throttle};
use tidegate_telemetry::Telemetry;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use self::end::{CutOff, Lives};
use self::shadow::Shadows;
use self::tap::Taps;
use crate::key::KeyRule;

pub use presence::AWAY_GRACE;
pub use recording::{Recording, RecordingOptions};
pub use status::{DeadLetterTotals, Drain, FlowState, FlowStatus, Pause, Totals};
pub use tap::TooManyOnlookers;
pub use tapping::{Tap, TapOptions};

/// What a flow is told.
#[derive(Clone, Debug)]
pub struct FlowOptions {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Its source's name.
    pub source_name: Arc<str>,
    /// Its sinks' names.
    pub sink_names: Vec<Arc<str>>,
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
    /// The flow pauses itself when it rejects more messages than this
    pub dead_letter_burst: u32,
    /// within this time.
    pub dead_letter_window: Duration,
    /// How long an operator's drain may take.
    pub drain_timeout: Duration,
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
    /// Where rejected ones go; without it to the broker's own dead letters, if it has any.
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
    cut_off: CutOff,
    lives: Lives,
    /// Of its sinks and of its dead-letter sink.
    monitors: Vec<Arc<dyn SinkMonitor>>,
    dead_letter_monitors: Vec<Arc<dyn SinkMonitor>>,
    drain_timeout: Duration,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What a flow can be told while it runs.
#[derive(Debug)]
enum Command {
    Drain,
    Valves(Valves),
    /// Answered with whether that changes something, or with the state that forbids it.
    SetPaused(bool, oneshot::Sender<Result<bool, FlowState>>),
}

/// Why a flow cannot be paused or resumed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ControlError {
    /// It is about to end, or over.
    #[error("{}", ending(*.0))]
    Ending(FlowState),
    /// Its task has not answered.
    #[error("the flow has not answered within {ANSWER_WITHIN:?}; its policy or the machine is overloaded")]
    Late,
}

/// Why it is too late.
const fn ending(state: FlowState) -> &'static str {
    match state {
        FlowState::Failed => "the flow has failed and is over; it begins anew when the host starts again",
        FlowState::Stopped => {
            "the flow was drained and is over, which cannot be taken back; it begins anew when the host starts again"
        }
        _ => {
            "the flow is being drained, which cannot be taken back; it begins anew when the host starts again"
        }
    }
}

/// Debug for a trait object that has none.
struct SourceRef(Arc<dyn Source>);

impl std::fmt::Debug for SourceRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

/// Commands are rare: a drain, a pause, edits of the valves.
const COMMANDS_MAX: usize = 8;
/// How long a flow may take to answer a command. A turn of its loop takes milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

impl Flow {
    /// Starts the flow's tasks on the current runtime.
    #[must_use]
    pub fn start(options: FlowOptions, parts: FlowParts, clock: Clock, telemetry: Telemetry) -> Self {
        let status = Arc::new(Mutex::new(FlowStatus {
            name: Arc::clone(&options.name),
            source: Arc::clone(&options.source_name),
            throttle: options.throttle_name.clone(),
            shadow: options.shadow_name.clone(),
            sink: options.sink_names.join(", ").into(),
            sinks: options.sink_names.iter().cloned().map(SinkStatus::silent).collect(),
            dead_letter: options.dead_letter_name.clone().map(SinkStatus::silent),
            state: FlowState::Running,
            pause: None,
            drain: None,
            joined: false,
            remarks: Vec::new(),
            in_flight: 0,
            in_flight_bytes: 0,
            undecided: 0,
            queued: 0,
            emitted: 0,
            settling: 0,
            active_keys: 0,
            totals: Totals::default(),
        }));
        let (commands, command_receiver) = mpsc::channel(COMMANDS_MAX);
        let (cut_off, is_cut_off) = end::cut_off();
        let (life, lives) = end::life();
        let (name, drain_timeout) = (Arc::clone(&options.name), options.drain_timeout);
        let source = Arc::clone(&parts.source);
        let monitors = parts.sink.monitors();
        let dead_letter_monitors = parts.dead_letter.as_ref().map(|sink| sink.monitors()).unwrap_or_default();
        let (shadows, taps) = (Shadows::default(), Taps::default());
        let mut turner = turn::Turner::new(
            options,
            parts,
            clock,
            telemetry,
            Arc::clone(&status),
            shadows.clone(),
            taps.clone(),
        );
        let (onlookers, leaving) = (taps.clone(), Arc::clone(&source));
        let task = tokio::spawn(async move {
            let in_time = tokio::select! {
                () = turner.run(command_receiver) => true,
                () = is_cut_off.passed() => false,
            };
            if !in_time {
                turner.break_off();
            }
            // Ends what it still has under way.
            drop(turner);
            onlookers.close();
            leaving.close().await;
            life.end(in_time);
        });
        Self {
            name,
            source: SourceRef(source),
            commands,
            status,
            shadows,
            taps,
            cut_off,
            lives,
            monitors,
            dead_letter_monitors,
            drain_timeout,
            task: Mutex::new(Some(task)),
        }
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
        match status.state {
            FlowState::Running => status.remarks.extend(self.source.0.status()),
            _ => status.remarks.extend(status.pause.map(|pause| pause.to_string())),
        }
        if !status.state.is_over() {
            ask(&self.monitors, &mut status.sinks);
            ask(&self.dead_letter_monitors, status.dead_letter.as_mut_slice());
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

    /// Lets somebody look on at what it decides.
    ///
    /// # Errors
    /// When there are too many already.
    pub(crate) fn tap(
        &self,
        options: TapOptions,
        clock: Clock,
        telemetry: Telemetry,
    ) -> Result<Tap, TooManyOnlookers> {
        let source = Arc::clone(&self.status.lock().source);
        let (tap, watcher) = tapping::start(&self.name, &source, options, clock, telemetry);
        self.taps.attach(watcher)?;
        Ok(tap)
    }

    /// Ends all recordings and taps.
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

    /// Stops receiving at once, until it is resumed: what workers hold is finished, everything else goes back to the
    /// broker, for other hosts. Receives under way end by themselves; what they bring goes back as well. True when it was
    /// not paused before.
    ///
    /// # Errors
    /// When it is about to end or over, or does not answer.
    pub async fn pause(&self) -> Result<bool, ControlError> {
        self.set_paused(true).await
    }

    /// Goes on after a pause, whoever paused it, with a fresh window for dead letters. True when it was paused.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub async fn resume(&self) -> Result<bool, ControlError> {
        self.set_paused(false).await
    }

    async fn set_paused(&self, paused: bool) -> Result<bool, ControlError> {
        let (answer, answered) = oneshot::channel();
        let telling = async {
            // Whoever has ended drops the question, and with it the answer.
            let _ = self.commands.send(Command::SetPaused(paused, answer)).await;
            answered.await
        };
        let told = tokio::time::timeout(ANSWER_WITHIN, telling).await;
        if let Ok(Ok(answer)) = told {
            return answer.map_err(ControlError::Ending);
        }
        let state = self.status.lock().state;
        Err(if state.is_live() && told.is_err() { ControlError::Late } else { ControlError::Ending(state) })
    }

    /// Resolves when the flow has failed. One that was drained has done what it was asked for, and is waited for by
    /// whoever asked.
    pub async fn ended(&self) {
        self.lives.over().await;
        if self.status.lock().state != FlowState::Failed {
            std::future::pending::<()>().await;
        }
    }

    /// Stops receiving, finishes what workers hold, releases the rest, takes leave of the broker; after `deadline`
    /// the rest is left to the leases' end. True when all was finished in time. Gone on with when it is not waited for.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.cut_off.set_no_later_than(deadline);
        let telling = self.commands.send(Command::Drain);
        // A flow that has ended needs not be told, and one that takes no commands until then is cut off.
        let _ = tokio::time::timeout(deadline, telling).await;
        let in_time = self.lives.over().await;
        let task = self.task.lock().take();
        if let Some(task) = task {
            // Over, but for its last step.
            let _ = task.await;
        }
        in_time
    }

    /// The same within the time that the host gives a drain, but waits for it no longer than `wait`. True when that
    /// changed something.
    pub(crate) async fn drain_by_operator(&self, wait: Duration) -> bool {
        let was_live = self.status.lock().state.is_live();
        // What is not over then goes on without anybody waiting.
        let _ = tokio::time::timeout(wait, self.drain(self.drain_timeout)).await;
        was_live
    }
}

/// Has sinks say how they are. What the flow itself has found wrong with one stays when it says nothing of it.
fn ask(monitors: &[Arc<dyn SinkMonitor>], sinks: &mut [SinkStatus]) {
    for told in monitors.iter().map(|monitor| monitor.status()) {
        if let Some(sink) = sinks.iter_mut().find(|sink| sink.name == told.name) {
            sink.workers = told.workers;
            sink.trouble = told.trouble.or_else(|| sink.trouble.take());
        }
    }
}
