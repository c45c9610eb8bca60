//! From the flow's task to somebody who takes in what it shows in his own time: a queue that is bounded in items and in
//! bytes, and that the flow never waits for.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_connector::Clock;
use tidegate_model::{Instant, Message, Standing, Timestamp};
use tidegate_policy::{Answer, EndCause, Question};
use tokio::sync::mpsc;

/// What a decision takes beside its message, roughly.
pub(super) const AROUND_BYTES: usize = 512;

/// How much may go through, and wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The longest that it takes.
    pub(super) length: Duration,
    /// The most decisions.
    pub(super) count_max: u64,
    /// Items that wait to be taken in. Beyond them, and beyond the bytes, they are missed.
    pub(super) waiting_max: usize,
    /// Bytes of the messages that wait.
    pub(super) waiting_bytes_max: usize,
}

/// The end that looks on.
#[derive(Debug)]
pub(super) struct Feed<T> {
    sender: mpsc::Sender<T>,
    backlog: Arc<Backlog>,
    bytes_max: usize,
    until: Instant,
    left: u64,
}

/// The end that takes in.
#[derive(Debug)]
pub(super) struct Intake<T> {
    receiver: mpsc::Receiver<T>,
    backlog: Arc<Backlog>,
    clock: Clock,
    until: Instant,
    count_max: u64,
    taken: u64,
}

/// What both ends count.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    missed: AtomicU64,
}

/// Which keys are in it.
#[derive(Debug)]
pub(super) struct Sample {
    hasher: RandomState,
    /// Keys with a hash below; all of them without.
    below: Option<u64>,
}

/// A decision, to be written down later: nothing of it is copied but references.
#[derive(Debug)]
pub(super) struct Seen {
    message: Arc<Message>,
    key: Arc<str>,
    attempt: u32,
    age: Duration,
    waited: Duration,
    deferred: Duration,
    standing: Standing,
    wall: Timestamp,
    now: Instant,
    seed: u64,
    pub(super) answer: Answer,
}

/// Both ends of a new one.
pub(super) fn feed<T>(bounds: Bounds, clock: Clock) -> (Feed<T>, Intake<T>) {
    let Bounds { length, count_max, waiting_max, waiting_bytes_max } = bounds;
    let (sender, receiver) = mpsc::channel(waiting_max);
    let backlog = Arc::new(Backlog::default());
    let until = clock.now() + length;
    let feed =
        Feed { sender, backlog: Arc::clone(&backlog), bytes_max: waiting_bytes_max, until, left: count_max };
    (feed, Intake { receiver, backlog, clock, until, count_max, taken: 0 })
}

impl<T> Feed<T> {
    /// Whether its time is over.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// Whether nothing more will be taken in.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0 || self.sender.is_closed()
    }

    /// Hands over a decision. False when there is no room, and then it is counted as missed.
    pub(super) fn offer_decision(&mut self, bytes: usize, make: impl FnOnce() -> T) -> bool {
        let offered = self.offer(bytes, make);
        if offered {
            self.left = self.left.saturating_sub(1);
        } else if !self.sender.is_closed() {
            self.miss();
        }
        offered
    }

    /// Hands over something else, if there is room.
    pub(super) fn offer(&self, bytes: usize, make: impl FnOnce() -> T) -> bool {
        let Ok(permit) = self.sender.try_reserve() else { return false };
        if self.backlog.bytes.load(Ordering::Relaxed) + bytes > self.bytes_max {
            return false;
        }
        self.backlog.bytes.fetch_add(bytes, Ordering::Relaxed);
        permit.send(make());
        true
    }

    /// Counts a decision that should be in it and is not.
    pub(super) fn miss(&self) {
        self.backlog.missed.fetch_add(1, Ordering::Relaxed);
    }
}

impl<T> Intake<T> {
    /// What was handed over next, or why nothing more will be; `None` when there is nothing now and `wait` is false.
    pub(super) async fn next(&mut self, wait: bool) -> Option<Result<T, EndCause>> {
        if self.taken >= self.count_max {
            return Some(Err(EndCause::Count));
        }
        match self.receiver.try_recv() {
            Ok(item) => Some(Ok(item)),
            Err(_) if wait => Some(self.wait().await),
            Err(_) => None,
        }
    }

    async fn wait(&mut self) -> Result<T, EndCause> {
        let until = self.clock.deadline(self.until);
        match tokio::time::timeout_at(until, self.receiver.recv()).await {
            Ok(Some(item)) => Ok(item),
            // Nobody looks on any more.
            Ok(None) if self.clock.now() >= self.until => Err(EndCause::Time),
            Ok(None) => Err(EndCause::Flow),
            Err(_elapsed) => Err(EndCause::Time),
        }
    }

    /// Makes room again for what is done with.
    pub(super) fn free(&self, bytes: usize) {
        self.backlog.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a decision as taken in.
    pub(super) const fn note_taken(&mut self) {
        self.taken += 1;
    }

    /// Decisions taken in.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Decisions that should be in it and are not.
    pub(super) fn missed(&self) -> u64 {
        self.backlog.missed.load(Ordering::Relaxed)
    }

    /// Takes in nothing more.
    pub(super) fn close(&mut self) {
        self.receiver.close();
    }
}

impl Sample {
    /// Of so much of all keys, 0 to 1.
    pub(super) fn new(part: f64) -> Self {
        // A float beyond the range of the integer becomes its end.
        let below = (part < 1.0).then_some((part * u64::MAX as f64) as u64);
        Self { hasher: RandomState::new(), below }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.below.is_none_or(|below| self.hasher.hash_one(key) < below)
    }
}

/// What it takes to keep a message until it is written down.
pub(super) fn bytes_of(message: &Message) -> usize {
    AROUND_BYTES + message.size_bytes()
}

impl Seen {
    pub(super) fn of(question: &Question<'_>, answer: &Answer) -> Self {
        Self {
            message: Arc::clone(question.message),
            key: Arc::clone(question.key),
            attempt: question.attempt,
            age: question.age,
            waited: question.waited,
            deferred: question.deferred,
            standing: question.standing,
            wall: question.wall,
            now: question.now,
            seed: question.seed,
            answer: answer.clone(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        bytes_of(&self.message)
    }

    pub(super) fn question<'a>(&'a self, source: &'a str) -> Question<'a> {
        Question {
            source,
            message: &self.message,
            key: &self.key,
            attempt: self.attempt,
            age: self.age,
            waited: self.waited,
            deferred: self.deferred,
            standing: self.standing,
            wall: self.wall,
            now: self.now,
            seed: self.seed,
        }
    }
}
