//! The protocol's words and ours.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_proto::handoff as proto;
use tokio_util::sync::CancellationToken;

use crate::book::Credits;
use crate::settlement::Outcome;
use crate::{DeadLetter, Delivery, Renewal, RenewalResult, Settlement, SettlementResult, Status};

/// What a host keeps of a reason, in bytes. More need not travel.
const REASON_BYTES_MAX: usize = 1024;

pub(crate) fn delivery(delivery: proto::Delivery) -> Delivery {
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let time = |millis: u64| {
        if millis == 0 { None } else { UNIX_EPOCH.checked_add(Duration::from_millis(millis)) }
    };
    let (born_at, stored_at): (Option<SystemTime>, _) =
        (time(delivery.born_at_ms), time(delivery.stored_at_ms));
    Delivery {
        receipt: delivery.receipt,
        message_id: delivery.message_id,
        topic: delivery.topic,
        lite_topic: some(delivery.lite_topic),
        key: delivery.key,
        body: delivery.body,
        properties: delivery.properties.into_iter().map(|property| (property.name, property.value)).collect(),
        tag: some(delivery.tag),
        message_keys: delivery.message_keys,
        message_group: some(delivery.message_group),
        attempt: delivery.attempt,
        born_at,
        stored_at,
        lease: Duration::from_millis(delivery.lease_ms),
        corrupted: some(delivery.corrupted),
        dead_letter: delivery.dead_letter.map(|dead| DeadLetter {
            flow: dead.flow,
            source: dead.source,
            policy: some(dead.policy),
            reason: dead.reason,
            attempts: dead.attempts,
            first_received_at: time(dead.first_received_at_ms),
            last_received_at: time(dead.last_received_at_ms),
        }),
        lost: CancellationToken::new(),
    }
}

/// What a delivery counts against credits of bytes, as near as a worker can know it.
pub(crate) fn size_bytes(delivery: &Delivery) -> u64 {
    let properties: usize = delivery.properties.iter().map(|(name, value)| name.len() + value.len()).sum();
    u64::try_from(delivery.body.len() + properties).unwrap_or(u64::MAX)
}

pub(crate) fn settlement(settlement: &Settlement) -> proto::Settlement {
    use proto::settlement::Verdict;
    let verdict = match &settlement.verdict.outcome {
        Outcome::Accept => Verdict::Accept(proto::Accept {}),
        Outcome::Defer(delay) => Verdict::Defer(proto::Defer { delay_ms: millis(*delay) }),
        Outcome::Release => Verdict::Release(proto::Release {}),
        Outcome::Reject(reason) => {
            let end = reason.floor_char_boundary(REASON_BYTES_MAX.min(reason.len()));
            Verdict::Reject(proto::Reject { reason: reason[..end].to_owned() })
        }
    };
    proto::Settlement {
        receipt: settlement.receipt.clone(),
        verdict: Some(verdict),
        cost: settlement.verdict.cost,
    }
}

pub(crate) fn renewal(renewal: &Renewal) -> proto::Renewal {
    proto::Renewal { receipt: renewal.receipt.clone(), length_ms: millis(renewal.length) }
}

pub(crate) fn credits(credits: Credits) -> proto::Credits {
    // Zero bytes: as much as the host allows.
    proto::Credits { messages: credits.messages, bytes: credits.bytes.unwrap_or(0) }
}

pub(crate) fn settlement_result(result: proto::SettleResult) -> SettlementResult {
    let (status, detail) = status(result.status, result.detail);
    SettlementResult { receipt: result.receipt, status, detail }
}

pub(crate) fn renewal_result(result: proto::RenewResult) -> RenewalResult {
    let (status, detail) = status(result.status, result.detail);
    RenewalResult {
        receipt: result.receipt,
        status,
        detail,
        next_receipt: Some(result.next_receipt).filter(|receipt| !receipt.is_empty()),
        lease: Duration::from_millis(result.lease_ms),
    }
}

/// A status of a later version of the protocol is taken as a refusal: it is not known to be done, and the same again
/// would be answered so again.
fn status(status: i32, detail: String) -> (Status, String) {
    let known = match proto::Status::try_from(status) {
        Ok(proto::Status::Done) => Status::Done,
        Ok(proto::Status::Expired) => Status::Expired,
        Ok(proto::Status::Unknown) => Status::Unknown,
        Ok(proto::Status::Refused) => Status::Refused,
        Ok(proto::Status::RetryLater) => Status::RetryLater,
        Ok(proto::Status::Unspecified) | Err(_) => {
            return (Status::Refused, format!("the host answered with status {status}: {detail}"));
        }
    };
    (known, detail)
}

/// Rounded up: a short wait is none that is not there.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn what_a_later_host_may_say_is_no_done() {
        let told =
            settlement_result(proto::SettleResult { receipt: "r".into(), status: 77, detail: "new".into() });
        assert_eq!(told.status, Status::Refused);
        assert!(told.detail.contains("77") && told.detail.contains("new"), "{}", told.detail);
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let reason = "é".repeat(REASON_BYTES_MAX);
        let sent = settlement(&Settlement { receipt: "r".into(), verdict: Verdict::reject(reason) });
        let Some(proto::settlement::Verdict::Reject(proto::Reject { reason })) = sent.verdict else {
            panic!("no rejection");
        };
        assert_eq!(reason.len(), REASON_BYTES_MAX);
    }

    #[test]
    fn no_wait_is_rounded_away() {
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::ZERO), 0);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
