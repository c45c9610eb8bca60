//! Connections and the calls on them: one of each target at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Exchange;
use crate::member::{Answer, Call, Request, Target};
use crate::{BootstrapServers, BrokerAddress, BrokerId, Connection, Connector};

/// Connections and the calls on them.
pub(super) struct Calls {
    connector: Connector,
    bootstrap: Arc<BootstrapServers>,
    request_timeout: Duration,
    /// Connections without a call.
    idle: HashMap<Place, Connection>,
    under_way: JoinSet<Done>,
    /// Of the order in which brokers are tried.
    seed: u64,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Place {
    Any,
    Coordinator(BrokerId),
    Session(BrokerId),
}

/// A call that has ended.
pub(super) struct Done {
    place: Place,
    connection: Option<Connection>,
    pub(super) call: Call,
    /// Whether locks can be renewed at this broker, as its versions say; `None` when it was not reached.
    pub(super) has_renewal: Option<bool>,
    pub(super) result: Result<(Answer, Exchange), Box<str>>,
}

impl Calls {
    pub(super) fn new(
        connector: Connector,
        bootstrap: BootstrapServers,
        request_timeout: Duration,
        seed: u64,
    ) -> Self {
        Self {
            connector,
            bootstrap: Arc::new(bootstrap),
            request_timeout,
            idle: HashMap::new(),
            under_way: JoinSet::new(),
            seed,
        }
    }

    /// Makes a call, on a connection that is opened for it when there is none.
    pub(super) fn make(&mut self, call: Call) {
        let (place, address) = match &call.target {
            Target::Any => (Place::Any, None),
            Target::Coordinator(node) => (Place::Coordinator(node.broker), Some(node)),
            Target::Session(node) => (Place::Session(node.broker), Some(node)),
        };
        let address = address.map(|node| BrokerAddress::advertised(&node.host, i32::from(node.port)));
        let known = self.idle.remove(&place).filter(|connection| {
            // A broker may have come back at another address.
            let is_there = match &address {
                None => true,
                Some(address) => address.as_ref() == Some(connection.address()),
            };
            is_there && connection.is_usable()
        });
        let connector = self.connector.clone();
        let bootstrap = Arc::clone(&self.bootstrap);
        self.seed = self.seed.wrapping_add(1);
        let (seed, timeout) = (self.seed, self.request_timeout + call.wait);
        self.under_way.spawn(async move {
            let opened = match (known, address) {
                (Some(connection), _) => Ok(connection),
                (None, None) => connector.open_any(&bootstrap, seed).await.map_err(|error| error.to_string()),
                (None, Some(Some(address))) => {
                    connector.open(&address).await.map_err(|error| error.to_string())
                }
                (None, Some(None)) => Err("the cluster gives an address where nobody can listen".to_owned()),
            };
            match opened {
                Err(reason) => {
                    Done { place, connection: None, call, has_renewal: None, result: Err(reason.into()) }
                }
                Ok(mut connection) => {
                    let has_renewal = Some(connection.versions().has_renewal());
                    let result = ask(&mut connection, &call.request, timeout).await;
                    let connection = connection.is_usable().then_some(connection);
                    Done { place, connection, call, has_renewal, result }
                }
            }
        });
    }

    /// The next call that ends; pends when none is under way.
    pub(super) async fn next(&mut self) -> Done {
        loop {
            match self.under_way.join_next().await {
                Some(Ok(mut done)) => {
                    if let Some(connection) = done.connection.take() {
                        self.idle.insert(done.place, connection);
                    }
                    return done;
                }
                // A call panicked, which is a bug: its deadline is over with it, and the member's session with that broker
                // would wait for ever. The consumer ends loudly instead.
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => std::future::pending::<()>().await,
            }
        }
    }

    /// Lets go of connections that nobody needs: of leaders without a session, of former coordinators.
    pub(super) fn retain(
        &mut self,
        mut is_needed: impl FnMut(BrokerId) -> bool,
        coordinator: Option<BrokerId>,
    ) {
        self.idle.retain(|place, _| match place {
            Place::Any => true,
            Place::Coordinator(broker) => coordinator == Some(*broker),
            Place::Session(broker) => is_needed(*broker),
        });
    }

    /// Ends all calls and connections.
    pub(super) async fn close(mut self) {
        self.under_way.shutdown().await;
        let closing = self.idle.drain().map(|(_, connection)| connection.close());
        let mut closing: JoinSet<()> = closing.collect();
        while closing.join_next().await.is_some() {}
    }
}

async fn ask(
    connection: &mut Connection,
    request: &Request,
    timeout: Duration,
) -> Result<(Answer, Exchange), Box<str>> {
    macro_rules! ask {
        ($body:expr, $answer:ident) => {
            connection.call($body, timeout).await.map(|answer| {
                let exchange = Exchange::of(request, &answer);
                (Answer::$answer(answer.body), exchange)
            })
        };
    }
    let answer = match request {
        Request::Metadata(body) => ask!(body, Metadata),
        Request::FindCoordinator(body) => ask!(body, FindCoordinator),
        Request::Heartbeat(body) => ask!(body, Heartbeat),
        Request::Fetch(body) => ask!(body, Fetch),
        Request::Acknowledge(body) => ask!(body, Acknowledge),
    };
    answer.map_err(|error| error.to_string().into())
}
