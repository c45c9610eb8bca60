//! What the configuration says about one policy.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::grants::Grants;
use crate::world::World;

/// One configured policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PolicySpec {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// What it is used for; `None` takes it for what its component is.
    pub world: Option<World>,
    /// The component's file. It need not be there yet.
    pub component: PathBuf,
    /// The rules' TOML file; without one the policy is configured with an empty object.
    pub rules: Option<PathBuf>,
    /// What becomes of a message that the policy could not decide.
    pub on_error: OnError,
    /// How much the policy may use.
    pub limits: Limits,
    /// What it may use of the host, if it is a credential resolver.
    pub grants: Grants,
    /// The only component that may be loaded, as 64 hexadecimal digits.
    pub sha256: Option<String>,
    /// Whether its verdicts are followed.
    pub mode: Mode,
    /// How a new generation is watched at first.
    pub probation: Probation,
    /// Whether a copy of what ran well is used when the files cannot be, at a start.
    pub last_good: bool,
}

impl PolicySpec {
    /// A policy with a component and nothing else said about it.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, component: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            world: None,
            component: component.into(),
            rules: None,
            on_error: OnError::default(),
            limits: Limits::default(),
            grants: Grants::default(),
            sha256: None,
            mode: Mode::default(),
            probation: Probation::default(),
            last_good: true,
        }
    }
}

/// Whether a policy's verdicts are followed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// They are.
    #[default]
    Enforce,
    /// It is asked and its verdicts are counted, but every message is treated as if there were no policy.
    Shadow,
}

impl Mode {
    /// Whether its verdicts are not followed.
    #[must_use]
    pub const fn is_shadow(self) -> bool {
        matches!(self, Self::Shadow)
    }
}

/// How a new generation is watched at first. It goes back to the generation before when more than two of its calls,
/// and more than one in a hundred, fail.
///
/// Probation ends when both so many calls were made and so much time has passed, or after ten times that time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Probation {
    /// Calls.
    pub calls: u32,
    /// Time.
    pub time: Duration,
}

impl Default for Probation {
    fn default() -> Self {
        Self { calls: 100, time: Duration::from_secs(10) }
    }
}

/// What becomes of a message that the policy could not decide: because it is absent, was stopped, or trapped.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnError {
    /// Hand it to the sink.
    #[default]
    Deliver,
    /// Give it back to the broker for so long.
    Defer(Duration),
    /// Stop the flow.
    Stop,
}

/// As in the configuration.
impl std::fmt::Display for OnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Deliver => f.write_str("deliver"),
            Self::Defer(delay) => write!(f, "defer:{}", tidegate_connector::units::format_duration(*delay)),
            Self::Stop => f.write_str("stop"),
        }
    }
}

/// What one policy may use. The defaults are safe for policies in every language that the notes measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Computing time of one decision. A healthy decision takes a microsecond; this is for the one that loops.
    pub deadline: Duration,
    /// Computing time of each step of a start: instantiate, `describe`, `configure`, self-test.
    pub start_deadline: Duration,
    /// Wall time of one call of a credential resolver, its waits for other services included.
    pub resolve_timeout: Duration,
    /// Linear memories and tables of one instance together. A JavaScript or Python policy begins with 9 to 12 MiB.
    pub memory_bytes: usize,
    /// The component's file. A Python policy has 18 MB.
    pub file_bytes_max: u64,
    /// The rules' file.
    pub rules_bytes_max: u64,
    /// Compiling, which takes 10 ms for a Rust policy and 5 s for a JavaScript one (measured on two cores).
    pub compile_timeout: Duration,
    /// Log text that one call may write.
    pub log_bytes_per_call: usize,
    /// Bytes that the host copies out of the guest in one host call, or from one answer.
    pub hostcall_bytes: usize,
    /// Handles to host objects that one instance may hold.
    pub handles: usize,
    /// Decisions of one instance before a fresh one takes its place, give or take a quarter (drawn for each
    /// instance), so that a slow leak in a guest never matters and no guest comes to depend on its globals.
    pub uses_max: u32,
    /// Buckets, and as many counters, that the host keeps for the policy.
    pub state_entries_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(5),
            start_deadline: Duration::from_millis(500),
            resolve_timeout: Duration::from_secs(10),
            memory_bytes: 64 << 20,
            file_bytes_max: 32 << 20,
            rules_bytes_max: 1 << 20,
            compile_timeout: Duration::from_secs(120),
            log_bytes_per_call: 4 << 10,
            hostcall_bytes: 256 << 10,
            handles: 1_000,
            uses_max: 1_000_000,
            // About 5 MB per table when full; a tenant each for a large cluster.
            state_entries_max: 65_536,
        }
    }
}
