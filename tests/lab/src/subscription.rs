//! A subscription to the lab's flow, over the generated stub: the service is measured, and no client's work.

use std::net::SocketAddr;

use anyhow::Result;
use tidegate_proto::handoff::handoff_client::HandoffClient;
use tidegate_proto::handoff::{
    Accept, Credits, Deliveries, Open, Settlement, Settlements, SubscribeRequest, SubscribeResponse,
    settlement, subscribe_request,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

const FLOW: &str = "lab";
/// Requests on their way; each holds the settlements of one response.
const REQUESTS_MAX: usize = 64;
/// As any client would have it for so many messages at a time.
const WINDOW: u32 = 4 << 20;

/// An open stream.
pub(crate) struct Subscription {
    requests: mpsc::Sender<SubscribeRequest>,
    pub(crate) responses: Streaming<SubscribeResponse>,
}

impl Subscription {
    /// Subscribes at a service, for so many messages at a time.
    pub(crate) async fn open(address: SocketAddr, credits: u64) -> Result<Self> {
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
        Ok(Self { requests, responses })
    }

    /// Accepts all of a response's messages with one request.
    pub(crate) async fn accept(&self, batch: Deliveries) -> Result<()> {
        let settlements = batch.deliveries.into_iter().map(|delivery| Settlement {
            receipt: delivery.receipt,
            verdict: Some(settlement::Verdict::Accept(Accept {})),
            cost: None,
        });
        let settlements = Settlements { settlements: settlements.collect() };
        Ok(self.requests.send(request(subscribe_request::Kind::Settle(settlements))).await?)
    }
}

fn request(kind: subscribe_request::Kind) -> SubscribeRequest {
    SubscribeRequest { kind: Some(kind) }
}
