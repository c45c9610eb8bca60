//! What is held in memory for a connection's requests, and for how long: a client may begin hundreds of some megabytes
//! each and end none of them, or read none of their answers.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};
use tonic::Status;

/// What one connection may have sent of requests that are not answered, in KiB: four of the largest.
const UNANSWERED_KIB_MAX: usize = 32 << 10;
/// How long an answer may take to be received: some megabytes, over the slowest line that is of use.
const TAKING_MAX: Duration = Duration::from_secs(120);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Bytes before a gRPC message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// What one connection has under way.
#[derive(Clone, Debug)]
pub(crate) struct Intake {
    unanswered: Arc<Semaphore>,
    answers: Arc<Mutex<Answers>>,
}

/// Answers that are not taken yet, in order, and since when.
#[derive(Debug, Default)]
struct Answers {
    given: u64,
    since: BTreeMap<u64, Instant>,
}

/// What one request takes of it, until it is dropped.
#[derive(Debug)]
struct Share {
    intake: Arc<Semaphore>,
    permits: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Intake {
    pub(crate) fn new() -> Self {
        Self { unanswered: Arc::new(Semaphore::new(UNANSWERED_KIB_MAX)), answers: Arc::default() }
    }

    /// Returns when an answer is not taken in time: HTTP/2 would wait for that without end.
    pub(crate) async fn untaken(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            let oldest = self.answers.lock().since.first_key_value().map(|(_, since)| *since);
            if oldest.is_some_and(|since| since.elapsed() > TAKING_MAX) {
                return;
            }
        }
    }

    /// Counts what comes of a request, and passes it to `answer`. A stream is counted message by message; anything else
    /// until its answer was taken.
    pub(crate) async fn count<B, E>(
        self,
        request: Request<B>,
        answer: impl AsyncFnOnce(Request) -> Result<Response, E>,
    ) -> Result<Response, E>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let path = request.uri().path();
        // Ours, and those of health and reflection.
        let is_stream = path.ends_with("/Subscribe") || path.starts_with("/grpc.");
        let share = Arc::new(Share { intake: self.unanswered, permits: Mutex::new(None) });
        let messages = is_stream.then(Messages::default);
        let counted = request
            .map(|body| Body::new(Counted { body, share: Arc::clone(&share), messages, unpaid_bytes: 0 }));
        let response = answer(counted).await?;
        if is_stream {
            return Ok(response);
        }
        let number = self.answers.lock().give();
        Ok(response.map(|body| Body::new(Answer { body, number, answers: self.answers, _share: share })))
    }
}

impl Answers {
    fn give(&mut self) -> u64 {
        self.given += 1;
        self.since.insert(self.given, Instant::now());
        self.given
    }
}

impl Share {
    /// Takes more of what the connection may have.
    fn take(&self, kib: usize) -> Result<(), Status> {
        let kib = u32::try_from(kib).unwrap_or(u32::MAX);
        let permits = Arc::clone(&self.intake).try_acquire_many_owned(kib).map_err(|_| {
            let most = UNANSWERED_KIB_MAX >> 10;
            Status::resource_exhausted(format!(
                "this connection has more than {most} MiB of requests under way"
            ))
        })?;
        let mut held = self.permits.lock();
        match &mut *held {
            Some(held) => held.merge(permits),
            None => *held = Some(permits),
        }
        Ok(())
    }

    fn give_back(&self) {
        *self.permits.lock() = None;
    }
}

/// A request's body, counted.
struct Counted<B> {
    body: B,
    share: Arc<Share>,
    messages: Option<Messages>,
    /// Less than a KiB.
    unpaid_bytes: usize,
}

impl<B> Counted<B> {
    fn count(&mut self, data: &[u8]) -> Result<(), Status> {
        if self.messages.as_mut().is_some_and(|messages| messages.pass(data)) {
            self.share.give_back();
            self.unpaid_bytes = 0;
            return Ok(());
        }
        self.unpaid_bytes += data.len();
        let kib = self.unpaid_bytes >> 10;
        self.unpaid_bytes &= 1023;
        if kib > 0 { self.share.take(kib) } else { Ok(()) }
    }
}

impl<B> HttpBody for Counted<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<axum::BoxError>,
{
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else { return Poll::Ready(None) };
        let frame = frame.map_err(Into::into)?;
        if let Some(data) = frame.data_ref() {
            self.count(data)?;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Where the messages of a gRPC stream end.
#[derive(Debug, Default)]
struct Messages {
    prefix: [u8; PREFIX_BYTES],
    prefix_bytes: usize,
    missing_bytes: usize,
}

impl Messages {
    /// Passes over some of the stream; gives whether it ends with a message.
    fn pass(&mut self, mut data: &[u8]) -> bool {
        while !data.is_empty() {
            if self.prefix_bytes < PREFIX_BYTES {
                let count = data.len().min(PREFIX_BYTES - self.prefix_bytes);
                self.prefix[self.prefix_bytes..][..count].copy_from_slice(&data[..count]);
                self.prefix_bytes += count;
                data = &data[count..];
                if self.prefix_bytes == PREFIX_BYTES {
                    let [_, length @ ..] = self.prefix;
                    self.missing_bytes = u32::from_be_bytes(length) as usize;
                }
            } else {
                let count = data.len().min(self.missing_bytes);
                self.missing_bytes -= count;
                data = &data[count..];
            }
            if self.prefix_bytes == PREFIX_BYTES && self.missing_bytes == 0 {
                self.prefix_bytes = 0;
            }
        }
        self.prefix_bytes == 0
    }
}

/// An answer, which holds what its request has taken.
struct Answer {
    body: Body,
    number: u64,
    answers: Arc<Mutex<Answers>>,
    _share: Arc<Share>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.answers.lock().since.remove(&self.number);
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::to_bytes;

    use super::*;

    const MIB: usize = 1 << 20;

    fn free_mib(intake: &Intake) -> usize {
        intake.unanswered.available_permits() >> 10
    }

    async fn read(request: Request) -> Result<Response, Infallible> {
        let read = to_bytes(request.into_body(), usize::MAX).await;
        Ok(Response::new(match read {
            Ok(bytes) => Body::from(format!("{} MiB", bytes.len() / MIB)),
            Err(error) => Body::from(error.to_string()),
        }))
    }

    fn request(path: &str, bytes: usize) -> Request {
        let mut request = Request::new(Body::from(vec![0; bytes]));
        *request.uri_mut() = path.parse().unwrap();
        request
    }

    async fn text(response: Response) -> String {
        String::from_utf8(to_bytes(response.into_body(), MIB).await.unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_request_counts_until_its_answer_was_taken() {
        let intake = Intake::new();
        let first = intake.clone().count(request("/v1/settle", 30 * MIB), read).await.unwrap();
        assert_eq!(free_mib(&intake), 2);
        let second = intake.clone().count(request("/v1/settle", 3 * MIB), read).await.unwrap();
        assert!(text(second).await.contains("more than 32 MiB of requests under way"));
        assert_eq!(text(first).await, "30 MiB");
        assert_eq!(free_mib(&intake), 32);
        let third = intake.clone().count(request("/v1/settle", 3 * MIB), read).await.unwrap();
        assert_eq!(text(third).await, "3 MiB");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_is_noticed() {
        let intake = Intake::new();
        let taken = intake.clone().count(request("/v1/settle", MIB), read).await.unwrap();
        assert_eq!(text(taken).await, "1 MiB");
        let quiet = tokio::time::timeout(TAKING_MAX * 10, intake.untaken()).await;
        assert!(quiet.is_err(), "it was taken");
        let stream = intake.clone().count(request("/grpc.health.v1.Health/Watch", MIB), read).await.unwrap();
        let quiet = tokio::time::timeout(TAKING_MAX * 10, intake.untaken()).await;
        assert!(quiet.is_err(), "a stream may last");
        drop(stream);
        let _untaken = intake.clone().count(request("/v1/settle", MIB), read).await.unwrap();
        let noticed = tokio::time::timeout(TAKING_MAX * 2, intake.untaken()).await;
        assert!(noticed.is_ok(), "it was not");
    }

    #[test]
    fn a_message_of_a_stream_ends_where_it_says() {
        let message = |length: u8| {
            let mut bytes = vec![0, 0, 0, 0, length];
            bytes.resize(PREFIX_BYTES + usize::from(length), 7);
            bytes
        };
        let stream = [message(3), message(0), message(200)].concat();
        let ends = [8, 13, 218];
        for step in 1..stream.len() {
            let mut messages = Messages::default();
            let mut passed = 0;
            for part in stream.chunks(step) {
                passed += part.len();
                assert_eq!(messages.pass(part), ends.contains(&passed), "{passed} by {step}");
            }
        }
    }
}
