use proptest::prelude::*;
use secrecy::SecretString;

use super::*;

fn table() -> Table {
    Table::new("vault".into(), 7)
}

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn token(text: &str, valid_for_ms: Option<u64>) -> Result<Resolved, ResolveFailure> {
    let secret = Secret::Bearer(SecretString::from(text.to_owned()));
    Ok(Resolved { secret, valid_for: valid_for_ms.map(Duration::from_millis) })
}

fn no(kind: FailureKind) -> Result<Resolved, ResolveFailure> {
    Err(ResolveFailure { kind, detail: "no luck".to_owned() })
}

/// Looks, asks, and gives the answer.
fn resolve(table: &mut Table, now: Instant, answer: Result<Resolved, ResolveFailure>) -> Taken {
    let _ = table.look(now, "a:1", Purpose::Consume);
    let key = table.poll_ask(now).expect("it is due");
    table.handle_answer(now, &key, answer)
}

fn detail(result: Result<Arc<Secret>, SecretError>) -> String {
    result.unwrap_err().detail.into()
}

#[test]
fn what_is_looked_for_is_asked_for_once() {
    let mut table = table();
    assert_eq!(table.poll_ask(at(0)), None);
    assert_eq!(table.poll_timeout(), None);
    let missing = detail(table.look(at(0), "a:1", Purpose::Consume));
    assert!(missing.contains("`vault` has not answered"), "{missing}");
    let key = table.poll_ask(at(0)).unwrap();
    assert_eq!((&*key.endpoint, key.purpose), ("a:1", Purpose::Consume));
    let _ = table.look(at(1), "a:1", Purpose::Consume);
    assert_eq!(table.poll_ask(at(1)), None, "it is asked for already");
    let _ = table.look(at(1), "a:1", Purpose::Acknowledge);
    assert_eq!(table.poll_ask(at(1)).unwrap().purpose, Purpose::Acknowledge);
    assert_eq!(table.handle_answer(at(2), &key, token("t", None)), Taken::Held { is_new: true });
    assert!(table.look(at(2), "a:1", Purpose::Consume).is_ok());
    assert_eq!(table.counts(at(2)), (1, 1));
}

#[test]
fn it_is_asked_again_before_the_end_and_goes_on_when_that_fails() {
    let mut table = table();
    resolve(&mut table, at(0), token("t", Some(100_000)));
    let due = table.poll_timeout().unwrap();
    assert!((at(63_000)..=at(70_000)).contains(&due), "{due:?}");
    let taken = resolve(&mut table, at(70_000), no(FailureKind::Unavailable));
    assert!(matches!(taken, Taken::Failed { goes_on: true, .. }));
    assert!(table.look(at(99_999), "a:1", Purpose::Consume).is_ok());
    assert!(table.problem(at(99_999)).unwrap().contains("stay in use"));
    // Then it fails closed, and says why.
    let expired = detail(table.look(at(100_000), "a:1", Purpose::Consume));
    assert!(expired.contains("have expired") && expired.contains("no luck"), "{expired}");
    assert_eq!(resolve(&mut table, at(200_000), token("u", Some(100_000))), Taken::Held { is_new: true });
    assert_eq!(table.problem(at(200_000)), None);
}

#[test]
fn failures_wait_longer_and_longer_and_denials_longest() {
    let mut table = table();
    let mut now = at(0);
    let mut waits = Vec::new();
    for _ in 0..8 {
        let Taken::Failed { goes_on: false, again_in } =
            resolve(&mut table, now, no(FailureKind::Unavailable))
        else {
            panic!("it failed")
        };
        assert_eq!(table.poll_ask(now), None);
        waits.push(again_in.as_secs_f64());
        now += again_in;
    }
    assert!(waits[0] <= 1.0 && waits[7] > 12.0 && waits[7] <= 15.0, "{waits:?}");
    for at_least in [4, 8, 16, 32, 48] {
        let Taken::Failed { again_in, .. } = resolve(&mut table, now, no(FailureKind::Denied)) else {
            panic!("it failed")
        };
        assert!(again_in >= Duration::from_secs(at_least), "{again_in:?}");
        now += again_in;
    }
    resolve(&mut table, now, no(FailureKind::Denied));
    // A reload may have mended it.
    table.handle_change(now);
    assert!(table.poll_ask(now).is_some());
}

#[test]
fn a_refused_secret_is_asked_for_anew_once_and_not_too_often() {
    let mut table = table();
    resolve(&mut table, at(0), token("t", None));
    let old = table.look(at(0), "a:1", Purpose::Consume).unwrap();
    let refuse = |table: &mut Table, now, secret| table.handle_refused(now, "a:1", Purpose::Consume, secret);
    assert_eq!(refuse(&mut table, at(1_000), &old), Refusal::Asking);
    let key = table.poll_ask(at(1_000)).unwrap();
    assert_eq!(refuse(&mut table, at(1_001), &old), Refusal::Asking, "the same question");
    assert_eq!(table.poll_ask(at(1_001)), None);
    // The same again: no newer one, and not asked at once.
    assert_eq!(table.handle_answer(at(1_002), &key, token("t", None)), Taken::Held { is_new: false });
    assert!(Arc::ptr_eq(&table.look(at(1_002), "a:1", Purpose::Consume).unwrap(), &old));
    assert_eq!(refuse(&mut table, at(1_003), &old), Refusal::TooSoon);
    assert_eq!(table.poll_ask(at(1_003)), None);
    assert_eq!(refuse(&mut table, at(4_000), &old), Refusal::Asking);
    let key = table.poll_ask(at(4_000)).unwrap();
    assert_eq!(table.handle_answer(at(4_001), &key, token("u", None)), Taken::Held { is_new: true });
    assert_eq!(refuse(&mut table, at(4_002), &old), Refusal::Newer);
}

#[test]
fn a_secret_that_has_expired_when_it_comes_is_none() {
    let mut table = table();
    assert!(matches!(resolve(&mut table, at(0), token("t", Some(0))), Taken::Failed { goes_on: false, .. }));
    assert!(detail(table.look(at(0), "a:1", Purpose::Consume)).contains("expired already"));
}

#[test]
fn short_lives_are_not_asked_for_without_a_pause() {
    for millis in [1, 10, 500, 1_000, 20_000, 45_000, 60_000, 600_000] {
        let wait = refresh_after(Duration::from_millis(millis));
        assert!(wait >= REFRESH_MIN, "{millis} ms: {wait:?}");
        assert!(millis < 1_000 || wait < Duration::from_millis(millis), "{millis} ms: {wait:?}");
    }
}

#[test]
fn what_nobody_looks_for_is_forgotten() {
    let mut table = table();
    resolve(&mut table, at(0), token("t", None));
    let due = table.poll_timeout().unwrap();
    assert!(due < at(0) + IDLE_MAX);
    let key = table.poll_ask(due).unwrap();
    table.handle_answer(due, &key, token("t", None));
    let due = table.poll_timeout().unwrap();
    assert_eq!(table.poll_ask(due + IDLE_MAX), None);
    assert_eq!(table.counts(due), (0, 0));
    assert_eq!(table.handle_answer(due, &key, token("t", None)), Taken::Forgotten);
}

#[test]
fn the_table_is_bounded_and_what_was_looked_for_longest_ago_goes() {
    let mut table = table();
    for n in 0..=ENTRIES_MAX as u64 {
        let _ = table.look(at(n), &format!("e:{n}"), Purpose::ALL[n as usize % 4]);
    }
    assert_eq!(table.counts(at(0)), (0, ENTRIES_MAX));
    assert!(!table.entries[0].contains_key("e:0"));
}

#[derive(Clone, Debug)]
enum Step {
    Look(u8, u8),
    Refuse(u8, u8),
    Answer { valid_for_ms: Option<u64>, token: u8 },
    Fail(u8),
    Ask,
    Change,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3_u8, 0..2_u8).prop_map(|(endpoint, purpose)| Step::Look(endpoint, purpose)),
        (0..3_u8, 0..2_u8).prop_map(|(endpoint, purpose)| Step::Refuse(endpoint, purpose)),
        (prop::option::of(0..100_000_u64), 0..3_u8)
            .prop_map(|(valid_for_ms, token)| Step::Answer { valid_for_ms, token }),
        (0..3_u8).prop_map(Step::Fail),
        Just(Step::Ask),
        Just(Step::Change),
    ]
}

proptest! {
    /// Whatever happens in whatever order: one question at a time for each key, nothing expired is given out, and
    /// what is still valid is.
    #[test]
    fn the_promises_hold(steps in prop::collection::vec((0..20_000_u64, step()), 0..200)) {
        let mut table = table();
        let mut now = at(0);
        let mut asked: Vec<Key> = Vec::new();
        let mut held: HashMap<Key, (Arc<Secret>, Option<Instant>)> = HashMap::new();
        let key = |endpoint: u8, purpose: u8| Key {
            endpoint: format!("e:{endpoint}").into(),
            purpose: Purpose::ALL[purpose as usize],
        };
        for (pause, step) in steps {
            now += Duration::from_millis(pause);
            match step {
                Step::Look(endpoint, purpose) => {
                    let key = key(endpoint, purpose);
                    let found = table.look(now, &key.endpoint, key.purpose);
                    let valid = held.get(&key).filter(|(_, until)| until.is_none_or(|until| now < until));
                    prop_assert_eq!(found.is_ok(), valid.is_some());
                }
                Step::Refuse(endpoint, purpose) => {
                    let key = key(endpoint, purpose);
                    if let Ok(secret) = table.look(now, &key.endpoint, key.purpose) {
                        let refusal = table.handle_refused(now, &key.endpoint, key.purpose, &secret);
                        prop_assert_ne!(refusal, Refusal::Newer);
                        let pending = table.is_pending(now, &key.endpoint, key.purpose);
                        prop_assert!(refusal != Refusal::Asking || pending);
                    }
                }
                Step::Ask => {
                    if let Some(key) = table.poll_ask(now) {
                        prop_assert!(!asked.contains(&key), "asked twice at once");
                        asked.push(key);
                    }
                }
                Step::Answer { valid_for_ms, token: name } => {
                    let Some(key) = asked.pop() else { continue };
                    let taken = table.handle_answer(now, &key, token(&name.to_string(), valid_for_ms));
                    if let Taken::Held { is_new } = taken {
                        let secret = table.look(now, &key.endpoint, key.purpose).unwrap();
                        let until = valid_for_ms.map(|millis| now + Duration::from_millis(millis));
                        if let Some((before, _)) = held.insert(key.clone(), (Arc::clone(&secret), until)) {
                            prop_assert_eq!(is_new, !Arc::ptr_eq(&before, &secret));
                        }
                        prop_assert!(table.poll_timeout().unwrap() > now || table.poll_ask(now) != Some(key));
                    }
                }
                Step::Fail(kind) => {
                    let Some(key) = asked.pop() else { continue };
                    let kinds = [FailureKind::Unavailable, FailureKind::Denied, FailureKind::Other];
                    let taken = table.handle_answer(now, &key, no(kinds[kind as usize]));
                    let valid = held.get(&key).is_some_and(|(_, until)| until.is_none_or(|until| now < until));
                    if let Taken::Failed { goes_on, again_in } = taken {
                        prop_assert_eq!(goes_on, valid);
                        prop_assert!(again_in >= Duration::from_millis(800) && again_in <= DENIED_MAX);
                    }
                }
                Step::Change => table.handle_change(now),
            }
        }
    }
}
