//! TOML to typed configuration, every error at once; and what a reload would change.
//!
//! [`parse`] turns a text into a [`Config`] in which every value is in range and every name leads somewhere, or into
//! [`Errors`] that say of each mistake where it is, what was expected, what was found and what was probably meant.
//! [`Config::resolve_secrets`] then looks up `env:` and `file:` references. [`plan()`] compares two configurations.
//!
//! This crate knows no concrete connector: their options come as [`tidegate_connector::options::Table`]s in a
//! [`Catalog`]. It opens no socket; it reads the configuration file and the files of secrets, nothing else.
#![forbid(unsafe_code)]

mod catalog;
mod config;
mod document;
mod error;
#[cfg(test)]
mod fixtures;
mod plan;
mod reference;
mod secrets;
mod sections;

pub use catalog::{Catalog, Connector, Role, Unsupported};
pub use config::{Config, Draft, EXAMPLE, LoadError, TEXT_BYTES_MAX, draft, load, parse};
pub use error::{Error, Errors, Oddity, Place, Problem, Warning};
pub use plan::{Change, ReloadPlan, plan};
pub use reference::{
    reference, reference_json, role_reference, role_reference_json, role_summary, section_reference,
    section_reference_json,
};
pub use secrets::{Environment, ProcessEnvironment, SecretError, SecretErrors};
pub use sections::{
    AckMode, Exhausted, FLOW_TABLE, Flow, Grants, HOST_TABLE, Host, KeyBy, Limits, LogFormat, LogLevel, Mode,
    OnError, PEER_TABLE, POLICY_TABLE, Peer, Policy, SECRET_BYTES_MAX, SECTIONS, Section, Settler, Sink,
    Source, Valves,
};
