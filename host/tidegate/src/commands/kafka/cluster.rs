//! How the cluster is reached: what the command line says.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use secrecy::{ExposeSecret as _, SecretString};
use tidegate_connector::Clock;
use tidegate_connector::files::{self, ReadError};
use tidegate_kafka_share::admin::{AdminOptions, ShareGroupAdmin};
use tidegate_kafka_share::properties::{BOOTSTRAP_SERVERS, Properties, SECRETS, client_options, parse};
use tidegate_kafka_share::{BootstrapServers, ClientOptions, Connector, connector as kafka_share};
use tidegate_pipeline::{Resolvers, SourceOptions};
use tidegate_telemetry::Telemetry;

use crate::catalog;
use crate::cli::ClusterArgs;
use crate::exit::Failure;

/// The largest file of properties or secrets that is read, in bytes: certificates may stand in it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Somebody who can ask the cluster. Opens no connection to it yet.
pub(super) async fn admin(args: &ClusterArgs) -> Result<(ShareGroupAdmin, Option<Resolvers>), Failure> {
    let (servers, options, resolvers) = match &args.source {
        Some(name) => {
            let (source, resolvers) = of_source(&args.config, name).await?;
            (source.bootstrap, source.client, Some(resolvers))
        }
        None => {
            let (servers, options) = of_command_line(args)?;
            (servers, options, None)
        }
    };
    let connector = Connector::new(options).map_err(Failure::config)?;
    let waits = AdminOptions { timeout: args.timeout, ..AdminOptions::default() };
    // Tools are run one at a time: it does not matter which server they all ask first.
    Ok((ShareGroupAdmin::new(connector, servers, waits, u64::from(std::process::id())), resolvers))
}

/// How a source of a configuration reaches its cluster.
async fn of_source(config: &Path, name: &str) -> Result<(kafka_share::SourceOptions, Resolvers), Failure> {
    let file = config.display();
    let (config, prepared) = catalog::ready(config)?;
    let found = prepared.sources().get(name).cloned();
    let mut options = found.ok_or_else(|| Failure::config(anyhow!("`{file}` has no source `{name}`")))?;
    let resolvers = Resolvers::start(&config, Clock::start(), Telemetry::default()).await;
    let resolvers = resolvers.map_err(Failure::environment)?;
    resolvers.resolve_source(&mut options).map_err(Failure::environment)?;
    match options {
        SourceOptions::KafkaShare(options) => Ok((*options, resolvers)),
        SourceOptions::RocketMq(_) => {
            Err(Failure::config(anyhow!("source `{name}` of `{file}` consumes no Kafka share group")))
        }
    }
}

fn of_command_line(args: &ClusterArgs) -> Result<(BootstrapServers, ClientOptions), Failure> {
    let mut properties = match &args.properties_file {
        Some(path) => of_file(path)?,
        None => Properties::new(),
    };
    for (name, value) in &args.properties {
        properties.insert(name.as_str().into(), given(name, value)?);
    }
    let of_properties = properties.get(BOOTSTRAP_SERVERS).map(|servers| servers.expose_secret().to_owned());
    let servers = args.bootstrap_servers.clone().or(of_properties).ok_or_else(|| {
        Failure::config(anyhow!(
            "nothing says where the cluster is: give --bootstrap-servers, or the --source of a configuration"
        ))
    })?;
    let servers =
        BootstrapServers::parse(&servers).context("--bootstrap-servers").map_err(Failure::config)?;
    let options = client_options(&properties).map_err(Failure::config)?;
    Ok((servers, options))
}

fn of_file(path: &Path) -> Result<Properties, Failure> {
    let text = read(path).with_context(|| format!("--properties-file `{}`", path.display()));
    let text = text.map_err(Failure::config)?;
    parse(&text).with_context(|| format!("--properties-file `{}`", path.display())).map_err(Failure::config)
}

/// A property of the command line, which every user of the machine can see: a secret only stands elsewhere.
fn given(name: &str, value: &str) -> Result<SecretString, Failure> {
    if !SECRETS.contains(&name) {
        return Ok(SecretString::from(value.to_owned()));
    }
    let found = if let Some(variable) = value.strip_prefix("env:") {
        std::env::var(variable).map_err(|_| anyhow!("the variable {variable} is not set, or is no text"))
    } else if let Some(path) = value.strip_prefix("file:") {
        read(Path::new(path)).with_context(|| format!("the file `{path}`")).map(|text| text.trim().to_owned())
    } else {
        Err(anyhow!(
            "a command line can be seen by every user of the machine: give it as env:NAME or file:PATH, or in a \
             --properties-file"
        ))
    };
    found.with_context(|| format!("--property {name}")).map(SecretString::from).map_err(Failure::config)
}

fn read(path: &Path) -> anyhow::Result<String> {
    let bytes = files::read(path, FILE_BYTES_MAX).map_err(|error| match error {
        ReadError::Io(error) => anyhow!("it cannot be read: {error}"),
        ReadError::NotAFile { .. } => anyhow!("it is not a regular file"),
        ReadError::TooLarge { .. } => anyhow!("it has more than {FILE_BYTES_MAX} bytes"),
    })?;
    String::from_utf8(bytes).map_err(|_| anyhow!("it is no text"))
}
