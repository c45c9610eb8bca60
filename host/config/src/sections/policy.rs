//! `[policies.NAME]`: one configured component.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_connector::options::{Default, Kind, OptionSpec, Side, Table, Values};
use tidegate_connector::origin::Origin;
use tidegate_connector::units;

use super::{path_from, read_values};
use crate::document::{Block, Reporter};
use crate::error::Problem;

/// The keys of `[policies.NAME]`.
pub const POLICY_TABLE: Table = Table {
    connector: "policies",
    summary: "A policy: a component, its rules, and the limits that it lives in. What it is for is said where it is used. All of \
              it changes live.",
    options: &[
        option("component", Kind::Path, Default::Required, "The .wasm file; counts from `policy-dir`."),
        option("rules", Kind::Path, Default::None, "The TOML file of its rules; counts from `policy-dir`."),
        option(
            "on-error",
            Kind::Text,
            Default::Value("deliver"),
            "What becomes of a message when the policy cannot answer: `deliver`, `defer:DURATION` or `stop`.",
        ),
        option(
            "sha256",
            Kind::Text,
            Default::None,
            "SHA-256 of the component, 64 hexadecimal digits; a file with another one is not loaded.",
        ),
        option(
            "mode",
            Kind::Choice(&["enforce", "shadow"]),
            Default::Value("enforce"),
            "Whether a throttle policy's verdicts are followed. With `shadow` it is asked and its verdicts are counted, and every \
             message goes on as if there were no policy.",
        ),
        option(
            "probation.calls",
            Kind::Integer { min: 0, max: 1_000_000_000 },
            Default::Value("100"),
            "Calls for which a new generation is watched. When more than two of them, and more than one in a hundred, fail, the \
             generation before takes over again.",
        ),
        option(
            "probation.time",
            Kind::Duration { min_millis: 0, max_millis: 86_400_000 },
            Default::Value("10s"),
            "Time for which a new generation is watched: until both this and `probation.calls` are over, or ten times this.",
        ),
        option(
            "last-good",
            Kind::Bool,
            Default::Value("true"),
            "Whether a copy of what last ran well is kept in `state-dir`, and used at a start when the files are broken or gone.",
        ),
        option(
            "grants.env",
            Kind::List,
            Default::None,
            "Environment variables that a credential resolver may read, by name. It may use nothing of the host that is not \
             granted.",
        ),
        option(
            "grants.directories",
            Kind::Pairs,
            Default::None,
            "Directories whose files a credential resolver may read, each under a name: it reads `NAME/FILE`. They count from \
             `policy-dir`.",
        ),
        option(
            "grants.http",
            Kind::List,
            Default::None,
            "Where the HTTP requests of a credential resolver may go, such as `https://vault.example:8200`. Only to public \
             addresses, unless the address itself stands here too.",
        ),
        option(
            "grants.http-ca-file",
            Kind::Path,
            Default::None,
            "PEM certificates that those requests trust beside the system's; counts from `policy-dir`.",
        ),
        option(
            "limits.deadline",
            Kind::Duration { min_millis: 1, max_millis: 1_000 },
            Default::Value("5ms"),
            "Computing time of one decision.",
        ),
        option(
            "limits.start-deadline",
            Kind::Duration { min_millis: 1, max_millis: 60_000 },
            Default::Value("500ms"),
            "Computing time of each step of a start: instantiate, describe, configure, self-test.",
        ),
        option(
            "limits.resolve-timeout",
            Kind::Duration { min_millis: 100, max_millis: 300_000 },
            Default::Value("10s"),
            "Time of one call of a credential resolver, its waits for other services included.",
        ),
        option(
            "limits.memory",
            Kind::Size { min: 64 << 10, max: 4 << 30 },
            Default::Value("64MiB"),
            "Memory of one instance.",
        ),
        option(
            "limits.file-size",
            Kind::Size { min: 1 << 10, max: 1 << 30 },
            Default::Value("32MiB"),
            "The largest component that is loaded.",
        ),
        option(
            "limits.rules-size",
            Kind::Size { min: 1 << 10, max: 64 << 20 },
            Default::Value("1MiB"),
            "The largest rules file that is read.",
        ),
        option(
            "limits.compile-timeout",
            Kind::Duration { min_millis: 100, max_millis: 600_000 },
            Default::Value("120s"),
            "The longest that compiling the component may take.",
        ),
        option(
            "limits.log-bytes-per-call",
            Kind::Size { min: 0, max: 1 << 20 },
            Default::Value("4KiB"),
            "How much of what one call logs is kept.",
        ),
        option(
            "limits.hostcall-bytes",
            Kind::Size { min: 1 << 10, max: 64 << 20 },
            Default::Value("256KiB"),
            "The most bytes that the host copies out of the policy in one host call, or from one answer.",
        ),
        option(
            "limits.handles",
            Kind::Integer { min: 1, max: 1_000_000 },
            Default::Value("1000"),
            "The most handles to host objects that one instance may hold.",
        ),
        option(
            "limits.max-uses",
            Kind::Integer { min: 1, max: 4_294_967_295 },
            Default::Value("1000000"),
            "Decisions of one instance before a fresh one takes its place, so that a slow leak never matters.",
        ),
        option(
            "limits.state-entries",
            Kind::Integer { min: 1, max: 10_000_000 },
            Default::Value("65536"),
            "Token buckets, and as many counters, that the host keeps for the policy.",
        ),
    ],
};

/// One configured component.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Policy {
    /// The component's file.
    pub component: PathBuf,
    /// The file of its rules.
    pub rules: Option<PathBuf>,
    /// What becomes of a message when the policy cannot answer.
    pub on_error: OnError,
    /// SHA-256 that the component must have, in lower-case hexadecimal.
    pub sha256: Option<String>,
    /// Whether its verdicts are followed.
    pub mode: Mode,
    /// Calls for which a new generation is watched.
    pub probation_calls: u32,
    /// Time for which a new generation is watched.
    pub probation_time: Duration,
    /// Whether a copy of what last ran well is kept and used.
    pub last_good: bool,
    /// What it may use of the host.
    pub grants: Grants,
    /// What it lives in.
    pub limits: Limits,
}

/// What a credential resolver may use of the host.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grants {
    /// Environment variables, by name.
    pub env: BTreeSet<String>,
    /// Directories, by the names that the policy knows them by.
    pub directories: BTreeMap<String, PathBuf>,
    /// Where requests may go.
    pub http: BTreeSet<Origin>,
    /// Certificates that requests trust beside the system's.
    pub http_ca_file: Option<PathBuf>,
}

/// Whether a policy's verdicts are followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// They are.
    Enforce,
    /// They are only counted.
    Shadow,
}

/// What becomes of a message when its policy cannot answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnError {
    /// It goes to the sink.
    Deliver,
    /// It goes back to the broker for so long.
    Defer(Duration),
    /// The flow stops.
    Stop,
}

/// What a policy lives in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Computing time of one decision.
    pub deadline: Duration,
    /// Computing time of each step of a start.
    pub start_deadline: Duration,
    /// Time of one call of a credential resolver.
    pub resolve_timeout: Duration,
    /// Memory of one instance, in bytes.
    pub memory_bytes: usize,
    /// The largest component that is loaded, in bytes.
    pub file_bytes_max: u64,
    /// The largest rules file that is read, in bytes.
    pub rules_bytes_max: u64,
    /// The longest that compiling may take.
    pub compile_timeout: Duration,
    /// How much of what one call logs is kept, in bytes.
    pub log_bytes_per_call: usize,
    /// The most bytes that the host copies out of the policy in one host call, or from one answer.
    pub hostcall_bytes: usize,
    /// The most handles to host objects that one instance may hold.
    pub handles: usize,
    /// Decisions of one instance before a fresh one takes its place.
    pub uses_max: u32,
    /// Token buckets, and as many counters, that the host keeps.
    pub state_entries_max: usize,
}

/// Longest deferral on error. The flow's own valve caps it further.
const DEFER_MAX: Duration = Duration::from_secs(24 * 3600);

impl Policy {
    /// `None` when a key does not fit, which has been reported.
    pub(crate) fn read(
        reporter: &mut Reporter<'_>,
        block: &mut Block,
        policy_dir: Option<&Path>,
    ) -> (Values, Option<Self>) {
        block.gather("grants.directories");
        let values = read_values(reporter, block, Side::Both, &POLICY_TABLE);
        let on_error = read_on_error(reporter, block, &values);
        let sha256 = read_sha256(reporter, block, &values);
        let grants = read_grants(reporter, block, &values, policy_dir.unwrap_or(Path::new("")));
        let policy = policy_dir.and_then(|dir| Self::from_values(&values, on_error, sha256, grants, dir));
        (values, policy)
    }

    fn from_values(
        values: &Values,
        on_error: Option<OnError>,
        sha256: Option<String>,
        grants: Option<Grants>,
        policy_dir: &Path,
    ) -> Option<Self> {
        Some(Self {
            component: path_from(policy_dir, values.text("component")?),
            rules: values.text("rules").map(|rules| path_from(policy_dir, rules)),
            on_error: on_error?,
            sha256,
            mode: match values.text("mode")? {
                "shadow" => Mode::Shadow,
                _ => Mode::Enforce,
            },
            probation_calls: u32::try_from(values.integer("probation.calls")?).ok()?,
            probation_time: values.duration("probation.time")?,
            last_good: values.flag("last-good"),
            grants: grants?,
            limits: read_limits(values)?,
        })
    }
}

fn read_limits(values: &Values) -> Option<Limits> {
    let bytes = |key| values.size(key).and_then(|size| usize::try_from(size).ok());
    let count = |key| values.integer(key).and_then(|number| usize::try_from(number).ok());
    Some(Limits {
        deadline: values.duration("limits.deadline")?,
        start_deadline: values.duration("limits.start-deadline")?,
        resolve_timeout: values.duration("limits.resolve-timeout")?,
        memory_bytes: bytes("limits.memory")?,
        file_bytes_max: values.size("limits.file-size")?,
        rules_bytes_max: values.size("limits.rules-size")?,
        compile_timeout: values.duration("limits.compile-timeout")?,
        log_bytes_per_call: bytes("limits.log-bytes-per-call")?,
        hostcall_bytes: bytes("limits.hostcall-bytes")?,
        handles: count("limits.handles")?,
        uses_max: u32::try_from(values.integer("limits.max-uses")?).ok()?,
        state_entries_max: count("limits.state-entries")?,
    })
}

/// `None` when something does not fit, which has been reported.
fn read_grants(
    reporter: &mut Reporter<'_>,
    block: &Block,
    values: &Values,
    policy_dir: &Path,
) -> Option<Grants> {
    let before = reporter.count();
    let mut grants = Grants {
        http_ca_file: values.text("grants.http-ca-file").map(|file| path_from(policy_dir, file)),
        ..Grants::default()
    };
    for name in values.list("grants.env") {
        if name.is_empty() || name.contains(['=', '\0', '*']) {
            let detail = format!("must hold names of environment variables, each written out, not `{name}`");
            reporter.at_value(block, "grants.env", Problem::Value { detail });
        }
        grants.env.insert(name.clone());
    }
    for (name, path) in values.pairs("grants.directories").into_iter().flatten() {
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            let detail = format!("names have ASCII letters, digits, `-` and `_`, unlike `{name}`");
            reporter.at_value(block, "grants.directories", Problem::Value { detail });
        }
        grants.directories.insert(name.clone(), path_from(policy_dir, path));
    }
    for text in values.list("grants.http") {
        match text.parse() {
            Ok(origin) => {
                grants.http.insert(origin);
            }
            Err(error) => {
                let detail = format!("must hold origins: {error}");
                reporter.at_value(block, "grants.http", Problem::Value { detail });
            }
        }
    }
    (reporter.count() == before).then_some(grants)
}

fn read_on_error(reporter: &mut Reporter<'_>, block: &Block, values: &Values) -> Option<OnError> {
    let text = values.text("on-error")?;
    let detail = match (text, text.strip_prefix("defer:")) {
        ("deliver", _) => return Some(OnError::Deliver),
        ("stop", _) => return Some(OnError::Stop),
        (_, Some(duration)) => match units::parse_duration(duration) {
            Ok(duration) if (Duration::from_millis(1)..=DEFER_MAX).contains(&duration) => {
                return Some(OnError::Defer(duration));
            }
            Ok(_) => format!("must defer for 1ms to 1d, not `{duration}`"),
            Err(error) => format!("has no duration after `defer:`: {error}"),
        },
        _ => format!("must be `deliver`, `defer:DURATION` such as `defer:5s`, or `stop`, not `{text}`"),
    };
    reporter.at_value(block, "on-error", Problem::Value { detail });
    None
}

fn read_sha256(reporter: &mut Reporter<'_>, block: &Block, values: &Values) -> Option<String> {
    let text = values.text("sha256")?;
    if text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit()) {
        return Some(text.to_ascii_lowercase());
    }
    let detail = format!("must be 64 hexadecimal digits, as `sha256sum` prints them, not `{text}`");
    reporter.at_value(block, "sha256", Problem::Value { detail });
    None
}

const fn option(key: &'static str, kind: Kind, default: Default, summary: &'static str) -> OptionSpec {
    OptionSpec { key, kind, default, side: Side::Both, secret: false, summary }
}

#[cfg(test)]
mod tests;
