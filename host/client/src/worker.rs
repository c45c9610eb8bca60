//! A worker: takes messages of one flow, handles them, settles them.

mod engine;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::access::{Access, Peer};
use crate::book::Credits;
use crate::{AccessError, Delivery, Event, Tls, Verdict};

use self::engine::Engine;

/// Unless said otherwise, so many messages are handled at one time.
const CREDITS: u64 = 16;
/// Unless said otherwise, how long handlers and settlements have when the worker is told to stop.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Handles the messages of one flow. See the [crate's documentation](crate).
#[derive(Debug)]
pub struct Worker {
    options: Options,
}

/// Makes a [`Worker`].
#[derive(Debug)]
pub struct WorkerBuilder {
    addresses: Vec<String>,
    access: Access,
    flow: String,
    name: String,
    credits: Credits,
    keep_leases: bool,
    stop_within: Duration,
    observer: Option<Observer>,
}

/// What a worker was told, checked.
#[derive(Debug)]
struct Options {
    peers: Vec<Arc<Peer>>,
    flow: String,
    name: String,
    credits: Credits,
    keep_leases: bool,
    stop_within: Duration,
    observer: Observer,
}

/// Who is told what happens.
#[derive(Clone)]
struct Observer(Arc<dyn Fn(&Event) + Send + Sync>);

/// Why a worker ended without having been told to.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No host lets it in: the token, its rights, or something else that does not change by itself.
    #[error("{address} refused: {detail}")]
    Refused {
        /// The address of the last host that refused.
        address: String,
        /// Why, in a sentence.
        detail: String,
    },
}

impl Worker {
    /// For a flow of the host at an address, such as `http://127.0.0.1:9641`.
    #[must_use]
    pub fn builder(address: impl Into<String>, flow: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder {
            addresses: vec![address.into()],
            access: Access::default(),
            flow: flow.into(),
            name: String::new(),
            credits: Credits { messages: CREDITS, bytes: None },
            keep_leases: false,
            stop_within: STOP_WITHIN,
            observer: None,
        }
    }

    /// Handles messages until no host lets it in. Dropping the future ends everything at once; what was being handled
    /// comes again.
    ///
    /// # Errors
    /// When every address has refused it.
    pub async fn run<H, F>(self, handler: H) -> Result<(), RunError>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Verdict> + Send + 'static,
    {
        self.run_until(handler, std::future::pending()).await
    }

    /// Handles messages until `stop` resolves. Then nothing more is taken; handlers finish, what they say is settled, and
    /// the worker takes leave: see [`WorkerBuilder::stop_within`].
    ///
    /// Each message is handled in a task of its own. A handler should not block its thread.
    ///
    /// # Errors
    /// When every address has refused it.
    pub async fn run_until<H, F>(self, handler: H, stop: impl Future<Output = ()>) -> Result<(), RunError>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Verdict> + Send + 'static,
    {
        Engine::new(self.options, handler).run(stop).await
    }
}

impl WorkerBuilder {
    /// Another host of the fleet. The first address is tried first; after a break the next one.
    #[must_use]
    pub fn or_at(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// A name for people: hosts show it. At most 64 characters.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// How many messages are handled at one time, up to 100,000; 16 unless said otherwise.
    #[must_use]
    pub fn credits(mut self, messages: u32) -> Self {
        self.credits.messages = messages.into();
        self
    }

    /// How many bytes they may have in all: bodies, properties, names. Unless said otherwise as many as the host allows. A
    /// message that is larger than this comes alone.
    #[must_use]
    pub fn credit_bytes(mut self, bytes: u64) -> Self {
        self.credits.bytes = (bytes > 0).then_some(bytes);
        self
    }

    /// The bearer token, for hosts that want one. Over `http://` it can be read on the way.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.access.token = Some(token.into());
        self
    }

    /// How hosts are checked, and what they are shown; for addresses that begin with `https://`.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.access.tls = Some(tls);
        self
    }

    /// Whether a lease is renewed while its handler runs, each time at half of it and for as long as it was at first. Without
    /// that a message comes again, elsewhere, when its handler takes longer than its lease.
    #[must_use]
    pub fn keep_leases(self, keep_leases: bool) -> Self {
        Self { keep_leases, ..self }
    }

    /// How long handlers and settlements have when the worker is told to stop; 30 s unless said otherwise. Handlers that
    /// run then are dropped, and their messages come again.
    #[must_use]
    pub fn stop_within(self, stop_within: Duration) -> Self {
        Self { stop_within, ..self }
    }

    /// Is told all that happens, in order, on the worker's own task: it should be quick.
    #[must_use]
    pub fn observer(self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self { observer: Some(Observer(Arc::new(observer))), ..self }
    }

    /// Reads the files, and checks the rest.
    ///
    /// # Errors
    /// When an address, the token or a file cannot be used.
    pub fn build(self) -> Result<Worker, AccessError> {
        let peers = self.addresses.iter().map(|address| self.access.peer(address).map(Arc::new));
        let options = Options {
            peers: peers.collect::<Result<_, _>>()?,
            flow: self.flow,
            name: self.name,
            credits: self.credits,
            keep_leases: self.keep_leases,
            stop_within: self.stop_within,
            observer: self.observer.unwrap_or_else(|| Observer(Arc::new(|_| {}))),
        };
        Ok(Worker { options })
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
