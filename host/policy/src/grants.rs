//! What a credential resolver may use of the host: environment variables, directories, HTTP origins.
//!
//! A policy that was granted nothing of an interface does not get the interface at all: a component that imports it
//! is refused when it is loaded. What was granted is named one by one, without wildcards.

mod access;
mod files;
mod given;
mod http;
mod scrubber;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use tidegate_connector::origin::Origin;

pub(crate) use access::{Access, Budget};
pub(crate) use scrubber::Scrubber;

/// What a policy may use of the host. A part of what a policy is: other grants make another generation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grants {
    /// Environment variables, by name.
    pub env: BTreeSet<Box<str>>,
    /// Directories that may be read, each under a name of its own.
    pub directories: BTreeMap<Box<str>, PathBuf>,
    /// Where requests may go. An address that is not public must stand here as an address; that a name leads to it
    /// is not enough.
    pub http: BTreeSet<Origin>,
    /// PEM certificates to trust beside the system's.
    pub http_ca_file: Option<PathBuf>,
}

impl Grants {
    /// Whether something of an interface of the contract was granted; those that need no grant are always there.
    #[must_use]
    pub fn has(&self, interface: &str) -> bool {
        match interface {
            "env" => !self.env.is_empty(),
            "files" => !self.directories.is_empty(),
            "http" => !self.http.is_empty(),
            _ => true,
        }
    }
}
