//! Why a candidate did not go into force: one variant for each way, with what, where and what to do.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::cause::{Cause, Failure};
use crate::engine::CompileError;
use crate::ladder::RungReport;
use crate::rules::RuleErrors;

/// The checks that a candidate goes through, in their order. All pass, or nothing changes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// The files can be read.
    Read,
    /// The component's file is not larger than allowed.
    Size,
    /// It is a WebAssembly component.
    Format,
    /// Its digest is the pinned one.
    Digest,
    /// Every byte of it is valid.
    Validate,
    /// The SDK's trailing section says that it is complete.
    Section,
    /// It was built for a version of the contract that this host serves.
    Version,
    /// It has all that its world asks for.
    Exports,
    /// It asks only for what its world and its grants give.
    Imports,
    /// It compiles in time.
    Compile,
    /// The host has every function that it imports.
    Link,
    /// An instance starts, and its functions have the contract's types.
    Instantiate,
    /// It says what it is.
    Describe,
    /// The rules are TOML and fit what it described.
    Rules,
    /// It takes the rules.
    Configure,
    /// It decides about a sample message.
    SelfTest,
    /// Not a check of a candidate: its first calls in force failed too often, and it was rolled back.
    Probation,
    /// Not a check of a candidate: an operator rolled it back.
    Asked,
}

impl Rung {
    /// The checks before a candidate comes into force, in order.
    pub const ALL: [Self; 16] = [
        Self::Read,
        Self::Size,
        Self::Format,
        Self::Digest,
        Self::Validate,
        Self::Section,
        Self::Version,
        Self::Exports,
        Self::Imports,
        Self::Compile,
        Self::Link,
        Self::Instantiate,
        Self::Describe,
        Self::Rules,
        Self::Configure,
        Self::SelfTest,
    ];

    /// The name, as reports and metrics have it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Size => "size",
            Self::Format => "format",
            Self::Digest => "digest",
            Self::Validate => "validate",
            Self::Section => "section",
            Self::Version => "version",
            Self::Exports => "exports",
            Self::Imports => "imports",
            Self::Compile => "compile",
            Self::Link => "link",
            Self::Instantiate => "instantiate",
            Self::Describe => "describe",
            Self::Rules => "rules",
            Self::Configure => "configure",
            Self::SelfTest => "self-test",
            Self::Probation => "probation",
            Self::Asked => "asked",
        }
    }
}

/// Why a candidate did not go into force.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The component's file is not there.
    #[error("{} is not there", path.display())]
    Absent {
        /// The file.
        path: PathBuf,
    },
    /// The rules' file is not there.
    #[error("the rules' file {} is not there", path.display())]
    RulesAbsent {
        /// The file.
        path: PathBuf,
    },
    /// The rules' file has become blank, while rules are in force.
    #[error(
        "the rules' file {} is empty, as while an editor saves it, so the rules in force go on; to decide by the \
         policy's defaults alone, write a comment into it, or take `rules` out of the configuration",
        path.display()
    )]
    RulesBlank {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file is larger than allowed.
    #[error("{} has {bytes} bytes and may have {max}; raise the policy's `{key}` if that is meant", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The most it may have.
        max: u64,
        /// The limit's key.
        key: &'static str,
    },
    /// It is something else than a component.
    #[error("{} is {found}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What it is instead and what to do.
        found: String,
    },
    /// It is not the pinned component.
    #[error("{} has the sha256 {found}, and the configuration allows only {pinned}", path.display())]
    Digest {
        /// The file.
        path: PathBuf,
        /// Its digest.
        found: String,
        /// The allowed one.
        pinned: String,
    },
    /// A byte of it is wrong, or bytes are missing.
    #[error("{} is damaged or only half written: {message} (at byte {offset} of {bytes})", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What the validator says.
        message: String,
        /// Where.
        offset: usize,
        /// Its size.
        bytes: usize,
    },
    /// It is not the whole of what was encoded.
    #[error("{} is not what was built: {message}; copy it again, to another name and then renamed", path.display())]
    Section {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        message: String,
    },
    /// It was built for another version of the contract.
    #[error("{advice}")]
    Version {
        /// What it needs, what this host serves, and what to do.
        advice: String,
    },
    /// It asks for something that its world does not give.
    #[error("it imports `{import}`: {advice}")]
    Import {
        /// The import's name.
        import: String,
        /// What to do.
        advice: String,
    },
    /// It lacks something that its world asks for.
    #[error("it does not export `{export}`: {advice}")]
    Export {
        /// The export's name.
        export: String,
        /// What to do.
        advice: String,
    },
    /// It does not compile.
    #[error("{message}")]
    Compile {
        /// Why not.
        message: String,
        /// Whether the same file may compile another time.
        transient: bool,
    },
    /// A function that it imports is not in this host.
    #[error(
        "this host lacks a function that it imports, or has it with other types (it was probably built for a newer \
         contract than {host}): {message}",
        host = crate::world::PACKAGE
    )]
    Link {
        /// What wasmtime says.
        message: String,
    },
    /// No instance starts.
    #[error("no instance of it starts: {0}")]
    Instantiate(Failure),
    /// `describe` failed.
    #[error("its `describe` failed: {0}")]
    Describe(Failure),
    /// It describes a parameter twice, or nothing sensible.
    #[error("its description makes no sense: {0}")]
    Description(String),
    /// The rules' file is not TOML, or does not fit the description.
    #[error("{0}")]
    Rules(RuleErrors),
    /// `configure` failed.
    #[error("its `configure` failed on these rules: {0}")]
    Configure(Failure),
    /// `configure` refused the rules.
    #[error("the policy refuses its rules: {0}")]
    Refused(RuleErrors),
    /// The sample decision failed.
    #[error("its decision about a sample message failed: {0}")]
    SelfTest(Failure),
    /// It passed, and too many earlier generations are still in use.
    #[error("it passed, but {generations} generations are still in calls; it is tried again")]
    Draining {
        /// How many.
        generations: usize,
    },
}

impl LoadError {
    /// The check that it did not pass.
    #[must_use]
    pub const fn rung(&self) -> Rung {
        match self {
            Self::Absent { .. } | Self::RulesAbsent { .. } | Self::Read { .. } => Rung::Read,
            Self::TooLarge { .. } => Rung::Size,
            Self::Format { .. } => Rung::Format,
            Self::Digest { .. } => Rung::Digest,
            Self::Invalid { .. } => Rung::Validate,
            Self::Section { .. } => Rung::Section,
            Self::Version { .. } => Rung::Version,
            Self::Import { .. } => Rung::Imports,
            Self::Export { .. } => Rung::Exports,
            Self::Compile { .. } => Rung::Compile,
            Self::Link { .. } => Rung::Link,
            Self::Instantiate(_) => Rung::Instantiate,
            Self::Describe(_) | Self::Description(_) => Rung::Describe,
            Self::RulesBlank { .. } | Self::Rules(_) => Rung::Rules,
            Self::Configure(_) | Self::Refused(_) => Rung::Configure,
            Self::SelfTest(_) | Self::Draining { .. } => Rung::SelfTest,
        }
    }

    /// Why, as a label from a closed set: the cause of a guest's failure, or the rung.
    #[must_use]
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::Absent { .. } | Self::RulesAbsent { .. } => "absent",
            Self::RulesBlank { .. } => "blank",
            Self::Refused(_) => "refused",
            Self::Draining { .. } => "draining",
            Self::Instantiate(failure)
            | Self::Describe(failure)
            | Self::Configure(failure)
            | Self::SelfTest(failure) => failure.cause.label(),
            _ => self.rung().label(),
        }
    }

    /// Whether the same files may pass another time, because it was the machine's fault: they are then tried again
    /// without having been touched.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Draining { .. } => true,
            Self::Compile { transient, .. } => *transient,
            Self::Instantiate(failure)
            | Self::Describe(failure)
            | Self::Configure(failure)
            | Self::SelfTest(failure) => matches!(failure.cause, Cause::Timeout | Cause::Other),
            _ => false,
        }
    }
}

impl From<CompileError> for LoadError {
    fn from(error: CompileError) -> Self {
        let transient = !matches!(error, CompileError::Refused(_));
        Self::Compile { message: error.to_string(), transient }
    }
}

/// Why a reload that somebody asked for did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// There is no such policy.
    #[error("there is no policy `{0}` in the configuration")]
    Unknown(String),
    /// The candidate was refused; what ran goes on.
    #[error("policy `{policy}` not reloaded")]
    Rejected {
        /// The policy.
        policy: String,
        /// The checks that were made, and those that were not.
        rungs: Vec<RungReport>,
        /// Why.
        #[source]
        source: Box<LoadError>,
    },
    /// There is nothing to go back to.
    #[error("policy `{policy}` was not rolled back")]
    NoRollback {
        /// The policy.
        policy: String,
        /// Why not.
        #[source]
        source: RollbackError,
    },
    /// The loader is busy with other candidates.
    #[error("the loader of policies is busy with other files and did not answer within {} s", .0.as_secs())]
    Busy(Duration),
    /// As many reloads as can wait for the loader wait already.
    #[error("too many reloads wait for the loader of policies already")]
    Crowded,
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Ended,
}

/// Why a policy did not go back to an earlier generation.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RollbackError {
    /// No generation of it runs.
    #[error("no generation of it is loaded")]
    Nothing,
    /// There is none to go back to.
    #[error("there is no earlier generation in this process to go back to")]
    NoEarlier,
}
