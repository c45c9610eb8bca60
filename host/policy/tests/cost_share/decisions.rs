//! What it says to single messages, after outcomes.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{BodyState, Deferral, Instant, Message, MessageId, Standing, Timestamp, Verdict};
use tidegate_policy::{Answer, Ending, Outcome, PolicyHost, Question, ThrottleCaller};

use crate::{caller, engine, spec};

/// A key that holds five of forty messages in flight, half of which wait for ten workers.
const WAITING: Standing = Standing {
    key_in_flight: 5,
    flow_in_flight: 40,
    flow_budget: 1_000,
    flow_queued: 20,
    flow_emitted: 10,
    active_keys: 2,
    key_rate: 5.0,
    flow_rate: 10.0,
    flow_throughput: 10.0,
    key_share: 0.5,
};

/// A worker took a second for a message and reported a cost.
fn done(key: &str, cost: f64) -> Outcome {
    Outcome {
        key: key.into(),
        id: MessageId::from("done"),
        ending: Ending::Accepted,
        attempt: 1,
        spent: Duration::from_secs(1),
        cost,
    }
}

fn tell(caller: &mut ThrottleCaller, millis: u64, outcomes: &[Outcome]) {
    caller.observe(Instant::from_millis(millis), wall(millis), outcomes);
}

/// Ten seconds in which each of two keys has five messages done in a second, one at fifty times the cost of the other.
fn ten_seconds_of_work(caller: &mut ThrottleCaller) {
    for millis in (0..10_000).step_by(200) {
        tell(caller, millis, &[done("dear", 50.0), done("cheap", 1.0)]);
    }
}

fn wall(millis: u64) -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000 + millis)
}

fn ask(
    caller: &mut ThrottleCaller,
    key: &str,
    millis: u64,
    deferred: Duration,
    standing: Standing,
) -> Verdict {
    let message = Arc::new(Message {
        topic: "tenants".into(),
        lite_topic: None,
        group: None,
        id: MessageId::from(format!("{key}-{millis}")),
        tag: None,
        keys: vec![],
        properties: vec![],
        body: vec![7; 64].into(),
        body_state: BodyState::Intact,
        born_at: None,
        stored_at: None,
    });
    let answer = caller.decide(&Question {
        source: "tenants",
        message: &message,
        key: &key.into(),
        attempt: 1,
        age: Duration::from_secs(1),
        waited: Duration::from_secs(1),
        deferred,
        standing,
        wall: wall(millis),
        now: Instant::from_millis(millis),
        seed: millis,
    });
    let Answer::Verdict(verdict) = answer else { panic!("{answer:?}") };
    verdict
}

/// Asks about a hundred messages of a key in ten seconds; answers the deferrals.
fn deferrals(caller: &mut ThrottleCaller, key: &str, from: u64, standing: Standing) -> Vec<Deferral> {
    let ask = |n: u64| match ask(caller, key, from + n * 100, Duration::ZERO, standing) {
        Verdict::Deliver => None,
        Verdict::Defer(deferral) => Some(deferral),
        other => panic!("{other:?}"),
    };
    (0..100).filter_map(ask).collect()
}

#[test]
fn a_key_with_fifty_times_the_cost_is_paced_and_the_other_passes() {
    let mut caller = caller();
    ten_seconds_of_work(&mut caller);
    assert_eq!(deferrals(&mut caller, "cheap", 10_000, WAITING), []);
    let deferred = deferrals(&mut caller, "dear", 10_000, WAITING);
    // The work costs 255 a second, of which it may have three quarters: those of some four of its messages.
    assert!((50..65).contains(&deferred.len()), "{}", deferred.len());
    for Deferral { delay, reason } in &deferred {
        assert!(
            (Duration::from_millis(250)..=Duration::from_secs(2)).contains(delay),
            "what waits of others lasts 2 s: {delay:?}"
        );
        assert!(
            reason.starts_with("costly: ") && reason.ends_with("75 % is its share; 50.000 a message"),
            "{reason}"
        );
    }
}

#[test]
fn seconds_count_when_nothing_else_is_reported() {
    let mut caller = caller();
    for millis in (0..10_000).step_by(200) {
        // As the host tells it.
        let seconds =
            |key, seconds| Outcome { spent: Duration::from_secs_f64(seconds), ..done(key, seconds) };
        tell(&mut caller, millis, &[seconds("slow", 2.0), seconds("quick", 0.04)]);
    }
    assert_eq!(deferrals(&mut caller, "quick", 10_000, WAITING), []);
    assert!(!deferrals(&mut caller, "slow", 10_000, WAITING).is_empty());
}

#[test]
fn few_dear_messages_are_held_back_as_many_cheap_ones_are() {
    let mut caller = caller();
    // The one has a message done every two seconds, the others fifty in that time, for the same.
    for second in 0..20 {
        let many = vec![done("many", 2.0); 25];
        tell(&mut caller, second * 1_000, &many);
        tell(&mut caller, second * 1_000, &vec![done("rest", 0.1); 25]);
        if second % 2 == 0 {
            tell(&mut caller, second * 1_000, &[done("few", 100.0)]);
        }
    }
    let crowd = Standing { active_keys: 20, ..WAITING };
    let few = deferrals(&mut caller, "few", 20_000, Standing { key_in_flight: 1, ..crowd }).len();
    let many = deferrals(&mut caller, "many", 20_000, Standing { key_in_flight: 30, ..crowd }).len();
    let rest = deferrals(&mut caller, "rest", 20_000, Standing { key_in_flight: 9, ..crowd }).len();
    assert!(few > 90 && few > many && many > 50, "few {few}, many {many}");
    assert_eq!(rest, 0);
}

#[test]
fn without_a_queue_nobody_is_held_back() {
    let mut caller = caller();
    ten_seconds_of_work(&mut caller);
    let keeping_up = Standing { flow_queued: 9, ..WAITING };
    assert_eq!(deferrals(&mut caller, "dear", 10_000, keeping_up), []);
    let quick = Standing { flow_throughput: 1_000.0, ..WAITING };
    assert_eq!(deferrals(&mut caller, "dear", 10_000, quick), [], "what waits is done at once");
}

#[test]
fn what_was_consumed_is_forgiven_with_time() {
    let mut caller = caller();
    ten_seconds_of_work(&mut caller);
    let mut n = 0;
    while ask(&mut caller, "dear", 10_000, Duration::ZERO, WAITING) == Verdict::Deliver {
        n += 1;
        assert!(n < 100, "it is held back after its burst");
    }
    // Meanwhile the other one alone has the workers.
    for millis in (10_000..130_000).step_by(200) {
        tell(&mut caller, millis, &vec![done("cheap", 1.0); 250]);
    }
    assert_eq!(ask(&mut caller, "dear", 130_000, Duration::ZERO, WAITING), Verdict::Deliver);
}

#[test]
fn patience_ends_every_deferral() {
    let mut caller = caller();
    ten_seconds_of_work(&mut caller);
    let mut ask_100 = |deferred: Duration| {
        let verdicts = (0..100).map(|n| ask(&mut caller, "dear", 10_000 + n, deferred, WAITING));
        verdicts.filter(|verdict| *verdict == Verdict::Deliver).count()
    };
    assert!(ask_100(Duration::from_secs(599)) < 50);
    assert_eq!(ask_100(Duration::from_secs(600)), 100);
}

/// What the policy itself or a broker's lease sent back cost nobody anything, and is no cheap message.
#[test]
fn what_no_worker_had_does_not_count() {
    let mut caller = caller();
    ten_seconds_of_work(&mut caller);
    let nothing = Outcome { ending: Ending::Deferred, spent: Duration::ZERO, ..done("dear", 0.0) };
    tell(&mut caller, 10_000, &vec![nothing; 256]);
    // Nor does what is no cost.
    for cost in [f64::NAN, f64::INFINITY, -1e9] {
        tell(&mut caller, 10_000, &[done("cheap", cost)]);
    }
    let deferred = deferrals(&mut caller, "dear", 10_000, WAITING);
    assert!(deferred.iter().all(|deferral| deferral.reason.ends_with(" 50.000 a message")), "{deferred:?}");
    assert_eq!(deferrals(&mut caller, "cheap", 10_000, WAITING), []);
}

/// Nobody knows whether a key that is new is a dear one: it may try.
#[test]
fn a_key_of_which_nothing_is_known_may_hold_a_few_messages() {
    let mut caller = caller();
    let holding = |key_in_flight| Standing { key_in_flight, flow_in_flight: 100, active_keys: 20, ..WAITING };
    assert_eq!(deferrals(&mut caller, "new", 0, holding(10)), []);
    let flooding = deferrals(&mut caller, "new", 0, holding(60));
    assert_eq!(flooding.len(), 90, "ten pass");
    assert!(
        flooding.iter().all(|deferral| deferral.delay == Duration::from_millis(250)),
        "soon more is known"
    );
    tell(&mut caller, 10_000, &[done("new", 0.1), done("old", 9.9)]);
    assert_eq!(deferrals(&mut caller, "new", 10_000, holding(20)), [], "it is a cheap one");
}

#[test]
fn all_callers_share_what_is_known_and_it_outlives_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(&dir);
    let rules = spec.rules.clone().unwrap();
    let host = PolicyHost::start(&engine(), vec![spec], None).unwrap();
    let caller = || host.throttle("policy").unwrap().caller();
    ten_seconds_of_work(&mut caller());
    let before = deferrals(&mut caller(), "dear", 10_000, WAITING).len();
    assert!(before >= 50, "{before}");

    // The watcher may be quicker than we are.
    let text = fs::read_to_string(&rules).unwrap();
    fs::write(&rules, text.replace("jitter = 0.2", "jitter = 0.0")).unwrap();
    assert_eq!(host.reload("policy").unwrap().generation, 2);
    let mut reloaded = caller();
    let after = deferrals(&mut reloaded, "dear", 20_000, WAITING).len();
    assert!(after >= before, "the bucket is as empty as it was: {before} before, {after} after");
    assert_eq!(deferrals(&mut reloaded, "cheap", 20_000, WAITING), []);
}
