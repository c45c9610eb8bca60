//! Which calls settle a batch, in which order, and what their answers say, without I/O.
//!
//! Acknowledgements of one topic go out together. Calls of one *stage* may run at the same time; settlements of one
//! ordered key (lite topic, message group) that need several calls are spread over stages, in their order: a broker
//! does not keep an acknowledgement while an earlier message of the lite topic is open, and a deferral and a renewal of
//! one lite topic undo each other, so that the last to arrive counts (measured).
//!
//! Renewals that follow each other share a stage, since each moves the end of its own message's lease and no other's
//! (measured): a key with many deliveries is renewed in the time of a few calls. What comes before them of their key is
//! answered first, and what comes after them waits for them all.

use std::collections::HashMap;
use std::time::Duration;

use tidegate_model::{Settlement, Verb};
use tidegate_proto::rocketmq as proto;

/// Most entries of one acknowledgement. What one receive gives, and proxies work through them one by one.
pub(crate) const ENTRIES_MAX: usize = 32;

/// Stages in which an acknowledgement looks for company: in a large batch of many stages a call more costs less than
/// looking through them all.
const STAGES_LOOKED_AT_MAX: usize = 64;

/// Longest lease that a change may ask for (`maxInvisibleTimeMills` of the proxy; 40011 above).
const CHANGE_MAX: Duration = Duration::from_secs(43_200);

/// One call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    /// Places in the batch. More than one only for acknowledgements, whose topic and routing they share.
    pub(crate) members: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CallKind {
    Ack,
    /// The lease shall end after this time.
    Change(Duration),
    /// To the dead-letter topic.
    Forward,
}

/// Where the last settlement of an ordered key is planned so far.
#[derive(Clone, Copy)]
struct Last {
    stage: usize,
    call: usize,
    /// Whether it is a renewal, beside which others may go.
    renews: bool,
}

/// Plans a batch: stages of calls.
pub(crate) fn stages(batch: &[Settlement]) -> Vec<Vec<Call>> {
    let mut stages: Vec<Vec<Call>> = Vec::new();
    // Of each stage the acknowledgements that have room: looking through the full ones would take the square of a large
    // batch.
    let mut open: Vec<Vec<usize>> = Vec::new();
    let mut last_of_key: HashMap<(bool, &str), Last> = HashMap::with_capacity(batch.len());
    for (at, settlement) in batch.iter().enumerate() {
        let message = &settlement.message;
        let order = message.lite_topic.as_deref().or(message.group.as_deref());
        // What has no order keeps that of one message, should it be there twice.
        let key = (order.is_some(), order.unwrap_or(message.id.as_str()));
        let last = last_of_key.get(&key).copied();
        let kind = kind_of(settlement);
        let renews = matches!(settlement.verb, Verb::Renew(_));
        let from = last.map_or(0, |last| if last.renews && renews { last.stage } else { last.stage + 1 });
        let place = match last {
            Some(Last { stage, call, .. }) if joins(&stages[stage][call], kind, settlement, batch) => {
                Some((stage, call))
            }
            _ => find_ack(&stages, &open, from, kind, settlement, batch),
        };
        let (stage, call) = place.unwrap_or_else(|| {
            let stage = from;
            if stages.len() <= stage {
                stages.resize_with(stage + 1, Vec::new);
                open.resize_with(stage + 1, Vec::new);
            }
            let call = stages[stage].len();
            stages[stage].push(Call { kind, members: Vec::new() });
            if kind == CallKind::Ack {
                open[stage].push(call);
            }
            (stage, call)
        });
        stages[stage][call].members.push(at);
        if stages[stage][call].members.len() >= ENTRIES_MAX {
            open[stage].retain(|other| *other != call);
        }
        last_of_key.insert(key, Last { stage, call, renews });
    }
    stages
}

/// What an acknowledgement's answer says about each handle that was sent: a code and text, or nothing when the
/// answer leaves a handle out although entries differ.
pub(crate) fn entry_statuses<'a>(
    answer: &'a proto::AckMessageResponse,
    handles: impl Iterator<Item = &'a str>,
) -> Vec<Option<(i32, &'a str)>> {
    let top = answer.status.as_ref().map(|status| (status.code, status.message.as_str()));
    let one_for_all = top.filter(|(code, _)| *code != i32::from(proto::Code::MultipleResults));
    let entries = &answer.entries;
    let of = |(at, handle): (usize, &str)| {
        // Entries come back in order, as a rule; the handle decides.
        let expected = entries.get(at).filter(|entry| entry.receipt_handle == handle);
        let entry = expected.or_else(|| entries.iter().find(|entry| entry.receipt_handle == handle));
        let status = entry.and_then(|entry| entry.status.as_ref());
        status.map(|status| (status.code, status.message.as_str())).or(one_for_all)
    };
    handles.enumerate().map(of).collect()
}

fn kind_of(settlement: &Settlement) -> CallKind {
    match &settlement.verb {
        Verb::Accept => CallKind::Ack,
        // The server's own dead-lettering of a lite message puts an un-ackable copy back into the lite topic for ever
        // (measured on 5.5.0): whoever rejects has published it elsewhere, and here it is only taken off.
        Verb::Reject { .. } if settlement.message.lite_topic.is_some() => CallKind::Ack,
        Verb::Reject { .. } => CallKind::Forward,
        Verb::Release => CallKind::Change(Duration::ZERO),
        Verb::Defer(delay) | Verb::Renew(delay) => CallKind::Change((*delay).min(CHANGE_MAX)),
    }
}

fn joins(call: &Call, kind: CallKind, settlement: &Settlement, batch: &[Settlement]) -> bool {
    let first = &batch[call.members[0]];
    kind == CallKind::Ack
        && call.kind == CallKind::Ack
        && call.members.len() < ENTRIES_MAX
        && first.message.topic == settlement.message.topic
        && first.handle.routing == settlement.handle.routing
}

fn find_ack(
    stages: &[Vec<Call>],
    open: &[Vec<usize>],
    from: usize,
    kind: CallKind,
    settlement: &Settlement,
    batch: &[Settlement],
) -> Option<(usize, usize)> {
    if kind != CallKind::Ack {
        return None;
    }
    open.iter().enumerate().skip(from).take(STAGES_LOOKED_AT_MAX).find_map(|(stage, calls)| {
        let joined = |call: &&usize| joins(&stages[stage][**call], kind, settlement, batch);
        calls.iter().find(joined).map(|call| (stage, *call))
    })
}

#[cfg(test)]
mod tests;
