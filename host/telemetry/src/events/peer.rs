//! What passes between hosts of a fleet: receipts that only the host that gave them out can settle.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::{Name, Registry};
use crate::{Event, Metrics};

/// The metric families that these events move.
#[derive(Debug)]
pub(crate) struct Families {
    up: Family<PeerLabels, Gauge>,
    forwarded: Family<ForwardedLabels, Counter>,
    received: Counter,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PeerLabels {
    peer: Name,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ForwardedLabels {
    peer: Name,
    kind: &'static str,
    result: &'static str,
}

impl Families {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let families =
            Self { up: Family::default(), forwarded: Family::default(), received: Counter::default() };
        let area = registry.sub_registry_with_prefix("peer");
        area.register("up", "Whether a peer answered when it was last asked", families.up.clone());
        area.register(
            "forwarded",
            "Settlements and renewals that were passed on to a peer, by result",
            families.forwarded.clone(),
        );
        area.register(
            "received",
            "Settlements and renewals that peers passed on to this host",
            families.received.clone(),
        );
        families
    }
}

/// A peer answers, and has said which host it is.
#[derive(Debug)]
pub struct Up<'a> {
    /// Its name in the configuration.
    pub peer: &'a Arc<str>,
    /// Where it is.
    pub endpoint: &'a str,
    /// Which host it is.
    pub host: &'a str,
    /// Whether it was away before, or another host.
    pub is_news: bool,
}

impl Event for Up<'_> {
    fn record(self, metrics: &Metrics) {
        let Self { peer, endpoint, host, is_news } = self;
        metrics.peer.up.get_or_create(&PeerLabels { peer: peer.into() }).set(1);
        if is_news {
            tracing::info!(peer = %peer, endpoint, host, "a peer answers");
        }
    }
}

/// A peer does not answer, or does not let this host in.
#[derive(Debug)]
pub struct Down<'a> {
    /// Its name in the configuration.
    pub peer: &'a Arc<str>,
    /// Where it is.
    pub endpoint: &'a str,
    /// Why.
    pub problem: &'a str,
    /// Whether it was not so before.
    pub is_news: bool,
}

impl Event for Down<'_> {
    fn record(self, metrics: &Metrics) {
        let Self { peer, endpoint, problem, is_news } = self;
        metrics.peer.up.get_or_create(&PeerLabels { peer: peer.into() }).set(0);
        if is_news {
            tracing::warn!(peer = %peer, endpoint, problem, "a peer cannot be asked; what it gave out waits for it");
        }
    }
}

/// Receipts were passed on to a peer, and it answered, or could not be asked.
#[derive(Debug)]
pub struct Forwarded<'a> {
    /// Its name in the configuration.
    pub peer: &'a Arc<str>,
    /// Whether they were renewals.
    pub renewals: bool,
    /// `done`, `expired`, `unknown`, `refused` or `retry-later`.
    pub result: &'static str,
    /// How many.
    pub count: u64,
}

impl Event for Forwarded<'_> {
    fn record(self, metrics: &Metrics) {
        let Self { peer, renewals, result, count } = self;
        let kind = if renewals { "renew" } else { "settle" };
        metrics
            .peer
            .forwarded
            .get_or_create(&ForwardedLabels { peer: peer.into(), kind, result })
            .inc_by(count);
        tracing::debug!(peer = %peer, kind, result, count, "receipts were passed on to a peer");
    }
}

/// A peer passed receipts on to this host.
#[derive(Debug)]
pub struct Received<'a> {
    /// The name of its token here.
    pub caller: &'a str,
    /// How many.
    pub count: u64,
}

impl Event for Received<'_> {
    fn record(self, metrics: &Metrics) {
        let Self { caller, count } = self;
        metrics.peer.received.inc_by(count);
        tracing::debug!(caller, count, "a peer passed receipts on to this host");
    }
}
