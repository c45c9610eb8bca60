//! What brokers should never send, and what a member makes of it: only the broker in memory sends it.

use std::time::Duration;

use tidegate_kafka_share::AcknowledgeType::Accept;
use tidegate_share_broker::{Api, Batch, Effect, Fault};

use super::quiet::{ASKED_MAX, is_quiet};
use crate::play::{Member, Play};

/// More often than a scenario asks.
const ALWAYS: u32 = 100_000;
/// No code of Kafka's.
const UNKNOWN_CODE: i16 = 9_999;

async fn begun(play: &Play) -> (String, String, Member) {
    let (topic, group) = (play.topic("topic", 1).await, play.group("group", &[]).await);
    let member = play.member(&group, &topic);
    member.until_assigned(1).await;
    (topic, group, member)
}

fn inject(play: &Play, api: Api, effect: Effect, times: u32) {
    play.service().with(|cluster, _| cluster.inject(Fault::new(api, effect, times)));
}

/// Nothing goes wrong any more, not even with a fetch that waits at the moment.
async fn heal(play: &Play, member: &Member) {
    play.service().with(|cluster, _| cluster.clear_faults());
    member.gets_nothing(Duration::from_millis(700)).await;
}

fn clear_journal(play: &Play) {
    play.service().with(|cluster, _| cluster.journal_mut().clear());
}

/// The most requests within a second since the journal was cleared.
fn asked(play: &Play) -> usize {
    play.service().with(|cluster, _| cluster.journal().most_within(Duration::from_secs(1), &[]))
}

/// franz-go v1.21.1: an empty batch was a panic.
pub(super) async fn empty_batches_are_passed_over(play: Play) {
    let (topic, group, member) = begun(&play).await;
    inject(&play, Api::ShareFetch, Effect::EmptyBatch, 3);
    inject(&play, Api::ShareFetch, Effect::NoRecords, 2);
    let record = |number: usize| tidegate_share_broker::Record::new(number.to_string());
    let batches =
        [Batch::empty(5), Batch::of([record(0), record(1)]), Batch::empty(1), Batch::of([record(2)])];
    play.service().with(|cluster, _| cluster.append_batches(&topic, 0, batches)).unwrap();
    let got = member.consume(3).await;
    assert_eq!(got.iter().map(|got| got.offset).collect::<Vec<_>>(), [5, 6, 8]);
    play.until_done(&group, &topic).await;
    assert_eq!(member.heard().count("Damaged"), 0, "{}", member.account());
    is_quiet(&play, &member).await;
    member.close().await;
}

/// Nobody can read them: they are rejected and told, and what comes after them is not held up.
pub(super) async fn damaged_batches_are_rejected_and_told(play: Play) {
    let (topic, group, member) = begun(&play).await;
    inject(&play, Api::ShareFetch, Effect::CorruptRecords, ALWAYS);
    play.append(&topic, 0, 0..10).await;
    is_quiet(&play, &member).await;
    member.until_told("Damaged", 1).await;
    play.until_done(&group, &topic).await;
    heal(&play, &member).await;
    play.append(&topic, 0, 10..20).await;
    assert_eq!(member.consume(10).await.len(), 10);
    member.close().await;
}

/// Another member might read them: they are released, until the group has had enough of them.
pub(super) async fn an_unknown_compression_is_given_back_and_told(play: Play) {
    let (topic, group, member) = begun(&play).await;
    inject(&play, Api::ShareFetch, Effect::UnknownCompression, 1);
    play.append(&topic, 0, 0..10).await;
    let got = member.consume(10).await;
    assert!(got.iter().all(|got| got.count == 2), "{got:?}");
    member.until_told("Damaged", 1).await;
    inject(&play, Api::ShareFetch, Effect::UnknownCompression, ALWAYS);
    play.append(&topic, 0, 10..20).await;
    is_quiet(&play, &member).await;
    play.until_done(&group, &topic).await;
    heal(&play, &member).await;
    play.append(&topic, 0, 20..30).await;
    member.consume(10).await;
    member.close().await;
}

/// Whatever the call, and wherever in an answer.
pub(super) async fn unknown_codes_are_survived(play: Play) {
    let (topic, group, member) = begun(&play).await;
    let partition = || Effect::PartitionError { code: UNKNOWN_CODE, partition: None };
    let faults = [
        (Api::Metadata, Effect::Error(UNKNOWN_CODE)),
        (Api::FindCoordinator, Effect::Error(UNKNOWN_CODE)),
        (Api::ShareGroupHeartbeat, Effect::Error(UNKNOWN_CODE)),
        (Api::ShareFetch, Effect::Error(UNKNOWN_CODE)),
        (Api::ShareFetch, partition()),
        (Api::ShareFetch, Effect::AcknowledgeError(UNKNOWN_CODE)),
        (Api::ShareAcknowledge, Effect::Error(UNKNOWN_CODE)),
        (Api::ShareAcknowledge, partition()),
    ];
    let mut next = 0;
    for (api, effect) in faults {
        play.append(&topic, 0, next..next + 5).await;
        let held = member.gather(5).await;
        inject(&play, api, effect, ALWAYS);
        clear_journal(&play);
        // Each has a result, good or bad, though everything else be refused.
        let results = member.settle(&held, Accept).await;
        assert_eq!(results.len(), 5);
        member.receive(10, Duration::from_secs(1)).await;
        assert!(asked(&play) <= ASKED_MAX, "{} within a second; {api:?}", asked(&play));
        play.service().with(|cluster, _| cluster.clear_faults());
        while play.stage.lag(&group, &topic).await != Some(0) {
            let got = member.receive(10, Duration::from_secs(1)).await;
            member.settle(&got, Accept).await;
        }
        next += 5;
    }
    member.until_well().await;
    member.close().await;
}

/// Put out by its group at every heartbeat: by another with its name, or because the group forgot it.
pub(super) async fn a_member_that_is_always_put_out_asks_little(play: Play) {
    const UNKNOWN_MEMBER_ID: i16 = 25;
    const GROUP_ID_NOT_FOUND: i16 = 69;
    const FENCED_MEMBER_EPOCH: i16 = 110;
    let (topic, group, member) = begun(&play).await;
    for (number, code) in [UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_MEMBER_EPOCH].into_iter().enumerate()
    {
        inject(&play, Api::ShareGroupHeartbeat, Effect::Error(code), ALWAYS);
        is_quiet(&play, &member).await;
        heal(&play, &member).await;
        play.append(&topic, 0, number..number + 1).await;
        member.consume(1).await;
    }
    play.until_done(&group, &topic).await;
    member.until_well().await;
    member.close().await;
}

pub(super) async fn missing_share_groups_are_asked_for_little(play: Play) {
    let topic = play.topic("topic", 1).await;
    let member = play.member(&play.own("group"), &topic);
    member.until_told("trouble: ", 1).await;
    is_quiet(&play, &member).await;
    member.close().await;
}

/// A broker that says how long nothing may be asked is not asked for so long, acknowledgements included.
pub(super) async fn a_throttled_member_waits(play: Play) {
    const THROTTLED: Duration = Duration::from_secs(1);
    let (topic, group, member) = begun(&play).await;
    inject(&play, Api::ShareFetch, Effect::Throttle(THROTTLED), ALWAYS);
    inject(&play, Api::ShareAcknowledge, Effect::Throttle(THROTTLED), ALWAYS);
    play.append(&topic, 0, 0..1).await;
    member.consume(1).await;
    clear_journal(&play);
    for number in 1..4 {
        play.append(&topic, 0, number..number + 1).await;
        member.consume(1).await;
    }
    let asked = play.service().with(|cluster, _| {
        let journal = cluster.journal();
        // The answer is on its way for a while before the wait begins, never after.
        journal.most_within(THROTTLED * 9 / 10, &[Api::ShareFetch, Api::ShareAcknowledge])
    });
    assert_eq!(asked, 1, "{}", member.account());
    heal(&play, &member).await;
    play.until_done(&group, &topic).await;
    member.close().await;
}
