//! A worker that does nothing but settle: over the generated stub, so that the service is measured and no client's work.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tidegate_proto::handoff::handoff_client::HandoffClient;
use tidegate_proto::handoff::{
    Accept, Credits, Open, Settlement, Settlements, Status, SubscribeRequest, SubscribeResponse, settlement,
    subscribe_request, subscribe_response,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

use crate::embedded::Embedded;
use crate::latency::Seen;

const FLOW: &str = "lab";
/// Requests on their way; each holds the settlements of one response.
const REQUESTS_MAX: usize = 64;
/// As any client would have it for so many messages at a time.
const WINDOW: u32 = 4 << 20;
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Accepts all that it gets, each response's messages with one request.
pub(crate) struct Worker {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
}

impl Worker {
    /// Subscribes. What it gets is noted in `seen` first.
    pub(crate) async fn start(host: &Embedded, credits: u64, seen: Option<Arc<Seen>>) -> Result<Self> {
        let address = host.worker_address().context("the host has no service for workers")?;
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .tcp_nodelay(true)
            .connect()
            .await?;
        let mut client = HandoffClient::new(channel).max_decoding_message_size(usize::MAX);
        let (requests, outgoing) = mpsc::channel(REQUESTS_MAX);
        let credits = Credits { messages: credits, bytes: 0 };
        let open = Open { flow: FLOW.into(), worker: "lab".into(), credits: Some(credits) };
        requests.send(request(subscribe_request::Kind::Open(open))).await?;
        let responses = client.subscribe(ReceiverStream::new(outgoing)).await?.into_inner();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(work(responses, requests, seen, stopped));
        Ok(Self { stop, task })
    }

    pub(crate) async fn stop(self) -> Result<()> {
        // It may have failed already: the task says why.
        let _ = self.stop.send(());
        timeout(STOP_WITHIN, self.task).await.context("the worker does not stop")??
    }
}

async fn work(
    mut responses: Streaming<SubscribeResponse>,
    requests: mpsc::Sender<SubscribeRequest>,
    seen: Option<Arc<Seen>>,
    mut stopped: oneshot::Receiver<()>,
) -> Result<()> {
    loop {
        let response = tokio::select! {
            _ = &mut stopped => return Ok(()),
            response = responses.message() => response.context("the stream failed")?,
        };
        match response.and_then(|response| response.kind) {
            Some(subscribe_response::Kind::Deliveries(batch)) => {
                if let Some(seen) = &seen {
                    let ids = batch.deliveries.iter().map(|delivery| Arc::from(&*delivery.message_id));
                    seen.extend(ids);
                }
                let settlements = batch.deliveries.into_iter().map(|delivery| Settlement {
                    receipt: delivery.receipt,
                    verdict: Some(settlement::Verdict::Accept(Accept {})),
                    cost: None,
                });
                let settlements = Settlements { settlements: settlements.collect() };
                requests.send(request(subscribe_request::Kind::Settle(settlements))).await?;
            }
            Some(subscribe_response::Kind::Settled(results)) => {
                for result in results.results {
                    ensure!(result.status() == Status::Done, "a settlement is not done: {result:?}");
                }
            }
            Some(subscribe_response::Kind::Opened(_) | subscribe_response::Kind::Alive(_)) => {}
            other => bail!("a worker that settles at once is told {other:?}"),
        }
    }
}

fn request(kind: subscribe_request::Kind) -> SubscribeRequest {
    SubscribeRequest { kind: Some(kind) }
}
