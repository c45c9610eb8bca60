//! Why a cluster could not be had.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a cluster could not be started, changed or asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A program that the tests need is not installed.
    #[error("`{program}` is needed to run the real brokers and was not found: {install}")]
    Missing {
        /// What was looked for.
        program: &'static str,
        /// What to install.
        install: &'static str,
        /// What starting it said.
        source: io::Error,
    },
    /// A helper program ran and failed.
    #[error("{what} failed, it ends with: {output}")]
    Tool {
        /// What it was to do.
        what: String,
        /// The end of what it printed.
        output: String,
    },
    /// A file or directory could not be used.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was attempted.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A process could not be started or signalled.
    #[error("cannot {what} {process}")]
    Process {
        /// What was attempted.
        what: &'static str,
        /// On which process.
        process: String,
        /// What the system said.
        source: io::Error,
    },
    /// A process ended by itself.
    #[error("{process} ended by itself ({status}); its log {} ends with: {tail}", log.display())]
    Ended {
        /// Which.
        process: String,
        /// Its exit status.
        status: String,
        /// Where its output is.
        log: PathBuf,
        /// The end of it.
        tail: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {} s; logs are in {}", waited.as_secs(), logs.display())]
    Late {
        /// What was waited for, and the last obstacle when there was one.
        what: String,
        /// For how long.
        waited: Duration,
        /// Where to look.
        logs: PathBuf,
    },
    /// The broker refused an administrative request.
    #[error("the cluster refused `{request}`: {answer}")]
    Refused {
        /// What was asked.
        request: String,
        /// What came back.
        answer: String,
    },
    /// No free block of ports.
    #[error("no {0} free neighbouring ports between {1} and {2} on 127.0.0.1: end other test runs")]
    Ports(u16, u16, u16),
}

impl ClusterError {
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}
