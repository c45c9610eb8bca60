//! For every check of the ladder a file that fails exactly there, put in the place of one that runs: what is said
//! about it, what the status and the metrics show, and that the old one goes on deciding without a gap.

use std::fs;
use std::time::Duration;

use tidegate_policy::{PolicySpec, PolicyState, ReloadError, Rung, RungOutcome, encode_component};
use tidegate_test_guests::{Guest, with_core_instances};

use crate::support::{Bench, Traffic, rejected, wait_for};

/// What runs and must go on.
fn old() -> Vec<u8> {
    encode_component(&Guest::rejecting("old").module()).unwrap()
}

/// A candidate and what must be said about it.
struct Case {
    rung: Rung,
    cause: &'static str,
    words: Vec<&'static str>,
    /// What the policy's configuration says beside its files.
    configured: fn(&mut PolicySpec),
    /// Puts the candidate where the old files are.
    put: Box<dyn Fn(&Bench)>,
}

impl Case {
    fn component(rung: Rung, cause: &'static str, words: &[&'static str], component: Vec<u8>) -> Self {
        Self::put(rung, cause, words, move |bench| bench.write("fair.wasm", &component))
    }

    fn put(rung: Rung, cause: &'static str, words: &[&'static str], put: impl Fn(&Bench) + 'static) -> Self {
        Self { rung, cause, words: words.to_vec(), configured: |_| {}, put: Box::new(put) }
    }

    fn configured(self, configured: fn(&mut PolicySpec)) -> Self {
        Self { configured, ..self }
    }

    fn check(&self) {
        let Self { rung, cause, .. } = *self;
        let bench = Bench::new();
        let mut spec = bench.policy("fair", old());
        spec.rules = Some(bench.path("fair.toml"));
        bench.write("fair.toml", "# none\n");
        (self.configured)(&mut spec);
        let host = bench.host(vec![spec]);
        let traffic = Traffic::start(&host, "fair", |answer| *answer == rejected("old"));
        (self.put)(&bench);
        let status = wait_for(&host, "fair", |status| status.counts.reloads_rejected > 0);
        traffic.goes_on();
        assert_eq!(status.state, PolicyState::Outdated, "{rung:?}");
        let active = status.active.unwrap();
        assert_eq!((active.generation, active.origin), (1, "files"), "{rung:?}");
        let error = status.last_error.unwrap();
        assert_eq!((error.rung, error.cause), (rung, cause), "{}", error.reason);
        let shown = serde_json::to_value(&error).unwrap();
        assert_eq!((&shown["rung"], &shown["cause"]), (&rung.label().into(), &cause.into()));
        assert!(shown["since"].as_u64().unwrap() >= active.since, "{shown}");
        for word in &self.words {
            assert!(error.reason.contains(word), "{rung:?}: `{word}` is not in: {}", error.reason);
        }
        let counted =
            format!("tidegate_policy_reloads_total{{policy=\"fair\",result=\"rejected\",cause=\"{cause}\"}}");
        assert!(bench.metric(&counted) >= 1.0, "{rung:?}: {}", bench.telemetry.encode());
        assert_eq!(bench.metric("tidegate_policy_last_reload_successful{policy=\"fair\"}"), 0.0);
        assert_eq!(bench.metric("tidegate_policy_generation{policy=\"fair\"}"), 1.0);
        self.check_report(&host.dry_run("fair").unwrap_err());
        traffic.goes_on();
        bench.write("fair.toml", "# none\n");
        let _ = fs::remove_dir(bench.path("fair.wasm"));
        bench.write("fair.wasm", old());
        let good = wait_for(&host, "fair", |status| status.state == PolicyState::Active);
        assert_eq!((good.active.unwrap().generation, good.last_error), (1, None), "{rung:?}");
        assert_eq!(bench.metric("tidegate_policy_last_reload_successful{policy=\"fair\"}"), 1.0);
        assert!(traffic.end() > 0);
    }

    /// Every check before it passed, and none after it was made.
    fn check_report(&self, error: &ReloadError) {
        let ReloadError::Rejected { rungs, .. } = error else { panic!("{error:?}") };
        assert_eq!(rungs.len(), Rung::ALL.len(), "{rungs:#?}");
        for report in rungs {
            let wanted = match report.rung.cmp(&self.rung) {
                std::cmp::Ordering::Less => {
                    matches!(report.outcome, RungOutcome::Passed | RungOutcome::Noted(_))
                        // Not made for a component that is there already, or when there is nothing to read.
                        || matches!(report.outcome, RungOutcome::Skipped)
                            && matches!(self.rung, Rung::Rules | Rung::Size | Rung::Digest)
                }
                std::cmp::Ordering::Equal => matches!(report.outcome, RungOutcome::Failed(_)),
                std::cmp::Ordering::Greater => matches!(report.outcome, RungOutcome::Skipped),
            };
            assert!(wanted, "{rungs:#?}");
        }
    }
}

fn all<const COUNT: usize>(cases: [Case; COUNT]) {
    cases.into_iter().for_each(|case| case.check());
}

#[test]
fn read_and_size() {
    all([
        Case::put(Rung::Read, "absent", &["fair.wasm is not there"], |bench| {
            fs::remove_file(bench.path("fair.wasm")).unwrap();
        }),
        Case::put(Rung::Read, "read", &["cannot read", "fair.wasm", "directory"], |bench| {
            fs::remove_file(bench.path("fair.wasm")).unwrap();
            fs::create_dir(bench.path("fair.wasm")).unwrap();
        }),
        Case::component(
            Rung::Size,
            "size",
            &["bytes and may have 30000", "raise the policy's `limits.file-size`"],
            vec![b'x'; 30_001],
        )
        .configured(|spec| spec.limits.file_bytes_max = 30_000),
        Case::put(Rung::Size, "size", &["fair.toml has 101 bytes", "`limits.rules-size`"], |bench| {
            bench.write("fair.toml", [b'#'; 101]);
        })
        .configured(|spec| spec.limits.rules_bytes_max = 100),
    ]);
}

#[test]
fn format_digest_and_validate() {
    let mut cut = old();
    cut.truncate(old().len() / 2);
    let mut changed = old();
    changed[60] ^= 0x40;
    all([
        Case::component(Rung::Format, "format", &["fair.wasm is a text"], b"hello".to_vec()),
        Case::component(Rung::Format, "format", &["core module", "policy build"], Guest::default().module()),
        Case::component(Rung::Digest, "digest", &["allows only"], Guest::default().component())
            .configured(|spec| spec.sha256 = Some(digest_of_old())),
        Case::component(Rung::Validate, "validate", &["damaged or only half written", "at byte"], cut),
        Case::component(Rung::Validate, "validate", &["damaged or only half written"], changed),
    ]);
}

fn digest_of_old() -> String {
    let bench = Bench::new();
    let report = tidegate_policy::check(&bench.engine, &bench.policy("old", old()));
    report.component_sha256.unwrap().to_string()
}

#[test]
fn section_version_exports_and_imports() {
    let mut longer = encode_component(&Guest::default().module()).unwrap();
    longer.extend_from_slice(&[0, 2, 1, b'x']);
    all([
        Case::component(Rung::Section, "section", &["not what was built", "4 bytes follow"], longer),
        Case::component(
            Rung::Version,
            "version",
            &["it needs policy API 1.3.0, this host serves 1.0"],
            Guest::of_version("1.3.0").component(),
        ),
        Case::component(
            Rung::Exports,
            "exports",
            &["does not export `tidegate:policy/throttle@1.0.0`"],
            Guest::without_throttle().component(),
        ),
        Case::component(
            Rung::Exports,
            "exports",
            &["it is a `renewal-policy` and is used as a `throttle-policy`"],
            Guest::renewing_for(1_000).component(),
        )
        .configured(|spec| spec.world = Some(tidegate_policy::World::ThrottlePolicy)),
        Case::component(
            Rung::Imports,
            "imports",
            &["`wasi:clocks/monotonic-clock@0.2.0`", "no WASI", "nothing that waits"],
            Guest::sleeping_through_wasi().component(),
        ),
    ]);
}

#[test]
fn compile_and_link() {
    all([
        // 128 MiB from the beginning, twice what the pool has.
        Case::component(
            Rung::Compile,
            "compile",
            &["the compiler refuses it", "memory"],
            Guest::beginning_with_pages(2_048).component(),
        ),
        Case::component(
            Rung::Compile,
            "compile",
            &["the compiler refuses it", "table"],
            Guest::beginning_with_a_table_of(9_000_000).component(),
        ),
        Case::component(
            Rung::Link,
            "link",
            &["lacks a function", "newer contract", "zone"],
            Guest::calling_a_newer_function().component(),
        ),
    ]);
}

#[test]
fn compile_in_time() {
    // Takes the compiler some seconds.
    let body =
        "(local.set 0 (i32.mul (i32.add (local.get 0) (i32.const 3)) (i32.xor (local.get 0) (local.get 1))))";
    let function = format!("(func (param i32 i32) (result i32) {} (local.get 0))", body.repeat(400));
    let slow = with_core_instances(
        &Guest::default().component(),
        &format!("(module {})", function.repeat(1_000)),
        0,
    );
    Case::component(Rung::Compile, "compile", &["compiling it takes longer than 1 s"], slow)
        .configured(|spec| spec.limits.compile_timeout = Duration::from_secs(1))
        .check();
}

#[test]
fn instantiate() {
    all([
        Case::component(
            Rung::Instantiate,
            "type",
            &["no instance of it starts", "types are not the contract's"],
            Guest::with_another_shape().component(),
        ),
        Case::component(
            Rung::Instantiate,
            "panic",
            &["no instance of it starts", "it panicked"],
            Guest::trapping_in_start().component(),
        ),
        Case::component(
            Rung::Instantiate,
            "timeout",
            &["50 ms of computing time"],
            Guest::looping_in_start().component(),
        )
        .configured(|spec| spec.limits.start_deadline = Duration::from_millis(50)),
        Case::component(
            Rung::Instantiate,
            "memory",
            &["asked for 6553600 bytes", "may have 1048576"],
            Guest::beginning_with_pages(100).component(),
        )
        .configured(|spec| spec.limits.memory_bytes = 1 << 20),
    ]);
}

#[test]
fn describe() {
    all([
        Case::component(
            Rung::Describe,
            "panic",
            &["its `describe` failed"],
            Guest::trapping_in_describe().component(),
        ),
        Case::component(
            Rung::Describe,
            "timeout",
            &["its `describe` failed", "50 ms"],
            Guest::looping_in_describe().component(),
        )
        .configured(|spec| spec.limits.start_deadline = Duration::from_millis(50)),
        Case::component(
            Rung::Describe,
            "describe",
            &["makes no sense", "no name"],
            Guest::without_a_name().component(),
        ),
    ]);
}

#[test]
fn rules_and_configure() {
    all([
        Case::put(Rung::Rules, "rules", &["fair.toml:2: `shares`: unknown key"], |bench| {
            bench.write("fair.toml", "# none\nshares = 1\n");
        }),
        Case::put(Rung::Rules, "rules", &["fair.toml:1", "not TOML"], |bench| {
            bench.write("fair.toml", "shares = \n");
        }),
        Case::component(
            Rung::Configure,
            "refused",
            &["the policy refuses its rules", "`rule[1].rates`: no such key"],
            Guest::refusing_its_rules().component(),
        ),
        Case::component(
            Rung::Configure,
            "panic",
            &["its `configure` failed on these rules"],
            Guest::trapping_in_configure().component(),
        ),
        Case::component(
            Rung::Configure,
            "timeout",
            &["its `configure` failed", "50 ms"],
            Guest::looping_in_configure().component(),
        )
        .configured(|spec| spec.limits.start_deadline = Duration::from_millis(50)),
    ]);
}

#[test]
fn self_test() {
    all([
        Case::component(
            Rung::SelfTest,
            "panic",
            &["its decision about a sample message failed", "it panicked"],
            Guest::trapping_every(1).component(),
        ),
        Case::component(
            Rung::SelfTest,
            "timeout",
            &["sample message", "50 ms"],
            Guest::looping_every(1).component(),
        )
        .configured(|spec| spec.limits.start_deadline = Duration::from_millis(50)),
    ]);
}
