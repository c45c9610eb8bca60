//! Why a policy did not decide: a closed set, since it is a metric label.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use wasmtime::{Trap, WasmBacktrace};

use crate::deadline::DeadlineExceeded;
use crate::limiter::LimitExceeded;
use crate::log_tail::printable;
use crate::state::StateError;

/// Why a policy did not decide.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// It used up its computing time.
    Timeout,
    /// It wanted more memory than it may have.
    Memory,
    /// It panicked, or aborted in another way of its language.
    Panic,
    /// Its calls went too deep.
    Stack,
    /// It asked the host for something that the host does not do: too many bytes, too many handles, a bucket that
    /// holds less than nothing.
    HostError,
    /// Its functions have other types than the contract's.
    Type,
    /// It failed so often that it is not asked for a while.
    Breaker,
    /// It failed on this very message so often that it is not asked about it any more.
    Poison,
    /// An operator paused it.
    Paused,
    /// No generation of it is loaded.
    NotLoaded,
    /// Another trap, or the host could not make an instance.
    Other,
}

impl Cause {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 11] = [
        Self::Timeout,
        Self::Memory,
        Self::Panic,
        Self::Stack,
        Self::HostError,
        Self::Type,
        Self::Breaker,
        Self::Poison,
        Self::Paused,
        Self::NotLoaded,
        Self::Other,
    ];

    /// The label, as metrics and the admin API have it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::Panic => "panic",
            Self::Stack => "stack",
            Self::HostError => "host-error",
            Self::Type => "type",
            Self::Breaker => "breaker",
            Self::Poison => "poison",
            Self::Paused => "paused",
            Self::NotLoaded => "not-loaded",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// One failed entry into a guest: what happened, and what the guest last said.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error, Serialize)]
#[error("{message}{}", Said(said))]
pub struct Failure {
    /// Which kind.
    pub cause: Cause,
    /// What happened, in one sentence.
    pub message: String,
    /// The guest's last log lines before it happened; a Rust guest's panic text is the last of them.
    pub said: Vec<String>,
    /// The guest's functions on the stack, innermost first.
    pub frames: Vec<String>,
    /// Computing time that it took, when it was worth counting.
    #[serde(skip)]
    pub(crate) spent: Duration,
}

struct Said<'a>(&'a [String]);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.last() {
            Some(last) => write!(f, "; it last said: {last}"),
            None => Ok(()),
        }
    }
}

impl Failure {
    /// A failure without a guest's word.
    pub(crate) fn new(cause: Cause, message: impl Into<String>) -> Self {
        Self { cause, message: message.into(), said: Vec::new(), frames: Vec::new(), spent: Duration::ZERO }
    }

    /// Reads what wasmtime reports.
    pub(crate) fn of(error: &wasmtime::Error, said: Vec<String>, spent: Duration) -> Self {
        /// Enough to see who called whom; a recursion repeats itself.
        const FRAMES_MAX: usize = 8;
        /// A mangled name with its types may be long.
        const NAME_BYTES_MAX: usize = 256;
        let frames = error.downcast_ref::<WasmBacktrace>().map_or_else(Vec::new, |trace| {
            // The guest's own file names its functions.
            let names = trace.frames().iter().map(|frame| frame.func_name().unwrap_or("?"));
            let names = names.map(|name| printable(name, NAME_BYTES_MAX));
            names.take(FRAMES_MAX).collect()
        });
        let (cause, message) = classify(error);
        Self { cause, message, said, frames, spent }
    }
}

fn classify(error: &wasmtime::Error) -> (Cause, String) {
    if let Some(exceeded) = error.downcast_ref::<DeadlineExceeded>() {
        return (Cause::Timeout, exceeded.to_string());
    }
    if let Some(exceeded) = error.downcast_ref::<LimitExceeded>() {
        return (Cause::Memory, exceeded.to_string());
    }
    if let Some(refused) = error.downcast_ref::<StateError>() {
        return (Cause::HostError, refused.to_string());
    }
    if let Some(limit) = error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>() {
        return (Cause::Other, format!("the pool of instances is exhausted: {limit}"));
    }
    let text = error.root_cause().to_string();
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => (Cause::Timeout, "it was stopped at its deadline".to_owned()),
        Some(Trap::UnreachableCodeReached) => (Cause::Panic, "it panicked".to_owned()),
        Some(Trap::StackOverflow) => (Cause::Stack, "its calls went deeper than its stack".to_owned()),
        Some(trap) => (Cause::Other, format!("it trapped: {trap}")),
        None => classify_text(text),
    }
}

/// The errors that wasmtime 48 gives no public type to.
fn classify_text(text: String) -> (Cause, String) {
    if text.contains("fuel allocated for hostcalls") {
        return (Cause::HostError, "it passed more bytes to the host than one call may".to_owned());
    }
    if text.contains("handle") {
        return (Cause::HostError, format!("it misused its handles: {text}"));
    }
    if text.contains("type mismatch") || text.contains("expected") {
        return (Cause::Type, format!("its types are not the contract's: {text}"));
    }
    (Cause::Other, text)
}
