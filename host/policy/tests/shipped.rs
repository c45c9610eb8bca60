//! The shipped policies are what their source makes: rebuilt here, and compared with the files under `policies/` in
//! what they answer. Also what a panic in a Rust guest leaves behind.
//!
//! Needs the target `wasm32-unknown-unknown` (`rustup target add wasm32-unknown-unknown`).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test: what fails here is what it found")]

#[path = "shared/guests.rs"]
mod guests;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use guests::{rebuilt, root};

use tidegate_connector::Clock;
use tidegate_model::{BodyState, Instant, Message, MessageId, Standing, Timestamp, Verdict};
use tidegate_policy::{Answer, Cause, Engine, EngineOptions, Limits, PolicyHost, PolicySpec, Question};
use tidegate_telemetry::Telemetry;

/// A host over one component, with the same seed each time.
fn host(component: PathBuf, rules: Option<PathBuf>) -> PolicyHost {
    let engine = Engine::new(EngineOptions::new(Clock::start(), 42), Telemetry::default()).unwrap();
    let patient = Duration::from_secs(10);
    let spec = PolicySpec {
        rules,
        limits: Limits { deadline: patient, start_deadline: patient, ..Limits::default() },
        ..PolicySpec::new("policy", component)
    };
    let host = PolicyHost::start(&engine, vec![spec], None).unwrap();
    let status = host.status().remove(0);
    assert!(status.active.is_some(), "{status:#?}");
    host
}

/// Three thousand questions, one every so many milliseconds: some tenants of each kind, one of them flooding.
fn questions(every_ms: u64) -> Vec<Asked> {
    let tenants = ["tenant-1", "tenant-2", "closed-7", "flood", "vip"];
    let mut seed = 1_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut questions = Vec::new();
    for n in 0..3_000_u64 {
        let tenant = tenants[usize::try_from(draw(5)).unwrap()];
        let flooding = tenant == "flood";
        let in_flight = u32::try_from(if flooding { 40 + draw(60) } else { draw(9) }).unwrap();
        let mut properties = Vec::new();
        if draw(4) == 0 {
            properties.push(("tier".into(), if draw(2) == 0 { "gold".into() } else { "free".into() }));
        }
        questions.push(Asked {
            message: Arc::new(Message {
                topic: "tenants".into(),
                lite_topic: Some(tenant.into()),
                group: None,
                id: MessageId::from(format!("message-{n}")),
                tag: (draw(3) == 0).then(|| "import-orders".into()),
                keys: vec![],
                properties,
                body: vec![7; 64].into(),
                body_state: BodyState::Intact,
                born_at: None,
                stored_at: None,
            }),
            key: tenant.into(),
            deferred: Duration::from_secs(if draw(5) == 0 { draw(900) } else { 0 }),
            standing: Standing {
                key_in_flight: in_flight,
                flow_in_flight: 100,
                flow_budget: 100,
                flow_queued: 50,
                flow_emitted: 20,
                active_keys: 21,
                key_rate: if flooding { 300.0 } else { 4.0 },
                flow_rate: 380.0,
                flow_throughput: 100.0,
                key_share: 0.0,
            },
            millis: n * every_ms,
        });
    }
    questions
}

struct Asked {
    message: Arc<Message>,
    key: Arc<str>,
    deferred: Duration,
    standing: Standing,
    millis: u64,
}

fn answers(host: &PolicyHost, questions: &[Asked]) -> Vec<Answer> {
    let mut caller = host.throttle("policy").unwrap().caller();
    let ask = |asked: &Asked| {
        caller.decide(&Question {
            source: "tenants",
            message: &asked.message,
            key: &asked.key,
            attempt: 1,
            age: Duration::from_secs(1),
            waited: Duration::from_secs(1),
            deferred: asked.deferred,
            standing: asked.standing,
            wall: Timestamp::from_unix_millis(1_700_000_000_000 + asked.millis),
            now: Instant::from_millis(asked.millis),
            seed: asked.millis,
        })
    };
    questions.iter().map(ask).collect()
}

/// Compares the shipped component with the rebuilt one; gives the answers back.
fn compare(name: &str, every_ms: u64) -> Vec<(Arc<str>, Answer)> {
    let rules = root().join(format!("policies/{name}.toml"));
    let dir = tempfile::tempdir().unwrap();
    let fresh = dir.path().join("fresh.wasm");
    fs::write(&fresh, rebuilt(name)).unwrap();
    let questions = questions(every_ms);
    let shipped =
        answers(&host(root().join(format!("policies/{name}.wasm")), Some(rules.clone())), &questions);
    let rebuilt = answers(&host(fresh, Some(rules)), &questions);
    for ((asked, shipped), rebuilt) in questions.iter().zip(&shipped).zip(&rebuilt) {
        assert_eq!(shipped, rebuilt, "{name} on {}: run `cargo xtask guests`", asked.message.id);
    }
    questions.into_iter().map(|asked| asked.key).zip(shipped).collect()
}

fn count(answers: &[(Arc<str>, Answer)], key: &str, verdict: impl Fn(&Verdict) -> bool) -> usize {
    let matching = |(of, answer): &&(Arc<str>, Answer)| {
        **of == *key && matches!(answer, Answer::Verdict(answered) if verdict(answered))
    };
    answers.iter().filter(matching).count()
}

#[test]
fn fair_share_is_what_its_source_makes() {
    let answers = compare("fair-share", 2);
    let deferred = |key| count(&answers, key, |verdict| matches!(verdict, Verdict::Defer(_)));
    assert!(deferred("flood") > 100, "{}", deferred("flood"));
    let delivered = count(&answers, "flood", |verdict| *verdict == Verdict::Deliver);
    assert!(delivered > 100, "a noisy key is paced and not stopped: {delivered}");
    for quiet in ["tenant-1", "tenant-2", "closed-7", "vip"] {
        assert_eq!(deferred(quiet), 0, "{quiet}");
    }
    for (_, answer) in &answers {
        if let Answer::Verdict(Verdict::Defer(deferral)) = answer {
            assert!(
                (Duration::from_millis(250)..=Duration::from_secs(5)).contains(&deferral.delay),
                "{deferral:?}"
            );
            assert!(deferral.reason.starts_with("noisy: "), "{deferral:?}");
        }
    }
}

/// It is told nothing here, so all it can see is who holds much. What it does with outcomes is in `cost_share`.
#[test]
fn cost_share_is_what_its_source_makes() {
    let answers = compare("cost-share", 2);
    let deferred = |key| count(&answers, key, |verdict| matches!(verdict, Verdict::Defer(_)));
    assert!(deferred("flood") > 100, "{}", deferred("flood"));
    let delivered = count(&answers, "flood", |verdict| *verdict == Verdict::Deliver);
    assert!(delivered > 50, "patience lets some pass: {delivered}");
    for quiet in ["tenant-1", "tenant-2", "closed-7", "vip"] {
        assert_eq!(deferred(quiet), 0, "{quiet}");
    }
    for (_, answer) in &answers {
        if let Answer::Verdict(Verdict::Defer(deferral)) = answer {
            assert!(
                (Duration::from_millis(250)..=Duration::from_secs(60)).contains(&deferral.delay),
                "{deferral:?}"
            );
            assert!(deferral.reason.starts_with("unknown: "), "{deferral:?}");
        }
    }
}

#[test]
fn rate_rules_is_what_its_source_makes() {
    let answers = compare("rate-rules", 20);
    let rejected = |key| count(&answers, key, |verdict| matches!(verdict, Verdict::Reject { .. }));
    assert!(rejected("closed-7") > 100, "{}", rejected("closed-7"));
    assert_eq!(rejected("flood"), 0);
    let deferred = count(&answers, "flood", |verdict| matches!(verdict, Verdict::Defer(_)));
    assert_eq!(deferred, 0, "ten a second are below every rate");
}

#[test]
fn unknown_keys_are_refused_by_name() {
    let engine = Engine::new(EngineOptions::new(Clock::start(), 1), Telemetry::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let rules = dir.path().join("rules.toml");
    let check = |name: &str, text: &str| {
        fs::write(&rules, text).unwrap();
        let spec = PolicySpec {
            rules: Some(rules.clone()),
            limits: Limits { start_deadline: Duration::from_secs(10), ..Limits::default() },
            ..PolicySpec::new("policy", root().join(format!("policies/{name}.wasm")))
        };
        tidegate_policy::check(&engine, &spec).failure().map(str::to_owned)
    };
    let error = check("fair-share", "shares = 0.2\n").unwrap();
    assert!(error.contains("rules.toml:1: `shares`: unknown key, did you mean `share`?"), "{error}");
    let text = "[[rule]]\nlite-topic = \"*\"\nrate = 5\n\n[[rule]]\nrates = 2\n";
    let error = check("rate-rules", text).unwrap();
    assert!(error.contains("rules.toml:6: `rule[1].rates`: "), "{error}");
    let error = check("fair-share", "delay = \"5s\"\nmax-delay = \"1s\"\n").unwrap();
    assert!(error.contains("rules.toml:2: `max-delay`: must not be below `delay`"), "{error}");
    assert_eq!(check("fair-share", "share = 0.2\n"), None);
    let error = check("cost-share", "half-live = \"1m\"\n").unwrap();
    assert!(error.contains("rules.toml:1: `half-live`: unknown key, did you mean `half-life`?"), "{error}");
    let error = check("cost-share", "half-life = \"1ms\"\n").unwrap();
    assert!(error.contains("rules.toml:1: `half-life`: must be `1s` to `1d`"), "{error}");
    assert_eq!(check("cost-share", "half-life = \"1m\"\n"), None);
}

#[test]
fn the_text_of_a_panic_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let component = dir.path().join("panicking.wasm");
    fs::write(&component, rebuilt("panicking")).unwrap();
    let host = host(component, None);
    let mut questions = questions(20);
    let message = Message {
        properties: vec![("panic".into(), "bad quota table".into())],
        ..(*questions[0].message).clone()
    };
    questions.truncate(2);
    questions[0].message = Arc::new(message);
    let answers = answers(&host, &questions);
    assert_eq!(answers[0], Answer::OnError { verdict: Verdict::Deliver, cause: Cause::Panic });
    assert_eq!(answers[1], Answer::Verdict(Verdict::Deliver), "a fresh instance");
    let failure = host.status().remove(0).last_failure.unwrap().failure;
    assert!(failure.to_string().contains("bad quota table"), "{failure}");
    assert!(failure.said.last().unwrap().contains("panicking/src/lib.rs"), "{failure:?}");
    assert!(failure.frames.iter().any(|frame| frame.contains("panicking")), "{failure:?}");
}
