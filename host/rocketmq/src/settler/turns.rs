//! Turns of lite topics: what is said about one goes to the broker in the order in which it came in.
//!
//! A broker does not keep an acknowledgement while an earlier message of the lite topic is open (measured). Those who settle
//! do so from many places at once; without turns a request that came in second could reach the broker first, and what it
//! acknowledged would come again although everybody was told that it is done.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_model::Settlement;
use tokio::sync::oneshot;

/// A lite topic as a group consumes it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Lane {
    group: Arc<str>,
    topic: Arc<str>,
    lite_topic: Arc<str>,
}

/// The lite topics that are being settled, each with the end of its queue. As many as the batches under way have.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    tails: Mutex<Tails>,
}

#[derive(Debug, Default)]
struct Tails {
    by_lane: HashMap<Lane, Tail>,
    entered: u64,
}

/// The last batch that queued.
#[derive(Debug)]
struct Tail {
    number: u64,
    /// Ends when that batch has settled all that it has of the lite topic.
    end: oneshot::Receiver<()>,
}

/// The places of one batch. Those behind it go on when it is dropped.
#[derive(Debug)]
pub(crate) struct Turns {
    lanes: Arc<Lanes>,
    number: u64,
    places: Mutex<HashMap<Lane, Place>>,
}

#[derive(Debug)]
struct Place {
    /// The batch before it; none when there is none, or while one of its calls waits for it.
    before: Arc<tokio::sync::Mutex<Option<oneshot::Receiver<()>>>>,
    /// Settlements of the lite topic that are not settled.
    open: usize,
    /// Dropped at the end, which the batch behind it sees.
    _end: oneshot::Sender<()>,
}

impl Lanes {
    /// Queues a batch for all of its lite topics at once, so that no two batches wait for each other.
    pub(crate) fn enter(self: &Arc<Self>, batch: &[Settlement]) -> Turns {
        let mut places: HashMap<Lane, Place> = HashMap::new();
        let mut tails = self.tails.lock();
        tails.entered += 1;
        let number = tails.entered;
        for lane in batch.iter().filter_map(Lane::of) {
            if let Some(place) = places.get_mut(&lane) {
                place.open += 1;
                continue;
            }
            let (sender, end) = oneshot::channel();
            let before = tails.by_lane.insert(lane.clone(), Tail { number, end }).map(|tail| tail.end);
            let before = Arc::new(tokio::sync::Mutex::new(before));
            places.insert(lane, Place { before, open: 1, _end: sender });
        }
        drop(tails);
        Turns { lanes: Arc::clone(self), number, places: Mutex::new(places) }
    }

    fn leave(&self, number: u64, lanes: impl Iterator<Item = Lane>) {
        let tails = &mut self.tails.lock().by_lane;
        for lane in lanes {
            if tails.get(&lane).is_some_and(|tail| tail.number == number) {
                tails.remove(&lane);
            }
        }
    }
}

impl Turns {
    /// Waits until everything that came in before is settled of the lite topics of a call. That ends: each of those has a
    /// deadline, and whoever gives up lets go of its places.
    pub(super) async fn wait(&self, batch: &[Settlement], call: &[usize]) {
        for lane in call.iter().filter_map(|at| Lane::of(&batch[*at])) {
            let before = self.places.lock().get(&lane).map(|place| Arc::clone(&place.before));
            let Some(before) = before else { continue };
            let mut before = before.lock().await;
            if let Some(end) = before.as_mut() {
                // It ends by being dropped, which is an error to the channel.
                let _ = end.await;
                *before = None;
            }
        }
    }

    /// Members of the batch have their results.
    pub(super) fn end(&self, batch: &[Settlement], done: impl Iterator<Item = usize>) {
        let mut over = Vec::new();
        {
            let mut places = self.places.lock();
            for lane in done.filter_map(|at| Lane::of(&batch[at])) {
                let Some(place) = places.get_mut(&lane) else { continue };
                place.open -= 1;
                if place.open == 0 {
                    over.extend(places.remove_entry(&lane));
                }
            }
        }
        // The queue forgets them before those behind them go on.
        self.lanes.leave(self.number, over.iter().map(|(lane, _)| lane.clone()));
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.lanes.leave(self.number, self.places.get_mut().keys().cloned());
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
