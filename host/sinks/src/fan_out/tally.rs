//! Who has reported what: the logic of a fan-out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{DeliveryId, Outcome, Report};

/// The emissions that not all sinks have reported. The credits of the whole bound it.
#[derive(Debug)]
pub(super) struct Tally {
    sinks: Vec<Arc<str>>,
    open: HashMap<DeliveryId, Entry>,
}

#[derive(Debug)]
struct Entry {
    reported: Box<[bool]>,
    missing: usize,
    cost: Option<f64>,
    /// By sink.
    rejections: Vec<(usize, Box<str>)>,
    delay: Option<Duration>,
    is_released: bool,
    is_elsewhere: bool,
}

impl Tally {
    pub(super) fn new(sinks: Vec<Arc<str>>) -> Self {
        Self { sinks, open: HashMap::new() }
    }

    /// An emission goes to all sinks. Without sinks, that is all there is to it.
    pub(super) fn handle_emission(&mut self, id: DeliveryId) -> Option<Report> {
        if self.sinks.is_empty() {
            return Some(Report { id, outcome: Outcome::Accepted, cost: None });
        }
        self.open.insert(
            id,
            Entry {
                reported: vec![false; self.sinks.len()].into(),
                missing: self.sinks.len(),
                cost: None,
                rejections: Vec::new(),
                delay: None,
                is_released: false,
                is_elsewhere: false,
            },
        );
        None
    }

    /// A sink reports; the report of the whole once it was the last. A second report of the same sink and one of something
    /// unknown have no effect.
    pub(super) fn handle_report(&mut self, of: usize, report: Report) -> Option<Report> {
        let Report { id, outcome, cost } = report;
        let entry = self.open.get_mut(&id)?;
        let reported = entry.reported.get_mut(of)?;
        if std::mem::replace(reported, true) {
            return None;
        }
        entry.missing -= 1;
        // `max` of the standard library passes over what is no number.
        entry.cost = entry.cost.into_iter().chain(cost).reduce(f64::max);
        match outcome {
            Outcome::Accepted => {}
            Outcome::Deferred { delay } => entry.delay = entry.delay.max(Some(delay)),
            Outcome::Released => entry.is_released = true,
            Outcome::Elsewhere => entry.is_elsewhere = true,
            Outcome::Rejected { reason } => entry.rejections.push((of, reason)),
        }
        if entry.missing > 0 {
            return None;
        }
        let entry = self.open.remove(&id)?;
        let cost = entry.cost;
        Some(Report { id, outcome: entry.outcome(&self.sinks), cost })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Entry {
    fn outcome(mut self, sinks: &[Arc<str>]) -> Outcome {
        if !self.rejections.is_empty() {
            self.rejections.sort_by_key(|(of, _)| *of);
            let reasons = self.rejections.iter().map(|(of, reason)| format!("`{}`: {reason}", sinks[*of]));
            return Outcome::Rejected { reason: reasons.collect::<Vec<_>>().join("; ").into() };
        }
        match self.delay {
            Some(delay) => Outcome::Deferred { delay },
            None if self.is_released => Outcome::Released,
            None if self.is_elsewhere => Outcome::Elsewhere,
            None => Outcome::Accepted,
        }
    }
}
