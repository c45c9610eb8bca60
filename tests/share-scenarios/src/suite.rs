//! Runs every scenario on one kind of cluster, under the ordinary test runner's command line.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::play::Play;
use crate::scenario::{ALL, Scenario};
use crate::stands::Stands;

/// Longest that one may take.
const LIMIT: Duration = Duration::from_secs(180);
/// The longest wait for a cluster: it is started, or others have it to themselves, one after the other.
const STAND_WITHIN: Duration = Duration::from_secs(900);

/// Plays all scenarios on what `stands` hands out, and stops the clusters before it returns.
pub fn run(stands: impl Stands) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(stands.side_by_side());
    keep_panics_of_scenarios();
    let runtime = Arc::new(Runtime::new().expect("a runtime"));
    let stands = Arc::new(stands);
    let side = stands.side();
    let mine = ALL.iter().filter(|scenario| scenario.only.is_none_or(|only| only == side));
    let trials = mine.map(|scenario| trial(*scenario, &runtime, &stands)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(stands);
    conclusion.exit_code()
}

fn trial(scenario: Scenario, runtime: &Arc<Runtime>, stands: &Arc<impl Stands>) -> Trial {
    let (runtime, stands) = (Arc::clone(runtime), Arc::clone(stands));
    Trial::test(scenario.name, move || {
        PANIC.set(Some(String::new()));
        let play = async {
            let Ok(stage) = timeout(STAND_WITHIN, stands.take(scenario.stand)).await else {
                return Err(format!("had no cluster within {} s", STAND_WITHIN.as_secs()));
            };
            let playing = (scenario.play)(Play::new(stage, scenario.name));
            timeout(LIMIT, playing).await.map_err(|_| format!("did not end within {} s", LIMIT.as_secs()))
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
