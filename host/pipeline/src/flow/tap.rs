//! Looking on while a flow decides, for recordings.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tidegate_policy::{Answer, Question};

/// Onlookers of one flow at one time.
const ONLOOKERS_MAX: usize = 8;

/// Somebody who sees each decision of a flow, on the flow's task: it must neither wait nor take long.
pub trait Onlooker: Send + 'static {
    /// Sees one decision: the question, and what its throttle policy answered (`deliver` without one). False when it
    /// has seen enough.
    fn see(&mut self, question: &Question<'_>, answer: &Answer) -> bool;
}

/// There are too many onlookers already.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{ONLOOKERS_MAX} others look on at this flow already")]
pub struct TooManyOnlookers;

/// The onlookers of one flow.
#[derive(Clone, Default)]
pub(super) struct Taps(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Whether there is anybody, so that a flow that nobody looks at takes no lock.
    any: AtomicBool,
    onlookers: Mutex<Vec<Box<dyn Onlooker>>>,
}

impl Taps {
    /// Lets one more look on until it has seen enough.
    pub(super) fn attach(&self, onlooker: Box<dyn Onlooker>) -> Result<(), TooManyOnlookers> {
        let mut onlookers = self.0.onlookers.lock();
        if onlookers.len() >= ONLOOKERS_MAX {
            return Err(TooManyOnlookers);
        }
        onlookers.push(onlooker);
        self.0.any.store(true, Ordering::Release);
        Ok(())
    }

    pub(super) fn has_any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// Shows them a decision.
    pub(super) fn show(&self, question: &Question<'_>, answer: &Answer) {
        if !self.has_any() {
            return;
        }
        let mut onlookers = self.0.onlookers.lock();
        onlookers.retain_mut(|onlooker| onlooker.see(question, answer));
        self.0.any.store(!onlookers.is_empty(), Ordering::Release);
    }
}

impl fmt::Debug for Taps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taps").field("onlookers", &self.0.onlookers.lock().len()).finish()
    }
}
