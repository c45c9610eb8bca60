//! A member of a share group on a network.
//!
//! [`ShareConsumer`] is a handle; one task behind it owns the member, its connections and its calls. The task makes no
//! decision: those are the [`Member`](crate::member)'s.

mod calls;
mod driver;
mod exchange;
mod ready;
mod said;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_connector::Clock;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use self::driver::Driver;
pub use self::exchange::{Exchange, ExchangeKind};
use crate::member::Member;
use crate::{
    AcknowledgeError, AcknowledgeType, BootstrapServers, Connector, DeliveredBatch, Event, Lease,
    MemberSettings, Trouble,
};

/// Requests of users that wait for the task; it takes them within moments, so more than a few mean that it is busy.
const COMMANDS_MAX: usize = 256;

/// What a consumer is made of.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// The member.
    pub member: MemberSettings,
    /// Brokers to ask first.
    pub bootstrap: BootstrapServers,
    /// How long a broker may take to answer, beyond what it is asked to wait.
    pub request_timeout: Duration,
    /// The most records that may be with the consumer and its user at a time, not acknowledged.
    pub held_records_max: usize,
    /// How long taking leave may take: what is to be acknowledged, and what to be given back.
    pub close_timeout: Duration,
}

impl ConsumerSettings {
    /// With the defaults: 30 s for a broker's answer, 10,000 records held, 10 s to take leave.
    #[must_use]
    pub const fn new(member: MemberSettings, bootstrap: BootstrapServers) -> Self {
        Self {
            member,
            bootstrap,
            request_timeout: Duration::from_secs(30),
            held_records_max: 10_000,
            close_timeout: Duration::from_secs(10),
        }
    }
}

/// Whoever wants to know what happens.
pub trait Observer: Send + Sync + 'static {
    /// Something happened. Called on the consumer's task: it must not wait.
    fn observe(&self, event: &Event);

    /// A broker answered. Called as [`observe`](Self::observe) is.
    fn exchanged(&self, exchange: &Exchange) {
        let _ = exchange;
    }
}

/// A member of a share group. Clones are handles of the same one.
#[derive(Clone)]
pub struct ShareConsumer(Arc<Handle>);

struct Handle {
    commands: mpsc::Sender<Command>,
    status: Arc<Mutex<Status>>,
    receiving: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// How a consumer is doing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Status {
    /// Whether the group has it, or it stays out of it as it was told to, and nothing serious is in the way.
    pub is_joined: bool,
    /// Partitions that are assigned to it.
    pub partitions: usize,
    /// Records that it holds, with its user or on the way to it.
    pub held: usize,
    /// What is in the way, the most important first.
    pub troubles: Vec<Trouble>,
    /// Whether it has ended: closed, or refused for good.
    pub is_over: bool,
}

/// What to say about neighbouring records of one delivered batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Acknowledge {
    /// The first of them.
    pub lease: Lease,
    /// The offset of the last of them.
    pub last: i64,
    /// What to say.
    pub kind: AcknowledgeType,
}

/// The consumer is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the consumer is closed")]
pub struct Closed;

enum Command {
    Receive { records: usize, bytes: usize, reply: oneshot::Sender<Vec<DeliveredBatch>> },
    Acknowledge { acks: Vec<Acknowledge>, reply: oneshot::Sender<Vec<Result<(), AcknowledgeError>>> },
    Close,
}

impl ShareConsumer {
    /// Joins the group and goes on until it is closed. Clusters that are not there are tried for ever.
    #[must_use]
    pub fn start(
        settings: ConsumerSettings,
        connector: Connector,
        clock: Clock,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let status = Arc::new(Mutex::new(Status::default()));
        let member = Member::new(Arc::new(settings.member.clone()));
        let (receiving, is_receiving) = watch::channel(true);
        let driver =
            Driver::new(member, settings, connector, clock, observer, Arc::clone(&status), is_receiving);
        let task = tokio::spawn(driver.run(commands));
        Self(Arc::new(Handle { commands: sender, status, receiving, task: Mutex::new(Some(task)) }))
    }

    /// Waits for records, at most `records` of them and no longer than `wait`; roughly no more than `bytes`. They are
    /// fetched when somebody waits for them, so a lock never runs for nobody, but for what a broker sends beyond what was
    /// asked for to complete a batch: that is handed out at the next call.
    ///
    /// # Errors
    /// When the consumer is closed.
    pub async fn receive(
        &self,
        records: usize,
        bytes: usize,
        wait: Duration,
    ) -> Result<Vec<DeliveredBatch>, Closed> {
        self.receive_until(records, bytes, tokio::time::sleep(wait)).await
    }

    /// The same, until `enough` is over.
    ///
    /// # Errors
    /// When the consumer is closed.
    pub async fn receive_until(
        &self,
        records: usize,
        bytes: usize,
        enough: impl Future<Output = ()>,
    ) -> Result<Vec<DeliveredBatch>, Closed> {
        let (reply, mut answer) = oneshot::channel();
        self.0.commands.send(Command::Receive { records, bytes, reply }).await.map_err(|_| Closed)?;
        tokio::select! {
            biased;
            batches = &mut answer => batches.map_err(|_| Closed),
            () = enough => {
                // The task sees that nobody waits any more, and keeps what comes for the next one. What it gave in this
                // very moment is taken.
                answer.close();
                Ok(answer.try_recv().unwrap_or_default())
            }
        }
    }

    /// Says something about records, in any order and mixture; one result for each, in the same order. It ends with the
    /// brokers' answers, which come within the request timeout, or when the consumer closes.
    pub async fn acknowledge(&self, acks: Vec<Acknowledge>) -> Vec<Result<(), AcknowledgeError>> {
        let count = acks.len();
        let closed = || vec![Err(AcknowledgeError::Closed); count];
        let (reply, answer) = oneshot::channel();
        if self.0.commands.send(Command::Acknowledge { acks, reply }).await.is_err() {
            return closed();
        }
        answer.await.unwrap_or_else(|_| closed())
    }

    /// Whether records are taken in from now on. While none are, the member stays out of its group, which gives its partitions to
    /// others, and gives back what nobody has received. What its user has stays with it, to be settled. Does not wait.
    pub fn set_receiving(&self, receiving: bool) {
        self.0.receiving.send_if_modified(|known| std::mem::replace(known, receiving) != receiving);
    }

    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status.lock().clone()
    }

    /// Acknowledges what is to be acknowledged, gives back what is held, leaves the group. Bounded by the settings.
    pub async fn close(&self) {
        let _ = self.0.commands.send(Command::Close).await;
        let task = self.0.task.lock().take();
        if let Some(task) = task {
            // It ends by its own deadline; it panics only with a bug, which is told where it happened.
            let _ = task.await;
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

impl fmt::Debug for ShareConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShareConsumer").field("status", &self.status()).finish_non_exhaustive()
    }
}
