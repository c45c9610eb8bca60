//! Policies tried out without a host: probed call by call, recorded and replayed, looked at from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test: what fails here is what it found")]

#[path = "shared/guests.rs"]
mod guests;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_connector::Clock;
use tidegate_model::{BodyState, Instant, Message, MessageId, Standing, Timestamp, Verdict};
use tidegate_policy::{
    Built, Cause, Comparison, EncodeError, Engine, EngineOptions, Header, InspectError, Kind, LeaseFacts,
    Limits, LoadError, Masking, PolicySpec, Question, Recorded, RecordingReader, RulesFrom, Sandbox,
    Workbench, World, inspect, seal_component,
};
use tidegate_telemetry::Telemetry;
use tidegate_test_guests::Guest;

fn engine(counts_fuel: bool) -> Engine {
    let options = EngineOptions { counts_fuel, instances_max: 10, ..EngineOptions::new(Clock::start(), 7) };
    Engine::new(options, Telemetry::default()).unwrap()
}

/// With limits that a slow machine does not reach by itself.
fn spec(component: PathBuf, rules: Option<PathBuf>) -> PolicySpec {
    let patient = Duration::from_secs(10);
    PolicySpec {
        rules,
        limits: Limits { deadline: patient, start_deadline: patient, ..Limits::default() },
        ..PolicySpec::new("policy", component)
    }
}

fn crafted(dir: &TempDir, guest: &Guest) -> PolicySpec {
    let path = dir.path().join("crafted.wasm");
    fs::write(&path, guest.component()).unwrap();
    spec(path, None)
}

/// A guest of the repository.
fn guest(dir: &TempDir, name: &str) -> PathBuf {
    let path = dir.path().join(format!("{name}.wasm"));
    fs::write(&path, guests::rebuilt(name)).unwrap();
    path
}

struct Asked {
    message: Arc<Message>,
    key: Arc<str>,
    attempt: u32,
    deferred: Duration,
    standing: Standing,
    millis: u64,
    seed: u64,
}

impl Asked {
    fn question(&self) -> Question<'_> {
        Question {
            source: "tenants",
            message: &self.message,
            key: &self.key,
            attempt: self.attempt,
            age: Duration::from_secs(1),
            waited: Duration::from_millis(3),
            deferred: self.deferred,
            standing: self.standing,
            wall: Timestamp::from_unix_millis(1_700_000_000_000 + self.millis),
            now: Instant::from_millis(self.millis),
            seed: self.seed,
        }
    }
}

/// Two thousand questions of some seconds, with one tenant that floods, and every kind of message.
fn traffic(seed: u64) -> Vec<Asked> {
    let tenants = ["tenant-1", "tenant-2", "closed-7", "flood", "flood"];
    let mut state = seed;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let asked = |n: u64| {
        let tenant = tenants[usize::try_from(draw(5)).unwrap()];
        let flooding = tenant == "flood";
        let in_flight = u32::try_from(if flooding { 40 + draw(60) } else { draw(9) }).unwrap();
        Asked {
            message: Arc::new(Message {
                topic: "tenants".into(),
                lite_topic: Some(tenant.into()),
                group: None,
                id: MessageId::from(format!("message-{n}")),
                tag: (draw(3) == 0).then(|| "import-orders".into()),
                keys: vec![],
                properties: if draw(4) == 0 { vec![("tier".into(), "free".into())] } else { vec![] },
                body: vec![7; 64].into(),
                body_state: BodyState::Intact,
                born_at: None,
                stored_at: None,
            }),
            key: tenant.into(),
            attempt: u32::try_from(1 + draw(3)).unwrap(),
            deferred: Duration::from_secs(if draw(5) == 0 { draw(900) } else { 0 }),
            standing: Standing {
                key_in_flight: in_flight,
                flow_in_flight: 100,
                flow_budget: 1_000,
                flow_queued: 600,
                flow_emitted: 20,
                active_keys: 21,
                key_rate: if flooding { 300.0 } else { 4.0 } + draw(100) as f64 / 7.0,
                flow_rate: 380.0,
                flow_throughput: 100.0,
                key_share: if flooding { 0.5 } else { 0.02 } + draw(100) as f64 / 333.0,
            },
            millis: n * 3,
            seed: draw(u64::from(u32::MAX)),
        }
    };
    (0..2_000).map(asked).collect()
}

/// Asks one policy and writes down what it says; beside it the other is asked the same, as in shadow mode.
fn record(spec: &PolicySpec, shadow: &PolicySpec, traffic: &[Asked]) -> (Vec<u8>, Comparison) {
    let engine = engine(false);
    let load = |spec| Sandbox::load(&engine, spec).1.unwrap().throttle().unwrap().caller();
    let (mut live, mut shadow) = (load(spec), load(shadow));
    let mut comparison = Comparison::default();
    let mut lines = Vec::new();
    let started = Timestamp::from_unix_millis(1_700_000_000_000);
    Header::new("tenants", Some("policy"), started, 1.0, &Masking::default()).write(&mut lines).unwrap();
    for asked in traffic {
        let answer = live.decide(&asked.question());
        let other = shadow.decide(&asked.question());
        comparison.note(&asked.question(), Kind::followed(&answer), Kind::said(&other));
        Recorded::of(&asked.question(), &answer, &Masking::default()).write(&mut lines).unwrap();
    }
    (lines, comparison)
}

fn read(lines: &[u8]) -> Vec<Recorded> {
    RecordingReader::new(lines).unwrap().collect::<Result<_, _>>().unwrap()
}

fn replay(sandbox: &Sandbox, recording: &[Recorded]) -> Comparison {
    let mut replay = sandbox.replay().unwrap();
    for recorded in recording {
        replay.ask(recorded);
    }
    replay.comparison().clone()
}

/// What a policy says to a recording is, to the last digit, what it said when it was recorded.
fn repeats_itself(spec: &PolicySpec) -> Comparison {
    let (lines, _) = record(spec, spec, &traffic(5));
    let recorded = read(&lines);
    let (_, sandbox) = Sandbox::load(&engine(false), spec);
    let mut caller = sandbox.unwrap().throttle().unwrap().caller();
    for line in &recorded {
        let again = line.with_question(|question| {
            let answer = caller.decide(question);
            Recorded::of(question, &answer, &Masking::default())
        });
        assert_eq!(again, *line);
    }
    let (_, sandbox) = Sandbox::load(&engine(false), spec);
    let comparison = replay(&sandbox.unwrap(), &recorded);
    assert_eq!((comparison.compared, comparison.differing()), (2_000, 0));
    comparison
}

fn count(comparison: &Comparison, kind: Kind) -> u64 {
    comparison.pairs.get(&(kind, kind)).copied().unwrap_or(0)
}

#[test]
fn fair_share_with_its_jitter_repeats_itself() {
    let dir = tempfile::tempdir().unwrap();
    let comparison = repeats_itself(&spec(guest(&dir, "fair-share"), None));
    assert!(count(&comparison, Kind::Defer) > 50, "{comparison:?}");
    assert!(count(&comparison, Kind::Deliver) > 500, "{comparison:?}");
}

#[test]
fn rate_rules_with_its_buckets_repeats_itself() {
    let dir = tempfile::tempdir().unwrap();
    let rules = dir.path().join("rules.toml");
    let text = "[[rule]]\nlite-topic = \"closed-*\"\nreject = \"gone\"\n\
                [[rule]]\ntag = \"import*\"\nrate = 7.5\nburst = 3\nper = \"rule\"\njitter = 0.9\n\
                [[rule]]\nrate = 11\nburst = 2\njitter = 0.5\n";
    fs::write(&rules, text).unwrap();
    let comparison = repeats_itself(&spec(guest(&dir, "rate-rules"), Some(rules)));
    for kind in [Kind::Deliver, Kind::Defer, Kind::Reject] {
        assert!(count(&comparison, kind) > 50, "{kind:?}: {comparison:?}");
    }
}

#[test]
fn a_bucket_of_the_host_repeats_itself() {
    let dir = tempfile::tempdir().unwrap();
    let comparison = repeats_itself(&crafted(&dir, &Guest::with_three_tokens()));
    assert!(count(&comparison, Kind::Reject) > 0 && count(&comparison, Kind::Deliver) > 0, "{comparison:?}");
}

#[test]
fn a_replay_counts_what_shadow_mode_counts() {
    let dir = tempfile::tempdir().unwrap();
    let rules = dir.path().join("other.toml");
    fs::write(&rules, "[[rule]]\nrate = 20\nburst = 5\njitter = 0.7\n").unwrap();
    let live = spec(guest(&dir, "fair-share"), None);
    let other = spec(guest(&dir, "rate-rules"), Some(rules));
    let (lines, shadow) = record(&live, &other, &traffic(11));
    let (_, sandbox) = Sandbox::load(&engine(false), &other);
    let replayed = replay(&sandbox.unwrap(), &read(&lines));
    assert!(shadow.differing() > 100, "{shadow:?}");
    assert_eq!(replayed, shadow);
}

#[test]
fn a_policy_that_fails_shows_as_one_without_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let delivering = spec(guest(&dir, "fair-share"), None);
    let trapping = crafted(&dir, &Guest::trapping_every(50));
    let (lines, shadow) = record(&delivering, &trapping, &traffic(3));
    let (_, sandbox) = Sandbox::load(&engine(false), &trapping);
    let replayed = replay(&sandbox.unwrap(), &read(&lines));
    assert!(shadow.pairs.keys().any(|(_, other)| *other == Kind::NoAnswer), "{shadow:?}");
    assert_eq!(replayed, shadow);
}

#[test]
fn fuel_is_counted_and_the_same_for_the_same_question() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(guest(&dir, "fair-share"), None);
    let traffic = traffic(1);
    let spent = |counts_fuel: bool| -> Vec<Option<u64>> {
        let workbench = Workbench::open(&engine(counts_fuel), &spec).unwrap();
        let mut probe = workbench.with_rules(RulesFrom::Nowhere).unwrap();
        traffic.iter().take(50).map(|asked| probe.decide(&asked.question()).fuel).collect()
    };
    let fuel = spent(true);
    assert!(fuel.iter().all(|fuel| fuel.is_some_and(|fuel| (10..1_000_000).contains(&fuel))), "{fuel:?}");
    assert_eq!(spent(true), fuel);
    assert!(spent(false).iter().all(Option::is_none));
}

#[test]
fn a_probe_tells_the_failure_and_goes_on_with_a_fresh_instance() {
    let dir = tempfile::tempdir().unwrap();
    let workbench = Workbench::open(&engine(false), &crafted(&dir, &Guest::trapping_every(3))).unwrap();
    let mut probe = workbench.with_rules(RulesFrom::Nowhere).unwrap();
    let traffic = traffic(1);
    let answers: Vec<_> =
        traffic.iter().take(30).map(|asked| probe.decide(&asked.question()).answer).collect();
    let failures: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert!(!failures.is_empty() && failures.len() < 30, "{answers:?}");
    assert!(failures.iter().all(|failure| failure.cause == Cause::Panic), "{failures:?}");
}

#[test]
fn a_probe_has_the_lines_and_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let workbench = Workbench::open(&engine(false), &crafted(&dir, &Guest::logging(3, 10))).unwrap();
    let mut probe = workbench.with_rules(RulesFrom::Nowhere).unwrap();
    assert!(probe.start().unwrap() > Duration::ZERO);
    let trace = probe.decide(&traffic(1)[0].question());
    assert_eq!(trace.answer.unwrap(), Verdict::Deliver);
    assert_eq!(
        trace.log.iter().map(|line| (line.level, &*line.text)).collect::<Vec<_>>(),
        [("info", "xxxxxxxxxx"); 3]
    );
    assert!(trace.memory_bytes >= 65_536, "{}", trace.memory_bytes);
}

#[test]
fn each_probe_has_a_state_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let workbench = Workbench::open(&engine(false), &crafted(&dir, &Guest::with_three_tokens())).unwrap();
    let asked = &traffic(1)[0];
    for _ in 0..2 {
        let mut probe = workbench.with_rules(RulesFrom::Nowhere).unwrap();
        let answers: Vec<_> = (0..4).map(|_| probe.decide(&asked.question()).answer.unwrap()).collect();
        assert_eq!(answers.iter().filter(|answer| **answer == Verdict::Deliver).count(), 3, "{answers:?}");
        assert_eq!(probe.state_sizes().buckets, 1);
    }
}

#[test]
fn probes_ask_every_world() {
    let dir = tempfile::tempdir().unwrap();
    let asked = &traffic(1)[0];
    let workbench = Workbench::open(&engine(false), &crafted(&dir, &Guest::renewing_for(90_000))).unwrap();
    assert_eq!(workbench.world(), World::RenewalPolicy);
    let facts = LeaseFacts {
        remaining: Duration::from_secs(5),
        length: Duration::from_secs(60),
        renewals: 0,
        emitted: false,
        queue_position: 1,
    };
    let answer = workbench.with_rules(RulesFrom::Nowhere).unwrap().renew(&asked.question(), &facts).answer;
    assert_eq!(answer.unwrap(), tidegate_model::Renewal::Renew(Duration::from_secs(90)));
}

#[test]
fn rules_are_tried_one_after_another_and_mistakes_have_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let workbench = Workbench::open(&engine(false), &spec(guest(&dir, "rate-rules"), None)).unwrap();
    let here = Path::new("cases.toml");
    let try_rules = |text: &str| workbench.with_rules(RulesFrom::Text { file: here, text });
    assert!(try_rules("[[rule]]\nrate = 5\n").is_ok());
    let Err(LoadError::Refused(errors)) = try_rules("[[rule]]\nrate = 5\n[[rule]]\nrate = -1\n") else {
        panic!("the policy takes a rate below zero")
    };
    assert_eq!(errors.0[0].key, "rule[1].rate");
    let Err(LoadError::Rules(errors)) = try_rules("rules = []\n") else { panic!("an unknown key is taken") };
    assert_eq!(errors.0[0].key, "rules");
}

#[test]
fn what_needs_grants_can_be_looked_at_without_them() {
    let dir = tempfile::tempdir().unwrap();
    let spec = spec(guest(&dir, "http-token"), None);
    assert!(Workbench::open(&engine(false), &spec).is_err());
    let workbench = Workbench::look(&engine(false), &spec).unwrap();
    assert_eq!((workbench.world(), &*workbench.described().name), (World::CredentialResolver, "http-token"));
    let seen = inspect(&fs::read(&spec.component).unwrap()).unwrap();
    assert!(seen.grants_needed.contains(&"http"), "{seen:?}");
}

#[test]
fn components_of_other_tools_are_sealed() {
    let component = Guest::default().component();
    assert_eq!(inspect(&component).unwrap().trailer, None);
    let built = Built { name: "mine".into(), version: "1.2.3".into(), sdk: "another 0.1".into() };
    let sealed = seal_component(&component, Some(built.clone())).unwrap();
    let seen = inspect(&sealed).unwrap();
    assert_eq!((seen.world, seen.contract.as_deref()), (Some(World::ThrottlePolicy), Some("1.0.0")));
    let trailer = seen.trailer.unwrap();
    assert_eq!((trailer.built, trailer.bytes), (Some(built), component.len()));
    assert_eq!(seal_component(&sealed, None).unwrap(), sealed, "it keeps what it was built from");
    // Cut in the middle of its section, or with something behind it, it is not what was sealed.
    assert!(inspect(&sealed[..sealed.len() - 3]).is_err());
    let mut longer = sealed;
    longer.extend_from_slice(&[0, 2, 1, b'x']);
    assert!(matches!(inspect(&longer), Err(InspectError::Trailer(_))));
    assert!(seal_component(&longer, None).is_err());
}

#[test]
fn what_is_no_policy_is_not_sealed() {
    assert!(matches!(seal_component(&Guest::default().module(), None), Err(EncodeError::NotComponent(_))));
    assert!(matches!(seal_component(b"hello", None), Err(EncodeError::NotComponent(_))));
    assert!(matches!(
        seal_component(&Guest::importing_wasi().component(), None),
        Err(EncodeError::Refused { .. })
    ));
    assert!(matches!(
        seal_component(&Guest::without_throttle().component(), None),
        Err(EncodeError::Refused { .. })
    ));
    assert!(matches!(inspect(b"hello"), Err(InspectError::Other)));
    assert!(matches!(inspect(&Guest::default().module()), Err(InspectError::Module)));
}
