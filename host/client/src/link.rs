//! One stream with a host.

mod outbox;

use std::sync::Arc;
use std::time::Duration;

use tidegate_proto::handoff as proto;
use tidegate_proto::handoff::subscribe_response::Kind as Said;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Streaming;

use crate::access::{Peer, Trouble};
use crate::book::LinkId;

pub(crate) use self::outbox::Outbox;

/// How long a host may take to open a stream, the connection included.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// Something that came from a stream.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) link: LinkId,
    pub(crate) said: Heard,
}

#[derive(Debug)]
pub(crate) enum Heard {
    Opened(proto::Opened),
    Said(Said),
    /// The last word of each stream. `None`: it ended as streams do.
    Ended(Option<Trouble>),
}

/// Opens a stream and passes on what comes, until it ends. What is to be said comes out of the outbox.
pub(crate) async fn run(
    peer: Arc<Peer>,
    open: proto::Open,
    outbox: Arc<Outbox>,
    link: LinkId,
    news: mpsc::Sender<News>,
) {
    let trouble = converse(&peer, open, outbox, link, &news).await.err();
    // When the worker is gone nobody is left to tell.
    let _ = news.send(News { link, said: Heard::Ended(trouble) }).await;
}

async fn converse(
    peer: &Peer,
    open: proto::Open,
    outbox: Arc<Outbox>,
    link: LinkId,
    news: &mpsc::Sender<News>,
) -> Result<(), Trouble> {
    let opening = async {
        let mut responses = peer.client().subscribe(peer.request(outbox.requests(open))).await?.into_inner();
        let opened = first(&mut responses).await?;
        Ok::<_, Trouble>((responses, opened))
    };
    let late = |_| failed(format!("it did not open a stream in {} s", OPEN_TIMEOUT.as_secs()));
    let (mut responses, opened) = timeout(OPEN_TIMEOUT, opening).await.map_err(late)??;
    let tell = |said| news.send(News { link, said });
    let mut is_wanted = tell(Heard::Opened(opened)).await.is_ok();
    while is_wanted {
        // A host that is gone without a word is noticed by the connection's keep-alive.
        let Some(response) = responses.message().await? else { break };
        // A kind that only a later version of the protocol has is passed over.
        if let Some(said) = response.kind {
            is_wanted = tell(Heard::Said(said)).await.is_ok();
        }
    }
    Ok(())
}

async fn first(responses: &mut Streaming<proto::SubscribeResponse>) -> Result<proto::Opened, Trouble> {
    match responses.message().await?.and_then(|response| response.kind) {
        Some(Said::Opened(opened)) => Ok(opened),
        Some(_) => Err(failed("it began with something else than `opened`".to_owned())),
        None => Err(failed("it ended the stream at once".to_owned())),
    }
}

const fn failed(detail: String) -> Trouble {
    Trouble { is_refusal: false, detail }
}
