use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_model::{BodyState, DeliveryId, Handle, Message, MessageId, Routing};

use super::*;

#[test]
fn acks_of_one_topic_go_out_together() {
    let batch: Vec<_> = (0..70).map(|n| settlement(n, Some("a"), Verb::Accept)).collect();
    let stages = stages(&batch);
    let sizes: Vec<_> =
        stages.iter().map(|calls| calls.iter().map(|call| call.members.len()).collect::<Vec<_>>()).collect();
    assert_eq!(sizes, [[32], [32], [6]], "one lite topic: one after the other, in order");
    let batch: Vec<_> = (0..70).map(|n| settlement(n, Some(&n.to_string()), Verb::Accept)).collect();
    assert_eq!(super::stages(&batch).len(), 1, "different lite topics: at the same time");
}

#[test]
fn another_endpoint_or_topic_takes_another_call() {
    let mut batch: Vec<_> = (0..4).map(|n| settlement(n, Some(&n.to_string()), Verb::Accept)).collect();
    batch[1].handle.routing = Arc::new(Routing { endpoint: "other:1".into(), ..Default::default() });
    let mut elsewhere = (*batch[2].message).clone();
    elsewhere.topic = "U".into();
    batch[2].message = Arc::new(elsewhere);
    let stages = stages(&batch);
    let members: Vec<_> = stages[0].iter().map(|call| call.members.clone()).collect();
    assert_eq!(members, [vec![0, 3], vec![1], vec![2]]);
}

/// As many as a whole fleet may have to tell at once; looking through full calls would take minutes.
#[test]
fn a_large_batch_is_planned_in_no_time() {
    let batch: Vec<_> = (0..100_000).map(|n| settlement(n, None, Verb::Accept)).collect();
    let stages = stages(&batch);
    assert_eq!(stages.iter().map(Vec::len).collect::<Vec<_>>(), [3_125]);
    assert!(stages[0].iter().all(|call| call.members.len() == ENTRIES_MAX));
}

/// A batch of receipts may hold what it likes.
#[test]
fn the_same_message_twice_is_settled_in_order() {
    let renew = Verb::Renew(Duration::from_secs(60));
    let batch =
        [settlement(7, None, renew), settlement(7, None, Verb::Accept), settlement(8, None, Verb::Accept)];
    let members: Vec<Vec<_>> = stages(&batch)
        .into_iter()
        .map(|calls| calls.into_iter().map(|call| call.members).collect())
        .collect();
    assert_eq!(members, [vec![vec![0]], vec![vec![1, 2]]]);
}

/// One key that alternates makes thousands of stages.
#[test]
fn many_stages_are_planned_in_no_time() {
    let alternating = |n| if n % 2 == 0 { Verb::Accept } else { Verb::Release };
    let batch: Vec<_> = (0..60_000)
        .map(|n| {
            if n % 2 == 0 {
                settlement(n, Some("a"), alternating(n / 2))
            } else {
                settlement(n, None, Verb::Accept)
            }
        })
        .collect();
    let planned: usize = stages(&batch).iter().flatten().map(|call| call.members.len()).sum();
    assert_eq!(planned, batch.len());
}

#[test]
fn verbs_become_calls() {
    let kind = |lite, verb| kind_of(&settlement(0, lite, verb));
    let reject = || Verb::Reject { reason: "no".into() };
    assert_eq!(kind(Some("a"), Verb::Accept), CallKind::Ack);
    assert_eq!(kind(Some("a"), reject()), CallKind::Ack, "never the server's dead letters for lite");
    assert_eq!(kind(None, reject()), CallKind::Forward);
    assert_eq!(kind(Some("a"), Verb::Release), CallKind::Change(Duration::ZERO));
    assert_eq!(
        kind(Some("a"), Verb::Defer(Duration::from_secs(9))),
        CallKind::Change(Duration::from_secs(9))
    );
    assert_eq!(kind(Some("a"), Verb::Defer(Duration::from_secs(99_999))), CallKind::Change(CHANGE_MAX));
    assert_eq!(kind(None, Verb::Renew(Duration::from_secs(60))), CallKind::Change(Duration::from_secs(60)));
}

/// Sent the other way round, the ack would not stick.
#[test]
fn a_defer_after_an_accept_of_its_lite_topic_waits_for_it() {
    let defer = Verb::Defer(Duration::from_secs(1));
    let batch = [
        settlement(0, Some("a"), Verb::Accept),
        settlement(1, Some("a"), defer.clone()),
        settlement(2, Some("b"), defer),
        settlement(3, Some("b"), Verb::Accept),
    ];
    let stages = stages(&batch);
    let members = |stage: usize| stages[stage].iter().map(|call| call.members.clone()).collect::<Vec<_>>();
    assert_eq!(members(0), [vec![0], vec![2]]);
    assert_eq!(members(1), [vec![1], vec![3]]);
}

#[test]
fn renewals_of_a_lite_topic_go_side_by_side() {
    let renew = || Verb::Renew(Duration::from_secs(60));
    let batch: Vec<_> = (0..40).map(|n| settlement(n, Some("a"), renew())).collect();
    let stages = stages(&batch);
    assert_eq!(stages.iter().map(Vec::len).collect::<Vec<_>>(), [40]);
    assert!(stages[0].iter().all(|call| call.members.len() == 1), "each message has a handle of its own");
}

/// What gives back the whole lite topic would be undone by a renewal that arrives after it.
#[test]
fn renewals_neither_overtake_nor_are_overtaken() {
    let renew = || Verb::Renew(Duration::from_secs(60));
    let verbs = [renew(), renew(), Verb::Release, renew(), renew(), Verb::Accept, Verb::Accept, renew()];
    let batch: Vec<_> =
        verbs.into_iter().enumerate().map(|(n, verb)| settlement(n, Some("a"), verb)).collect();
    let members: Vec<Vec<_>> = stages(&batch)
        .into_iter()
        .map(|calls| calls.into_iter().map(|call| call.members).collect())
        .collect();
    let expected: [&[&[usize]]; 5] = [&[&[0], &[1]], &[&[2]], &[&[3], &[4]], &[&[5, 6]], &[&[7]]];
    assert_eq!(members, expected);
}

#[test]
fn entries_are_matched_by_handle_not_by_place() {
    let answer = answer(30_000, &[("h2", 40_013), ("h1", 20_000)]);
    let statuses = entry_statuses(&answer, ["h1", "h2", "h3"].into_iter());
    assert_eq!(
        statuses.iter().map(|status| status.map(|(code, _)| code)).collect::<Vec<_>>(),
        [Some(20_000), Some(40_013), None]
    );
}

#[test]
fn without_entries_the_top_status_holds_for_all() {
    for code in [20_000, 50_001] {
        let answer = answer(code, &[]);
        let statuses = entry_statuses(&answer, ["h1", "h2"].into_iter());
        assert!(statuses.iter().all(|status| status.is_some_and(|(entry, _)| entry == code)));
    }
    let nothing = proto::AckMessageResponse::default();
    assert_eq!(entry_statuses(&nothing, ["h1"].into_iter()), [None]);
}

/// A top status of OK hides nothing: each entry is read.
#[test]
fn an_entry_wins_over_the_top_status() {
    let answer = answer(20_000, &[("h1", 50_001)]);
    assert_eq!(entry_statuses(&answer, ["h1"].into_iter())[0].map(|(code, _)| code), Some(50_001));
}

proptest! {
    /// Every settlement is in exactly one call, and settlements of one key keep their order over stages and within
    /// calls, but for renewals that follow each other: those share a stage.
    #[test]
    fn plans_lose_nothing_and_keep_order(
        items in proptest::collection::vec((0..5_u8, 0..7_u8), 0..200),
    ) {
        let batch: Vec<_> = items
            .iter()
            .enumerate()
            .map(|(n, (key, verb))| {
                let verb = match verb {
                    0..=2 => Verb::Accept,
                    3 => Verb::Defer(Duration::from_secs(1)),
                    4 => Verb::Release,
                    _ => Verb::Renew(Duration::from_secs(60)),
                };
                let key = (*key > 0).then(|| key.to_string());
                settlement(n, key.as_deref(), verb)
            })
            .collect();
        let stages = stages(&batch);
        let mut seen = HashSet::new();
        let mut place = HashMap::new();
        for (stage, calls) in stages.iter().enumerate() {
            for (number, call) in calls.iter().enumerate() {
                prop_assert!(!call.members.is_empty() && call.members.len() <= ENTRIES_MAX);
                for (at, member) in call.members.iter().enumerate() {
                    prop_assert!(seen.insert(*member));
                    place.insert(*member, (stage, number, at));
                }
            }
        }
        prop_assert_eq!(seen.len(), batch.len());
        let renews = |at: usize| matches!(batch[at].verb, Verb::Renew(_));
        for later in 0..batch.len() {
            let key = &batch[later].message.lite_topic;
            let mut only_renewals = renews(later);
            for earlier in (0..later).rev().filter(|at| key.is_some() && batch[*at].message.lite_topic == *key) {
                only_renewals &= renews(earlier);
                let (a, b) = (place[&earlier], place[&later]);
                if only_renewals {
                    prop_assert!(a.0 == b.0 && a.1 != b.1, "renewals go side by side, in calls of their own");
                } else {
                    prop_assert!(a.0 < b.0 || (a.0 == b.0 && a.1 == b.1 && a.2 < b.2));
                }
            }
        }
    }
}

fn settlement(number: usize, lite_topic: Option<&str>, verb: Verb) -> Settlement {
    let routing = Arc::new(Routing { endpoint: "e:1".into(), ..Default::default() });
    let message = Message {
        topic: "T".into(),
        lite_topic: lite_topic.map(Into::into),
        group: None,
        id: MessageId::from(number.to_string()),
        tag: None,
        keys: Vec::new(),
        properties: Vec::new(),
        body: bytes::Bytes::new(),
        body_state: BodyState::Intact,
        born_at: None,
        stored_at: None,
    };
    Settlement {
        id: DeliveryId(u64::try_from(number).expect("small")),
        verb,
        message: Arc::new(message),
        handle: Handle { routing, text: format!("h{number}").into() },
        attempt: 1,
    }
}

fn answer(code: i32, entries: &[(&str, i32)]) -> proto::AckMessageResponse {
    let status = |code| Some(proto::Status { code, message: String::new() });
    let entry = |(handle, code): &(&str, i32)| proto::AckMessageResultEntry {
        message_id: String::new(),
        receipt_handle: (*handle).to_owned(),
        status: status(*code),
    };
    proto::AckMessageResponse { status: status(code), entries: entries.iter().map(entry).collect() }
}
