//! The way to an answer: which broker, how often, how long.

use std::future::Future;
use std::time::Duration;

use kafka_wire::FindCoordinatorRequest;
use tidegate_connector::Backoff;
use tokio::time::{self, Instant};

use super::error::{MissingRight, Operation, ReachError};
use super::{AdminOptions, ShareGroupAdmin};
use crate::{BrokerAddress, BrokerId, Complaint, Connection, ErrorCode, Request, Versions};

/// Waits between two tries: a coordinator is there again within some seconds.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Kafka's kind of coordinators that share groups have. The other one (`SHARE`) is for brokers among themselves.
const GROUP: i8 = 0;

/// Why there is no answer that can be used.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nobody could be asked, or nobody answered.
    Reach(ReachError),
    /// A right is missing.
    Denied(MissingRight),
    /// A broker said no.
    Said {
        complaint: Complaint,
        /// The same had been asked before, and nobody knows whether it was done then.
        is_repeat: bool,
    },
}

/// A broker and where it is.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: BrokerId,
    /// `None` when it advertises an address where nobody can listen.
    pub(super) address: Option<BrokerAddress>,
}

/// How long an operation goes on, and when it tries again.
#[derive(Debug)]
pub(super) struct Patience {
    total: Duration,
    end: Instant,
    request_timeout: Duration,
    backoff: Backoff,
}

impl From<ReachError> for Trouble {
    fn from(error: ReachError) -> Self {
        Self::Reach(error)
    }
}

impl Patience {
    /// For one answer, and no longer than anything may take.
    fn for_request(&self) -> Duration {
        self.request_timeout.min(self.end.saturating_duration_since(Instant::now()))
    }

    /// Waits until it makes sense to try again.
    ///
    /// # Errors
    /// When there is no time for that: with what stood in the way.
    pub(super) async fn pause(&mut self, obstacle: impl ToString) -> Result<(), ReachError> {
        let at = Instant::now() + self.backoff.next_wait();
        if at >= self.end {
            return Err(ReachError::Late { waited: self.total, obstacle: obstacle.to_string().into() });
        }
        time::sleep_until(at).await;
        Ok(())
    }

    async fn within<T, E: Into<ReachError>>(
        &self,
        what: &str,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ReachError> {
        match time::timeout_at(self.end, step).await {
            Ok(done) => done.map_err(Into::into),
            Err(_) => Err(ReachError::Late { waited: self.total, obstacle: what.into() }),
        }
    }
}

impl ShareGroupAdmin {
    pub(super) fn patience(&self) -> Patience {
        let AdminOptions { timeout, request_timeout } = self.options;
        Patience {
            total: timeout,
            end: Instant::now() + timeout,
            request_timeout,
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1, self.seed),
        }
    }

    /// Asks whichever broker there is.
    pub(super) async fn ask_any<R: Request>(
        &mut self,
        request: &R,
        patience: &Patience,
    ) -> Result<R::Response, ReachError> {
        let mut connection = self.take_any(patience).await?;
        let answer = connection.call(request, patience.for_request()).await;
        self.any = connection.is_usable().then_some(connection);
        match answer {
            Ok(answer) => Ok(answer.body),
            // The broker may have closed a connection that was idle for long: a new one is worth a try.
            Err(error) if error.is_retriable() => {
                let mut connection = self.take_any(patience).await?;
                let answer = connection.call(request, patience.for_request()).await?;
                self.any = connection.is_usable().then_some(connection);
                Ok(answer.body)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What the broker speaks that is asked first.
    pub(super) async fn versions(&mut self, patience: &Patience) -> Result<Versions, ReachError> {
        let connection = self.take_any(patience).await?;
        let versions = connection.versions().clone();
        self.any = Some(connection);
        Ok(versions)
    }

    async fn take_any(&mut self, patience: &Patience) -> Result<Connection, ReachError> {
        if let Some(connection) = self.any.take().filter(Connection::is_usable) {
            return Ok(connection);
        }
        self.seed = self.seed.wrapping_add(1);
        let opening = self.connector.open_any(&self.bootstrap, self.seed);
        patience.within("no server took a connection", opening).await
    }

    /// Asks one broker, once.
    pub(super) async fn ask<R: Request>(
        &mut self,
        node: &Node,
        request: &R,
        patience: &Patience,
    ) -> Result<R::Response, ReachError> {
        let mut connection = self.take(node, patience).await?;
        let answer = connection.call(request, patience.for_request()).await;
        if connection.is_usable() {
            self.brokers.insert(node.id, connection);
        }
        Ok(answer?.body)
    }

    async fn take(&mut self, node: &Node, patience: &Patience) -> Result<Connection, ReachError> {
        let Some(address) = &node.address else { return Err(ReachError::Nowhere { broker: node.id }) };
        // A broker may have come back at another address.
        let known = self.brokers.remove(&node.id);
        if let Some(known) = known.filter(|known| known.is_usable() && known.address() == address) {
            return Ok(known);
        }
        patience.within("no connection to the broker", self.connector.open(address)).await
    }

    /// Who coordinates a group.
    async fn coordinator(&mut self, group: &str, patience: &mut Patience) -> Result<Node, Trouble> {
        let mut request = FindCoordinatorRequest::default();
        request.key_type = GROUP;
        request.coordinator_keys = vec![group.into()];
        loop {
            let answer = self.ask_any(&request, patience).await?;
            // One group was asked about; an answer in the old form has it at the top.
            let (id, host, port, complaint) = match answer.coordinators.into_iter().next() {
                Some(one) => (
                    one.node_id,
                    one.host,
                    one.port,
                    complained(one.error_code, one.error_message.as_deref()),
                ),
                None => {
                    let complaint = complained(answer.error_code, answer.error_message.as_deref());
                    (answer.node_id, answer.host, answer.port, complaint)
                }
            };
            match complaint {
                None => {
                    return Ok(Node { id: BrokerId(id), address: BrokerAddress::advertised(&host, port) });
                }
                Some(complaint) if is_unsettled(complaint.code) => patience.pause(complaint).await?,
                Some(complaint) if complaint.code == ErrorCode::GROUP_AUTHORIZATION_FAILED => {
                    return Err(Trouble::Denied(MissingRight::on_group(Operation::Describe, group)));
                }
                Some(complaint) => return Err(Trouble::Said { complaint, is_repeat: false }),
            }
        }
    }

    /// Asks a group's coordinator, and looks for it again when it is another one by now or is only beginning. `read` says
    /// what the answer is, or what the broker complains about.
    pub(super) async fn ask_coordinator<R: Request, T>(
        &mut self,
        group: &str,
        request: &R,
        patience: &mut Patience,
        read: impl Fn(R::Response) -> Result<T, Complaint>,
    ) -> Result<T, Trouble> {
        let mut is_repeat = false;
        loop {
            let coordinator = self.coordinator(group, patience).await?;
            match self.ask(&coordinator, request, patience).await {
                Ok(answer) => match read(answer) {
                    Ok(body) => return Ok(body),
                    Err(complaint) if is_unsettled(complaint.code) => patience.pause(complaint).await?,
                    Err(complaint) => return Err(Trouble::Said { complaint, is_repeat }),
                },
                Err(error) if error.is_retriable() => {
                    is_repeat |= error.may_have_been_done();
                    patience.pause(error).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether the coordinator is only beginning, is not there, or is another one.
const fn is_unsettled(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode::COORDINATOR_NOT_AVAILABLE
            | ErrorCode::NOT_COORDINATOR
    )
}

/// What a code and its words say, unless that is nothing.
pub(super) fn complained(code: i16, message: Option<&str>) -> Option<Complaint> {
    let code = ErrorCode(code);
    (!code.is_ok()).then(|| Complaint::new(code, message))
}

/// An answer about as many things as were asked about has one about ours; a broken one may not.
pub(super) fn only<T>(elements: Vec<T>) -> Result<T, Complaint> {
    let text = "the broker's answer says nothing about what was asked";
    elements.into_iter().next().ok_or_else(|| Complaint::new(ErrorCode::UNKNOWN_SERVER_ERROR, Some(text)))
}
