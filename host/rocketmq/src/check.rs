//! Looks at a source's cluster step by step, for people: what works, what does not, what to do.
//!
//! Nothing is received and nothing subscribed: a consumer that subscribes and does not poll holds up others.

use std::sync::Arc;

use tidegate_connector::Clock;
use tidegate_connector::check::CheckReport;
use tidegate_proto::rocketmq::{self as proto, telemetry_command::Command};
use tidegate_telemetry::Telemetry;
use tokio::sync::mpsc;
use tokio::time;
use tokio_stream::wrappers::ReceiverStream;

use crate::connect;
use crate::consumer::{probe_wildcard, role_of};
use crate::core::Core;
use crate::credentials::Purpose;
use crate::endpoints::Endpoints;
use crate::fault::{CallError, Method, Reason, Subject, bind_group};
use crate::health::{Wildcard, raise_event_count};
use crate::options::{ClientOptions, SourceOptions, Tls, TopicKind, Trust};
use crate::peer::Peer;
use crate::profile::{Profile, Subscription};
use crate::session::{ClientKind, Role};

/// Looks at everything that a settler needs and that can be asked without a receipt: the road, its TLS and the keys. Ends
/// within some request timeouts.
pub async fn check_client(options: &ClientOptions, clock: Clock, telemetry: Telemetry) -> CheckReport {
    let mut report = CheckReport::default();
    let subject = Subject {
        access_point: Arc::clone(options.endpoints.text()),
        endpoint: None,
        topic: None,
        group: None,
        topic_kind: None,
        names: options.names,
    };
    let core = Core::new(options, subject, Purpose::Consume, clock, telemetry, Arc::from("check"));
    let core = match core {
        Ok(core) => core,
        Err(error) => {
            report.fail("setup", with_causes(&error));
            return report;
        }
    };
    let access_point = match core.access_point() {
        Ok(peer) => peer,
        Err(error) => {
            report.fail("reach", with_causes(&error));
            return report;
        }
    };
    // Settings without a topic and without a group are about nobody: what is looked at is who sends them.
    let profile = Profile::producer();
    let exchanged = exchange(&core, &profile, &access_point, ClientKind::Producer).await;
    if !check_road(&core, options, exchanged.as_ref().err(), &mut report) {
        return report;
    }
    match exchanged {
        Ok(stream) => {
            report.good(
                "access",
                "the keys, if any, are taken; what they may settle is only seen with the receipts of a group",
            );
            // The report stands; whether the server hears our leave or notices it later is the same.
            let _ = access_point.terminate(profile.termination(&core)).await;
            drop(stream);
        }
        Err(error) if error.reason() == Reason::Access => report.fail("access", error.to_string()),
        Err(error) => report.fail("session", error.to_string()),
    }
    report
}

/// Looks at everything that a source needs. Ends within some request timeouts.
pub async fn check(options: &SourceOptions, clock: Clock, telemetry: Telemetry) -> CheckReport {
    let mut report = CheckReport::default();
    let core = match connect::core(options, clock, telemetry, Arc::from("check")) {
        Ok(core) => core,
        Err(error) => {
            report.fail("setup", with_causes(&error));
            return report;
        }
    };
    let Some(endpoints) = check_route(&core, options, &mut report).await else { return report };
    let mut kind = None;
    for endpoints in endpoints {
        let Ok(peer) = core.peer(&endpoints) else { continue };
        let Some(known_as) = check_session(&core, options, &peer, &mut report).await else { return report };
        kind = Some(known_as);
    }
    if options.topic_kind == TopicKind::Lite && kind.is_some() {
        report.warn(
            "events",
            format!(
                "the group's event limit cannot be asked for; at its default, more than some hundred lite topics are \
                 served slowly, so raise it once: `{}`",
                raise_event_count(&options.group)
            ),
        );
    }
    report
}

/// The road to the access point, its TLS, our keys, and the topic's route.
async fn check_route(
    core: &Core,
    options: &SourceOptions,
    report: &mut CheckReport,
) -> Option<Vec<Endpoints>> {
    let access_point = match core.access_point() {
        Ok(peer) => peer,
        Err(error) => {
            report.fail("reach", with_causes(&error));
            return None;
        }
    };
    let topic = core.resource(&options.topic);
    let result = access_point.query_route(topic, &core.endpoints).await;
    if !check_road(core, &options.client, result.as_ref().err(), report) {
        return None;
    }
    match result {
        Err(error) if error.reason() == Reason::Access => {
            report.fail("access", error.to_string());
            None
        }
        Err(error) => {
            report.fail("route", error.to_string());
            None
        }
        Ok(queues) => read_route(options, queues, report),
    }
}

/// What a first call tells about the road to the access point and its TLS. False when it does not lead there.
fn check_road(
    core: &Core,
    options: &ClientOptions,
    error: Option<&CallError>,
    report: &mut CheckReport,
) -> bool {
    let endpoints = &core.endpoints;
    match (error.map(CallError::reason), error) {
        (Some(Reason::Unreachable | Reason::TimedOut | Reason::NotAProxy), Some(error)) => {
            report.fail("reach", error.to_string());
            return false;
        }
        (Some(Reason::TlsMismatch | Reason::TlsFailed), Some(error)) => {
            report.good("reach", format!("{endpoints} takes connections"));
            report.fail("tls", error.to_string());
            return false;
        }
        _ => report.good("reach", format!("{endpoints} answers gRPC")),
    }
    match &options.tls {
        Tls::Off => report.good("tls", "off, as chosen"),
        Tls::On { trust: Trust::Anyone, .. } => {
            report.warn(
                "tls",
                "on, but any certificate is accepted: whoever stands on the road can read everything",
            );
        }
        Tls::On { .. } => report.good("tls", "on, and the server's certificate is trusted"),
    }
    true
}

fn read_route(
    options: &SourceOptions,
    queues: Vec<proto::MessageQueue>,
    report: &mut CheckReport,
) -> Option<Vec<Endpoints>> {
    let topic = &options.topic;
    let mut takes: Vec<&str> = queues
        .iter()
        .flat_map(proto::MessageQueue::accept_message_types)
        .map(|kind| kind.as_str_name())
        .collect();
    takes.sort_unstable();
    takes.dedup();
    let takes = takes.join(", ");
    let readable = |permission| matches!(permission, proto::Permission::Read | proto::Permission::ReadWrite);
    let masters = crate::route::queues_of(queues, readable, |_| Arc::default());
    let mut brokers: Vec<&str> = masters.iter().map(|queue| &*queue.broker).collect();
    brokers.sort_unstable();
    brokers.dedup();
    let mut endpoints: Vec<Endpoints> = masters.iter().map(|queue| queue.endpoints.clone()).collect();
    endpoints.sort_by(|a, b| a.text().cmp(b.text()));
    endpoints.dedup();
    if endpoints.is_empty() {
        report.fail("route", format!("topic `{topic}` has no broker that can be read from"));
        return None;
    }
    let reached: Vec<_> = endpoints.iter().map(ToString::to_string).collect();
    report
        .good("route", format!("topic `{topic}` is on {} behind {}", brokers.join(", "), reached.join(", ")));
    let wanted = options.topic_kind.name().to_uppercase();
    if takes.is_empty() || takes.split(", ").any(|kind| kind == wanted) {
        report.good("topic", format!("topic `{topic}` holds {wanted} messages"));
        return Some(endpoints);
    }
    report.fail(
        "topic",
        format!(
            "topic `{topic}` holds {takes} messages, but `rocketmq.source.topic-kind` is `{}`",
            options.topic_kind.name()
        ),
    );
    None
}

/// A session with one endpoint, and with it our keys and rights; for lite the group's binding and attribute.
async fn check_session(
    core: &Core,
    options: &SourceOptions,
    peer: &Peer,
    report: &mut CheckReport,
) -> Option<ClientKind> {
    let subscription = Subscription {
        topic: Arc::clone(&options.topic),
        group: Arc::clone(&options.group),
        await_duration: options.await_duration,
    };
    let profile = Profile::consumer(role_of(options.topic_kind), subscription);
    let kinds: &[ClientKind] = match profile.role() {
        Role::LiteConsumer | Role::LiteSettler => {
            &[ClientKind::LiteSimpleConsumer, ClientKind::LitePushConsumer]
        }
        Role::SimpleConsumer | Role::Producer => &[ClientKind::SimpleConsumer],
    };
    let mut refused = None;
    for kind in kinds {
        match exchange(core, &profile, peer, *kind).await {
            Ok(stream) => {
                let endpoint = &peer.endpoints;
                report.good(
                    "session",
                    format!("{endpoint} takes group `{}` as {}", options.group, kind.name()),
                );
                report.good("access", format!("the keys, if any, may read topic `{}`", options.topic));
                if options.topic_kind == TopicKind::Lite {
                    check_group(core, options, peer, &profile, report).await;
                }
                // The report stands; whether the server hears our leave or notices it later is the same.
                let _ = peer.terminate(profile.termination(core)).await;
                drop(stream);
                return Some(*kind);
            }
            Err(error) if error.reason() == Reason::ClientTypeRefused => refused = Some(error),
            Err(error) => {
                let name = match error.reason() {
                    Reason::Access => "access",
                    Reason::GroupNotLite | Reason::GroupBoundElsewhere | Reason::GroupIsLite => "group",
                    _ => "session",
                };
                report.fail(name, error.to_string());
                return None;
            }
        }
    }
    if let Some(error) = refused {
        report.fail("session", error.to_string());
    }
    None
}

async fn check_group(
    core: &Core,
    options: &SourceOptions,
    peer: &Peer,
    profile: &Profile,
    report: &mut CheckReport,
) {
    let (topic, group) = (&options.topic, &options.group);
    // An empty removal changes nothing, but its answer tells whether group and topic belong together.
    let removal = profile.sync(core, proto::LiteSubscriptionAction::PartialRemove, Vec::new());
    if let Err(error) = peer.sync(removal).await
        && (error.reason().is_about_the_subscription() || error.reason() == Reason::Access)
    {
        report.fail("group", error.to_string());
        return;
    }
    report.good("group", format!("group `{group}` is bound to topic `{topic}`"));
    match probe_wildcard(peer, core, profile).await {
        Wildcard::Present => report.good("wildcard", format!("group `{group}` gets all lite topics of `{topic}`")),
        Wildcard::Missing => report.fail(
            "wildcard",
            format!(
                "group `{group}` lacks the attribute `lite.sub.wildcard`, so it would get nothing: {}",
                bind_group(group, topic)
            ),
        ),
        Wildcard::Unknown => report.warn(
            "wildcard",
            format!(
                "the server does not tell whether group `{group}` has the attribute `lite.sub.wildcard`, without which \
                 it gets nothing: {}",
                bind_group(group, topic)
            ),
        ),
    }
}

/// Exchanges Settings; the session lasts as long as what is returned.
async fn exchange(
    core: &Core,
    profile: &Profile,
    peer: &Peer,
    kind: ClientKind,
) -> Result<impl Sized + use<>, CallError> {
    let method = Method::Telemetry;
    let (commands, outbound) = mpsc::channel(1);
    // A new channel has room.
    let _ = commands.try_send(profile.settings(core, kind));
    let exchanging = async {
        let mut stream = peer.telemetry(ReceiverStream::new(outbound)).await?;
        loop {
            let said = stream.message().await.map_err(|status| peer.broken(method, &status))?;
            let Some(said) = said else {
                let ended = "the server ended the session before it sent its Settings";
                return Err(CallError::other(&peer.subject, method, Reason::ServerTrouble, ended));
            };
            if let Some(status) = said.status.filter(|status| status.code() != proto::Code::Ok) {
                return Err(CallError::answered(&peer.subject, method, status.code, &status.message));
            }
            if matches!(said.command, Some(Command::Settings(_))) {
                return Ok(stream);
            }
        }
    };
    match time::timeout(core.settings_wait(), exchanging).await {
        Ok(Ok(stream)) => Ok((commands, stream)),
        Ok(Err(error)) => Err(peer.noted(error).await),
        Err(_) => {
            Err(CallError::timed_out(&peer.subject, method, core.settings_wait(), &peer.link.finding()))
        }
    }
}

/// An error with its causes, in one sentence.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
