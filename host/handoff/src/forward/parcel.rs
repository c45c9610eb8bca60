//! What is passed on, in parcels, and what the answers to them say, without I/O.

use tidegate_proto::handoff as proto;

use crate::settle::{BATCH_MAX, Kept, Told};

/// Bytes of one parcel, about. A connection may have sixteen times as much under way.
pub(super) const PARCEL_BYTES_MAX: usize = 1 << 20;
/// What a settlement or a renewal has beside its receipt and reason, at most.
const ERRAND_BYTES: usize = 64;

/// One thing to have done by the host that gave a message out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Errand {
    Settle(proto::Settlement),
    Renew(proto::Renewal),
}

/// Errands of one kind for one host, with the places that their results go to.
#[derive(Debug, PartialEq)]
pub(super) struct Parcel {
    pub(super) places: Vec<usize>,
    pub(super) load: Load,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Load {
    Settle(Vec<proto::Settlement>),
    Renew(Vec<proto::Renewal>),
}

/// Puts errands of one host into parcels, in order.
pub(super) fn pack(errands: Vec<(usize, Errand)>) -> Vec<Parcel> {
    let mut parcels: Vec<Parcel> = Vec::new();
    let mut bytes = 0;
    for (place, errand) in errands {
        let size = errand.size_bytes();
        let fits = |parcel: &Parcel| {
            parcel.places.len() < BATCH_MAX && bytes + size <= PARCEL_BYTES_MAX && parcel.load.takes(&errand)
        };
        if !parcels.last().is_some_and(fits) {
            parcels.push(Parcel { places: Vec::new(), load: Load::of(&errand) });
            bytes = 0;
        }
        bytes += size;
        if let Some(parcel) = parcels.last_mut() {
            parcel.places.push(place);
            parcel.load.add(errand);
        }
    }
    parcels
}

impl Errand {
    fn size_bytes(&self) -> usize {
        use proto::settlement::Verdict;
        let (receipt, reason) = match self {
            Self::Settle(proto::Settlement { receipt, verdict: Some(Verdict::Reject(reject)), .. }) => {
                (receipt, reject.reason.len())
            }
            Self::Settle(proto::Settlement { receipt, .. }) | Self::Renew(proto::Renewal { receipt, .. }) => {
                (receipt, 0)
            }
        };
        receipt.len() + reason + ERRAND_BYTES
    }
}

impl Load {
    fn of(errand: &Errand) -> Self {
        match errand {
            Errand::Settle(_) => Self::Settle(Vec::new()),
            Errand::Renew(_) => Self::Renew(Vec::new()),
        }
    }

    fn takes(&self, errand: &Errand) -> bool {
        matches!((self, errand), (Self::Settle(_), Errand::Settle(_)) | (Self::Renew(_), Errand::Renew(_)))
    }

    fn add(&mut self, errand: Errand) {
        match (self, errand) {
            (Self::Settle(some), Errand::Settle(one)) => some.push(one),
            (Self::Renew(some), Errand::Renew(one)) => some.push(one),
            // `takes` was asked before.
            (Self::Settle(_), Errand::Renew(_)) | (Self::Renew(_), Errand::Settle(_)) => {}
        }
    }

    pub(super) const fn is_renewals(&self) -> bool {
        matches!(self, Self::Renew(_))
    }

    pub(super) fn receipts(&self) -> impl Iterator<Item = &str> {
        let (settlements, renewals): (&[proto::Settlement], &[proto::Renewal]) = match self {
            Self::Settle(some) => (some, &[]),
            Self::Renew(some) => (&[], some),
        };
        let settled = settlements.iter().map(|one| &*one.receipt);
        settled.chain(renewals.iter().map(|one| &*one.receipt))
    }
}

/// What an answer says of each settlement: one result each, whatever the other side sent.
pub(super) fn settled(load: &Load, results: Vec<proto::SettleResult>) -> Vec<Kept> {
    in_order(
        load,
        results.into_iter().map(|result| {
            let status = result.status();
            (result.receipt, Kept::not(told(status, result.detail)))
        }),
    )
}

/// The same of renewals.
pub(super) fn renewed(load: &Load, results: Vec<proto::RenewResult>) -> Vec<Kept> {
    in_order(
        load,
        results.into_iter().map(|result| {
            let told = told(result.status(), result.detail);
            let lease = std::time::Duration::from_millis(result.lease_ms);
            (result.receipt, Kept { told, next_receipt: result.next_receipt, lease })
        }),
    )
}

/// The result at each receipt's place, if it is of that receipt.
fn in_order(load: &Load, mut results: impl Iterator<Item = (String, Kept)>) -> Vec<Kept> {
    let of = |receipt: &str| match results.next() {
        Some((about, kept)) if about == receipt => kept,
        _ => Kept::not(unanswered()),
    };
    load.receipts().map(of).collect()
}

fn told(status: proto::Status, detail: String) -> Told {
    match status {
        proto::Status::Unspecified => unanswered(),
        status => Told::elsewhere(status, detail),
    }
}

fn unanswered() -> Told {
    let detail = "the host that gave it out answered, and not about this one; settle again".to_owned();
    Told::elsewhere(proto::Status::RetryLater, detail)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tidegate_proto::handoff::Status;

    use super::*;

    fn settlement(receipt: &str) -> Errand {
        let verdict = Some(proto::settlement::Verdict::Accept(proto::Accept {}));
        Errand::Settle(proto::Settlement { receipt: receipt.into(), verdict, cost: Some(1.0) })
    }

    fn renewal(receipt: &str) -> Errand {
        Errand::Renew(proto::Renewal { receipt: receipt.into(), length_ms: 1 })
    }

    fn result(receipt: &str, status: Status) -> proto::SettleResult {
        proto::SettleResult { receipt: receipt.into(), status: status.into(), detail: "so".into() }
    }

    #[test]
    fn each_settlement_has_one_result_whatever_comes() {
        let parcel = pack(vec![(7, settlement("a")), (9, settlement("b"))]).remove(0);
        assert_eq!(parcel.places, [7, 9]);
        let statuses = |results| -> Vec<Status> {
            settled(&parcel.load, results).into_iter().map(|kept| kept.told.status).collect()
        };
        let (a, b) = (result("a", Status::Done), result("b", Status::Expired));
        assert_eq!(statuses(vec![a.clone(), b.clone()]), [Status::Done, Status::Expired]);
        assert_eq!(statuses(vec![b.clone(), a.clone()]), [Status::RetryLater; 2], "of others");
        assert_eq!(statuses(vec![a.clone()]), [Status::Done, Status::RetryLater]);
        assert_eq!(statuses(vec![a.clone(), b.clone(), b]), [Status::Done, Status::Expired]);
        assert_eq!(statuses(vec![a, result("b", Status::Unspecified)]), [Status::Done, Status::RetryLater]);
    }

    #[test]
    fn a_renewal_keeps_its_lease() {
        let parcel = pack(vec![(0, renewal("a"))]).remove(0);
        let result = proto::RenewResult {
            receipt: "a".into(),
            status: Status::Done.into(),
            detail: String::new(),
            next_receipt: "next".into(),
            lease_ms: 5,
        };
        let kept = renewed(&parcel.load, vec![result]).remove(0);
        assert_eq!((kept.told.status, &*kept.next_receipt), (Status::Done, "next"));
        assert_eq!(kept.lease, Duration::from_millis(5));
    }

    proptest! {
        #[test]
        fn parcels_are_bounded_and_lose_nothing(
            sizes in proptest::collection::vec((0_usize..8_192, any::<bool>()), 0..2_500),
        ) {
            let errands: Vec<_> = sizes
                .iter()
                .enumerate()
                .map(|(at, (size, renews))| {
                    let receipt = "x".repeat(*size);
                    (at, if *renews { renewal(&receipt) } else { settlement(&receipt) })
                })
                .collect();
            let parcels = pack(errands);
            let mut places = Vec::new();
            for parcel in &parcels {
                prop_assert_eq!(parcel.places.len(), parcel.load.receipts().count());
                prop_assert!(parcel.places.len() <= BATCH_MAX);
                prop_assert!(parcel.load.receipts().map(|receipt| receipt.len() + ERRAND_BYTES).sum::<usize>() <= PARCEL_BYTES_MAX);
                for (place, receipt) in parcel.places.iter().zip(parcel.load.receipts()) {
                    prop_assert_eq!(receipt.len(), sizes[*place].0);
                }
                places.extend_from_slice(&parcel.places);
            }
            places.sort_unstable();
            prop_assert_eq!(places, (0..sizes.len()).collect::<Vec<_>>());
        }
    }
}
