//! The connectors that this binary has, and how a configuration that uses them is read.

use std::path::Path;

use anyhow::anyhow;
use tidegate_config::{Catalog, Config, Connector, LoadError, ProcessEnvironment, Role};
use tidegate_connector::options::{OptionError, Values};
use tidegate_pipeline::{sinks, source_options};
use tidegate_rocketmq::SourceOptions;

use crate::exit::Failure;

/// Every connector.
pub(crate) const CONNECTORS: &[Connector<'static>] = &[
    Connector::source(&tidegate_rocketmq::TABLE).checked_by(check_rocketmq),
    Connector::sink(&sinks::STDOUT),
    Connector::sink(&sinks::DISCARD),
];

/// What configurations may refer to.
pub(crate) const CATALOG: Catalog<'static> = Catalog { connectors: CONNECTORS };

/// Reads and checks a configuration and looks up its secrets.
pub(crate) fn load(path: &Path) -> Result<Config, Failure> {
    let mut config = read(path)?;
    config.resolve_secrets(&ProcessEnvironment).map_err(Failure::config)?;
    Ok(config)
}

/// Looks at the certificates and keys that sources name. They are used when a flow starts, and whether they can be is
/// a question of the configuration.
pub(crate) fn check_tls_files(path: &Path, config: &Config) -> Result<(), Failure> {
    let mut mistakes = Vec::new();
    for (name, source) in &config.sources {
        let options = source_options(name, source).map_err(Failure::config)?;
        let errors = tidegate_rocketmq::check_tls_files(&options.client);
        mistakes.extend(errors.iter().map(|error| format!("sources.{name}: {error}")));
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
        Role::Sink => Vec::new(),
    }
}
