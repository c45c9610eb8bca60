//! What is still to be said on a stream. Filled by the worker, which never waits; emptied as the connection takes it.
//! Bounded by what is open: a message is in here once at most to be settled, and once to be renewed.

use std::sync::Arc;

use futures::stream::{self, Stream, StreamExt as _};
use parking_lot::Mutex;
use tidegate_proto::handoff as proto;
use tidegate_proto::handoff::subscribe_request::Kind;
use tokio::sync::Notify;

use crate::book::{Ask, Credits};
use crate::client::BATCH_MAX;
use crate::wire;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    settlements: Vec<proto::Settlement>,
    renewals: Vec<proto::Renewal>,
    credits: Option<proto::Credits>,
    closed: bool,
}

impl Outbox {
    pub(crate) fn ask(&self, ask: &Ask) {
        self.put(|inner| match ask {
            Ask::Settle(settlement) => inner.settlements.push(wire::settlement(settlement)),
            Ask::Renew(renewal) => inner.renewals.push(wire::renewal(renewal)),
        });
    }

    /// Only the newest credits matter.
    pub(crate) fn credits(&self, credits: Credits) {
        self.put(|inner| inner.credits = Some(wire::credits(credits)));
    }

    /// Nothing more follows what is in here: the worker leaves.
    pub(crate) fn close(&self) {
        self.put(|inner| inner.closed = true);
    }

    /// The stream of requests.
    pub(crate) fn requests(
        self: Arc<Self>,
        open: proto::Open,
    ) -> impl Stream<Item = proto::SubscribeRequest> + Send + 'static {
        let rest = stream::unfold(self, |outbox| async move {
            let kind = outbox.next().await?;
            Some((request(kind), outbox))
        });
        stream::iter([request(Kind::Open(open))]).chain(rest)
    }

    /// Waits for the next thing to say; `None` when all is said.
    async fn next(&self) -> Option<Kind> {
        loop {
            let filled = self.filled.notified();
            {
                let mut inner = self.inner.lock();
                let kind = inner.take();
                if kind.is_some() || inner.closed {
                    return kind;
                }
            }
            filled.await;
        }
    }

    fn put(&self, put: impl FnOnce(&mut Inner)) {
        put(&mut self.inner.lock());
        self.filled.notify_one();
    }
}

impl Inner {
    fn take(&mut self) -> Option<Kind> {
        if !self.renewals.is_empty() {
            let renewals = take_batch(&mut self.renewals);
            return Some(Kind::Renew(proto::Renewals { renewals }));
        }
        if !self.settlements.is_empty() {
            let settlements = take_batch(&mut self.settlements);
            return Some(Kind::Settle(proto::Settlements { settlements }));
        }
        self.credits.take().map(Kind::Credits)
    }
}

fn take_batch<T>(all: &mut Vec<T>) -> Vec<T> {
    all.drain(..all.len().min(BATCH_MAX)).collect()
}

const fn request(kind: Kind) -> proto::SubscribeRequest {
    proto::SubscribeRequest { kind: Some(kind) }
}
