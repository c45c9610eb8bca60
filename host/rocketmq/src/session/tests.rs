use proptest::prelude::*;

use super::*;
use crate::options::TopicKind;

#[test]
fn settings_come_first_then_subscription_and_heartbeat() {
    let mut session = lite();
    assert_eq!(actions(&mut session), [Action::Open(ClientKind::LiteSimpleConsumer)]);
    assert!(!session.is_ready());
    session.handle_settings(at(10), Ok(()));
    assert!(session.is_ready());
    assert_eq!(actions(&mut session), [Action::Sync(SyncKind::Add)]);
    session.handle_sync(at(20), Ok(()));
    assert_eq!(
        run_until(&mut session, at(1_010)),
        [(at(1_010), Action::Heartbeat(ClientKind::LiteSimpleConsumer))]
    );
    session.handle_heartbeat(at(1_015), Ok(()));
    assert_eq!(session.poll_timeout(), at(11_015));
}

/// Reported for other clients (1245): the subscription must be renewed for ever, or brokers drop it.
#[test]
fn the_subscription_is_renewed_every_thirty_seconds() {
    let mut session = ready(lite());
    session.handle_sync(at(0), Ok(()));
    let mut syncs = Vec::new();
    for _ in 0..200 {
        let now = session.poll_timeout();
        session.handle_timeout(now);
        for action in actions(&mut session) {
            match action {
                Action::Sync(sync) => {
                    assert_eq!(sync, SyncKind::Add);
                    syncs.push(now.as_millis());
                    session.handle_sync(now, Ok(()));
                }
                Action::Heartbeat(_) => session.handle_heartbeat(now, Ok(())),
                _ => {}
            }
        }
    }
    assert_eq!(syncs[..4], [30_000, 60_000, 90_000, 120_000]);
}

/// Measured on 5.5.0: it refuses the newer type by failing the stream, and does everything for the older one.
#[test]
fn a_refused_client_type_falls_back_once_and_says_so_once() {
    let mut session = lite();
    actions(&mut session);
    session.handle_stream_end(at(5), refused());
    assert_eq!(actions(&mut session), [Action::Open(ClientKind::LitePushConsumer)]);
    assert_eq!(notices(&mut session), [Notice::FellBack]);
    session.handle_settings(at(10), Ok(()));
    actions(&mut session);
    session.handle_stream_end(at(20_000), trouble(Reason::ServerTrouble));
    let reopened = run_until(&mut session, at(30_000));
    assert_eq!(reopened[0].1, Action::Open(ClientKind::LitePushConsumer), "stays with what works");
    assert!(!notices(&mut session).contains(&Notice::FellBack));
}

#[test]
fn a_server_that_refuses_both_types_is_too_old() {
    let mut session = lite();
    session.handle_stream_end(at(5), refused());
    session.handle_stream_end(at(10), refused());
    assert!(!session.is_ready());
    let text = session.problem().expect("a problem").to_string();
    assert!(text.contains("5.5.0 or newer"), "{text}");
}

/// Reported for other clients (903): after the server closed the stream, it was never opened again.
#[test]
fn a_stream_that_ends_cleanly_is_opened_again_every_time() {
    let mut session = lite();
    actions(&mut session);
    let mut now = at(0);
    for _ in 0..50 {
        session.handle_settings(now, Ok(()));
        actions(&mut session);
        now += Duration::from_secs(2);
        session.handle_stream_end(now, trouble(Reason::ServerTrouble));
        let open_at = session.poll_timeout();
        assert!(open_at.saturating_since(now) <= REOPEN_WAIT_FIRST, "a good stream earns a quick return");
        session.handle_timeout(open_at);
        assert_eq!(actions(&mut session), [Action::Open(ClientKind::LiteSimpleConsumer)]);
        now = open_at;
    }
}

#[test]
fn a_proxy_that_is_down_is_tried_for_ever_with_capped_waits() {
    let mut session = lite();
    let mut waits = Vec::new();
    let mut now = at(0);
    for _ in 0..100 {
        session.handle_stream_end(now, trouble(Reason::Unreachable));
        let open_at = session.poll_timeout();
        waits.push(open_at.saturating_since(now));
        now = open_at;
        session.handle_timeout(now);
    }
    assert!(
        waits.iter().all(|wait| (Duration::from_millis(100)..=REOPEN_WAIT_MAX).contains(wait)),
        "{waits:?}"
    );
    assert!(waits[99] > Duration::from_secs(3));
    let lost = notices(&mut session)
        .into_iter()
        .filter(|notice| matches!(notice, Notice::Lost { repeated: false, .. }));
    assert_eq!(lost.count(), 1, "the same trouble is news once");
}

/// Reported for other clients (1137, 824): settings lost at the proxy must be sent again at once, not in five minutes.
#[test]
fn forgotten_settings_are_sent_again_at_once() {
    let mut session = ready(lite());
    session.handle_call_failure(at(60_000), &trouble(Reason::SettingsUnknown));
    assert!(!session.is_ready(), "nothing is received until they are exchanged");
    assert_eq!(actions(&mut session), [Action::WriteSettings(ClientKind::LiteSimpleConsumer)]);
    assert_eq!(notices(&mut session), [Notice::Resent]);
    session.handle_settings(at(60_010), Ok(()));
    assert!(session.is_ready());
}

/// Some servers show it as a null pointer in a text that nobody knows (rocketmq 11138, 8714).
#[test]
fn an_unexplained_server_error_also_sends_settings_but_not_right_after_an_exchange() {
    let mut session = ready(lite());
    session.handle_call_failure(at(1_000), &trouble(Reason::ServerTrouble));
    assert!(session.is_ready(), "just exchanged");
    session.handle_call_failure(at(60_000), &trouble(Reason::ServerTrouble));
    assert!(actions(&mut session).contains(&Action::WriteSettings(ClientKind::LiteSimpleConsumer)));
    session.handle_settings(at(60_010), Ok(()));
    actions(&mut session);
    session.handle_call_failure(at(61_000), &trouble(Reason::ServerTrouble));
    assert!(actions(&mut session).is_empty(), "no loop");
}

#[test]
fn a_server_that_never_remembers_is_not_flooded_and_called_too_old() {
    let mut session = ready(lite());
    let mut now = at(60_000);
    let mut exchanges = 0;
    for _ in 0..1_000 {
        session.handle_call_failure(now, &trouble(Reason::SettingsUnknown));
        session.handle_timeout(now);
        for action in actions(&mut session) {
            if matches!(action, Action::WriteSettings(_) | Action::Open(_)) {
                exchanges += 1;
                session.handle_settings(now, Ok(()));
            }
        }
        now += Duration::from_millis(10);
    }
    assert!(exchanges <= 14, "{exchanges} in ten seconds");
    let lost: Vec<_> = notices(&mut session)
        .into_iter()
        .filter_map(|notice| match notice {
            Notice::Lost { error, .. } => Some(error.reason()),
            _ => None,
        })
        .collect();
    assert!(lost.contains(&Reason::ServerTooOld), "{lost:?}");
}

#[test]
fn after_broker_trouble_the_subscription_is_renewed_every_few_seconds_until_it_is_taken() {
    let mut session = ready(lite());
    session.handle_sync(at(0), Ok(()));
    session.handle_call_failure(at(10_000), &trouble(Reason::BrokerDown));
    let mut syncs = Vec::new();
    while syncs.len() < 5 {
        let now = session.poll_timeout();
        session.handle_timeout(now);
        for action in actions(&mut session) {
            match action {
                Action::Sync(sync) => {
                    assert_eq!(sync, SyncKind::Add);
                    syncs.push(now.as_millis());
                    let result = if syncs.len() < 4 { Err(trouble(Reason::TopicUnknown)) } else { Ok(()) };
                    session.handle_sync(now, result);
                }
                Action::Heartbeat(_) => session.handle_heartbeat(now, Ok(())),
                _ => {}
            }
        }
    }
    assert_eq!(syncs, [13_000, 16_000, 19_000, 22_000, 52_000]);
    let failures =
        notices(&mut session).into_iter().filter(|notice| matches!(notice, Notice::Synced(Some(_))));
    assert_eq!(failures.count(), 1, "the same failure is news once");
}

#[test]
fn an_idle_subscription_is_made_anew_once() {
    let mut session = ready(lite());
    session.handle_idle(at(0));
    assert!(actions(&mut session).is_empty(), "not in force yet");
    session.handle_sync(at(0), Ok(()));
    session.handle_idle(at(500));
    assert_eq!(actions(&mut session), [Action::Sync(SyncKind::Fresh)]);
    session.handle_sync(at(510), Ok(()));
    assert_eq!(session.poll_timeout(), at(1_000), "then the heartbeat, and renewals as before");
}

#[test]
fn who_receives_nothing_is_not_subscribed_until_it_receives_again() {
    let mut session = ready(lite());
    session.handle_sync(at(0), Ok(()));
    session.handle_receiving(at(100), false);
    assert_eq!(actions(&mut session), [Action::Sync(SyncKind::Remove)]);
    session.handle_sync(at(110), Err(trouble(Reason::BrokerDown)));
    assert!(session.problem().is_none(), "that is nobody's trouble");
    session.handle_idle(at(120));
    assert_eq!(syncs_until(&mut session, at(3_200)), [(at(3_110), SyncKind::Remove)]);
    session.handle_sync(at(3_200), Ok(()));
    assert!(!session.is_subscribed());
    session.handle_route_change(at(3_300));
    assert_eq!(syncs_until(&mut session, at(199_999)), [], "nothing is renewed");

    session.handle_receiving(at(200_000), true);
    assert!(actions(&mut session).contains(&Action::Sync(SyncKind::Add)));
    // Paused again before that is answered.
    session.handle_receiving(at(200_010), false);
    session.handle_sync(at(200_020), Ok(()));
    assert_eq!(syncs_until(&mut session, at(200_020)), [(at(200_020), SyncKind::Remove)]);
    session.handle_sync(at(200_030), Ok(()));

    // A new stream says it again: the server may know of a subscription that we took back in vain.
    session.handle_stream_end(at(210_000), trouble(Reason::ServerTrouble));
    let opened = run_until(&mut session, at(220_000));
    assert!(matches!(opened[0].1, Action::Open(_)), "{opened:?}");
    session.handle_settings(at(220_000), Ok(()));
    assert_eq!(actions(&mut session)[0], Action::Sync(SyncKind::Remove));
}

#[test]
fn a_wrong_group_stays_visible_until_it_is_put_right() {
    let mut session = ready(lite());
    session.handle_sync(at(0), Err(trouble(Reason::GroupBoundElsewhere)));
    assert!(session.problem().is_some());
    session.handle_sync(at(3_000), Ok(()));
    assert!(session.problem().is_none());
    assert!(session.is_subscribed());
}

#[test]
fn commands_are_answered_with_their_nonce() {
    let mut session = ready(lite());
    session.handle_command(at(1), Command::PrintThreadStackTrace { nonce: "a".into() });
    session.handle_command(at(1), Command::VerifyMessage { nonce: "b".into() });
    session.handle_command(at(1), Command::NotifyUnsubscribeLite);
    session.handle_command(at(1), Command::Unknown);
    assert_eq!(
        actions(&mut session),
        [
            Action::Reply(Reply::StackTrace { nonce: "a".into() }),
            Action::Reply(Reply::NotVerified { nonce: "b".into() }),
        ]
    );
    session.handle_command(at(2), Command::ReconnectEndpoints);
    assert_eq!(
        actions(&mut session),
        [Action::Close, Action::Rebuild, Action::Open(ClientKind::LiteSimpleConsumer)]
    );
}

#[test]
fn unanswered_heartbeats_rebuild_the_connection_at_most_every_thirty_seconds() {
    let mut session = ready(lite());
    session.handle_heartbeat(at(1_000), Err(trouble(Reason::TimedOut)));
    assert!(actions(&mut session).is_empty());
    session.handle_heartbeat(at(11_000), Err(trouble(Reason::TimedOut)));
    assert!(actions(&mut session).contains(&Action::Rebuild));
    session.handle_settings(at(11_010), Ok(()));
    actions(&mut session);
    session.handle_heartbeat(at(15_000), Err(trouble(Reason::TimedOut)));
    session.handle_heartbeat(at(18_000), Err(trouble(Reason::TimedOut)));
    assert!(!actions(&mut session).contains(&Action::Rebuild));
}

#[test]
fn settings_that_do_not_come_end_the_stream() {
    let mut session = lite();
    actions(&mut session);
    session.handle_timeout(session.poll_timeout());
    assert_eq!(actions(&mut session), [Action::Close]);
    assert_eq!(session.problem().expect("a problem").reason(), Reason::TimedOut);
}

#[test]
fn wrong_keys_come_as_a_status_on_the_stream() {
    let mut session = lite();
    actions(&mut session);
    session.handle_settings(at(5), Err(trouble(Reason::Access)));
    assert_eq!(actions(&mut session), [Action::Close]);
    assert!(!session.is_ready());
    session.handle_timeout(session.poll_timeout());
    assert_eq!(
        actions(&mut session),
        [Action::Open(ClientKind::LiteSimpleConsumer)],
        "somebody may change them"
    );
}

#[test]
fn settings_are_sent_again_every_five_minutes() {
    let mut session = ready(Session::new(Role::Producer, subject(), WAIT, at(0), 1));
    let mut written = Vec::new();
    while written.len() < 2 {
        let now = session.poll_timeout();
        session.handle_timeout(now);
        for action in actions(&mut session) {
            match action {
                Action::WriteSettings(_) => {
                    written.push(now.as_millis());
                    session.handle_settings(now, Ok(()));
                }
                Action::Heartbeat(_) => session.handle_heartbeat(now, Ok(())),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(written, [300_000, 600_000]);
}

proptest! {
    /// Whatever happens in whatever order: there is always a next step, time never stands still for ever, and
    /// nothing but an open stream is written to.
    #[test]
    fn a_session_never_gets_stuck(steps in proptest::collection::vec((0..9_u8, 0..40_u8, 0..4_000_u64), 0..200)) {
        let mut session = lite();
        let mut now = at(0);
        let mut open = false;
        for (step, reason, wait) in steps {
            now += Duration::from_millis(wait);
            let error = trouble(REASONS[usize::from(reason) % REASONS.len()]);
            match step {
                0 if open => session.handle_settings(now, Ok(())),
                1 if open => session.handle_settings(now, Err(error)),
                2 if open => {
                    open = false;
                    session.handle_stream_end(now, error);
                }
                3 => session.handle_heartbeat(now, Err(error)),
                4 => session.handle_heartbeat(now, Ok(())),
                5 => session.handle_sync(now, Err(error)),
                6 => session.handle_call_failure(now, &error),
                7 => session.handle_command(now, Command::ReconnectEndpoints),
                _ => session.handle_timeout(now),
            }
            while let Some(action) = session.poll_action() {
                match action {
                    Action::Open(_) => open = true,
                    Action::Close => open = false,
                    Action::WriteSettings(_) | Action::Reply(_) => prop_assert!(open, "written into nothing"),
                    Action::Rebuild | Action::Heartbeat(_) | Action::Sync(_) => {}
                }
            }
            while session.poll_notice().is_some() {}
            // From anywhere, the timers alone lead to an open stream.
            let due = session.poll_timeout();
            prop_assert!(due <= now + SETTINGS_INTERVAL);
        }
    }
}

const WAIT: Duration = Duration::from_secs(6);
const REASONS: [Reason; 8] = [
    Reason::Unreachable,
    Reason::TimedOut,
    Reason::SettingsUnknown,
    Reason::ServerTrouble,
    Reason::ClientTypeRefused,
    Reason::Access,
    Reason::BrokerDown,
    Reason::TopicUnknown,
];

fn lite() -> Session {
    Session::new(Role::LiteConsumer, subject(), WAIT, at(0), 1)
}

fn ready(mut session: Session) -> Session {
    session.handle_settings(at(0), Ok(()));
    actions(&mut session);
    notices(&mut session);
    session
}

fn run_until(session: &mut Session, end: Instant) -> Vec<(Instant, Action)> {
    let mut done = Vec::new();
    while session.poll_timeout() <= end && done.is_empty() {
        let now = session.poll_timeout();
        session.handle_timeout(now);
        done.extend(actions(session).into_iter().map(|action| (now, action)));
    }
    done
}

/// What is said of the subscription until then, while heartbeats are answered.
fn syncs_until(session: &mut Session, end: Instant) -> Vec<(Instant, SyncKind)> {
    let mut syncs = Vec::new();
    while session.poll_timeout() <= end {
        let now = session.poll_timeout();
        session.handle_timeout(now);
        for action in actions(session) {
            match action {
                Action::Sync(sync) => syncs.push((now, sync)),
                Action::Heartbeat(_) => session.handle_heartbeat(now, Ok(())),
                _ => {}
            }
        }
    }
    syncs
}

fn actions(session: &mut Session) -> Vec<Action> {
    std::iter::from_fn(|| session.poll_action()).collect()
}

fn notices(session: &mut Session) -> Vec<Notice> {
    std::iter::from_fn(|| session.poll_notice()).collect()
}

fn refused() -> CallError {
    trouble(Reason::ClientTypeRefused)
}

fn trouble(reason: Reason) -> CallError {
    CallError::other(&subject(), Method::Telemetry, reason, format!("{reason:?}"))
}

fn subject() -> Subject {
    Subject {
        access_point: "a:1".into(),
        endpoint: Some("e:1".into()),
        topic: Some("T".into()),
        group: Some("G".into()),
        topic_kind: Some(TopicKind::Lite),
        names: &crate::OptionNames::KEYS,
    }
}

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}
