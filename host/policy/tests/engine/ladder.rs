//! Files that must not come into force, and what is said about them.

use std::time::Duration;

use tidegate_policy::{CheckReport, PolicySpec, Rung, RungOutcome, check, encode_component};
use tidegate_test_guests::{Guest, with_composed_part};

use crate::support::{Bench, DELIVERED, ask, caller};

/// Checks a file, and that it stops at `rung` with a sentence that has all the `words`.
fn refused(bench: &Bench, spec: &PolicySpec, rung: Rung, words: &[&str]) {
    let report = check(&bench.engine, spec);
    assert!(!report.passed);
    let failed = report.rungs.iter().find(|report| matches!(report.outcome, RungOutcome::Failed(_)));
    assert_eq!(failed.map(|report| report.rung), Some(rung), "{report:#?}");
    let sentence = report.failure().unwrap();
    for word in words {
        assert!(sentence.contains(word), "`{word}` is not in: {sentence}");
    }
    assert_eq!(report.rungs.len(), Rung::ALL.len(), "every check is accounted for: {report:#?}");
}

fn refused_bytes(bytes: impl AsRef<[u8]>, rung: Rung, words: &[&str]) {
    let bench = Bench::new();
    let mut spec = bench.policy("candidate", bytes);
    spec.limits.start_deadline = Duration::from_millis(50);
    refused(&bench, &spec, rung, words);
}

fn check_bytes(bench: &Bench, bytes: &[u8]) -> CheckReport {
    check(&bench.engine, &bench.policy("candidate", bytes))
}

#[test]
fn a_good_component_passes_every_rung_in_order() {
    let bench = Bench::new();
    let component = encode_component(&Guest::default().module()).unwrap();
    let report = check_bytes(&bench, &component);
    assert!(report.passed, "{report:#?}");
    let rungs: Vec<_> = report.rungs.iter().map(|report| report.rung).collect();
    assert_eq!(rungs, Rung::ALL);
    assert_eq!(report.trailer.unwrap().wit, "tidegate:policy@1.0.0");
    assert_eq!(report.description.unwrap().name, "crafted");
}

/// The compiler writes code of its own between the parts, which has to do with the memories of both.
#[test]
fn a_component_of_too_many_parts_is_refused_in_words() {
    let composed = with_composed_part(&Guest::default().component());
    refused_bytes(composed, Rung::Compile, &["3 Wasm linear memories", "maximum of 2"]);
}

#[test]
fn what_is_no_component_is_named() {
    refused_bytes("", Rung::Format, &["is empty"]);
    refused_bytes("hello", Rung::Format, &["a text and not"]);
    refused_bytes("<html>404</html>", Rung::Format, &["error page"]);
    refused_bytes([0x7f, b'E', b'L', b'F', 0], Rung::Format, &["never loaded precompiled"]);
    refused_bytes([0x1f, 0x8b, 8, 0], Rung::Format, &["gzip"]);
    refused_bytes([0xff, 0xfe], Rung::Format, &["something unknown"]);
    refused_bytes(Guest::default().module(), Rung::Format, &["core module", "tidegate policy build"]);
}

#[test]
fn what_is_not_there_or_too_large_is_named() {
    let bench = Bench::new();
    refused(&bench, &bench.spec("absent"), Rung::Read, &["absent.wasm", "is not there"]);
    let mut large = bench.policy("large", Guest::default().component());
    large.limits.file_bytes_max = 100;
    refused(&bench, &large, Rung::Size, &["may have 100", "limits.file-size"]);
    let mut directory = bench.spec("directory");
    directory.component = bench.path("");
    refused(&bench, &directory, Rung::Read, &["cannot read"]);
}

#[test]
fn a_pinned_digest_must_fit() {
    let bench = Bench::new();
    let spec = bench.policy("pinned", Guest::default().component());
    let digest = check(&bench.engine, &spec).component_sha256.unwrap();
    let right = PolicySpec { sha256: Some(digest.to_uppercase()), ..spec.clone() };
    assert!(check(&bench.engine, &right).passed);
    let wrong = PolicySpec { sha256: Some("0".repeat(64)), ..spec };
    refused(&bench, &wrong, Rung::Digest, &["allows only 0000", &digest]);
}

#[test]
fn imports_and_exports_must_be_the_worlds() {
    refused_bytes(Guest::importing_wasi().component(), Rung::Imports, &["wasi:cli/environment", "no WASI"]);
    for version in ["2.0.0", "1.0.0-rc.1", "1.3.0", "0.9.0"] {
        let sentence = format!("it needs policy API {version}, this host serves 1.0");
        refused_bytes(Guest::of_version(version).component(), Rung::Version, &[&sentence]);
    }
    refused_bytes(Guest::without_throttle().component(), Rung::Exports, &["tidegate:policy/throttle@1.0.0"]);
    refused_bytes(Guest::calling_a_newer_function().component(), Rung::Link, &["newer contract", "zone"]);
    refused_bytes(Guest::with_another_shape().component(), Rung::Instantiate, &["types", "expected"]);
}

#[test]
fn a_later_patch_of_the_served_version_is_taken() {
    let bench = Bench::new();
    let report = check_bytes(&bench, &Guest::of_version("1.0.9").component());
    assert!(report.passed, "{report:#?}");
}

#[test]
fn loops_at_any_step_of_a_start_end_it() {
    refused_bytes(Guest::looping_in_start().component(), Rung::Instantiate, &["50 ms of computing time"]);
    refused_bytes(Guest::looping_in_describe().component(), Rung::Describe, &["50 ms"]);
    refused_bytes(Guest::looping_in_configure().component(), Rung::Configure, &["50 ms"]);
    let bench = Bench::new();
    let mut spec = bench.policy("loop", Guest::looping_every(1).component());
    spec.limits.start_deadline = Duration::from_millis(50);
    refused(&bench, &spec, Rung::SelfTest, &["sample message", "50 ms"]);
}

#[test]
fn traps_and_too_much_memory_end_a_start() {
    refused_bytes(Guest::trapping_every(1).component(), Rung::SelfTest, &["panicked"]);
    // 128 MiB from the beginning, twice what the pool has.
    refused_bytes(Guest::beginning_with_pages(2_048).component(), Rung::Compile, &["memory", "limit"]);
    let bench = Bench::new();
    let mut spec = bench.policy("memory", Guest::beginning_with_pages(100).component());
    spec.limits.memory_bytes = 1 << 20;
    refused(&bench, &spec, Rung::Instantiate, &["asked for 6553600 bytes", "may have 1048576"]);
}

#[test]
fn rules_are_refused_with_their_place() {
    let bench = Bench::new();
    let mut spec = bench.policy("rules", Guest::default().component());
    spec.rules = Some(bench.path("rules.toml"));
    refused(&bench, &spec, Rung::Read, &["rules.toml", "is not there"]);
    bench.write("rules.toml", "\n\nshare = 1\n");
    refused(&bench, &spec, Rung::Rules, &["rules.toml:3: `share`: unknown key", "no rules"]);
    bench.write("rules.toml", "share = \n");
    refused(&bench, &spec, Rung::Rules, &["rules.toml:1", "not TOML"]);
    bench.write("rules.toml", [0xff]);
    refused(&bench, &spec, Rung::Read, &["rules.toml", "utf-8"]);
    bench.write("rules.toml", "");
    bench.write("rules.wasm", Guest::refusing_its_rules().component());
    refused(&bench, &spec, Rung::Configure, &["refuses its rules", "`rule[1].rates`: no such key"]);
}

#[test]
fn no_part_of_a_file_comes_into_force() {
    let bench = Bench::new();
    let whole = encode_component(&Guest::default().module()).unwrap();
    let good = check_bytes(&bench, &whole);
    assert!(good.passed);
    let bytes = good.trailer.unwrap().bytes;
    // Every eleventh length, and every one around the end of the component and its last section.
    let lengths = (0..whole.len()).filter(|len| len % 11 == 0 || *len > bytes.saturating_sub(40));
    let mut passed = Vec::new();
    for len in lengths {
        let report = check_bytes(&bench, &whole[..len]);
        if report.passed {
            // What is left is a component that does all that the whole one does; only sections that nothing reads
            // are missing, and the one that would prove it whole.
            assert_eq!(report.trailer, None, "{len} of {}", whole.len());
            passed.push(len);
        }
    }
    assert!(passed.iter().all(|&len| len <= bytes), "{passed:?} of {bytes}");
    let mut longer = whole.clone();
    longer.extend_from_slice(&[0, 2, 1, b'x']);
    refused_bytes(&longer, Rung::Section, &["4 bytes follow"]);
    let mut cut_inside = whole[..40].to_vec();
    cut_inside.extend_from_slice(&whole[bytes..]);
    assert!(!check_bytes(&bench, &cut_inside).passed);
}

/// Which interface a file exports last is up to the encoder, and one that observes may be cut before it says so.
#[test]
fn no_part_of_a_file_that_the_sdk_built_comes_into_force() {
    let bench = Bench::new();
    let guest = Guest::counting_what_it_is_told().built_with_the_sdk();
    let whole = encode_component(&guest.module()).unwrap();
    let good = check_bytes(&bench, &whole);
    assert!(good.passed && good.observes, "{good:#?}");
    let bytes = good.trailer.unwrap().bytes;
    let mut rungs = std::collections::BTreeMap::<_, usize>::new();
    for len in (0..whole.len()).filter(|len| len % 11 == 0 || *len > bytes.saturating_sub(400)) {
        let report = check_bytes(&bench, &whole[..len]);
        assert!(!report.passed, "{len} of {}", whole.len());
        let failed = report.rungs.iter().find(|report| matches!(report.outcome, RungOutcome::Failed(_)));
        *rungs.entry(failed.unwrap().rung).or_default() += 1;
    }
    assert!(rungs[&Rung::Section] > 0, "some are components, and known not to be whole: {rungs:?}");
    // As other tools encode what was built with the SDK; what nobody built with it need not have the section.
    refused_bytes(
        guest.component(),
        Rung::Section,
        &["crafted 0.1.0, tidegate-guest", "was built with the SDK", "policy build"],
    );
    assert!(check_bytes(&bench, &Guest::counting_what_it_is_told().component()).passed);
}

#[test]
fn a_changed_byte_never_comes_into_force_unnoticed_by_the_pin() {
    let bench = Bench::new();
    let whole = encode_component(&Guest::default().module()).unwrap();
    let digest = check_bytes(&bench, &whole).component_sha256.unwrap();
    for at in (0..whole.len()).step_by(97) {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        let spec = PolicySpec { sha256: Some(digest.to_string()), ..bench.policy("changed", &changed) };
        assert!(!check(&bench.engine, &spec).passed, "byte {at}");
    }
}

#[test]
fn only_core_modules_are_encoded() {
    let component = encode_component(&Guest::default().module()).unwrap();
    assert!(encode_component(&component).unwrap_err().to_string().contains("a component already"));
    assert!(encode_component(b"hello").unwrap_err().to_string().contains("not WebAssembly"));
    assert!(encode_component(b"\0asm\x01\0\0\0").is_err(), "a module without the contract");
}

#[test]
fn a_folder_of_bad_policies_and_a_good_one() {
    let bench = Bench::new();
    bench.write("bad-rules.toml", "[[rule]]\nshare = 0.2\n");
    let rules = Some(bench.path("bad-rules.toml"));
    let host = bench.host(vec![
        PolicySpec { rules, ..bench.policy("bad-rules", Guest::default().component()) },
        bench.policy("core-module", Guest::default().module()),
        bench.policy("text", "hello"),
        bench.policy("other-world", Guest::without_throttle().component()),
        bench.policy("refusing", Guest::refusing_its_rules().component()),
        bench.spec("absent"),
        bench.policy("good", Guest::default().component()),
    ]);
    assert_eq!(ask(&mut caller(&host, "good"), "tenant"), DELIVERED);
    let states: Vec<_> =
        host.status().iter().map(|status| format!("{} {:?}", status.name, status.state)).collect();
    assert_eq!(
        states,
        [
            "absent Absent",
            "bad-rules Failed",
            "core-module Failed",
            "good Active",
            "other-world Failed",
            "refusing Failed",
            "text Failed"
        ]
    );
}

#[test]
fn compiling_has_its_time() {
    let bench = Bench::new();
    let mut spec = bench.policy("slow", Guest::default().component());
    spec.limits.compile_timeout = Duration::ZERO;
    refused(&bench, &spec, Rung::Compile, &["longer than 0 s"]);
}
