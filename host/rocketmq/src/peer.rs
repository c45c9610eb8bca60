//! Calls to one endpoint: metadata on, deadlines set, statuses read.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::Instant;
use tidegate_proto::rocketmq::{self as proto, Code};
use tokio::time;
use tonic::{Request, Response, Streaming};

use crate::collect::{Collected, Collector, End, Failure};
use crate::credentials::Keys;
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
        self.verdict(method, answer.status.as_ref())?;
        Ok(answer.message_queues)
    }

    pub(crate) async fn heartbeat(&self, request: proto::HeartbeatRequest) -> Result<(), CallError> {
        let method = Method::Heartbeat;
        let answer = self
            .unary(method, request, |mut client, request| async move { client.heartbeat(request).await })
            .await?;
        self.verdict(method, answer.status.as_ref())
    }

    pub(crate) async fn sync(&self, request: proto::SyncLiteSubscriptionRequest) -> Result<(), CallError> {
        let method = Method::SyncLiteSubscription;
        let answer = self
            .unary(method, request, |mut client, request| async move {
                client.sync_lite_subscription(request).await
            })
            .await?;
        self.verdict(method, answer.status.as_ref())
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
        self.verdict(method, answer.status.as_ref())
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
        self.verdict(method, answer.status.as_ref())?;
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
        self.verdict(method, answer.status.as_ref())
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
        let keys = self.keys(method).await?;
        // Kept for a second try only where there may be other keys.
        let spare = self.stamp.may_change().then(|| request.clone());
        let first = self.receive_once(keys.as_ref(), request, deadline, &now).await;
        let Some(spare) = spare.filter(|_| is_refused(&first)) else { return first };
        if !self.renew(method, keys.as_ref()).await {
            return first;
        }
        let keys = self.keys(method).await?;
        self.receive_once(keys.as_ref(), spare, deadline, &now).await
    }

    async fn receive_once(
        &self,
        keys: Option<&Arc<Keys>>,
        request: proto::ReceiveMessageRequest,
        deadline: Duration,
        now: &impl Fn() -> Instant,
    ) -> Result<Collected, CallError> {
        let method = Method::ReceiveMessage;
        let mut collector = Collector::with_capacity(usize::try_from(request.batch_size).unwrap_or(0));
        let mut request = self.stamp.request(keys, request);
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
        Err(error)
    }

    /// Opens the telemetry stream. It has no deadline, and its first message must already be in `commands`: the server
    /// sends its headers with its first answer.
    pub(crate) async fn telemetry(
        &self,
        commands: impl futures::Stream<Item = proto::TelemetryCommand> + Send + 'static,
    ) -> Result<Streaming<proto::TelemetryCommand>, CallError> {
        let method = Method::Telemetry;
        let keys = self.keys(method).await?;
        self.stamp.warm_up(self.endpoints.text());
        let request = self.stamp.request(keys.as_ref(), commands);
        let mut client = self.link.client();
        let error = match client.telemetry(request).await {
            Ok(answer) => return Ok(answer.into_inner()),
            Err(status) => self.broken(method, &status),
        };
        if error.reason() == Reason::Access {
            // The next try, which the session makes by itself, signs with them.
            self.renew(method, keys.as_ref()).await;
        }
        Err(error)
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

    /// Lets the source of credentials know when the server refused them for a part of a call. Later calls sign with
    /// the new keys, if there are new ones.
    pub(crate) async fn noted(&self, error: CallError) -> CallError {
        if error.reason() == Reason::Access && self.stamp.may_change() {
            let method = error.method();
            let keys = self.stamp.present_keys(self.endpoints.text(), method);
            self.renew(method, keys.as_ref()).await;
        }
        error
    }

    async fn renew(&self, method: Method, refused: Option<&Arc<Keys>>) -> bool {
        self.stamp.refresh(self.endpoints.text(), method, refused, self.request_timeout).await
    }

    /// The first ones are waited for.
    async fn keys(&self, method: Method) -> Result<Option<Arc<Keys>>, CallError> {
        let keys = self.stamp.keys(self.endpoints.text(), method, self.request_timeout).await;
        keys.map_err(|error| CallError::other(&self.subject, method, Reason::Access, error.to_string()))
    }

    /// Makes a call. When the server refuses our keys and there are others, it is made once more with those: a key
    /// that ended meanwhile fails nothing.
    async fn unary<Q, A, F>(
        &self,
        method: Method,
        message: Q,
        call: impl Fn(Client, Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        Q: Clone,
        A: Answer,
        F: Future<Output = Result<Response<A>, tonic::Status>>,
    {
        let keys = self.keys(method).await?;
        // Kept for a second try only where there may be other keys.
        let spare = self.stamp.may_change().then(|| message.clone());
        let first = self.once(method, keys.as_ref(), message, &call).await;
        let Some(spare) = spare else { return first };
        let is_refused = match &first {
            Ok(answer) => is_refused(&self.verdict(method, answer.status())),
            refused => is_refused(refused),
        };
        if !is_refused || !self.renew(method, keys.as_ref()).await {
            return first;
        }
        let keys = self.keys(method).await?;
        self.once(method, keys.as_ref(), spare, &call).await
    }

    async fn once<Q, A, F>(
        &self,
        method: Method,
        keys: Option<&Arc<Keys>>,
        message: Q,
        call: &impl Fn(Client, Request<Q>) -> F,
    ) -> Result<A, CallError>
    where
        F: Future<Output = Result<Response<A>, tonic::Status>>,
    {
        let mut request = self.stamp.request(keys, message);
        request.set_timeout(self.request_timeout);
        match time::timeout(self.request_timeout, call(self.link.client(), request)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.broken(method, &status)),
            Err(_) => {
                Err(CallError::timed_out(&self.subject, method, self.request_timeout, &self.link.finding()))
            }
        }
    }
}

fn is_refused<T>(result: &Result<T, CallError>) -> bool {
    result.as_ref().is_err_and(|error| error.reason() == Reason::Access)
}

/// An answer with a status of its own.
trait Answer {
    fn status(&self) -> Option<&proto::Status>;
}

macro_rules! answers {
    ($($answer:ident),*) => {
        $(impl Answer for proto::$answer {
            fn status(&self) -> Option<&proto::Status> {
                self.status.as_ref()
            }
        })*
    };
}

answers!(
    QueryRouteResponse,
    HeartbeatResponse,
    SyncLiteSubscriptionResponse,
    NotifyClientTerminationResponse,
    AckMessageResponse,
    ChangeInvisibleDurationResponse,
    ForwardMessageToDeadLetterQueueResponse,
    SendMessageResponse
);
