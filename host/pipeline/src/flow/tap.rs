//! Looking on while a flow decides.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tidegate_policy::{Answer, Outcome, Question};
use tidegate_telemetry::events::flow::Origin;

/// Onlookers of one flow at one time.
const ONLOOKERS_MAX: usize = 8;

/// Somebody who sees each decision of a flow, on the flow's task: it must neither wait nor take long.
pub(super) trait Onlooker: Send + 'static {
    /// Sees one decision: the question, the answer that is followed (`deliver` without a policy to follow), and whose it
    /// is. False when it has seen enough.
    fn see(&mut self, question: &Question<'_>, answer: &Answer, origin: Origin) -> bool;

    /// Whether it has seen enough already, so that its place is free for another.
    fn is_done(&self) -> bool;

    /// Whether it wants to see how deliveries end as well.
    fn wants_endings(&self) -> bool {
        false
    }

    /// Sees how deliveries ended, those included that it has never seen.
    fn see_endings(&mut self, _endings: &[Outcome]) {}
}

/// There are too many onlookers already.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{ONLOOKERS_MAX} others look on at this flow already")]
pub struct TooManyOnlookers;

/// The onlookers of one flow.
#[derive(Clone, Default)]
pub(super) struct Taps(Arc<Shared>);

struct Shared {
    /// Whether there is anybody, so that a flow that nobody looks at takes no lock.
    any: AtomicBool,
    /// Whether any of them wants to see endings.
    endings: AtomicBool,
    /// `None` once nobody will decide any more.
    onlookers: Mutex<Option<Vec<Box<dyn Onlooker>>>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            any: AtomicBool::new(false),
            endings: AtomicBool::new(false),
            onlookers: Mutex::new(Some(Vec::new())),
        }
    }
}

impl Taps {
    /// Lets one more look on until it has seen enough.
    pub(super) fn attach(&self, onlooker: Box<dyn Onlooker>) -> Result<(), TooManyOnlookers> {
        let mut open = self.0.onlookers.lock();
        // At a flow that has ended there is nothing to see: it goes at once.
        let Some(onlookers) = open.as_mut() else { return Ok(()) };
        onlookers.retain(|onlooker| !onlooker.is_done());
        if onlookers.len() >= ONLOOKERS_MAX {
            return Err(TooManyOnlookers);
        }
        onlookers.push(onlooker);
        self.0.note(onlookers);
        Ok(())
    }

    /// Sends all onlookers away, and those that will come.
    pub(super) fn close(&self) {
        *self.0.onlookers.lock() = None;
        self.0.note(&[]);
    }

    pub(super) fn has_any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// Whether anybody wants to see how deliveries end.
    pub(super) fn want_endings(&self) -> bool {
        self.0.endings.load(Ordering::Acquire)
    }

    /// Shows them a decision.
    pub(super) fn show(&self, question: &Question<'_>, answer: &Answer, origin: Origin) {
        if !self.has_any() {
            return;
        }
        let mut open = self.0.onlookers.lock();
        let Some(onlookers) = open.as_mut() else { return };
        let before = onlookers.len();
        onlookers.retain_mut(|onlooker| onlooker.see(question, answer, origin));
        if onlookers.len() < before {
            self.0.note(onlookers);
        }
    }

    /// Shows those that want it how deliveries ended.
    pub(super) fn show_endings(&self, endings: &[Outcome]) {
        if !self.want_endings() {
            return;
        }
        let mut open = self.0.onlookers.lock();
        let Some(onlookers) = open.as_mut() else { return };
        let before = onlookers.len();
        onlookers.retain(|onlooker| !onlooker.is_done());
        if onlookers.len() < before {
            self.0.note(onlookers);
        }
        for onlooker in onlookers.iter_mut().filter(|onlooker| onlooker.wants_endings()) {
            onlooker.see_endings(endings);
        }
    }
}

impl Shared {
    /// Notes who is there.
    fn note(&self, onlookers: &[Box<dyn Onlooker>]) {
        self.any.store(!onlookers.is_empty(), Ordering::Release);
        let endings = onlookers.iter().any(|onlooker| onlooker.wants_endings());
        self.endings.store(endings, Ordering::Release);
    }
}

impl fmt::Debug for Taps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let onlookers = self.0.onlookers.lock().as_ref().map(Vec::len);
        f.debug_struct("Taps").field("onlookers", &onlookers).finish()
    }
}
