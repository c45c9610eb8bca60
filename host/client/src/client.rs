//! The plain calls: settle, renew, describe.

use std::sync::Arc;
use std::time::Duration;

use tidegate_proto::handoff as proto;
use tokio::time::timeout;

use crate::access::{Access, Peer, Trouble};
use crate::{AccessError, Renewal, RenewalResult, Settlement, SettlementResult, Tls, wire};

/// Settlements or renewals in one request, of the 1,000 that a host takes: with the longest receipts and reasons they
/// stay below what it takes in bytes.
pub(crate) const BATCH_MAX: usize = 500;
/// The longest that an answer is waited for. A host waits 10 s for its broker.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Settles and renews by receipt at one host. Cheap to clone; clones share a connection, which is made when something is
/// asked.
#[derive(Clone, Debug)]
pub struct Client {
    peer: Arc<Peer>,
}

/// Makes a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    address: String,
    access: Access,
}

/// Why a call has no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The host does not take this request from this caller: the token, the rights, the request. The same again would be
    /// refused again.
    #[error("{address} refused: {detail}")]
    Refused {
        /// The host's address.
        address: String,
        /// Why, in a sentence.
        detail: String,
    },
    /// No answer came. What was asked may have been done: asking again does no harm.
    #[error("{address} gave no answer: {detail}")]
    Unanswered {
        /// The host's address.
        address: String,
        /// Why, in a sentence.
        detail: String,
    },
}

impl CallError {
    /// Whether the same again can help.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unanswered { .. })
    }
}

/// What a host serves, as far as the caller may know.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct HostDescription {
    /// The host's id.
    pub host: String,
    /// Its version.
    pub version: String,
    /// Flows that the caller may subscribe to.
    pub flows: Vec<FlowDescription>,
}

/// A flow that workers can subscribe to.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FlowDescription {
    /// Its name.
    pub name: String,
    /// Whether a message is done when it was handed over: then a settlement only frees credits.
    pub accepts_on_delivery: bool,
    /// Whether messages of one key stay with one worker while it has any of them.
    pub key_affinity: bool,
    /// Messages that workers hold.
    pub held: u64,
    /// The workers.
    pub workers: Vec<WorkerDescription>,
}

/// A worker that is subscribed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct WorkerDescription {
    /// What it calls itself.
    pub name: String,
    /// How many messages it may hold.
    pub credit_messages: u64,
    /// How many it holds.
    pub held: u64,
}

impl ClientBuilder {
    /// The bearer token, for hosts that want one. Over `http://` it can be read on the way.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.access.token = Some(token.into());
        self
    }

    /// How the host is checked, and what it is shown; for an address that begins with `https://`.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.access.tls = Some(tls);
        self
    }

    /// Reads the files, and checks the rest.
    ///
    /// # Errors
    /// When the address, the token or a file cannot be used.
    pub fn build(self) -> Result<Client, AccessError> {
        Ok(Client { peer: Arc::new(self.access.peer(&self.address)?) })
    }
}

impl Client {
    /// For the host at an address, such as `http://127.0.0.1:9641`.
    #[must_use]
    pub fn builder(address: impl Into<String>) -> ClientBuilder {
        ClientBuilder { address: address.into(), access: Access::default() }
    }

    /// Settles. One result for each settlement, in the same order; requests are as large as a host takes.
    ///
    /// # Errors
    /// When a request has no answer. Of many settlements some may have been done.
    pub async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<SettlementResult>, CallError> {
        let mut results = Vec::with_capacity(settlements.len());
        for batch in settlements.chunks(BATCH_MAX) {
            let told = settle(&self.peer, batch).await;
            results.extend(told.map_err(|trouble| self.error(trouble))?);
        }
        Ok(results)
    }

    /// Renews. One result for each renewal, in the same order.
    ///
    /// # Errors
    /// When a request has no answer. Of many renewals some may have been done.
    pub async fn renew(&self, renewals: Vec<Renewal>) -> Result<Vec<RenewalResult>, CallError> {
        let mut results = Vec::with_capacity(renewals.len());
        for batch in renewals.chunks(BATCH_MAX) {
            let told = renew(&self.peer, batch).await;
            results.extend(told.map_err(|trouble| self.error(trouble))?);
        }
        Ok(results)
    }

    /// Asks what the host serves.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn describe(&self) -> Result<HostDescription, CallError> {
        let mut client = self.peer.client();
        let asking = client.describe(self.peer.request(proto::DescribeRequest {}));
        let answer = within_time(asking).await.map_err(|trouble| self.error(trouble))?;
        Ok(description(answer))
    }

    fn error(&self, Trouble { is_refusal, detail }: Trouble) -> CallError {
        let address = self.peer.address.to_string();
        if is_refusal {
            CallError::Refused { address, detail }
        } else {
            CallError::Unanswered { address, detail }
        }
    }
}

/// Settles one batch.
pub(crate) async fn settle(peer: &Peer, batch: &[Settlement]) -> Result<Vec<SettlementResult>, Trouble> {
    let settlements = batch.iter().map(wire::settlement).collect();
    let mut client = peer.client();
    let asking = client.settle(peer.request(proto::SettleRequest { settlements }));
    let results = within_time(asking).await?.results;
    complete(results.into_iter().map(wire::settlement_result).collect(), batch.len())
}

/// Renews one batch.
pub(crate) async fn renew(peer: &Peer, batch: &[Renewal]) -> Result<Vec<RenewalResult>, Trouble> {
    let renewals = batch.iter().map(wire::renewal).collect();
    let mut client = peer.client();
    let asking = client.renew(peer.request(proto::RenewRequest { renewals }));
    let results = within_time(asking).await?.results;
    complete(results.into_iter().map(wire::renewal_result).collect(), batch.len())
}

async fn within_time<T>(
    asking: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, Trouble> {
    match timeout(CALL_TIMEOUT, asking).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => {
            let detail = format!("no answer came in {} s", CALL_TIMEOUT.as_secs());
            Err(Trouble { is_refusal: false, detail })
        }
    }
}

fn complete<T>(results: Vec<T>, asked: usize) -> Result<Vec<T>, Trouble> {
    if results.len() == asked {
        return Ok(results);
    }
    let detail = format!("it gave {} results to {asked} receipts", results.len());
    Err(Trouble { is_refusal: false, detail })
}

fn description(answer: proto::DescribeResponse) -> HostDescription {
    let flow = |flow: proto::FlowDescription| FlowDescription {
        accepts_on_delivery: flow.ack() == proto::AckMode::OnDelivery,
        name: flow.name,
        key_affinity: flow.key_affinity,
        held: flow.held,
        workers: flow.workers.into_iter().map(worker).collect(),
    };
    HostDescription {
        host: answer.host,
        version: answer.version,
        flows: answer.flows.into_iter().map(flow).collect(),
    }
}

fn worker(worker: proto::WorkerDescription) -> WorkerDescription {
    WorkerDescription { name: worker.name, credit_messages: worker.credit_messages, held: worker.held }
}
