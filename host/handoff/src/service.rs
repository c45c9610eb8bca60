//! The gRPC service.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::stream;
use parking_lot::Mutex;
use tidegate_connector::Clock;
use tidegate_proto::handoff as proto;
use tidegate_proto::handoff::handoff_server::Handoff;
use tidegate_proto::handoff::subscribe_request::Kind as Asked;
use tidegate_proto::handoff::subscribe_response::Kind as Said;
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::{handoff as events, peer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};

use crate::flow::{Command, FlowHandle, Membership};
use crate::forward::FORWARDED_TO;
use crate::grpc;
use crate::mailbox::{Item, Mailbox, Permitted};
use crate::rights::{Caller, Rights};
use crate::server::Registry;
use crate::settle::{BATCH_MAX, Kept, PATIENCE, SettleRouter, Terms, Told};
use crate::wire;

/// How long the first request of a stream may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may not take what waits for its worker. Then what the worker holds goes to others.
const STALL_MAX: Duration = Duration::from_secs(30);
/// How often that is looked at, and whether its token is still good.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// What one stream may have of settlements and renewals whose answers it has not taken, in permits: one, and one more for
/// every so many bytes of the receipt. Enough for as many of usual length as a worker may hold messages, and 64 MiB.
const OPEN_PERMITS_MAX: usize = 131_072;
const PERMIT_BYTES: usize = 512;
/// The longest that an answer on a stream is waited for. The host knows sooner, by the end of a lease at the latest.
const ANSWER_PATIENCE: Duration = Duration::from_secs(300);

/// How what is said on a stream is treated.
const TERMS: Terms = Terms { patience: ANSWER_PATIENCE, ..Terms::OWN };

/// The service.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) rights: Rights,
    pub(crate) registry: Arc<Registry>,
    pub(crate) router: SettleRouter,
    pub(crate) clock: Clock,
    pub(crate) telemetry: Telemetry,
    pub(crate) closing: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

type Responses = Pin<Box<dyn Stream<Item = Result<proto::SubscribeResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Handoff for Service {
    type SubscribeStream = Responses;

    async fn subscribe(
        &self,
        request: Request<Streaming<proto::SubscribeRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let caller = self.caller(&request)?;
        let mut requests = request.into_inner();
        let open = tokio::time::timeout(OPEN_TIMEOUT, requests.message())
            .await
            .map_err(|_| self.bad(&caller, "the first request of a stream is `open`, and none came"))?
            .map_err(|status| match grpc::unreadable(&status) {
                Some(status) => self.refuse(&caller, status),
                None => status,
            })?;
        let Some(proto::SubscribeRequest { kind: Some(Asked::Open(open)) }) = open else {
            return Err(self.bad(&caller, "the first request of a stream is `open`"));
        };
        let flow = self.flow(&caller, &open.flow)?;
        let worker = wire::worker_name(&open.worker).map_err(|problem| self.bad(&caller, &problem))?;
        let credits = wire::credits(open.credits.as_ref()).map_err(|problem| self.bad(&caller, &problem))?;
        let mailbox = Arc::new(Mailbox::default());
        let joined = flow.join(Arc::clone(&worker), credits, Arc::clone(&mailbox)).await;
        let membership = joined.ok_or_else(|| {
            Status::unavailable(format!(
                "flow `{}` takes no workers now: it ends, or has 1000 of them",
                open.flow
            ))
        })?;
        let opened = proto::Opened {
            host: self.router.host_id.to_string(),
            ack: wire::ack_mode(flow.options.accepts_on_delivery).into(),
        };
        let session = Session {
            service: self.clone(),
            caller,
            worker,
            flow: flow.clone(),
            mailbox: Arc::clone(&mailbox),
            membership,
            open: Arc::new(Semaphore::new(OPEN_PERMITS_MAX)),
        };
        self.tasks.spawn(session.run(requests));
        Ok(Response::new(responses(flow, mailbox, opened, self.clock)))
    }

    async fn settle(
        &self,
        request: Request<proto::SettleRequest>,
    ) -> Result<Response<proto::SettleResponse>, Status> {
        let caller = self.caller(&request)?;
        let terms = self.terms(&request)?;
        let settlements = request.into_inner().settlements;
        self.check_batch(&caller, settlements.len())?;
        self.count_received(&caller, terms, settlements.len());
        let receipts: Vec<String> = settlements.iter().map(|one| one.receipt.clone()).collect();
        let told = self.router.settle(&caller, settlements, terms).await;
        let results = receipts.into_iter().zip(told).map(|(receipt, told)| settle_result(receipt, told));
        Ok(Response::new(proto::SettleResponse { results: results.collect() }))
    }

    async fn renew(
        &self,
        request: Request<proto::RenewRequest>,
    ) -> Result<Response<proto::RenewResponse>, Status> {
        let caller = self.caller(&request)?;
        let terms = self.terms(&request)?;
        let renewals = request.into_inner().renewals;
        self.check_batch(&caller, renewals.len())?;
        self.count_received(&caller, terms, renewals.len());
        let receipts: Vec<String> = renewals.iter().map(|one| one.receipt.clone()).collect();
        let kept = self.router.renew(&caller, renewals, terms).await;
        let results = receipts.into_iter().zip(kept).map(|(receipt, kept)| renew_result(receipt, kept));
        Ok(Response::new(proto::RenewResponse { results: results.collect() }))
    }

    async fn describe(
        &self,
        request: Request<proto::DescribeRequest>,
    ) -> Result<Response<proto::DescribeResponse>, Status> {
        let caller = self.caller(&request)?;
        Ok(Response::new(self.description(&caller)))
    }
}

impl Service {
    /// What a caller may know of this host.
    pub(crate) fn description(&self, caller: &Caller) -> proto::DescribeResponse {
        let flows = self.registry.all().into_iter().filter(|(name, _)| caller.may(name));
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let flows = flows.map(|(name, flow)| {
            let view = flow.view();
            proto::FlowDescription {
                name: name.to_string(),
                ack: wire::ack_mode(flow.options.accepts_on_delivery).into(),
                key_affinity: flow.options.key_affinity,
                held: count(view.held),
                workers: view
                    .workers
                    .into_iter()
                    .map(|worker| proto::WorkerDescription {
                        name: worker.name.to_string(),
                        credit_messages: count(worker.credit_messages),
                        held: count(worker.held),
                    })
                    .collect(),
            }
        });
        proto::DescribeResponse {
            host: self.router.host_id.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            flows: flows.collect(),
        }
    }

    /// A flow that a caller may have to do with.
    pub(crate) fn flow(&self, caller: &Caller, name: &str) -> Result<FlowHandle, Status> {
        let shown = wire::in_short(name);
        if !caller.may(name) {
            let detail = format!("`{}` has no right to flow `{shown}`", caller.name);
            self.telemetry.emit(events::Refused { cause: "rights", detail: &detail, caller: &caller.name });
            return Err(Status::permission_denied(detail));
        }
        self.registry.find(name).ok_or_else(|| {
            if self.registry.has_ended(name) {
                return Status::unavailable(format!(
                    "flow `{shown}` is over in this host, drained or failed; workers are served again when the host starts anew"
                ));
            }
            let known = self.registry.all().into_keys().filter(|name| caller.may(name));
            let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
            Status::not_found(match &*known {
                [] => format!("there is no flow `{shown}` here, and no other"),
                _ => format!("there is no flow `{shown}` here; there are {}", known.join(", ")),
            })
        })
    }

    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        self.admit(request.metadata().get("authorization").map(|value| value.as_bytes()))
    }

    /// How a call is to be treated: by its deadline, and by whether another host has passed it on to this one.
    fn terms<T>(&self, request: &Request<T>) -> Result<Terms, Status> {
        let metadata = request.metadata();
        let patience = metadata.get("grpc-timeout").and_then(|value| grpc::timeout(value.as_bytes()));
        let patience = patience.map_or(PATIENCE, |timeout| grpc::patience(timeout).min(PATIENCE));
        match metadata.get(FORWARDED_TO) {
            None => Ok(Terms { patience, passed_on: false }),
            Some(host) if host.as_bytes() == self.router.host_id.as_bytes() => {
                Ok(Terms { patience, passed_on: true })
            }
            Some(_) => {
                let told =
                    format!("this is host `{}`, and the call was passed on to another", self.router.host_id);
                Err(Status::failed_precondition(told))
            }
        }
    }

    fn count_received(&self, caller: &Caller, terms: Terms, receipts: usize) {
        if terms.passed_on {
            self.telemetry.emit(peer::Received { caller: &caller.name, count: receipts as u64 });
        }
    }

    /// Who comes with this `authorization`.
    pub(crate) fn admit(&self, authorization: Option<&[u8]>) -> Result<Caller, Status> {
        self.rights.admit(authorization).map_err(|stranger| {
            let detail = stranger.to_string();
            self.telemetry.emit(events::Refused { cause: "token", detail: &detail, caller: "?" });
            Status::unauthenticated(detail)
        })
    }

    fn check_batch(&self, caller: &Caller, count: usize) -> Result<(), Status> {
        if count <= BATCH_MAX {
            return Ok(());
        }
        Err(self.bad(caller, &format!("a request has at most {BATCH_MAX} receipts, not {count}")))
    }

    fn bad(&self, caller: &Caller, problem: &str) -> Status {
        self.refuse(caller, Status::invalid_argument(wire::in_short(problem)))
    }

    fn refuse(&self, caller: &Caller, status: Status) -> Status {
        let refused = events::Refused { cause: "request", detail: status.message(), caller: &caller.name };
        self.telemetry.emit(refused);
        status
    }
}

/// One worker's stream, on the side that it is read.
struct Session {
    service: Service,
    caller: Caller,
    worker: Arc<str>,
    flow: FlowHandle,
    mailbox: Arc<Mailbox>,
    membership: Membership,
    open: Arc<Semaphore>,
}

/// Why a stream ended.
enum End {
    /// The worker left, or its connection is gone.
    Left,
    /// The host ends it, for this reason.
    Ended(Status),
}

impl Session {
    async fn run(self, mut requests: Streaming<proto::SubscribeRequest>) {
        let end = tokio::select! {
            end = self.converse(&mut requests) => end,
            end = self.watch() => end,
        };
        if let End::Ended(status) = end {
            let (flow, worker) = (&*self.flow.issuer.flow, &*self.worker);
            let reason = status.message();
            self.service.telemetry.emit(events::WorkerEnded { flow, worker, reason });
            self.mailbox.fail(status);
        }
        // Leaves with the membership.
    }

    async fn converse(&self, requests: &mut Streaming<proto::SubscribeRequest>) -> End {
        loop {
            match requests.message().await {
                Ok(Some(request)) => {
                    if let Err(problem) = self.handle(request).await {
                        return End::Ended(self.service.bad(&self.caller, &problem));
                    }
                }
                Ok(None) => return End::Left,
                Err(status) => match grpc::unreadable(&status) {
                    Some(status) => return End::Ended(self.service.refuse(&self.caller, status)),
                    None => return End::Left,
                },
            }
        }
    }

    /// Returns when the stream is to end for another reason than what it says: also while what it says has to wait.
    async fn watch(&self) -> End {
        let flow = &*self.flow.issuer.flow;
        let looking = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let (now, since) = (self.service.clock.now(), self.mailbox.waiting_since());
                if since.is_some_and(|since| now.saturating_since(since) > STALL_MAX) {
                    let reason = format!("it has taken nothing for {} s", STALL_MAX.as_secs());
                    return End::Ended(Status::resource_exhausted(reason));
                }
                if !self.service.rights.still_admits(&self.caller, flow) {
                    return End::Ended(Status::unauthenticated("its bearer token was withdrawn"));
                }
            }
        };
        tokio::select! {
            () = self.service.closing.cancelled() => End::Left,
            () = self.mailbox.closed() => End::Left,
            end = looking => end,
        }
    }

    async fn handle(&self, request: proto::SubscribeRequest) -> Result<(), String> {
        let now = self.service.clock.now();
        match request.kind {
            Some(Asked::Open(_)) => Err("a stream is opened once".to_owned()),
            Some(Asked::Credits(credits)) => {
                let credits = wire::credits(Some(&credits))?;
                // A flow that has ended gives nothing out.
                let _ = self.flow.send(Command::Credits(self.membership.worker, credits)).await;
                Ok(())
            }
            Some(Asked::Settle(proto::Settlements { settlements })) => self.settle(settlements).await,
            Some(Asked::Renew(proto::Renewals { renewals })) => self.renew(renewals).await,
            Some(Asked::Alive(_)) => {
                self.mailbox.alive(now);
                Ok(())
            }
            Some(Asked::Elsewhere(proto::Elsewhere { receipts })) => self.leave(&receipts).await,
            None => {
                Err("a request says something: open, credits, settle, renew, alive or elsewhere".to_owned())
            }
        }
    }

    /// Lets go of what is settled at another host, in the order of the stream.
    async fn leave(&self, receipts: &[String]) -> Result<(), String> {
        if receipts.len() > BATCH_MAX {
            return Err(format!("a request has at most {BATCH_MAX} receipts, not {}", receipts.len()));
        }
        let claims = self.service.router.claims(&self.caller, &self.flow.issuer.flow, receipts);
        // A flow that has ended holds nothing.
        let _ = self.flow.send(Command::Elsewhere(claims)).await;
        Ok(())
    }

    /// Answers come when they come; requests go on meanwhile.
    async fn settle(&self, settlements: Vec<proto::Settlement>) -> Result<(), String> {
        let permits = self.permits(settlements.iter().map(|one| &*one.receipt)).await?;
        let (service, caller, mailbox) =
            (self.service.clone(), self.caller.clone(), Arc::clone(&self.mailbox));
        self.service.tasks.spawn(async move {
            let receipts: Vec<String> = settlements.iter().map(|one| one.receipt.clone()).collect();
            let permits = Mutex::new(permits);
            let tell = |at: usize, told: Told| {
                let permit = permits.lock().split(weight(&receipts[at]));
                let result = settle_result(receipts[at].clone(), told);
                mailbox.settled(service.clock.now(), Permitted::new(result, permit));
            };
            service.router.settle_each(&caller, settlements, TERMS, &tell).await;
        });
        Ok(())
    }

    async fn renew(&self, renewals: Vec<proto::Renewal>) -> Result<(), String> {
        let mut permits = self.permits(renewals.iter().map(|one| &*one.receipt)).await?;
        let (service, caller, mailbox) =
            (self.service.clone(), self.caller.clone(), Arc::clone(&self.mailbox));
        self.service.tasks.spawn(async move {
            let receipts: Vec<String> = renewals.iter().map(|one| one.receipt.clone()).collect();
            let kept = service.router.renew(&caller, renewals, Terms::OWN).await;
            let results = receipts.into_iter().zip(kept).map(|(receipt, kept)| {
                let permit = permits.split(weight(&receipt));
                Permitted::new(renew_result(receipt, kept), permit)
            });
            mailbox.renewed(service.clock.now(), results);
        });
        Ok(())
    }

    /// Waits until so many more may be open.
    async fn permits<'a>(
        &self,
        receipts: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<OwnedSemaphorePermit, String> {
        let count = receipts.len();
        if count > BATCH_MAX {
            return Err(format!("a request has at most {BATCH_MAX} receipts, not {count}"));
        }
        let weight: usize = receipts.map(weight).sum();
        let permits = Arc::clone(&self.open).acquire_many_owned(u32::try_from(weight).unwrap_or(u32::MAX));
        permits.await.map_err(|_| "the stream has ended".to_owned())
    }
}

/// How much of what a stream may have open one receipt takes.
const fn weight(receipt: &str) -> usize {
    1 + receipt.len() / PERMIT_BYTES
}

/// The stream to the worker. Ended by its mailbox; dropped with its connection, which ends the mailbox.
fn responses(flow: FlowHandle, mailbox: Arc<Mailbox>, opened: proto::Opened, clock: Clock) -> Responses {
    let first = stream::iter([Ok(response(Said::Opened(opened)))]);
    let reader = Reader { flow, mailbox: CloseOnDrop(mailbox), clock };
    let rest = stream::unfold(Some(reader), |reader| async move {
        let reader = reader?;
        match reader.next().await {
            Ok(Some(said)) => Some((Ok(response(said)), Some(reader))),
            Ok(None) => None,
            Err(status) => Some((Err(status), None)),
        }
    });
    Box::pin(futures::StreamExt::chain(first, rest))
}

struct Reader {
    flow: FlowHandle,
    mailbox: CloseOnDrop,
    clock: Clock,
}

/// Tells the session that its connection is gone.
struct CloseOnDrop(Arc<Mailbox>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Reader {
    async fn next(&self) -> Result<Option<Said>, Status> {
        let Some(item) = self.mailbox.0.next(|| self.clock.now()).await else {
            return match self.mailbox.0.failure() {
                Some(status) => Err(status),
                None => Ok(None),
            };
        };
        Ok(Some(match item {
            Item::Deliveries(emissions) => {
                let issuer = &self.flow.issuer;
                let deliveries =
                    emissions.iter().map(|emission| wire::delivery(emission, issuer, self.clock)).collect();
                if self.flow.options.accepts_on_delivery {
                    let written = emissions.iter().map(|emission| emission.id).collect();
                    // The connection takes this frame now; past here its worker answers for it.
                    let _ = self.flow.send(Command::Written(written)).await;
                }
                Said::Deliveries(proto::Deliveries { deliveries })
            }
            Item::Settled(results) => Said::Settled(proto::SettleResults { results }),
            Item::Renewed(results) => Said::Renewed(proto::RenewResults { results }),
            Item::Lost(emissions) => {
                let receipts = emissions
                    .iter()
                    .map(|emission| self.flow.issuer.issue(emission, self.clock.wall_at(emission.expires_at)))
                    .collect();
                Said::Expired(proto::Expired { receipts })
            }
            Item::Draining => Said::Draining(proto::Draining {}),
            Item::Alive => Said::Alive(proto::Alive {}),
        }))
    }
}

fn response(kind: Said) -> proto::SubscribeResponse {
    proto::SubscribeResponse { kind: Some(kind) }
}

fn settle_result(receipt: String, told: Told) -> proto::SettleResult {
    proto::SettleResult { receipt, status: told.status.into(), detail: told.detail }
}

fn renew_result(receipt: String, kept: Kept) -> proto::RenewResult {
    proto::RenewResult {
        receipt,
        status: kept.told.status.into(),
        detail: kept.told.detail,
        next_receipt: kept.next_receipt,
        lease_ms: u64::try_from(kept.lease.as_millis()).unwrap_or(u64::MAX),
    }
}
