//! One classification of failures for all commands.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use tidegate_config::{Errors, SecretErrors};
use tidegate_pipeline::Mistake;

use crate::output::talk;

/// Why a command failed, by whose it is to mend. Displayed with its causes.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something went wrong while running.
    Runtime(anyhow::Error),
    /// The configuration or the usage is wrong.
    Config(anyhow::Error),
    /// The configuration file is wrong, in these places, or what it names.
    Invalid(Box<Invalid>),
    /// The surroundings are: a broker out of reach, refused credentials, a port in use.
    Environment(anyhow::Error),
}

/// Everything that is wrong with a configuration.
#[derive(Debug)]
pub(crate) struct Invalid {
    pub(crate) file: PathBuf,
    /// In its text.
    pub(crate) errors: Option<Errors>,
    /// Secrets that it names.
    pub(crate) secrets: Option<SecretErrors>,
    /// What a host finds on this machine.
    pub(crate) mistakes: Vec<Mistake>,
}

impl Invalid {
    pub(crate) const fn new(file: PathBuf) -> Self {
        Self { file, errors: None, secrets: None, mistakes: Vec::new() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.errors.is_none() && self.secrets.is_none() && self.mistakes.is_empty()
    }

    /// One object for each mistake.
    fn json(&self) -> Vec<Value> {
        let mut all = Vec::new();
        all.extend(self.errors.iter().flat_map(Errors::iter).map(|error| json!(error)));
        all.extend(self.secrets.iter().flat_map(SecretErrors::iter).map(|error| json!(error)));
        let mistakes = self.mistakes.iter();
        all.extend(mistakes.map(|mistake| json!({ "key": mistake.section, "message": mistake.problem })));
        all
    }
}

/// One line each, those with a place in the text first.
impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = self.errors.iter().map(ToString::to_string).collect();
        lines.extend(self.secrets.iter().map(|secrets| format!("error: {secrets}")));
        if !self.mistakes.is_empty() {
            lines.push(format!("error: `{}` cannot be used as it is:", self.file.display()));
            lines.extend(self.mistakes.iter().map(ToString::to_string));
        }
        f.write_str(&lines.join("\n"))
    }
}

impl Failure {
    pub(crate) fn runtime(error: impl Into<anyhow::Error>) -> Self {
        Self::Runtime(error.into())
    }

    pub(crate) fn config(error: impl Into<anyhow::Error>) -> Self {
        Self::Config(error.into())
    }

    pub(crate) fn environment(error: impl Into<anyhow::Error>) -> Self {
        Self::Environment(error.into())
    }

    /// Says what failed on standard error and gives the exit code: 1 runtime, 2 configuration or usage,
    /// 3 environment.
    pub(crate) fn report(&self, is_json: bool) -> ExitCode {
        let (code, class, error) = match self {
            Self::Runtime(error) => (1, "runtime", error),
            Self::Config(error) => (2, "config", error),
            Self::Environment(error) => (3, "environment", error),
            Self::Invalid(invalid) => {
                if is_json {
                    talk(&json!({ "errors": invalid.json(), "class": "config", "exit-code": 2 }).to_string());
                } else {
                    talk(&invalid.to_string());
                }
                return ExitCode::from(2);
            }
        };
        if is_json {
            talk(&json!({ "error": format!("{error:#}"), "class": class, "exit-code": code }).to_string());
        } else {
            talk(&format!("error: {error:#}"));
        }
        ExitCode::from(code)
    }
}

/// The sentence alone, for logs.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(error) | Self::Config(error) | Self::Environment(error) => write!(f, "{error:#}"),
            Self::Invalid(invalid) => invalid.fmt(f),
        }
    }
}
