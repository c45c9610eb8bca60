//! One call of a plan: made up to three times, its answer read entry by entry.

use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::Backoff;
use tidegate_model::{Handle, Settlement, Verb};
use tidegate_proto::rocketmq as proto;
use tokio::time;

use super::client::SettlingClient;
use crate::core::Core;
use crate::fault::{CallError, Method, Reason};
use crate::peer::Peer;
use crate::plan::{Call, CallKind, entry_statuses};
use crate::profile::duration;
use crate::sessions::{Note, Seat};

/// Tries of one settlement, and the first wait between two of them, which doubles.
const TRIES_MAX: u32 = 3;
const RETRY_WAIT_FIRST: Duration = Duration::from_millis(100);
const RETRY_WAIT_MAX: Duration = Duration::from_millis(400);
/// What a forward tells the server about attempts when its Settings did not: the default of 5.x, 16 retries.
const ATTEMPTS_DEFAULT: i32 = 17;

/// What came of one settlement.
type Result<T = Option<Handle>, E = CallError> = std::result::Result<T, E>;

/// Makes one call; gives the result of each of its members.
pub(super) async fn perform(
    client: &impl SettlingClient,
    batch: &[Settlement],
    call: Call,
) -> Vec<(usize, Result)> {
    let Call { kind, members } = call;
    let first = &batch[members[0]];
    let endpoint = &first.handle.routing.endpoint;
    let fail = |members: Vec<usize>, error: CallError| {
        members.into_iter().map(|at| (at, Err(error.clone()))).collect()
    };
    let Some(seat) = client.seat(endpoint) else {
        let said = format!("`{endpoint}` is not an endpoint that can be reached");
        let error = CallError::other(&client.core().subject, method_of(kind), Reason::Refused, said);
        return fail(members, error);
    };
    let _turn = match client.begin(&seat, kind).await {
        Ok(turn) => turn,
        Err(error) => return fail(members, error),
    };
    let mut backoff = Backoff::new(RETRY_WAIT_FIRST, RETRY_WAIT_MAX, client.core().seed() ^ first.id.0);
    let mut done = Vec::with_capacity(members.len());
    let mut open = members;
    for tries in 1.. {
        let results = once(client, &seat, batch, kind, &open).await;
        let mut again = Vec::new();
        for (at, result) in open.into_iter().zip(results) {
            match result {
                Err(error) if tries < TRIES_MAX && error.reason().is_retryable() => again.push((at, error)),
                result => {
                    if let Err(error) = &result {
                        client.handle_failed(error);
                    }
                    done.push((at, result));
                }
            }
        }
        let Some((_, error)) = again.first() else { break };
        prepare_retry(client, &seat, error, backoff.next_wait()).await;
        open = again.into_iter().map(|(at, _)| at).collect();
    }
    done
}

async fn once(
    client: &impl SettlingClient,
    seat: &Seat,
    batch: &[Settlement],
    kind: CallKind,
    members: &[usize],
) -> Vec<Result> {
    match kind {
        CallKind::Ack => acknowledge(client.core(), &seat.peer, batch, members).await,
        CallKind::Change(until) => {
            let settlement = &batch[members[0]];
            if let (true, Some(lite_topic)) =
                (matches!(settlement.verb, Verb::Defer(_) | Verb::Release), &settlement.message.lite_topic)
            {
                client.handle_deferred(lite_topic);
            }
            vec![change(client.core(), &seat.peer, settlement, until).await]
        }
        CallKind::Forward => vec![forward(client.core(), seat, &batch[members[0]]).await],
    }
}

async fn acknowledge(core: &Core, peer: &Peer, batch: &[Settlement], members: &[usize]) -> Vec<Result> {
    let first = &batch[members[0]];
    let request = proto::AckMessageRequest {
        group: Some(core.resource(&first.handle.routing.group)),
        topic: Some(core.resource(&first.message.topic)),
        entries: members.iter().map(|at| entry(&batch[*at])).collect(),
    };
    let answer = match peer.acknowledge(request).await {
        Ok(answer) => answer,
        Err(error) => return members.iter().map(|_| Err(error.clone())).collect(),
    };
    let handles = members.iter().map(|at| &*batch[*at].handle.text);
    let statuses = entry_statuses(&answer, handles);
    let mut results = Vec::with_capacity(statuses.len());
    for status in statuses {
        results.push(match status {
            Some((code, _)) if code == i32::from(proto::Code::Ok) => Ok(None),
            Some((code, text)) => {
                let error = CallError::answered(&peer.subject, Method::AckMessage, code, text);
                Err(peer.noted(error).await)
            }
            None => {
                let said = "the answer says nothing about this message";
                Err(CallError::other(&peer.subject, Method::AckMessage, Reason::Malformed, said))
            }
        });
    }
    results
}

fn entry(settlement: &Settlement) -> proto::AckMessageEntry {
    proto::AckMessageEntry {
        message_id: settlement.message.id.as_str().to_owned(),
        receipt_handle: settlement.handle.text.as_ref().to_owned(),
        // Without it the server answers OK and does nothing (measured).
        lite_topic: settlement.message.lite_topic.as_deref().map(str::to_owned),
    }
}

/// Gives the new handle. An answer that is not OK, or has no handle, leaves the old one in force.
async fn change(core: &Core, peer: &Peer, settlement: &Settlement, until: Duration) -> Result {
    let (message, handle) = (&settlement.message, &settlement.handle);
    let lite_topic = message.lite_topic.as_deref().map(str::to_owned);
    let request = proto::ChangeInvisibleDurationRequest {
        group: Some(core.resource(&handle.routing.group)),
        topic: Some(core.resource(&message.topic)),
        receipt_handle: handle.text.as_ref().to_owned(),
        invisible_duration: Some(duration(until)),
        message_id: message.id.as_str().to_owned(),
        suspend: suspends(&settlement.verb, lite_topic.is_some()),
        lite_topic,
    };
    let text = peer.change(request).await?;
    Ok((!text.is_empty()).then(|| Handle { routing: Arc::clone(&handle.routing), text: text.into() }))
}

/// Whether a change of a message speaks for its whole lite topic.
///
/// Measured on 5.5.0, for lite topics: a *suspended* change sets when the whole topic comes again, sooner or later than
/// what was said before, and the last one counts; that is a deferral, and without it the third one dead-letters. A change
/// that is not suspended moves the end of its own message's lease, and the topic comes again when the last of them
/// ends: that is a renewal, which must not end the leases of the others. Neither makes another message's handle
/// good for longer, and a renewal that arrives after a deferral undoes it. The attempt grows by neither, but by being
/// handed out again. Queues of FIFO topics know the second kind only.
fn suspends(verb: &Verb, is_lite: bool) -> Option<bool> {
    (is_lite && !matches!(verb, Verb::Renew(_))).then_some(true)
}

async fn forward(core: &Core, seat: &Seat, settlement: &Settlement) -> Result {
    let (message, handle) = (&settlement.message, &settlement.handle);
    let request = proto::ForwardMessageToDeadLetterQueueRequest {
        group: Some(core.resource(&handle.routing.group)),
        topic: Some(core.resource(&message.topic)),
        receipt_handle: handle.text.as_ref().to_owned(),
        message_id: message.id.as_str().to_owned(),
        delivery_attempt: i32::try_from(settlement.attempt).unwrap_or(i32::MAX),
        max_delivery_attempts: seat.view().attempts_max.unwrap_or(ATTEMPTS_DEFAULT),
        lite_topic: None,
    };
    seat.peer.forward(request).await.map(|()| None)
}

/// Waits before a further try, and lets the session mend itself when the failure shows that it must.
async fn prepare_retry(client: &impl SettlingClient, seat: &Seat, error: &CallError, wait: Duration) {
    seat.note(Note::CallFailed(error.clone()));
    time::sleep(wait).await;
    if matches!(error.reason(), Reason::SettingsUnknown | Reason::ServerTrouble) {
        client.ready(seat, client.core().request_timeout).await;
    }
}

const fn method_of(kind: CallKind) -> Method {
    match kind {
        CallKind::Ack => Method::AckMessage,
        CallKind::Change(_) => Method::ChangeInvisibleDuration,
        CallKind::Forward => Method::ForwardMessageToDeadLetterQueue,
    }
}
