//! The connectors that this binary has, and how a configuration that uses them is read.

use std::path::Path;

use tidegate_config::{Catalog, Config, Connector, Draft, LoadError, ProcessEnvironment, Role, Unsupported};
use tidegate_connector::options::{OptionError, Values};
use tidegate_handoff::ServiceOptions;
use tidegate_kafka_share::connector as kafka_share;
use tidegate_pipeline::Preparation;
use tidegate_rocketmq::{ClientOptions, SinkOptions, SourceOptions};
use tidegate_sinks::{FileOptions, HttpOptions};

use crate::exit::{Failure, Invalid};

/// Every connector.
pub(crate) const CONNECTORS: &[Connector<'static>] = &[
    Connector::source_and_sink(&tidegate_rocketmq::TABLE).and_settler().checked_by(check_rocketmq),
    Connector::source(&kafka_share::TABLE).refusing(REFUSED_BY_KAFKA_SHARE).checked_by(check_kafka_share),
    Connector::sink(&tidegate_handoff::TABLE).running_alone().checked_by(check_handoff),
    Connector::sink(&tidegate_sinks::HTTP).checked_by(check_http),
    Connector::sink(&tidegate_sinks::FILE).checked_by(check_file),
    Connector::sink(&tidegate_sinks::STDOUT),
    Connector::sink(&tidegate_sinks::DISCARD),
];

/// Keys of other Kafka clients that mean nothing to this one.
const REFUSED_BY_KAFKA_SHARE: &[Unsupported] = &{
    let mut refused = [Unsupported { key: "", reason: "" }; kafka_share::REFUSED.len()];
    let mut at = 0;
    while at < refused.len() {
        let (key, reason) = kafka_share::REFUSED[at];
        refused[at] = Unsupported { key, reason };
        at += 1;
    }
    refused
};

/// What configurations may refer to.
pub(crate) const CATALOG: Catalog<'static> = Catalog { connectors: CONNECTORS };

/// Reads and checks a configuration and looks up its secrets.
pub(crate) fn load(path: &Path) -> Result<Config, Failure> {
    let mut config = read(path)?;
    config.resolve_secrets(&ProcessEnvironment).map_err(Failure::config)?;
    Ok(config)
}

/// Reads a configuration that a host is to run with: secrets and everything that it names on this machine included. What
/// is wrong is told together, whatever kind it is.
pub(crate) fn ready(path: &Path) -> Result<(Config, Preparation), Failure> {
    let mut invalid = Invalid::new(path.to_owned());
    let mut config = match tidegate_config::draft(path, &CATALOG).map_err(Failure::config)? {
        Draft::Whole(config) => Some(config),
        Draft::Flawed { valid, errors } => {
            invalid.errors = Some(errors);
            valid
        }
    };
    if let Some(config) = &mut config {
        invalid.secrets = config.resolve_secrets(&ProcessEnvironment).err();
    }
    match config {
        Some(config) if invalid.is_empty() => match Preparation::of(&config) {
            Ok(prepared) => return Ok((*config, prepared)),
            Err(mistakes) => invalid.mistakes = mistakes.into(),
        },
        Some(config) => invalid.mistakes = Preparation::mistakes_in_part(&config),
        None => {}
    }
    Err(Failure::Invalid(Box::new(invalid)))
}

/// Reads and checks a configuration.
pub(crate) fn read(path: &Path) -> Result<Config, Failure> {
    tidegate_config::load(path, &CATALOG).map_err(|error| match error {
        // The errors stand for themselves, one a line.
        LoadError::Invalid(errors) => {
            Failure::Invalid(Box::new(Invalid { errors: Some(errors), ..Invalid::new(path.to_owned()) }))
        }
        error => Failure::config(error),
    })
}

fn check_rocketmq(role: Role, values: &Values) -> Vec<OptionError> {
    match role {
        Role::Source => SourceOptions::from_values(values).err().unwrap_or_default(),
        Role::Sink => SinkOptions::from_values(values).err().unwrap_or_default(),
        Role::Settler => ClientOptions::from_values(values).err().unwrap_or_default(),
    }
}

fn check_kafka_share(_: Role, values: &Values) -> Vec<OptionError> {
    kafka_share::SourceOptions::from_values(values).err().unwrap_or_default()
}

fn check_handoff(_: Role, values: &Values) -> Vec<OptionError> {
    ServiceOptions::from_values(values).err().unwrap_or_default()
}

fn check_http(_: Role, values: &Values) -> Vec<OptionError> {
    HttpOptions::from_values(values).err().unwrap_or_default()
}

fn check_file(_: Role, values: &Values) -> Vec<OptionError> {
    FileOptions::from_values(values).err().unwrap_or_default()
}
