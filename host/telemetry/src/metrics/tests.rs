use std::fmt::Write as _;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::registry::Descriptor;
use super::*;

/// The list that dashboards and alerts rely on. A new metric is a new line; a changed or missing line breaks
/// somebody's alert. `INSTA_UPDATE=always cargo test -p tidegate-telemetry` writes it anew.
#[test]
fn names_kinds_and_helps_change_only_on_purpose() {
    let mut list = String::new();
    for Descriptor { family, suffix, kind, help, .. } in Metrics::default().registry.descriptors() {
        writeln!(list, "{family}{suffix} {kind}\n    {help}").expect("a string");
    }
    insta::assert_snapshot!(list);
}

#[test]
fn names_follow_the_rules() {
    let all = Metrics::default().registry.descriptors();
    for Descriptor { family, help, .. } in &all {
        assert!(family.starts_with("tidegate_"), "{family}");
        let snake = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(family.chars().all(snake) && !family.contains("__"), "{family} is not snake case");
        assert!(!family.ends_with("_total"), "{family}: the library adds `_total`");
        for abbreviation in ["_ms", "_secs", "_millis", "_nanos", "_kb", "_mb"] {
            assert!(!family.ends_with(abbreviation), "{family}: seconds and bytes, written out");
        }
        assert!(!help.is_empty() && !help.ends_with('.'), "{family}: the library adds the full stop");
    }
    let mut families: Vec<_> = all.iter().map(|descriptor| &descriptor.family).collect();
    families.dedup();
    assert_eq!(families.len(), all.len(), "a name is registered twice");
}

#[test]
fn every_family_is_described_once_with_or_without_samples() {
    let metrics = Metrics::default();
    let text = metrics.encode();
    let all = metrics.registry.descriptors();
    for Descriptor { family, kind, help, .. } in &all {
        for line in [format!("# TYPE {family} {kind}"), format!("# HELP {family} {help}.")] {
            assert_eq!(text.lines().filter(|said| *said == line).count(), 1, "{line}");
        }
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("# TYPE ")).count(), all.len());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().expect("a name");
        assert!(all.iter().any(|known| name.starts_with(&known.family)), "{name}");
    }
    assert!(text.contains("# UNIT tidegate_policy_call_seconds seconds\n"), "{text}");
    assert!(text.contains("tidegate_build_info{version=\""), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn closed_sets_become_words() {
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    enum Cause {
        LeaseGone,
        Ok,
    }
    words!(Cause);
    #[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
    struct Labels {
        cause: Cause,
    }
    let mut registry = Registry::new("test");
    let family = Family::<Labels, Counter>::default();
    registry.register("things", "Things", family.clone());
    for cause in [Cause::LeaseGone, Cause::Ok] {
        family.get_or_create(&Labels { cause }).inc();
    }
    let text = registry.encode();
    assert!(text.contains("test_things_total{cause=\"lease_gone\"} 1"), "{text}");
    assert!(text.contains("test_things_total{cause=\"ok\"} 1"), "{text}");
}

#[test]
fn only_names_become_labels() {
    #[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
    struct Labels {
        flow: Name,
    }
    let mut registry = Registry::new("test");
    let family = Family::<Labels, Counter>::default();
    registry.register("things", "Things", family.clone());
    for name in ["tenants", "amqp://user:secret@host", "", "tenant\u{e9}"] {
        family.get_or_create(&Labels { flow: Name::from(&Arc::from(name)) }).inc();
    }
    let text = registry.encode();
    assert!(text.contains("test_things_total{flow=\"tenants\"} 1"), "{text}");
    assert!(text.contains("test_things_total{flow=\"other\"} 1"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}
