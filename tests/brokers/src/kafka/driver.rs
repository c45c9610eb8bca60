//! What a test does to a cluster beside the client under test: topics, records, groups, rights, leaders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_wire::RequestResponsePair;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::cluster::Lives;
use super::connection::{CallError, Connection};
use super::options::NodeId;

mod groups;
mod records;
mod rights;
mod topics;

pub use groups::ShareOffset;
pub use records::Transaction;
pub use rights::{Acl, Operation, Resource};
pub use topics::{NewTopic, Partition, Topic};

/// Losing the controller and a leader at once took 5 s when measured, 6 s when frozen; the rest is for loaded machines.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
const SETTLE_INTERVAL: Duration = Duration::from_millis(20);
/// How long brokers themselves may take over a request.
const BROKER_TIMEOUT_MS: i32 = 10_000;

/// Versions of requests that every release in use answers.
pub(crate) const API_VERSIONS: i16 = 4;
pub(crate) const METADATA: i16 = 13;

/// Kafka's error codes that say to ask again.
mod code {
    pub(super) const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    pub(super) const LEADER_NOT_AVAILABLE: i16 = 5;
    pub(super) const NOT_LEADER_OR_FOLLOWER: i16 = 6;
    pub(super) const REQUEST_TIMED_OUT: i16 = 7;
    pub(super) const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
    pub(super) const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    pub(super) const NOT_COORDINATOR: i16 = 16;
    pub(super) const NOT_ENOUGH_REPLICAS: i16 = 19;
    pub(super) const NOT_CONTROLLER: i16 = 41;
    pub(super) const CONCURRENT_TRANSACTIONS: i16 = 51;
    pub(super) const PREFERRED_LEADER_NOT_AVAILABLE: i16 = 80;
    pub(super) const ELECTION_NOT_NEEDED: i16 = 84;
    pub(super) const UNKNOWN_TOPIC_ID: i16 = 100;

    /// The leader has moved, or is not known yet where it was asked.
    pub(super) const UNSETTLED_LEADER: &[i16] = &[
        UNKNOWN_TOPIC_OR_PARTITION,
        LEADER_NOT_AVAILABLE,
        NOT_LEADER_OR_FOLLOWER,
        NOT_ENOUGH_REPLICAS,
        UNKNOWN_TOPIC_ID,
    ];
    /// The coordinator has moved, or is just beginning.
    pub(super) const UNSETTLED_COORDINATOR: &[i16] =
        &[COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR];
    /// There is no controller at the moment.
    pub(super) const UNSETTLED_CONTROLLER: &[i16] = &[REQUEST_TIMED_OUT, NOT_CONTROLLER];
}

/// Does to a cluster what a test wants done beside the client under test.
///
/// Everything goes over [`Listener::Plaintext`](super::Listener::Plaintext), where the driver may do all. One connection
/// for each node, one request at a time on it, a deadline on each. What the cluster needs a moment for (a leader after
/// a kill, a coordinator on a fresh broker) is asked again for a minute.
#[derive(Debug)]
pub struct Driver {
    nodes: BTreeMap<NodeId, Node>,
    lives: Arc<Lives>,
}

#[derive(Debug)]
struct Node {
    address: String,
    /// The connection and the node's life that it was made in.
    connection: Mutex<Option<(Connection, u32)>>,
}

impl Driver {
    pub(crate) fn new(addresses: impl IntoIterator<Item = (NodeId, String)>, lives: Arc<Lives>) -> Self {
        let nodes = addresses
            .into_iter()
            .map(|(node, address)| (node, Node { address, connection: Mutex::new(None) }))
            .collect();
        Self { nodes, lives }
    }

    /// Sends any request to one node, for what the driver has no method for. The answer may itself hold error codes.
    ///
    /// # Errors
    /// When there is no such node, no answer within 15 s, or none that can be read.
    pub async fn call<R: RequestResponsePair>(
        &self,
        node: NodeId,
        request: &R,
        version: i16,
    ) -> Result<R::Response, CallError> {
        let Some(Node { address, connection }) = self.nodes.get(&node) else {
            let source = std::io::ErrorKind::NotFound.into();
            return Err(CallError::Connect { address: node.to_string(), source });
        };
        let mut place = connection.lock().await;
        let life = self.lives.count(node);
        // Taken out, so that one that failed or was given up half-way is not used again.
        let mut connection = match place.take() {
            Some((connection, made_in)) if made_in == life => connection,
            _ => Connection::open(address).await?,
        };
        let response = connection.call(request, version).await?;
        *place = Some((connection, life));
        Ok(response)
    }

    /// Asks one running node after the other until one answers: any can do it, or knows who can.
    async fn call_any<R: RequestResponsePair>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<R::Response, CallError> {
        let mut last = CallError::NoNode;
        for node in self.nodes.keys().filter(|node| self.lives.is_running(**node)) {
            match self.call(*node, request, version).await {
                Err(error) if error.is_transport() => last = error,
                done => return done,
            }
        }
        Err(last)
    }
}

/// Asks again and again until there is an answer that is not one of the codes `unsettled`. A node that takes no
/// connection is not settled either: metadata names a dead leader until the cluster misses it.
async fn settle<T>(
    what: &str,
    unsettled: &[i16],
    mut ask: impl AsyncFnMut() -> Result<T, CallError>,
) -> Result<T, CallError> {
    until(what, async || match ask().await {
        Ok(answer) => Ok(Ok(answer)),
        Err(error) if error.code().is_some_and(|code| unsettled.contains(&code)) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(error),
    })
    .await
}

/// Asks again and again until there is an answer; the text says what stands in its way.
async fn until<T>(
    what: &str,
    mut ask: impl AsyncFnMut() -> Result<Result<T, String>, CallError>,
) -> Result<T, CallError> {
    let deadline = Instant::now() + SETTLE_TIMEOUT;
    loop {
        let obstacle = match ask().await? {
            Ok(answer) => return Ok(answer),
            Err(obstacle) => obstacle,
        };
        if Instant::now() >= deadline {
            let what = format!("{what} (last obstacle: {obstacle})");
            return Err(CallError::Late { what, waited: SETTLE_TIMEOUT });
        }
        sleep(SETTLE_INTERVAL).await;
    }
}

/// The only element of a response to a request with one.
fn only<T>(elements: Vec<T>, request: &'static str) -> Result<T, CallError> {
    let mut elements = elements.into_iter();
    match (elements.next(), elements.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(CallError::Refused {
            request: request.into(),
            code: 0,
            message: "the answer has not one element as the request has".into(),
        }),
    }
}
