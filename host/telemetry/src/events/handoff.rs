//! What the hand-off to workers does.

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
    delivered: Family<FlowLabels, Counter>,
    held: Family<FlowLabels, Gauge>,
    workers: Family<FlowLabels, Gauge>,
    released: Family<FlowLabels, Counter>,
    settlements: Family<SettlementLabels, Counter>,
    renewals: Family<SettlementLabels, Counter>,
    refused: Family<RefusalLabels, Counter>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct FlowLabels {
    flow: Name,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SettlementLabels {
    result: &'static str,
    owner: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RefusalLabels {
    cause: &'static str,
}

impl Families {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            delivered: Family::default(),
            held: Family::default(),
            workers: Family::default(),
            released: Family::default(),
            settlements: Family::default(),
            renewals: Family::default(),
            refused: Family::default(),
        };
        let area = registry.sub_registry_with_prefix("handoff");
        area.register("delivered", "Messages handed to workers", families.delivered.clone());
        area.register("held", "Messages that workers hold", families.held.clone());
        area.register("workers", "Workers that are connected", families.workers.clone());
        area.register("released", "Messages released because their worker left", families.released.clone());
        area.register(
            "settlements",
            "Settlements by receipt, by result and by whether this host gave the message out",
            families.settlements.clone(),
        );
        area.register(
            "renewals",
            "Renewals by receipt, by result and by whether this host gave the message out",
            families.renewals.clone(),
        );
        area.register("refused", "Requests that were refused, by cause", families.refused.clone());
        families
    }
}

/// The service takes connections.
#[derive(Debug)]
pub struct Listening<'a> {
    /// The sink.
    pub sink: &'a str,
    /// Where.
    pub address: std::net::SocketAddr,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// Who is let in: `everybody`, `tokens`, `certificates` or both.
    pub guard: &'static str,
    /// Whether tokens travel unencrypted where others can listen.
    pub exposed: bool,
}

impl Event for Listening<'_> {
    fn record(self, _: &Metrics) {
        let Self { sink, address, tls, guard, exposed } = self;
        tracing::info!(sink, %address, tls, guard, "workers are served");
        if exposed {
            tracing::warn!(
                sink, %address,
                "bearer tokens travel unencrypted on an address that other machines can reach: give `tls-cert-file`, \
                 unless something before this host encrypts"
            );
        }
    }
}

/// A file of tokens was edited, and says now who is let in.
#[derive(Debug)]
pub struct TokensChanged<'a> {
    /// The sink.
    pub sink: &'a str,
    /// How many there are.
    pub tokens: usize,
}

impl Event for TokensChanged<'_> {
    fn record(self, _: &Metrics) {
        tracing::info!(sink = self.sink, tokens = self.tokens, "the tokens have changed");
    }
}

/// A file of tokens was edited, and cannot be used.
#[derive(Debug)]
pub struct TokensUnusable<'a> {
    /// The sink.
    pub sink: &'a str,
    /// What is wrong.
    pub problem: &'a str,
}

impl Event for TokensUnusable<'_> {
    fn record(self, _: &Metrics) {
        tracing::warn!(sink = self.sink, problem = self.problem, "the tokens stay as they were");
    }
}

/// A worker came.
#[derive(Debug)]
pub struct WorkerJoined<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// As it calls itself.
    pub worker: &'a str,
}

impl Event for WorkerJoined<'_> {
    fn record(self, _: &Metrics) {
        tracing::debug!(flow = %self.flow, worker = self.worker, "a worker came");
    }
}

/// A worker left.
#[derive(Debug)]
pub struct WorkerLeft<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// As it called itself.
    pub worker: &'a str,
    /// Messages that it held, which go to others.
    pub released: usize,
}

impl Event for WorkerLeft<'_> {
    fn record(self, metrics: &Metrics) {
        let Self { flow, worker, released } = self;
        let labels = FlowLabels { flow: flow.into() };
        metrics.handoff.released.get_or_create(&labels).inc_by(released as u64);
        if released > 0 {
            tracing::info!(flow = %flow, worker, released, "a worker left; what it held goes to others");
        } else {
            tracing::debug!(flow = %flow, worker, "a worker left");
        }
    }
}

/// A stream was ended by the host.
#[derive(Debug)]
pub struct WorkerEnded<'a> {
    /// The flow.
    pub flow: &'a str,
    /// As it calls itself.
    pub worker: &'a str,
    /// Why.
    pub reason: &'a str,
}

impl Event for WorkerEnded<'_> {
    fn record(self, _: &Metrics) {
        tracing::warn!(
            flow = self.flow,
            worker = self.worker,
            reason = self.reason,
            "a worker's stream was ended"
        );
    }
}

/// Messages went to workers.
#[derive(Debug)]
pub struct Delivered<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// How many.
    pub messages: u64,
}

impl Event for Delivered<'_> {
    fn record(self, metrics: &Metrics) {
        let labels = FlowLabels { flow: self.flow.into() };
        metrics.handoff.delivered.get_or_create(&labels).inc_by(self.messages);
    }
}

/// How a flow's hand-off stands.
#[derive(Debug)]
pub struct Standing<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// Messages that workers hold.
    pub held: usize,
    /// Workers that are connected.
    pub workers: usize,
}

impl Event for Standing<'_> {
    fn record(self, metrics: &Metrics) {
        let labels = FlowLabels { flow: self.flow.into() };
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        metrics.handoff.held.get_or_create(&labels).set(gauge(self.held));
        metrics.handoff.workers.get_or_create(&labels).set(gauge(self.workers));
    }
}

/// A flow hands nothing out any more.
#[derive(Debug)]
pub struct FlowEnded<'a> {
    /// The flow.
    pub flow: &'a Arc<str>,
    /// The sink.
    pub sink: &'a str,
}

impl Event for FlowEnded<'_> {
    fn record(self, metrics: &Metrics) {
        let labels = FlowLabels { flow: self.flow.into() };
        metrics.handoff.held.get_or_create(&labels).set(0);
        metrics.handoff.workers.get_or_create(&labels).set(0);
        tracing::debug!(flow = %self.flow, sink = self.sink, "the flow hands nothing out any more");
    }
}

/// Settlements or renewals by receipt were answered.
#[derive(Debug)]
pub struct Answered {
    /// Whether they were renewals.
    pub renewals: bool,
    /// `done`, `expired`, `unknown`, `refused` or `retry-later`.
    pub result: &'static str,
    /// Whether this host gave the messages out.
    pub own: bool,
    /// How many.
    pub count: u64,
}

impl Event for Answered {
    fn record(self, metrics: &Metrics) {
        let owner = if self.own { "this" } else { "other" };
        let labels = SettlementLabels { result: self.result, owner };
        let family = if self.renewals { &metrics.handoff.renewals } else { &metrics.handoff.settlements };
        family.get_or_create(&labels).inc_by(self.count);
    }
}

/// A request, or a receipt in it, was refused.
#[derive(Debug)]
pub struct Refused<'a> {
    /// As a label: `tls`, `token`, `rights`, `receipt` or `request`.
    pub cause: &'static str,
    /// In a sentence.
    pub detail: &'a str,
    /// Where it came from.
    pub caller: &'a str,
}

impl Event for Refused<'_> {
    fn record(self, metrics: &Metrics) {
        metrics.handoff.refused.get_or_create(&RefusalLabels { cause: self.cause }).inc();
        tracing::debug!(
            cause = self.cause,
            detail = self.detail,
            caller = self.caller,
            "a request was refused"
        );
    }
}
