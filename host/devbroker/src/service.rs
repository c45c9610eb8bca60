//! The gRPC service of one proxy: identity, faults and checks here, each call's work in its own file.

mod answer;
mod call;
mod receive;
mod route;
mod send;
mod settle;
mod subscription;
mod telemetry;
mod validate;

use std::pin::Pin;
use std::sync::Arc;

use tidegate_proto::rocketmq as wire;
use tidegate_proto::rocketmq::messaging_service_server::MessagingService;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use self::answer::Answer;
use self::call::Call;
use crate::faults::{Effect, Method};
use crate::hub::Hub;

/// A stream of answers.
pub(crate) type Items<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The service of one proxy.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    hub: Arc<Hub>,
    proxy: usize,
    /// Ends with the proxy: its connections are being dropped.
    cut: CancellationToken,
}

impl Service {
    pub(crate) fn new(hub: Arc<Hub>, proxy: usize, cut: CancellationToken) -> Self {
        Self { hub, proxy, cut }
    }

    /// Runs a unary call: counts it, lets an ordered fault befall it, checks who asks, does the work.
    async fn unary<Q, A: Answer>(
        &self,
        method: Method,
        request: Request<Q>,
        work: impl FnOnce(&Call<'_>, Q) -> A,
    ) -> Result<Response<A>, Status> {
        self.thawed().await?;
        let call = Call::new(self, method, &request);
        let refusal = match &call.fault {
            Some(Effect::Delay(wait)) => {
                self.sleep(*wait).await?;
                None
            }
            Some(Effect::Code { code, message }) => Some(answer::status(*code, message.clone())),
            Some(Effect::Grpc { code, message }) => return Err(Status::new((*code).into(), message.clone())),
            Some(Effect::CloseStream) => {
                return Err(Status::unavailable("the call was closed by an ordered fault"));
            }
            _ => None,
        };
        let refusal = refusal.or_else(|| call.identify().err());
        let answer = match refusal {
            Some(status) => A::refused(status),
            None => work(&call, request.into_inner()),
        };
        if matches!(call.fault, Some(Effect::DropReply)) {
            self.cut.cancelled().await;
            return Err(Status::unavailable("the answer was dropped by an ordered fault"));
        }
        Ok(Response::new(answer))
    }

    /// Waits as long as the proxy is frozen, but not longer than it lives.
    async fn thawed(&self) -> Result<(), Status> {
        tokio::select! {
            () = self.hub.proxies[self.proxy].thawed() => Ok(()),
            () = self.cut.cancelled() => Err(Status::unavailable("the proxy is stopping")),
        }
    }

    /// Waits, but not longer than the proxy lives.
    async fn sleep(&self, wait: std::time::Duration) -> Result<(), Status> {
        tokio::select! {
            () = tokio::time::sleep(wait) => Ok(()),
            () = self.cut.cancelled() => Err(Status::unavailable("the proxy is stopping")),
        }
    }
}

#[tonic::async_trait]
impl MessagingService for Service {
    type ReceiveMessageStream = Items<wire::ReceiveMessageResponse>;
    type PullMessageStream = Items<wire::PullMessageResponse>;
    type TelemetryStream = Items<wire::TelemetryCommand>;

    async fn query_route(
        &self,
        request: Request<wire::QueryRouteRequest>,
    ) -> Result<Response<wire::QueryRouteResponse>, Status> {
        self.unary(Method::QueryRoute, request, |call, request| call.query_route(&request)).await
    }

    async fn heartbeat(
        &self,
        request: Request<wire::HeartbeatRequest>,
    ) -> Result<Response<wire::HeartbeatResponse>, Status> {
        self.unary(Method::Heartbeat, request, |call, request| call.heartbeat(&request)).await
    }

    async fn send_message(
        &self,
        request: Request<wire::SendMessageRequest>,
    ) -> Result<Response<wire::SendMessageResponse>, Status> {
        self.unary(Method::SendMessage, request, |call, request| call.send(request)).await
    }

    async fn query_assignment(
        &self,
        request: Request<wire::QueryAssignmentRequest>,
    ) -> Result<Response<wire::QueryAssignmentResponse>, Status> {
        self.unary(Method::QueryAssignment, request, |call, request| call.query_assignment(&request)).await
    }

    async fn receive_message(
        &self,
        request: Request<wire::ReceiveMessageRequest>,
    ) -> Result<Response<Self::ReceiveMessageStream>, Status> {
        self.receive(request).await
    }

    async fn ack_message(
        &self,
        request: Request<wire::AckMessageRequest>,
    ) -> Result<Response<wire::AckMessageResponse>, Status> {
        self.unary(Method::AckMessage, request, |call, request| call.ack(request)).await
    }

    async fn forward_message_to_dead_letter_queue(
        &self,
        request: Request<wire::ForwardMessageToDeadLetterQueueRequest>,
    ) -> Result<Response<wire::ForwardMessageToDeadLetterQueueResponse>, Status> {
        let method = Method::ForwardMessageToDeadLetterQueue;
        self.unary(method, request, |call, request| call.forward(&request)).await
    }

    async fn pull_message(
        &self,
        _: Request<wire::PullMessageRequest>,
    ) -> Result<Response<Self::PullMessageStream>, Status> {
        Err(unimplemented("PullMessage"))
    }

    async fn update_offset(
        &self,
        _: Request<wire::UpdateOffsetRequest>,
    ) -> Result<Response<wire::UpdateOffsetResponse>, Status> {
        Err(unimplemented("UpdateOffset"))
    }

    async fn get_offset(
        &self,
        _: Request<wire::GetOffsetRequest>,
    ) -> Result<Response<wire::GetOffsetResponse>, Status> {
        Err(unimplemented("GetOffset"))
    }

    async fn query_offset(
        &self,
        _: Request<wire::QueryOffsetRequest>,
    ) -> Result<Response<wire::QueryOffsetResponse>, Status> {
        Err(unimplemented("QueryOffset"))
    }

    async fn end_transaction(
        &self,
        _: Request<wire::EndTransactionRequest>,
    ) -> Result<Response<wire::EndTransactionResponse>, Status> {
        Err(unimplemented("EndTransaction"))
    }

    async fn telemetry(
        &self,
        request: Request<Streaming<wire::TelemetryCommand>>,
    ) -> Result<Response<Self::TelemetryStream>, Status> {
        self.open_telemetry(request).await
    }

    async fn notify_client_termination(
        &self,
        request: Request<wire::NotifyClientTerminationRequest>,
    ) -> Result<Response<wire::NotifyClientTerminationResponse>, Status> {
        self.unary(Method::NotifyClientTermination, request, |call, request| call.terminate(&request)).await
    }

    async fn change_invisible_duration(
        &self,
        request: Request<wire::ChangeInvisibleDurationRequest>,
    ) -> Result<Response<wire::ChangeInvisibleDurationResponse>, Status> {
        self.unary(Method::ChangeInvisibleDuration, request, |call, request| call.change(&request)).await
    }

    async fn recall_message(
        &self,
        request: Request<wire::RecallMessageRequest>,
    ) -> Result<Response<wire::RecallMessageResponse>, Status> {
        self.unary(Method::RecallMessage, request, |call, request| call.recall(&request)).await
    }

    async fn sync_lite_subscription(
        &self,
        request: Request<wire::SyncLiteSubscriptionRequest>,
    ) -> Result<Response<wire::SyncLiteSubscriptionResponse>, Status> {
        self.unary(Method::SyncLiteSubscription, request, |call, request| call.sync_lite(&request)).await
    }
}

/// What the real proxy answers to the calls of pull consumers.
fn unimplemented(method: &str) -> Status {
    Status::unimplemented(format!("Method apache.rocketmq.v2.MessagingService/{method} is unimplemented"))
}
