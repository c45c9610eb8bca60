//! What one worker's stream is still to be told. Filled by its flow's task, which never waits; emptied as the
//! connection takes it. Bounded by what fills it: deliveries by credits, answers by permits, which are free again when
//! the connection has taken the answers.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_model::{Emission, Instant};
use tidegate_proto::handoff as proto;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Deliveries, and bytes of them, in one frame: enough to spare system calls, little enough that settlements and
/// large messages get between, and that a frame stays below what clients take by default.
const FRAME_DELIVERIES_MAX: usize = 128;
const FRAME_BYTES_MAX: usize = 1 << 20;

/// Answers in one frame, for the same reasons.
const FRAME_ANSWERS_MAX: usize = 1000;

/// An answer, and the right to have it wait here.
#[derive(Debug)]
pub(crate) struct Permitted<T> {
    answer: T,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<T> Permitted<T> {
    pub(crate) const fn new(answer: T, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self { answer, _permit: permit }
    }
}

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
    settled: VecDeque<Permitted<proto::SettleResult>>,
    renewed: VecDeque<Permitted<proto::RenewResult>>,
    lost: VecDeque<Arc<Emission>>,
    alive: bool,
    draining: Option<bool>,
    /// Since when something waits to be taken.
    waiting_since: Option<Instant>,
    closed: bool,
    failure: Option<Status>,
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

    pub(crate) fn settled(&self, now: Instant, result: Permitted<proto::SettleResult>) {
        self.put(now, |inner| inner.settled.push_back(result));
    }

    pub(crate) fn renewed(
        &self,
        now: Instant,
        results: impl IntoIterator<Item = Permitted<proto::RenewResult>>,
    ) {
        self.put(now, |inner| inner.renewed.extend(results));
    }

    /// A lease ended. Gives whether its delivery was still here: then the worker never hears of it.
    pub(crate) fn lose(&self, now: Instant, lost: &Arc<Emission>) -> bool {
        let mut was_here = false;
        self.put(now, |inner| match inner.deliveries.iter().position(|emission| emission.id == lost.id) {
            Some(at) => was_here = inner.deliveries.remove(at).is_some(),
            None => inner.lost.push_back(Arc::clone(lost)),
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

    /// The same, with a reason that the worker is told. What it has not taken is not kept for it.
    pub(crate) fn fail(&self, reason: Status) {
        let mut inner = self.inner.lock();
        if !inner.closed {
            *inner = Inner { failure: Some(reason), closed: true, ..Inner::default() };
        }
        drop(inner);
        self.close();
    }

    pub(crate) fn failure(&self) -> Option<Status> {
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
            return Some(Item::Settled(take_answers(&mut self.settled, |result| result.receipt.len())));
        }
        if !self.renewed.is_empty() {
            let size = |result: &proto::RenewResult| result.receipt.len() + result.next_receipt.len();
            return Some(Item::Renewed(take_answers(&mut self.renewed, size)));
        }
        if !self.lost.is_empty() {
            let count = self.lost.len().min(FRAME_ANSWERS_MAX);
            return Some(Item::Lost(self.lost.drain(..count).collect()));
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

/// Answers for one frame, whose permits are free again.
fn take_answers<T>(answers: &mut VecDeque<Permitted<T>>, size: impl Fn(&T) -> usize) -> Vec<T> {
    let mut frame = Vec::with_capacity(answers.len().min(FRAME_ANSWERS_MAX));
    let mut bytes = 0;
    while let Some(next) = answers.front() {
        bytes += size(&next.answer);
        if frame.len() == FRAME_ANSWERS_MAX || (bytes > FRAME_BYTES_MAX && !frame.is_empty()) {
            break;
        }
        frame.extend(answers.pop_front().map(|next| next.answer));
    }
    frame
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    fn answer(receipt: String) -> proto::SettleResult {
        proto::SettleResult { receipt, ..proto::SettleResult::default() }
    }

    #[test]
    fn a_permit_is_free_when_its_answer_is_taken() {
        let (mailbox, permits) = (Mailbox::default(), Arc::new(Semaphore::new(3000)));
        for _ in 0..3000 {
            let permit = Arc::clone(&permits).try_acquire_owned().unwrap();
            mailbox.settled(Instant::ZERO, Permitted::new(answer("tg1.".into()), Some(permit)));
        }
        let mut inner = mailbox.inner.lock();
        for free in [1000, 2000, 3000] {
            assert!(matches!(inner.take(), Some(Item::Settled(results)) if results.len() == 1000));
            assert_eq!(permits.available_permits(), free);
        }
        assert!(inner.take().is_none());
    }

    #[test]
    fn a_frame_is_small_enough_for_everybody() {
        let mailbox = Mailbox::default();
        for _ in 0..10 {
            mailbox.settled(Instant::ZERO, Permitted::new(answer("x".repeat(FRAME_BYTES_MAX / 3)), None));
        }
        let mut inner = mailbox.inner.lock();
        let mut frames = Vec::new();
        while let Some(Item::Settled(results)) = inner.take() {
            frames.push(results.len());
        }
        assert_eq!(frames, [3, 3, 3, 1]);
    }

    #[test]
    fn nothing_is_kept_for_a_worker_whose_stream_was_ended() {
        let (mailbox, permits) = (Mailbox::default(), Arc::new(Semaphore::new(1)));
        let permit = Arc::clone(&permits).try_acquire_owned().ok();
        mailbox.settled(Instant::ZERO, Permitted::new(answer("tg1.".into()), permit));
        mailbox.fail(Status::resource_exhausted("it takes nothing"));
        mailbox.settled(Instant::ZERO, Permitted::new(answer("tg1.".into()), None));
        assert_eq!(permits.available_permits(), 1);
        assert!(mailbox.inner.lock().settled.is_empty());
        mailbox.fail(Status::internal("another reason"));
        assert_eq!(mailbox.failure().map(|status| status.code()), Some(tonic::Code::ResourceExhausted));
    }
}
