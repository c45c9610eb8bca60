//! Events of the RocketMQ connector: connections, sessions, receives, settlements, sends.
//!
//! `name` is the source's or sink's name in the configuration. Endpoints and texts of servers go to the log only.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

pub use super::settle::{SettleResult, Tally, tally};
use crate::metrics::{Name, Registry, words};
use crate::{Event, Metrics};

words!(SyncResult, ReceiveResult, SendResult, AckClientEnd);

/// The metric families that these events move.
#[derive(Debug)]
pub(crate) struct Families {
    sessions: Family<SourceLabel, Counter>,
    session_losses: Family<SourceLabel, Counter>,
    session_fallbacks: Family<SourceLabel, Counter>,
    session_reconnects: Family<SourceLabel, Counter>,
    settings_resends: Family<SourceLabel, Counter>,
    subscription_syncs: Family<SyncLabels, Counter>,
    route_brokers: Family<SourceLabel, Gauge>,
    received_messages: Family<SourceLabel, Counter>,
    received_bytes: Family<SourceLabel, Counter>,
    receives: Family<ReceiveLabels, Counter>,
    settlements: Family<SettleLabels, Counter>,
    stale_handles: Family<SourceLabel, Counter>,
    corrupted_bodies: Family<SourceLabel, Counter>,
    sends: Family<SendLabels, Counter>,
    send_retries: Family<SourceLabel, Counter>,
    send_failures: Family<SendFailureLabels, Counter>,
    held_sinks: Family<SourceLabel, Gauge>,
    ack_clients: Family<SourceLabel, Gauge>,
    ack_client_ends: Family<AckClientEndLabels, Counter>,
}

impl Families {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            sessions: Family::default(),
            session_losses: Family::default(),
            session_fallbacks: Family::default(),
            session_reconnects: Family::default(),
            settings_resends: Family::default(),
            subscription_syncs: Family::default(),
            route_brokers: Family::default(),
            received_messages: Family::default(),
            received_bytes: Family::default(),
            receives: Family::default(),
            settlements: Family::default(),
            stale_handles: Family::default(),
            corrupted_bodies: Family::default(),
            sends: Family::default(),
            send_retries: Family::default(),
            send_failures: Family::default(),
            held_sinks: Family::default(),
            ack_clients: Family::default(),
            ack_client_ends: Family::default(),
        };
        let area = registry.sub_registry_with_prefix("rocketmq");
        area.register("sessions", "Settings exchanged with a proxy", families.sessions.clone());
        area.register("session_losses", "Sessions that ended or failed", families.session_losses.clone());
        area.register(
            "session_fallbacks",
            "Sessions that fell back to the older client type",
            families.session_fallbacks.clone(),
        );
        area.register("session_reconnects", "Connections rebuilt", families.session_reconnects.clone());
        area.register(
            "settings_resends",
            "Settings sent again because a proxy had forgotten them",
            families.settings_resends.clone(),
        );
        area.register(
            "subscription_syncs",
            "Renewals of the lite subscription, by result",
            families.subscription_syncs.clone(),
        );
        area.register("route_brokers", "Readable brokers in the route", families.route_brokers.clone());
        area.register("received_messages", "Messages received", families.received_messages.clone());
        area.register("received_bytes", "Bytes of bodies received", families.received_bytes.clone());
        area.register("receives", "Receive calls, by how they ended", families.receives.clone());
        area.register("settlements", "Settlements, by verb and result", families.settlements.clone());
        area.register(
            "stale_handles",
            "Settlements whose lease had run out or whose handle was not known any more",
            families.stale_handles.clone(),
        );
        area.register(
            "corrupted_bodies",
            "Bodies that did not arrive as sent",
            families.corrupted_bodies.clone(),
        );
        area.register("sends", "Messages sent, by result", families.sends.clone());
        area.register(
            "send_retries",
            "Attempts to send a message that failed and were followed by another one",
            families.send_retries.clone(),
        );
        area.register(
            "send_failures",
            "Messages that a sink could not send after all attempts, by the server's code",
            families.send_failures.clone(),
        );
        area.register(
            "held_sinks",
            "Whether a sink waits because nothing can be sent",
            families.held_sinks.clone(),
        );
        area.register(
            "ack_clients",
            "Clients alive that only settle by receipt",
            families.ack_clients.clone(),
        );
        area.register(
            "ack_client_ends",
            "Clients closed that only settled by receipt, by cause",
            families.ack_client_ends.clone(),
        );
        families
    }
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct SourceLabel {
    source: Name,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct SyncLabels {
    source: Name,
    result: SyncResult,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct ReceiveLabels {
    source: Name,
    result: ReceiveResult,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct SettleLabels {
    source: Name,
    verb: &'static str,
    result: SettleResult,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct SendLabels {
    source: Name,
    result: SendResult,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct SendFailureLabels {
    source: Name,
    code: &'static str,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq, EncodeLabelSet)]
struct AckClientEndLabels {
    source: Name,
    cause: AckClientEnd,
}

/// How a renewal of the lite subscription ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SyncResult {
    /// The server took it.
    Ok,
    /// It did not; it is sent again soon.
    Failed,
}

/// How a receive call ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ReceiveResult {
    /// With messages.
    Messages,
    /// Nothing came within the poll.
    Empty,
    /// The broker or the road to it.
    Broker,
    /// Told to slow down.
    Throttled,
    /// Credentials or rights.
    Access,
    /// The subscription is wrong.
    Subscription,
}

/// How the sending of a message ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SendResult {
    /// The broker stored it.
    Ok,
    /// All attempts failed.
    Broker,
    /// It is refused, by us or by the server.
    Refused,
}

/// Why a client that only settles was closed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AckClientEnd {
    /// Nobody used it for a while.
    Idle,
    /// The pool was full and another one was needed.
    Displaced,
    /// The pool is being closed.
    Closing,
}

/// A proxy knows our settings: from here on it answers.
#[derive(Clone, Debug)]
pub struct SessionReady {
    /// Of the source or sink.
    pub name: Arc<str>,
    /// Whose session.
    pub endpoint: Arc<str>,
    /// As what we are known there.
    pub client_type: &'static str,
}

impl Event for SessionReady {
    fn record(self, metrics: &Metrics) {
        let Self { name, endpoint, client_type } = self;
        tracing::info!(source = %name, %endpoint, client_type, "session with the proxy is ready");
        metrics.rocketmq.sessions.get_or_create(&SourceLabel { source: Name::from(&name) }).inc();
    }
}

/// A session ended or could not be made; it is made again, for ever.
#[derive(Clone, Debug)]
pub struct SessionLost {
    /// Of the source or sink.
    pub name: Arc<str>,
    /// Whose session.
    pub endpoint: Arc<str>,
    /// What happened, in one sentence.
    pub detail: String,
    /// Whether the same was said before without a session in between: then it is not worth a warning again.
    pub repeated: bool,
}

impl Event for SessionLost {
    fn record(self, metrics: &Metrics) {
        let Self { name, endpoint, detail, repeated } = self;
        if repeated {
            tracing::debug!(source = %name, %endpoint, detail, "still no session with the proxy");
        } else {
            tracing::warn!(source = %name, %endpoint, detail, "no session with the proxy, trying again");
        }
        metrics.rocketmq.session_losses.get_or_create(&SourceLabel { source: Name::from(&name) }).inc();
    }
}

/// The server does not know the newer client type; the older one is used there from now on.
#[derive(Clone, Debug)]
pub struct FellBack {
    /// Of the source.
    pub name: Arc<str>,
    /// Whose session.
    pub endpoint: Arc<str>,
}

impl Event for FellBack {
    fn record(self, metrics: &Metrics) {
        let Self { name, endpoint } = self;
        tracing::info!(
            source = %name,
            %endpoint,
            "the server is older than 5.5.1: consuming as LITE_PUSH_CONSUMER, which does the same"
        );
        metrics.rocketmq.session_fallbacks.get_or_create(&SourceLabel { source: Name::from(&name) }).inc();
    }
}

/// A connection is dropped and made anew.
#[derive(Clone, Debug)]
pub struct Reconnecting {
    /// Of the source or sink.
    pub name: Arc<str>,
    /// Whose connection.
    pub endpoint: Arc<str>,
    /// In a few words.
    pub cause: &'static str,
}

impl Event for Reconnecting {
    fn record(self, metrics: &Metrics) {
        let Self { name, endpoint, cause } = self;
        tracing::info!(source = %name, %endpoint, cause, "rebuilding the connection");
        metrics.rocketmq.session_reconnects.get_or_create(&SourceLabel { source: Name::from(&name) }).inc();
    }
}

/// A proxy has forgotten our settings, as it does at a restart; they are sent again.
#[derive(Clone, Debug)]
pub struct SettingsResent {
    /// Of the source or sink.
    pub name: Arc<str>,
    /// Whose session.
    pub endpoint: Arc<str>,
}

impl Event for SettingsResent {
    fn record(self, metrics: &Metrics) {
        let Self { name, endpoint } = self;
        tracing::info!(source = %name, %endpoint, "the proxy does not know our settings: sending them again");
        metrics.rocketmq.settings_resends.get_or_create(&SourceLabel { source: Name::from(&name) }).inc();
    }
}

/// The lite subscription was renewed, or was not.
#[derive(Clone, Debug)]
pub struct SubscriptionSynced {
    /// Of the source.
    pub name: Arc<str>,
    /// Where.
    pub endpoint: Arc<str>,
    /// What went wrong, if something did.
    pub problem: Option<String>,
}

impl Event for SubscriptionSynced {
    fn record(self, metrics: &Metrics) {
        let Self { name, endpoint, problem } = self;
        let result = match problem {
            None => {
                tracing::debug!(source = %name, %endpoint, "lite subscription renewed");
                SyncResult::Ok
            }
            Some(detail) => {
                tracing::warn!(source = %name, %endpoint, detail, "lite subscription not renewed, trying again");
                SyncResult::Failed
            }
        };
        metrics
            .rocketmq
            .subscription_syncs
            .get_or_create(&SyncLabels { source: Name::from(&name), result })
            .inc();
    }
}

/// The route of a topic changed.
#[derive(Clone, Debug)]
pub struct RouteChanged {
    /// Of the source or sink.
    pub name: Arc<str>,
    /// Whose route.
    pub topic: Arc<str>,
    /// Brokers that can be used.
    pub brokers: usize,
    /// Endpoints behind which they are.
    pub endpoints: usize,
}

impl Event for RouteChanged {
    fn record(self, metrics: &Metrics) {
        let Self { name, topic, brokers, endpoints } = self;
        tracing::info!(source = %name, %topic, brokers, endpoints, "route changed");
        let value = i64::try_from(brokers).unwrap_or(i64::MAX);
        metrics.rocketmq.route_brokers.get_or_create(&SourceLabel { source: Name::from(&name) }).set(value);
    }
}

/// A receive call ended well.
#[derive(Clone, Debug)]
pub struct Received {
    /// Of the source.
    pub name: Arc<str>,
    /// How many messages came; zero is normal.
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

impl Event for Received {
    fn record(self, metrics: &Metrics) {
        let Self { name, messages, bytes } = self;
        let result = if messages == 0 { ReceiveResult::Empty } else { ReceiveResult::Messages };
        metrics.rocketmq.receives.get_or_create(&ReceiveLabels { source: Name::from(&name), result }).inc();
        if messages > 0 {
            metrics
                .rocketmq
                .received_messages
                .get_or_create(&SourceLabel { source: Name::from(&name) })
                .inc_by(messages);
            metrics
                .rocketmq
                .received_bytes
                .get_or_create(&SourceLabel { source: Name::from(&name) })
                .inc_by(bytes);
        }
    }
}

/// A receive call failed.
#[derive(Clone, Debug)]
pub struct ReceiveFailed {
    /// Of the source.
    pub name: Arc<str>,
    /// Whose fault it is.
    pub result: ReceiveResult,
    /// In one sentence.
    pub detail: String,
}

impl Event for ReceiveFailed {
    fn record(self, metrics: &Metrics) {
        let Self { name, result, detail } = self;
        tracing::debug!(source = %name, detail, "receive failed");
        metrics.rocketmq.receives.get_or_create(&ReceiveLabels { source: Name::from(&name), result }).inc();
    }
}

/// Settlements of one verb ended one way.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Of the source.
    pub name: Arc<str>,
    /// Which of the five.
    pub verb: &'static str,
    /// How they ended.
    pub result: SettleResult,
    /// How many.
    pub messages: u64,
}

impl Event for Settled {
    fn record(self, metrics: &Metrics) {
        let Self { name, verb, result, messages } = self;
        if result == SettleResult::LeaseGone {
            tracing::warn!(
                source = %name,
                verb,
                messages,
                "the lease was gone before it was settled: the broker hands these messages out again"
            );
            metrics
                .rocketmq
                .stale_handles
                .get_or_create(&SourceLabel { source: Name::from(&name) })
                .inc_by(messages);
        }
        metrics
            .rocketmq
            .settlements
            .get_or_create(&SettleLabels { source: Name::from(&name), verb, result })
            .inc_by(messages);
    }
}

/// A settlement failed for another reason than a lease that was gone.
#[derive(Clone, Debug)]
pub struct SettleFailed {
    /// Of the source.
    pub name: Arc<str>,
    /// Which of the five.
    pub verb: &'static str,
    /// In one sentence.
    pub detail: String,
}

impl Event for SettleFailed {
    fn record(self, _metrics: &Metrics) {
        let Self { name, verb, detail } = self;
        tracing::debug!(source = %name, verb, detail, "settlement failed");
    }
}

/// A body did not arrive as it was sent. The message is handed on, marked.
#[derive(Clone, Debug)]
pub struct BodyCorrupted {
    /// Of the source.
    pub name: Arc<str>,
    /// Which message.
    pub message_id: String,
    /// What did not fit.
    pub reason: String,
}

impl Event for BodyCorrupted {
    fn record(self, metrics: &Metrics) {
        let Self { name, message_id, reason } = self;
        tracing::warn!(source = %name, message_id, reason, "a message's body is corrupted");
        metrics.rocketmq.corrupted_bodies.get_or_create(&SourceLabel { source: Name::from(&name) }).inc();
    }
}

/// Messages were sent, or could not be.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Of the sink or producer.
    pub name: Arc<str>,
    /// How it ended.
    pub result: SendResult,
    /// How many.
    pub messages: u64,
}

impl Event for Sent {
    fn record(self, metrics: &Metrics) {
        let Self { name, result, messages } = self;
        metrics
            .rocketmq
            .sends
            .get_or_create(&SendLabels { source: Name::from(&name), result })
            .inc_by(messages);
    }
}

/// One attempt to send failed; another one follows.
#[derive(Clone, Debug)]
pub struct SendRetried {
    /// Of the sink or producer.
    pub name: Arc<str>,
    /// From 1.
    pub attempt: u32,
    /// In one sentence.
    pub detail: String,
}

impl Event for SendRetried {
    fn record(self, metrics: &Metrics) {
        let Self { name, attempt, detail } = self;
        tracing::debug!(source = %name, attempt, detail, "sending failed, trying again");
        metrics.rocketmq.send_retries.get_or_create(&SourceLabel { source: Name::from(&name) }).inc();
    }
}

/// Something cannot be sent, now or ever, after all attempts.
#[derive(Clone, Debug)]
pub struct SendFailed {
    /// Of the sink.
    pub name: Arc<str>,
    /// The name of the server's code, such as `LITE_TOPIC_QUOTA_EXCEEDED`; `none` when no server answered.
    pub code: &'static str,
    /// In one sentence.
    pub detail: String,
    /// How many messages.
    pub messages: u64,
    /// Whether the same was said lately: then it is not worth a warning again.
    pub repeated: bool,
}

impl Event for SendFailed {
    fn record(self, metrics: &Metrics) {
        let Self { name, code, detail, messages, repeated } = self;
        if repeated {
            tracing::debug!(sink = %name, code, messages, detail, "messages could not be sent");
        } else {
            tracing::warn!(sink = %name, code, messages, detail, "messages could not be sent");
        }
        metrics
            .rocketmq
            .send_failures
            .get_or_create(&SendFailureLabels { source: Name::from(&name), code })
            .inc_by(messages);
    }
}

/// Nothing can be sent: a sink holds what it has and tries again after a wait that grows.
#[derive(Clone, Debug)]
pub struct SinkHeld {
    /// Of the sink.
    pub name: Arc<str>,
    /// Until the next try.
    pub wait: Duration,
    /// Tries in a row that failed.
    pub failures: u32,
}

impl Event for SinkHeld {
    fn record(self, metrics: &Metrics) {
        let Self { name, wait, failures } = self;
        if failures == 1 {
            tracing::warn!(sink = %name, ?wait, "nothing can be sent, holding what there is and trying again");
        } else {
            tracing::debug!(sink = %name, ?wait, failures, "still nothing can be sent");
        }
        metrics.rocketmq.held_sinks.get_or_create(&SourceLabel { source: Name::from(&name) }).set(1);
    }
}

/// A sink that was held sends again.
#[derive(Clone, Debug)]
pub struct SinkResumed {
    /// Of the sink.
    pub name: Arc<str>,
    /// For how long it was held.
    pub held: Duration,
}

impl Event for SinkResumed {
    fn record(self, metrics: &Metrics) {
        let Self { name, held } = self;
        tracing::info!(sink = %name, ?held, "sending again");
        metrics.rocketmq.held_sinks.get_or_create(&SourceLabel { source: Name::from(&name) }).set(0);
    }
}

/// A client was made that only settles by receipt.
#[derive(Clone, Debug)]
pub struct AckClientOpened {
    /// Of the settler or source whose configuration it uses.
    pub name: Arc<str>,
    /// Where it settles.
    pub endpoint: Arc<str>,
    /// For which consumer group.
    pub group: Arc<str>,
}

impl Event for AckClientOpened {
    fn record(self, metrics: &Metrics) {
        let Self { name, endpoint, group } = self;
        tracing::info!(source = %name, %endpoint, %group, "a client that only settles is made");
        metrics.rocketmq.ack_clients.get_or_create(&SourceLabel { source: Name::from(&name) }).inc();
    }
}

/// A client that only settled is gone.
#[derive(Clone, Debug)]
pub struct AckClientClosed {
    /// Of the settler or source whose configuration it used.
    pub name: Arc<str>,
    /// Why.
    pub end: AckClientEnd,
}

impl Event for AckClientClosed {
    fn record(self, metrics: &Metrics) {
        let Self { name, end } = self;
        tracing::debug!(source = %name, cause = ?end, "a client that only settles is closed");
        metrics.rocketmq.ack_clients.get_or_create(&SourceLabel { source: Name::from(&name) }).dec();
        metrics
            .rocketmq
            .ack_client_ends
            .get_or_create(&AckClientEndLabels { source: Name::from(&name), cause: end })
            .inc();
    }
}
