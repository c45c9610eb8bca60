//! The ack pool: settles by receipt, on any host, without taking part in consumption.
//!
//! It holds one client for each endpoint, namespace, group and client configuration, made when the first receipt asks for
//! it and closed when it has been idle. Such a client never subscribes and never receives: a broker that sent events of
//! lite topics its way would wait for it (measured: up to 19 s).
//!
//! A receipt says where to settle, and what it says may be another cluster's affair: keys go to the endpoints that they
//! were configured for, and to those that an access point among these names as brokers of the receipt's topic, which is
//! how sources find theirs.

mod client;
mod cluster;
mod matching;
mod sorting;
mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::Client;
use cluster::{Belonging, Clusters, Question, Silence};
use futures::future::join_all;
pub use matching::AckScope;
use matching::Choice;
use parking_lot::Mutex;
use rustls::ClientConfig;
use sorting::{Group, Member, Sorted, spread};
use table::{CLIENTS_MAX, Key, Step, Table};
use tidegate_connector::{Clock, ReceiptSettler, SettleByReceipt, TellSettled};
use tidegate_model::{Receipt, Routing, SettleError, SettleFault, Settlement};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::rocketmq as events;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::core::{Core, SetupError, load_tls};
use crate::credentials::{self, Purpose};
use crate::endpoints::{Endpoints, EndpointsError};
use crate::fault::Subject;
use crate::link::LinkError;
use crate::options::{ClientOptions, TopicKind};
use crate::settler::{self, Lanes, Settled};

/// How often idle clients are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Longest wait for a place in a full pool. Whoever waits longer is told to try again.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(3);
/// Clients of one batch at work at the same time.
const GROUPS_IN_FLIGHT_MAX: usize = 16;

/// From so many settlements of one client on, they are prepared on several tasks: one alone would be the slowest part of a
/// hundred thousand.
const SPREAD_MIN: usize = 1_024;

/// One configured way to settle.
#[derive(Clone, Debug)]
pub struct AckClient {
    /// The name in the configuration, of a settler or of the source that it stands beside: in logs and metrics.
    pub name: Arc<str>,
    /// The cluster's access point, credentials and TLS. Its namespace tells what a scope is about; requests carry the
    /// receipt's.
    pub client: ClientOptions,
    /// What it is for.
    pub scope: AckScope,
    /// Where to settle instead of the endpoint that the receipt names, when a user says so.
    pub endpoint: Option<Endpoints>,
}

/// Why a pool could not be started. Everything here is wrong on this side of the network.
#[derive(Debug, thiserror::Error)]
#[error("settler `{name}` cannot be set up")]
pub struct AckPoolError {
    /// The client's name in the configuration.
    pub name: Arc<str>,
    /// What is wrong.
    #[source]
    pub source: Box<SetupError>,
}

/// Settles by receipt. Dropping it without [`close`](ReceiptSettler::close) ends its tasks without taking leave.
pub struct AckPool {
    inner: Arc<Inner>,
}

struct Inner {
    clients: Vec<Configured>,
    configurations: Vec<Configuration>,
    table: Mutex<Table<Client>>,
    clusters: Mutex<Clusters>,
    lanes: Arc<Lanes>,
    /// A client was made idle or has left.
    changed: Notify,
    clock: Clock,
    telemetry: Telemetry,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// A client with the configuration that it shares with others like it.
struct Configured {
    client: AckClient,
    configuration: usize,
}

/// What a connection is made of.
struct Configuration {
    name: Arc<str>,
    options: ClientOptions,
    endpoint: Option<Endpoints>,
    tls: Option<Arc<ClientConfig>>,
    /// Held while its access point is asked about a topic: others who want to know wait for the answer.
    asking: tokio::sync::Mutex<()>,
}

/// Is told results, some at a time.
type TellMembers<'a> = dyn Fn(Vec<(Member, Settled)>) + Send + Sync + 'a;

/// A client in use.
struct Lease<'a> {
    inner: &'a Inner,
    key: &'a Key,
    client: Arc<Client>,
}

/// Why there is no client for a receipt.
#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error("the ack pool holds its {CLIENTS_MAX} clients and all are at work, try again")]
    Full,
    #[error("the host is closing")]
    Closed,
    #[error("`{endpoint}` is not an endpoint that can be reached: it {source}")]
    Endpoint { endpoint: Arc<str>, source: EndpointsError },
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl AckPool {
    /// Starts a pool. It reads TLS files and opens no connection: those are made when receipts ask for them.
    ///
    /// # Errors
    /// When something on this side of the network is wrong, such as a certificate file.
    pub fn start(clients: Vec<AckClient>, clock: Clock, telemetry: Telemetry) -> Result<Self, AckPoolError> {
        let mut configurations: Vec<Configuration> = Vec::new();
        let mut configured = Vec::with_capacity(clients.len());
        for client in clients {
            let known = configurations.iter().position(|configuration| configuration.is_of(&client));
            let configuration = match known {
                Some(known) => known,
                None => {
                    configurations.push(Configuration::of(&client)?);
                    configurations.len() - 1
                }
            };
            configured.push(Configured { client, configuration });
        }
        let inner = Arc::new(Inner {
            clients: configured,
            configurations,
            table: Mutex::new(Table::new(CLIENTS_MAX)),
            clusters: Mutex::default(),
            lanes: Arc::default(),
            changed: Notify::new(),
            clock,
            telemetry,
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        inner.tasks.spawn(Arc::clone(&inner).sweep());
        Ok(Self { inner })
    }
}

#[async_trait]
impl ReceiptSettler for AckPool {
    fn serves(&self, receipt: &Receipt) -> bool {
        !self.inner.choices(&receipt.routing).is_empty()
    }

    async fn settle_each(&self, batch: Vec<SettleByReceipt>, tell: &TellSettled<'_>) {
        let inner = &self.inner;
        let tell = |some: Vec<(Member, Settled)>| {
            for (at, configured) in inner.clients.iter().enumerate() {
                let own = some.iter().filter(|(member, _)| member.client == Some(at));
                let outcomes = own.map(|(member, result)| (member.verb, result));
                settler::tell(&inner.telemetry, &configured.client.name, outcomes);
            }
            tell(some.into_iter().map(|(member, result)| (member.at, result)).collect());
        };
        let slots = Semaphore::new(GROUPS_IN_FLIGHT_MAX);
        let (sorted, unasked) = inner.sort(batch);
        // What an access point is asked about first keeps nothing else waiting.
        let later = unasked.into_iter().map(async |part| {
            let sorted = inner.sort_asking(part).await;
            inner.settle_sorted(sorted, &slots, &tell).await;
        });
        tokio::join!(inner.settle_sorted(sorted, &slots, &tell), join_all(later));
    }

    async fn close(&self) {
        let inner = &self.inner;
        inner.closing.cancel();
        let clients = inner.table.lock().close();
        for client in clients {
            inner.part(client, events::AckClientEnd::Closing);
        }
        inner.tasks.close();
        inner.tasks.wait().await;
        inner.changed.notify_waiters();
    }
}

impl Inner {
    async fn settle_sorted(self: &Arc<Self>, sorted: Sorted, slots: &Semaphore, tell: &TellMembers<'_>) {
        let Sorted { groups, refused } = sorted;
        if !refused.is_empty() {
            tell(refused);
        }
        let settling = groups.into_iter().map(async |group| {
            // Nobody closes them.
            let _slot = slots.acquire().await;
            self.settle_group(group, tell).await;
        });
        join_all(settling).await;
    }

    async fn settle_group(self: &Arc<Self>, group: Group, tell: &TellMembers<'_>) {
        let Group { key, members, settlements } = group;
        let lease = match self.lease(&key, &settlements[0].message.topic).await {
            Ok(lease) => lease,
            Err(error) => {
                let fail = |settlement: &Settlement| {
                    let (verb, detail) = (settlement.verb.name(), error.to_string().into());
                    Err(SettleError { verb, detail, fault: error.fault() })
                };
                return tell(members.into_iter().zip(settlements.iter().map(fail)).collect());
            }
        };
        if settlements.len() < SPREAD_MIN {
            let turns = self.lanes.enter(&settlements);
            settler::settle_each(&*lease.client, &settlements, Some(&turns), |some| {
                tell(placed(&members, some));
            })
            .await;
            return;
        }
        // As many places as there are results, so that nobody waits.
        let (results, mut told) = mpsc::channel(settlements.len());
        // They end with this. What one that panicked leaves out nobody tells.
        let mut tasks = JoinSet::new();
        for (members, settlements) in spread(members, settlements) {
            let turns = self.lanes.enter(&settlements);
            let (client, results) = (Arc::clone(&lease.client), results.clone());
            tasks.spawn(async move {
                settler::settle_each(&*client, &settlements, Some(&turns), |some| {
                    // Nobody listens any more when it was dropped.
                    let _ = results.try_send(placed(&members, some));
                })
                .await;
            });
        }
        drop(results);
        while let Some(some) = told.recv().await {
            tell(some);
        }
    }

    /// The client of a key, made if there is none; waits a while for a place in a full pool.
    async fn lease<'a>(self: &'a Arc<Self>, key: &'a Key, topic: &Arc<str>) -> Result<Lease<'a>, LeaseError> {
        let deadline = self.clock.deadline(self.clock.now() + PLACE_WAIT_MAX);
        let mut may_close = true;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let now = self.clock.now();
            let step = self.table.lock().begin(now, key, may_close, || self.make(key, topic))?;
            match step {
                Step::Use(client) => return Ok(Lease { inner: self, key, client }),
                Step::UseNew(client) => {
                    self.telemetry.emit(events::AckClientOpened {
                        name: Arc::clone(&self.configurations[key.configuration].name),
                        endpoint: Arc::clone(&key.endpoint),
                        group: Arc::clone(&key.group),
                    });
                    return Ok(Lease { inner: self, key, client });
                }
                Step::Close(client) => {
                    may_close = false;
                    self.part(client, events::AckClientEnd::Displaced);
                }
                Step::Wait => {}
                Step::Closed => return Err(LeaseError::Closed),
            }
            if time::timeout_at(deadline, changed).await.is_err() {
                return Err(LeaseError::Full);
            }
        }
    }

    fn make(&self, key: &Key, topic: &Arc<str>) -> Result<Client, LeaseError> {
        let configuration = &self.configurations[key.configuration];
        let endpoints = match &configuration.endpoint {
            Some(endpoints) => endpoints.clone(),
            None => Endpoints::parse(&key.endpoint)
                .map_err(|source| LeaseError::Endpoint { endpoint: Arc::clone(&key.endpoint), source })?,
        };
        let core = self.core(key.configuration, &key.namespace, |subject| Subject {
            topic: Some(Arc::clone(topic)),
            group: Some(Arc::clone(&key.group)),
            topic_kind: Some(if key.is_lite { TopicKind::Lite } else { TopicKind::Normal }),
            ..subject
        })?;
        Client::start(core, &endpoints, key.is_lite)?.ok_or(LeaseError::Closed)
    }

    /// What a client of a configuration is made of; `about` says what it is about.
    fn core(
        &self,
        configuration: usize,
        namespace: &Arc<str>,
        about: impl FnOnce(Subject) -> Subject,
    ) -> Result<Core, SetupError> {
        let configuration = &self.configurations[configuration];
        let subject = Subject {
            access_point: Arc::clone(configuration.options.endpoints.text()),
            endpoint: None,
            topic: None,
            group: None,
            topic_kind: None,
            names: configuration.options.names,
        };
        let options = ClientOptions { namespace: Arc::clone(namespace), ..configuration.options.clone() };
        Core::with_tls(
            &options,
            configuration.tls.clone(),
            about(subject),
            Purpose::Consume,
            self.clock,
            self.telemetry.clone(),
            Arc::clone(&configuration.name),
        )
    }

    /// Whether the endpoint that a routing names belongs to the cluster of a choice, as far as that is known.
    fn look(&self, choice: Choice, routing: &Routing, topic: &Arc<str>) -> Belonging {
        if choice.is_here {
            return Belonging::Own;
        }
        let question = self.question(choice, routing, topic);
        self.clusters.lock().look(self.clock.now(), &question, &routing.endpoint)
    }

    /// The same, and the access point is asked unless it is known.
    async fn look_asking(&self, choice: Choice, routing: &Routing, topic: &Arc<str>) -> Belonging {
        let look = || self.look(choice, routing, topic);
        let known = look();
        if known != Belonging::Unasked {
            return known;
        }
        let question = self.question(choice, routing, topic);
        let _turn = self.configurations[question.configuration].asking.lock().await;
        let known = look();
        if known != Belonging::Unasked {
            return known;
        }
        let said = self.ask(&question).await;
        self.clusters.lock().handle(self.clock.now(), question, said);
        look()
    }

    fn question(&self, choice: Choice, routing: &Routing, topic: &Arc<str>) -> Question {
        let configuration = self.clients[choice.at].configuration;
        Question { configuration, namespace: Arc::clone(&routing.namespace), topic: Arc::clone(topic) }
    }

    /// Asks an access point for the endpoints of a topic's brokers.
    async fn ask(&self, question: &Question) -> Result<Vec<Endpoints>, Silence> {
        let Question { configuration, namespace, topic } = question;
        let about = |subject: Subject| subject.about(topic);
        let wrong = |error: LeaseError| Silence { detail: error.to_string().into(), fault: error.fault() };
        let core = self.core(*configuration, namespace, about).map_err(|error| wrong(error.into()))?;
        let access_point = core.access_point().map_err(|error| wrong(error.into()))?;
        let queues = access_point.query_route(core.resource(topic), &core.endpoints).await;
        let queues = queues
            .map_err(|error| Silence { detail: error.to_string().into(), fault: error.settle_fault() })?;
        let brokers = crate::route::queues_of(queues, |_| true, |_| Arc::default());
        let mut endpoints: Vec<Endpoints> = brokers.into_iter().map(|queue| queue.endpoints).collect();
        endpoints.sort_by(|a, b| a.text().cmp(b.text()));
        endpoints.dedup();
        Ok(endpoints)
    }

    /// Lets a client take leave, in the background.
    fn part(self: &Arc<Self>, client: Arc<Client>, end: events::AckClientEnd) {
        let inner = Arc::clone(self);
        self.tasks.spawn(async move {
            client.close().await;
            inner.table.lock().handle_left();
            inner.telemetry.emit(events::AckClientClosed { name: client.name(), end });
            inner.changed.notify_waiters();
        });
    }

    /// Closes clients that have been idle, until the pool is closed.
    async fn sweep(self: Arc<Self>) {
        loop {
            tokio::select! {
                () = self.closing.cancelled() => return,
                () = time::sleep(SWEEP_INTERVAL) => {}
            }
            let idle = self.table.lock().take_idle(self.clock.now());
            for client in idle {
                self.part(client, events::AckClientEnd::Idle);
            }
        }
    }
}

impl Configuration {
    fn of(client: &AckClient) -> Result<Self, AckPoolError> {
        let tls = load_tls(&client.client)
            .map_err(|source| AckPoolError { name: Arc::clone(&client.name), source: Box::new(source) })?;
        Ok(Self {
            name: Arc::clone(&client.name),
            options: client.client.clone(),
            endpoint: client.endpoint.clone(),
            tls,
            asking: tokio::sync::Mutex::default(),
        })
    }

    /// Whether a client would connect in the very same way, so that both can share connections.
    fn is_of(&self, client: &AckClient) -> bool {
        let (ours, theirs) = (&self.options, &client.client);
        self.endpoint == client.endpoint
            && ours.endpoints == theirs.endpoints
            && ours.tls == theirs.tls
            && ours.request_timeout == theirs.request_timeout
            && credentials::are_same(&ours.credentials, &theirs.credentials)
    }
}

impl LeaseError {
    const fn fault(&self) -> SettleFault {
        match self {
            Self::Full | Self::Closed => SettleFault::Broker,
            Self::Endpoint { .. } | Self::Link(_) | Self::Setup(_) => SettleFault::Refused,
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if self.inner.table.lock().end(self.inner.clock.now(), self.key) {
            self.inner.changed.notify_waiters();
        }
    }
}

/// Ends the tasks of a pool that was not closed.
impl Drop for AckPool {
    fn drop(&mut self) {
        self.inner.closing.cancel();
    }
}

impl fmt::Debug for AckPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.inner.clients.iter().map(|configured| &configured.client.name).collect();
        f.debug_struct("AckPool").field("clients", &names).finish_non_exhaustive()
    }
}

/// Whose a group's results are.
fn placed(members: &[Member], some: Vec<(usize, Settled)>) -> Vec<(Member, Settled)> {
    some.into_iter().map(|(at, result)| (members[at], result)).collect()
}
