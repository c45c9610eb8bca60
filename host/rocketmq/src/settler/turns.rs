//! Turns of lite topics: what is said about one goes to the broker in the order in which it came in.
//!
//! A broker does not keep an acknowledgement while an earlier message of the lite topic is open (measured). Those who settle
//! do so from many places at once; without turns a request that came in second could reach the broker first, and what it
//! acknowledged would come again although everybody was told that it is done.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_model::Settlement;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A lite topic as a group consumes it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Lane {
    group: Arc<str>,
    topic: Arc<str>,
    lite_topic: Arc<str>,
}

/// The lite topics that are being settled, each with the end of the batch that queued last. As many as the batches under way
/// have.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    tails: Mutex<HashMap<Lane, CancellationToken>>,
}

/// The places of one batch. Those behind it go on when it is dropped.
#[derive(Debug)]
pub(crate) struct Turns {
    lanes: Arc<Lanes>,
    places: Mutex<HashMap<Lane, Place>>,
}

#[derive(Debug)]
struct Place {
    /// The end of the batch before it, if there is one.
    before: Option<CancellationToken>,
    /// Settlements of the lite topic that are not settled.
    open: usize,
    /// Dropped, it lets the batch behind go on.
    _end: DropGuard,
}

impl Lanes {
    /// Queues a batch for all of its lite topics at once, so that no two batches wait for each other.
    pub(crate) fn enter(self: &Arc<Self>, batch: &[Settlement]) -> Turns {
        let mut places: HashMap<Lane, Place> = HashMap::new();
        let mut tails = self.tails.lock();
        for lane in batch.iter().filter_map(Lane::of) {
            if let Some(place) = places.get_mut(&lane) {
                place.open += 1;
                continue;
            }
            let end = CancellationToken::new();
            let before = tails.insert(lane.clone(), end.clone());
            places.insert(lane, Place { before, open: 1, _end: end.drop_guard() });
        }
        drop(tails);
        Turns { lanes: Arc::clone(self), places: Mutex::new(places) }
    }

    /// Forgets lite topics for which nobody has queued since.
    fn forget(&self, ended: &[Lane]) {
        let mut tails = self.tails.lock();
        for lane in ended {
            if tails.get(lane).is_some_and(CancellationToken::is_cancelled) {
                tails.remove(lane);
            }
        }
    }
}

impl Turns {
    /// Waits until everything that came in before is settled of the lite topics of a call. That ends: each of those has a
    /// deadline, and whoever gives up lets go of its places.
    pub(super) async fn wait(&self, batch: &[Settlement], call: &[usize]) {
        for lane in call.iter().filter_map(|at| Lane::of(&batch[*at])) {
            let before = self.places.lock().get(&lane).and_then(|place| place.before.clone());
            if let Some(before) = before {
                before.cancelled().await;
            }
        }
    }

    /// Members of the batch have their results.
    pub(super) fn end(&self, batch: &[Settlement], done: impl Iterator<Item = usize>) {
        let mut ended = Vec::new();
        let mut places = self.places.lock();
        for lane in done.filter_map(|at| Lane::of(&batch[at])) {
            let Some(place) = places.get_mut(&lane) else { continue };
            place.open -= 1;
            if place.open == 0 {
                places.remove(&lane);
                ended.push(lane);
            }
        }
        drop(places);
        self.lanes.forget(&ended);
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let ended: Vec<Lane> = self.places.get_mut().drain().map(|(lane, _)| lane).collect();
        self.lanes.forget(&ended);
    }
}

impl Lane {
    /// What has no order needs no turn.
    fn of(settlement: &Settlement) -> Option<Self> {
        let lite_topic = settlement.message.lite_topic.clone()?;
        let (group, topic) = (&settlement.handle.routing.group, &settlement.message.topic);
        Some(Self { group: Arc::clone(group), topic: Arc::clone(topic), lite_topic })
    }
}
