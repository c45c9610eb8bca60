//! The connectors that this binary has, and how a configuration that uses them is read.

use std::path::Path;

use anyhow::anyhow;
use tidegate_config::{Catalog, Config, Connector, LoadError, ProcessEnvironment, Role};
use tidegate_connector::options::{OptionError, Values};
use tidegate_handoff::ServiceOptions;
use tidegate_pipeline::source_options;
use tidegate_rocketmq::{ClientOptions, SinkOptions, SourceOptions};
use tidegate_sinks::{FileOptions, HttpOptions};

use crate::exit::Failure;

/// Every connector.
pub(crate) const CONNECTORS: &[Connector<'static>] = &[
    Connector::source_and_sink(&tidegate_rocketmq::TABLE).and_settler().checked_by(check_rocketmq),
    Connector::sink(&tidegate_handoff::TABLE).running_alone().checked_by(check_handoff),
    Connector::sink(&tidegate_sinks::HTTP).checked_by(check_http),
    Connector::sink(&tidegate_sinks::FILE).checked_by(check_file),
    Connector::sink(&tidegate_sinks::STDOUT),
    Connector::sink(&tidegate_sinks::DISCARD),
];

/// What configurations may refer to.
pub(crate) const CATALOG: Catalog<'static> = Catalog { connectors: CONNECTORS };

/// Reads and checks a configuration and looks up its secrets.
pub(crate) fn load(path: &Path) -> Result<Config, Failure> {
    let mut config = read(path)?;
    config.resolve_secrets(&ProcessEnvironment).map_err(Failure::config)?;
    Ok(config)
}

/// Looks at the certificates, keys and tokens that connectors name. They are used when a host starts, and whether they
/// can be is a question of the configuration.
pub(crate) fn check_tls_files(path: &Path, config: &Config) -> Result<(), Failure> {
    let mut mistakes = Vec::new();
    for (name, source) in &config.sources {
        let options = source_options(name, source).map_err(Failure::config)?;
        let errors = tidegate_rocketmq::check_tls_files(&options.client);
        mistakes.extend(errors.iter().map(|error| format!("sources.{name}: {error}")));
    }
    let settlers = config.settlers.iter().map(|(name, settler)| ("settlers", name, &settler.values));
    let sinks =
        config.sinks.iter().filter(|(_, sink)| *sink.connector == *tidegate_rocketmq::TABLE.connector);
    let sinks = sinks.map(|(name, sink)| ("sinks", name, &sink.values));
    for (section, name, values) in settlers.chain(sinks) {
        // The options were found to be right when the configuration was read.
        let Ok(client) = ClientOptions::from_values(values) else { continue };
        let errors = tidegate_rocketmq::check_tls_files(&client);
        mistakes.extend(errors.iter().map(|error| format!("{section}.{name}: {error}")));
    }
    for (name, sink) in &config.sinks {
        if *sink.connector == *tidegate_handoff::TABLE.connector
            && let Ok(options) = ServiceOptions::from_values(&sink.values)
            && let Err(error) = options.check_files()
        {
            mistakes.push(format!("sinks.{name}: {error}"));
        }
        if *sink.connector == *tidegate_sinks::HTTP.connector
            && let Ok(options) = HttpOptions::from_values(&sink.values)
            && let Err(error) = options.check_tls_file()
        {
            mistakes.push(format!("sinks.{name}: {error}"));
        }
    }
    if mistakes.is_empty() {
        return Ok(());
    }
    let file = path.display();
    Err(Failure::config(anyhow!("`{file}` names files that cannot be used:\n{}", mistakes.join("\n"))))
}

/// Reads and checks a configuration.
pub(crate) fn read(path: &Path) -> Result<Config, Failure> {
    tidegate_config::load(path, &CATALOG).map_err(|error| match error {
        // The errors stand for themselves, one a line.
        LoadError::Invalid(errors) => Failure::Invalid(errors),
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

fn check_handoff(_: Role, values: &Values) -> Vec<OptionError> {
    ServiceOptions::from_values(values).err().unwrap_or_default()
}

fn check_http(_: Role, values: &Values) -> Vec<OptionError> {
    HttpOptions::from_values(values).err().unwrap_or_default()
}

fn check_file(_: Role, values: &Values) -> Vec<OptionError> {
    FileOptions::from_values(values).err().unwrap_or_default()
}
