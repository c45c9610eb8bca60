//! Calls to one endpoint: metadata on, deadlines set, statuses read.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::Instant;
use tidegate_proto::rocketmq::{self as proto, Code};
use tokio::time;
use tonic::{Request, Response, Streaming};

use crate::collect::{Collected, Collector, End, Failure};
use crate::endpoints::Endpoints;
use crate::fault::{CallError, Method, Reason, Subject};
use crate::link::{Client, Link};
use crate::stamp::Stamp;

/// One endpoint as seen by one client.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) endpoints: Endpoints,
    pub(crate) subject: Subject,
    pub(crate) link: Arc<Link>,
    pub(crate) stamp: Arc<Stamp>,
    pub(crate) request_timeout: Duration,
}

impl Peer {
    pub(crate) async fn query_route(
        &self,
        topic: proto::Resource,
        access_point: &Endpoints,
    ) -> Result<Vec<proto::MessageQueue>, CallError> {
        let method = Method::QueryRoute;
        let request =
            proto::QueryRouteRequest { topic: Some(topic), endpoints: Some(access_point.to_proto()) };
        let answer = self
            .unary(method, request, |mut client, request| async move { client.query_route(request).await })
            .await?;
        self.check(method, answer.status).await?;
        Ok(answer.message_queues)
    }

    pub(crate) async fn heartbeat(&self, request: proto::HeartbeatRequest) -> Result<(), CallError> {
        let method = Method::Heartbeat;
        let answer = self
            .unary(method, request, |mut client, request| async move { client.heartbeat(request).await })
            .await?;
        self.check(method, answer.status).await
    }

    pub(crate) async fn sync(&self, request: proto::SyncLiteSubscriptionRequest) -> Result<(), CallError> {
        let method = Method::SyncLiteSubscription;
        let answer = self
            .unary(method, request, |mut client, request| async move {
                client.sync_lite_subscription(request).await
            })
            .await?;
        self.check(method, answer.status).await
    }

    pub(crate) async fn terminate(
        &self,
        request: proto::NotifyClientTerminationRequest,
    ) -> Result<(), CallError> {
        let method = Method::NotifyClientTermination;
        let answer = self
            .unary(method, request, |mut client, request| async move {
                client.notify_client_termination(request).await
            })
            .await?;
        self.check(method, answer.status).await
    }

    /// The whole answer: each entry has its own status.
    pub(crate) async fn acknowledge(
        &self,
        request: proto::AckMessageRequest,
    ) -> Result<proto::AckMessageResponse, CallError> {
        self.unary(Method::AckMessage, request, |mut client, request| async move {
            client.ack_message(request).await
        })
        .await
    }

    /// The new handle; empty when the server gave none.
    pub(crate) async fn change(
        &self,
        request: proto::ChangeInvisibleDurationRequest,
    ) -> Result<String, CallError> {
        let method = Method::ChangeInvisibleDuration;
        let answer = self
            .unary(method, request, |mut client, request| async move {
                client.change_invisible_duration(request).await
            })
            .await?;
        self.check(method, answer.status).await?;
        Ok(answer.receipt_handle)
    }

    pub(crate) async fn forward(
        &self,
        request: proto::ForwardMessageToDeadLetterQueueRequest,
    ) -> Result<(), CallError> {
        let method = Method::ForwardMessageToDeadLetterQueue;
        let answer = self
            .unary(method, request, |mut client, request| async move {
                client.forward_message_to_dead_letter_queue(request).await
            })
            .await?;
        self.check(method, answer.status).await
    }

    /// The whole answer: each message has its own status.
    pub(crate) async fn send(
        &self,
        request: proto::SendMessageRequest,
    ) -> Result<proto::SendMessageResponse, CallError> {
        self.unary(Method::SendMessage, request, |mut client, request| async move {
            client.send_message(request).await
        })
        .await
    }

    /// One receive. Its deadline is for the whole answer: tonic's own covers only the headers, and a proxy that is not
    /// told one fails.
    pub(crate) async fn receive(
        &self,
        request: proto::ReceiveMessageRequest,
        deadline: Duration,
        now: impl Fn() -> Instant,
    ) -> Result<Collected, CallError> {
        let method = Method::ReceiveMessage;
        let mut collector = Collector::with_capacity(usize::try_from(request.batch_size).unwrap_or(0));
        let mut request = self.request(method, request)?;
        request.set_timeout(deadline);
        let collecting = async {
            let mut client = self.link.client();
            let mut items = match client.receive_message(request).await {
                Ok(answer) => answer.into_inner(),
                Err(status) => return End::Broken(Some(status)),
            };
            loop {
                match items.message().await {
                    Ok(Some(item)) => {
                        if !collector.handle_item(now(), item) {
                            return End::Complete;
                        }
                    }
                    Ok(None) => return End::Complete,
                    Err(status) => return End::Broken(Some(status)),
                }
            }
        };
        let end = time::timeout(deadline, collecting).await.unwrap_or(End::Broken(None));
        let error = match collector.finish(now(), end) {
            Ok(collected) => return Ok(collected),
            Err(Failure::Status(status)) => {
                CallError::answered(&self.subject, method, status.code, &status.message)
            }
            Err(Failure::NoStatus) => CallError::other(
                &self.subject,
                method,
                Reason::Malformed,
                "the answer ended without a status",
            ),
            Err(Failure::Broken(Some(status))) => {
                CallError::failed(&self.subject, method, &status, &self.link.finding())
            }
            Err(Failure::Broken(None)) => {
                CallError::timed_out(&self.subject, method, deadline, &self.link.finding())
            }
        };
        Err(self.noted(error).await)
    }

    /// Opens the telemetry stream. It has no deadline, and its first message must already be in `commands`: the server
    /// sends its headers with its first answer.
    pub(crate) async fn telemetry(
        &self,
        commands: impl futures::Stream<Item = proto::TelemetryCommand> + Send + 'static,
    ) -> Result<Streaming<proto::TelemetryCommand>, CallError> {
        let method = Method::Telemetry;
        let request = self.request(method, commands)?;
        let mut client = self.link.client();
        match client.telemetry(request).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(self.broken(method, &status)),
        }
    }

    /// A stream or call that failed with a gRPC status.
    pub(crate) fn broken(&self, method: Method, status: &tonic::Status) -> CallError {
        CallError::failed(&self.subject, method, status, &self.link.finding())
    }

    /// A status in an answer, as an error unless it is OK.
    pub(crate) fn verdict(&self, method: Method, status: Option<&proto::Status>) -> Result<(), CallError> {
        match status {
            Some(status) if status.code() == Code::Ok => Ok(()),
            Some(status) => Err(CallError::answered(&self.subject, method, status.code, &status.message)),
            None => {
                Err(CallError::other(&self.subject, method, Reason::Malformed, "the answer has no status"))
            }
        }
    }

    /// Lets the source of credentials know when the server refused them.
    pub(crate) async fn noted(&self, error: CallError) -> CallError {
        if error.reason() == Reason::Access {
            let refresh = self.stamp.refresh(self.endpoints.text());
            // Later calls sign with the new keys, if there are new ones.
            let _ = time::timeout(self.request_timeout, refresh).await;
        }
        error
    }

    async fn check(&self, method: Method, status: Option<proto::Status>) -> Result<(), CallError> {
        match self.verdict(method, status.as_ref()) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.noted(error).await),
        }
    }

    async fn unary<Q, A, F>(
        &self,
        method: Method,
        message: Q,
        call: impl FnOnce(Client, Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        F: Future<Output = Result<Response<A>, tonic::Status>>,
    {
        let mut request = self.request(method, message)?;
        request.set_timeout(self.request_timeout);
        match time::timeout(self.request_timeout, call(self.link.client(), request)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => {
                let error = self.broken(method, &status);
                Err(self.noted(error).await)
            }
            Err(_) => {
                Err(CallError::timed_out(&self.subject, method, self.request_timeout, &self.link.finding()))
            }
        }
    }

    fn request<Q>(&self, method: Method, message: Q) -> Result<Request<Q>, CallError> {
        self.stamp
            .request(self.endpoints.text(), message)
            .map_err(|error| CallError::other(&self.subject, method, Reason::Access, error.to_string()))
    }
}
