//! What one worker's stream is still to be told. Filled by its flow's task, which never waits; emptied as the
//! connection takes it. Bounded by what fills it: deliveries by credits, answers by the batches that a stream may have
//! open.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_model::{Emission, Instant};
use tidegate_proto::handoff as proto;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Deliveries, and bytes of them, in one frame: enough to spare system calls, little enough that settlements and
/// large messages get between, and that a frame stays below what clients take by default.
const FRAME_DELIVERIES_MAX: usize = 128;
const FRAME_BYTES_MAX: usize = 1 << 20;

/// What one worker's stream is still to be told.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    filled: Notify,
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct Inner {
    deliveries: VecDeque<Arc<Emission>>,
    settled: Vec<proto::SettleResult>,
    renewed: Vec<proto::RenewResult>,
    lost: Vec<Arc<Emission>>,
    alive: bool,
    draining: Option<bool>,
    /// Since when something waits to be taken.
    waiting_since: Option<Instant>,
    closed: bool,
    failure: Option<String>,
}

/// The next thing to tell.
#[derive(Debug)]
pub(crate) enum Item {
    Deliveries(Vec<Arc<Emission>>),
    Settled(Vec<proto::SettleResult>),
    Renewed(Vec<proto::RenewResult>),
    Lost(Vec<Arc<Emission>>),
    Draining,
    Alive,
}

impl Mailbox {
    pub(crate) fn deliver(&self, now: Instant, emission: Arc<Emission>) {
        self.put(now, |inner| inner.deliveries.push_back(emission));
    }

    pub(crate) fn settled(&self, now: Instant, results: impl IntoIterator<Item = proto::SettleResult>) {
        self.put(now, |inner| inner.settled.extend(results));
    }

    pub(crate) fn renewed(&self, now: Instant, results: impl IntoIterator<Item = proto::RenewResult>) {
        self.put(now, |inner| inner.renewed.extend(results));
    }

    /// A lease ended. Gives whether its delivery was still here: then the worker never hears of it.
    pub(crate) fn lose(&self, now: Instant, lost: &Arc<Emission>) -> bool {
        let mut was_here = false;
        self.put(now, |inner| match inner.deliveries.iter().position(|emission| emission.id == lost.id) {
            Some(at) => was_here = inner.deliveries.remove(at).is_some(),
            None => inner.lost.push(Arc::clone(lost)),
        });
        was_here
    }

    /// Answers to any number of questions by one.
    pub(crate) fn alive(&self, now: Instant) {
        self.put(now, |inner| inner.alive = true);
    }

    pub(crate) fn drain(&self, now: Instant) {
        self.put(now, |inner| inner.draining = inner.draining.or(Some(true)));
    }

    /// Nothing more is taken in or given out.
    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.filled.notify_one();
        self.ended.cancel();
    }

    /// The same, with a reason that the worker is told.
    pub(crate) fn fail(&self, reason: String) {
        self.inner.lock().failure.get_or_insert(reason);
        self.close();
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.inner.lock().failure.clone()
    }

    /// Resolves when it is closed.
    pub(crate) async fn closed(&self) {
        self.ended.cancelled().await;
    }

    /// Since when something waits that the connection does not take.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.inner.lock().waiting_since
    }

    /// Waits for the next thing to tell; `None` when closed.
    pub(crate) async fn next(&self, now: impl Fn() -> Instant) -> Option<Item> {
        loop {
            let filled = self.filled.notified();
            {
                let mut inner = self.inner.lock();
                if inner.closed {
                    return None;
                }
                let item = inner.take();
                inner.waiting_since = inner.is_filled().then(&now);
                if item.is_some() {
                    return item;
                }
            }
            filled.await;
        }
    }

    /// What there is by now of deliveries.
    pub(crate) fn take_deliveries(&self) -> Vec<Arc<Emission>> {
        self.inner.lock().deliveries.drain(..).collect()
    }

    fn put(&self, now: Instant, put: impl FnOnce(&mut Inner)) {
        let mut inner = self.inner.lock();
        if inner.closed {
            return;
        }
        put(&mut inner);
        inner.waiting_since.get_or_insert(now);
        drop(inner);
        self.filled.notify_one();
    }
}

impl Inner {
    /// Answers go first: they are small, and workers wait for them.
    fn take(&mut self) -> Option<Item> {
        if !self.settled.is_empty() {
            return Some(Item::Settled(std::mem::take(&mut self.settled)));
        }
        if !self.renewed.is_empty() {
            return Some(Item::Renewed(std::mem::take(&mut self.renewed)));
        }
        if !self.lost.is_empty() {
            return Some(Item::Lost(std::mem::take(&mut self.lost)));
        }
        if std::mem::take(&mut self.alive) {
            return Some(Item::Alive);
        }
        if !self.deliveries.is_empty() {
            return Some(Item::Deliveries(self.take_frame()));
        }
        if self.draining == Some(true) {
            self.draining = Some(false);
            return Some(Item::Draining);
        }
        None
    }

    fn take_frame(&mut self) -> Vec<Arc<Emission>> {
        let mut frame = Vec::with_capacity(self.deliveries.len().min(FRAME_DELIVERIES_MAX));
        let mut bytes = 0;
        while let Some(next) = self.deliveries.front() {
            bytes += next.message.size_bytes();
            if frame.len() == FRAME_DELIVERIES_MAX || (bytes > FRAME_BYTES_MAX && !frame.is_empty()) {
                break;
            }
            frame.extend(self.deliveries.pop_front());
        }
        frame
    }

    fn is_filled(&self) -> bool {
        !self.settled.is_empty()
            || !self.renewed.is_empty()
            || !self.lost.is_empty()
            || self.alive
            || !self.deliveries.is_empty()
            || self.draining == Some(true)
    }
}
