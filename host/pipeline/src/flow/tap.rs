//! Looking on while a flow decides.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tidegate_policy::{Answer, Question};

/// Onlookers of one flow at one time.
const ONLOOKERS_MAX: usize = 8;

/// Somebody who sees each decision of a flow, on the flow's task: it must neither wait nor take long.
pub(super) trait Onlooker: Send + 'static {
    /// Sees one decision: the question, and the answer that is followed (`deliver` without a policy to follow). False
    /// when it has seen enough.
    fn see(&mut self, question: &Question<'_>, answer: &Answer) -> bool;

    /// Whether it has seen enough already, so that its place is free for another.
    fn is_done(&self) -> bool;
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
    /// `None` once nobody will decide any more.
    onlookers: Mutex<Option<Vec<Box<dyn Onlooker>>>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { any: AtomicBool::new(false), onlookers: Mutex::new(Some(Vec::new())) }
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
        self.0.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Sends all onlookers away, and those that will come.
    pub(super) fn close(&self) {
        *self.0.onlookers.lock() = None;
        self.0.any.store(false, Ordering::Release);
    }

    pub(super) fn has_any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// Shows them a decision.
    pub(super) fn show(&self, question: &Question<'_>, answer: &Answer) {
        if !self.has_any() {
            return;
        }
        let mut open = self.0.onlookers.lock();
        let Some(onlookers) = open.as_mut() else { return };
        onlookers.retain_mut(|onlooker| onlooker.see(question, answer));
        self.0.any.store(!onlookers.is_empty(), Ordering::Release);
    }
}

impl fmt::Debug for Taps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let onlookers = self.0.onlookers.lock().as_ref().map(Vec::len);
        f.debug_struct("Taps").field("onlookers", &onlookers).finish()
    }
}
