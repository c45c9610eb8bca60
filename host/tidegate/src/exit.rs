//! One classification of failures for all commands.

use std::process::ExitCode;

use serde_json::json;
use tidegate_config::Errors;

use crate::output::talk;

/// Why a command failed, by whose it is to mend. Displayed with its causes.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something went wrong while running.
    Runtime(anyhow::Error),
    /// The configuration or the usage is wrong.
    Config(anyhow::Error),
    /// The configuration file is wrong, in these places.
    Invalid(Errors),
    /// The surroundings are: a broker out of reach, refused credentials, a port in use.
    Environment(anyhow::Error),
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
            Self::Invalid(errors) => {
                if is_json {
                    talk(&json!({ "errors": errors, "class": "config", "exit-code": 2 }).to_string());
                } else {
                    talk(&errors.to_string());
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
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Runtime(error) | Self::Config(error) | Self::Environment(error) => write!(f, "{error:#}"),
            Self::Invalid(errors) => errors.fmt(f),
        }
    }
}
