//! The members of a source, what they share, and the task that tells brokers what nobody waits for: renewals and releases of
//! what is kept, and rejections of what came too often.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::join_all;
use parking_lot::Mutex;
use tidegate_connector::Clock;
use tidegate_model::{Instant, Routing};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::kafka as events;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::handle::Key;
use super::keeper::{Action, Ended, Keeper};
use super::observer::MemberObserver;
use super::options::SourceOptions;
use super::{ConnectError, NAMESPACE};
use crate::{
    Acknowledge, AcknowledgeError, AcknowledgeType, Connector, ConsumerSettings, MemberSettings,
    ShareConsumer,
};

/// How long taking leave may take at most.
const CLOSE_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// The members of a source.
pub(super) struct Members {
    pub(super) name: Arc<str>,
    pub(super) options: SourceOptions,
    pub(super) clock: Clock,
    pub(super) telemetry: Telemetry,
    /// Tells handles of this life from others.
    pub(super) life: u64,
    pub(super) routing: Arc<Routing>,
    members: Vec<Member>,
    next: AtomicUsize,
    keeper: Mutex<Keeper>,
    /// Something in the keeper, or something to be rejected, is new.
    changed: Notify,
    /// Something is due.
    pub(super) due: Notify,
    rejects: Mutex<Vec<(usize, Acknowledge)>>,
    pub(super) closing: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Member {
    consumer: ShareConsumer,
    /// Receives that wait for its records.
    waiting: AtomicUsize,
}

/// A member while somebody waits for its records.
pub(super) struct Chosen<'a> {
    pub(super) at: usize,
    pub(super) consumer: &'a ShareConsumer,
    waiting: &'a AtomicUsize,
}

impl Drop for Chosen<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Members {
    pub(super) fn start(
        options: SourceOptions,
        clock: Clock,
        telemetry: Telemetry,
        name: Arc<str>,
    ) -> Result<Arc<Self>, ConnectError> {
        let connector = Connector::new(options.client.clone())
            .map_err(|source| ConnectError::Tls { name: Arc::clone(&name), source })?;
        let life = u64::from_be_bytes(random()?);
        let ids: Vec<[u8; 16]> = (0..options.parallelism).map(|_| random()).collect::<Result<_, _>>()?;
        let start = |(at, id): (usize, &[u8; 16])| Member {
            consumer: ShareConsumer::start(
                settings(&options, URL_SAFE_NO_PAD.encode(id).into(), life.wrapping_add(at as u64)),
                connector.clone(),
                clock,
                Arc::new(MemberObserver::new(Arc::clone(&name), at, telemetry.clone())),
            ),
            waiting: AtomicUsize::new(0),
        };
        telemetry.emit(events::MembersStarted {
            name: Arc::clone(&name),
            group: Arc::clone(&options.group),
            members: options.parallelism,
        });
        let members = ids.iter().enumerate().map(start).collect();
        let routing = Arc::new(Routing {
            endpoint: Arc::clone(&options.bootstrap_text),
            namespace: NAMESPACE.into(),
            group: Arc::clone(&options.group),
        });
        let keeper = Mutex::new(Keeper::new(options.hold));
        let members = Arc::new(Self {
            name,
            options,
            clock,
            telemetry,
            life,
            routing,
            members,
            next: AtomicUsize::new(0),
            keeper,
            changed: Notify::new(),
            due: Notify::new(),
            rejects: Mutex::default(),
            closing: CancellationToken::new(),
            task: Mutex::new(None),
        });
        let task = tokio::spawn(Arc::clone(&members).run());
        *members.task.lock() = Some(task);
        Ok(members)
    }

    pub(super) fn consumers(&self) -> impl Iterator<Item = &ShareConsumer> {
        self.members.iter().map(|member| &member.consumer)
    }

    pub(super) fn consumer(&self, member: usize) -> Option<&ShareConsumer> {
        self.members.get(member).map(|member| &member.consumer)
    }

    /// A member to wait for: one that nobody waits for, as long as there is one, and the next in turn among equals. `None`
    /// when all have ended.
    pub(super) fn choose(&self) -> Option<Chosen<'_>> {
        let count = self.members.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..count).map(|step| first.wrapping_add(step) % count);
        let at = in_turn
            .filter(|at| !self.members[*at].consumer.status().is_over)
            .min_by_key(|at| self.members[*at].waiting.load(Ordering::Relaxed))?;
        let Member { consumer, waiting } = &self.members[at];
        waiting.fetch_add(1, Ordering::Relaxed);
        Some(Chosen { at, consumer, waiting })
    }

    /// Does something with the keeper, and lets the task look at what came of it.
    pub(super) fn with_keeper<T>(&self, act: impl FnOnce(&mut Keeper) -> T) -> T {
        let result = act(&mut self.keeper.lock());
        self.changed.notify_one();
        result
    }

    /// Looks at the keeper.
    pub(super) fn keeper<T>(&self, look: impl FnOnce(&mut Keeper) -> T) -> T {
        look(&mut self.keeper.lock())
    }

    /// Whether records are taken in. While none are, members stay out of the group, and what is deferred goes back to it.
    pub(super) fn set_receiving(&self, receiving: bool) {
        for consumer in self.consumers() {
            consumer.set_receiving(receiving);
        }
        self.with_keeper(|keeper| keeper.set_handing_out(self.clock.now(), receiving));
    }

    /// Has records rejected; nobody waits for the result, and one that fails comes again.
    pub(super) fn reject(&self, member: usize, acks: impl Iterator<Item = Acknowledge>) {
        self.rejects.lock().extend(acks.map(|ack| (member, ack)));
        self.changed.notify_one();
    }

    /// Takes leave of the group with all members. What is held is given back.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            // It ends when it sees the token; it panics only with a bug, which is told where it happened.
            let _ = task.await;
        }
        join_all(self.consumers().map(ShareConsumer::close)).await;
        self.telemetry.emit(events::MembersStopped { name: Arc::clone(&self.name) });
    }

    async fn run(self: Arc<Self>) {
        // Each record has one thing under way at most, so that the queue's bound is theirs.
        let mut telling: JoinSet<Told> = JoinSet::new();
        loop {
            let now = self.clock.now();
            let (actions, timeout, has_due, ended, held) = self.keeper(|keeper| {
                let actions = keeper.poll(now);
                (actions, keeper.poll_timeout(), keeper.has_due(), keeper.take_ended(), keeper.held())
            });
            if has_due {
                self.due.notify_one();
            }
            let name = || Arc::clone(&self.name);
            self.tell_ended(ended);
            self.telemetry.emit(events::Held { name: name(), records: held.records, bytes: held.bytes });
            for (member, Telling { acks, keys }) in self.sort(actions) {
                let Some(consumer) = self.consumer(member).cloned() else { continue };
                telling.spawn(async move {
                    let results = consumer.acknowledge(acks).await;
                    Told { sent_at: now, keys, results }
                });
            }
            let sleep = tokio::time::sleep_until(self.clock.deadline(timeout.unwrap_or(now)));
            tokio::select! {
                () = self.closing.cancelled() => break,
                () = self.changed.notified() => {}
                Some(told) = telling.join_next() => match told {
                    Ok(told) => self.handle_told(told),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                () = sleep, if timeout.is_some() => {}
            }
        }
        telling.shutdown().await;
    }

    /// What is to be told, by member.
    fn sort(&self, actions: Vec<(Key, Action)>) -> BTreeMap<usize, Telling> {
        let rejects = std::mem::take(&mut *self.rejects.lock());
        let mut sorted: BTreeMap<usize, Telling> = BTreeMap::new();
        let mut add = |member: usize, ack: Acknowledge, of: Option<(Key, Action)>| {
            let telling = sorted.entry(member).or_default();
            telling.acks.push(ack);
            telling.keys.push(of);
        };
        for (key, action) in actions {
            let kind = match action {
                Action::Renew => AcknowledgeType::Renew,
                Action::Release => AcknowledgeType::Release,
            };
            let ack = Acknowledge { lease: key.lease, last: key.lease.offset, kind };
            add(key.member, ack, Some((key, action)));
        }
        for (member, ack) in rejects {
            add(member, ack, None);
        }
        sorted
    }

    fn handle_told(&self, told: Told) {
        let now = self.clock.now();
        self.keeper(|keeper| {
            for (of, result) in told.keys.into_iter().zip(&told.results) {
                if let Some((key, action)) = of {
                    keeper.handle_result(now, key, action, told.sent_at, result);
                }
            }
        });
    }

    fn tell_ended(&self, ended: Ended) {
        let Ended { due, released, lease_gone } = ended;
        let ends = [
            (events::HoldEnd::Due, due),
            (events::HoldEnd::Released, released),
            (events::HoldEnd::LeaseGone, lease_gone),
        ];
        for (end, records) in ends.into_iter().filter(|(_, records)| *records > 0) {
            self.telemetry.emit(events::HoldEnded { name: Arc::clone(&self.name), end, records });
        }
    }
}

/// What is told to the brokers of one member.
#[derive(Default)]
struct Telling {
    acks: Vec<Acknowledge>,
    /// What each is about; `None` for those that nobody waits for.
    keys: Vec<Option<(Key, Action)>>,
}

/// What came of what was told to the brokers of one member.
struct Told {
    sent_at: Instant,
    /// Whose results they are; `None` for those that nobody waits for.
    keys: Vec<Option<(Key, Action)>>,
    results: Vec<Result<(), AcknowledgeError>>,
}

fn settings(options: &SourceOptions, member_id: Arc<str>, seed: u64) -> ConsumerSettings {
    let subscription = options.subscription.clone();
    let member = MemberSettings {
        rack: options.rack.clone(),
        fetch: options.fetch.clone(),
        metadata_max_age: options.metadata_max_age,
        ..MemberSettings::new(Arc::clone(&options.group), member_id, subscription, seed)
    };
    ConsumerSettings {
        request_timeout: options.request_timeout,
        held_records_max: options.held_records_max.div_ceil(options.parallelism),
        close_timeout: options.request_timeout.min(CLOSE_TIMEOUT_MAX),
        ..ConsumerSettings::new(member, options.bootstrap.clone())
    }
}

fn random<const N: usize>() -> Result<[u8; N], ConnectError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(ConnectError::Random)?;
    Ok(bytes)
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members")
            .field("name", &self.name)
            .field("members", &self.members.len())
            .finish_non_exhaustive()
    }
}
