//! Plays lists of scenarios under the ordinary test runner's command line.
//!
//! What a scenario is and what it plays on is its suite's; here it has a name, waits for its stage, plays within a time,
//! and keeps its panic for the report.
//!
//! This crate is test code: it panics where a test would.
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "without a runtime nothing can be played")]

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// One scenario, with whoever hands out its stage.
pub trait Part: Send + 'static {
    /// What it plays on.
    type Stage;

    /// As the command line selects it.
    fn name(&self) -> String;

    /// Waits for its stage.
    fn take(&self) -> impl Future<Output = Self::Stage>;

    /// Plays, and panics when it fails.
    fn play(&self, stage: Self::Stage) -> impl Future<Output = ()>;
}

/// How long things may take, and how many at a time.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Scenarios at the same time when the command line does not say: they wait far more than they work.
    pub side_by_side: usize,
    /// Longest that one may play.
    pub playing: Duration,
    /// The longest wait for a stage: it is started, or others have it to themselves, one after the other.
    pub taking: Duration,
}

/// Plays all, and ends what they played on before it returns.
pub fn run<P: Part, S>(timing: Timing, stands: Arc<S>, parts: Vec<P>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(timing.side_by_side);
    keep_panics_of_scenarios();
    let runtime = Arc::new(Runtime::new().expect("a runtime"));
    let trials = parts.into_iter().map(|part| trial(part, timing, Arc::clone(&runtime))).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(stands);
    conclusion.exit_code()
}

fn trial<P: Part>(part: P, timing: Timing, runtime: Arc<Runtime>) -> Trial {
    Trial::test(part.name(), move || {
        PANIC.set(Some(String::new()));
        let play = async {
            let Ok(stage) = timeout(timing.taking, part.take()).await else {
                return Err(format!("had nothing to play on within {} s", timing.taking.as_secs()));
            };
            let playing = timeout(timing.playing, part.play(stage)).await;
            playing.map_err(|_| format!("did not end within {} s", timing.playing.as_secs()))
        };
        let ended = panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(play)));
        let panicked = PANIC.take().unwrap_or_default();
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(problem)) => Err(Failed::from(problem)),
            Err(_) => Err(Failed::from(panicked)),
        }
    })
}

thread_local! {
    /// What the scenario on this thread said in its panic; `None` on threads that play none.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// With many scenarios side by side, panics on the terminal would stand among other scenarios' lines: they are kept
/// for the report at the end. Those of other threads are shown at once.
fn keep_panics_of_scenarios() {
    let show = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let ours = PANIC.with_borrow_mut(|kept| kept.as_mut().map(|text| *text = info.to_string()));
        if ours.is_none() {
            show(info);
        }
    }));
}
