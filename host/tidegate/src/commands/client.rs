//! A client of a broker, from the command line alone.

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use secrecy::SecretString;
use tidegate_rocketmq::{ClientOptions, Endpoints, Fixed, Keys, OptionNames, Tls, Trust};

use crate::cli::ClientArgs;
use crate::exit::Failure;

/// Where the secret key is read from: never an argument, which every user of the machine can see.
const SECRET_KEY_VARIABLE: &str = "TIDEGATE_SECRET_KEY";
/// What errors call the options here.
const FLAGS: OptionNames = OptionNames {
    endpoints: "--endpoints",
    tls: "--tls",
    tls_ca_file: "--tls-ca-file",
    tls_cert_file: None,
    tls_key_file: None,
    access_key: "--access-key",
    secret_key: SECRET_KEY_VARIABLE,
    request_timeout: None,
};

/// How to reach `endpoints`, and as whom.
pub(super) fn options(endpoints: &str, args: &ClientArgs) -> Result<ClientOptions, Failure> {
    let endpoints = Endpoints::parse(endpoints)
        .with_context(|| format!("--endpoints `{endpoints}`"))
        .map_err(Failure::config)?;
    let mut options = ClientOptions { names: &FLAGS, ..ClientOptions::new(endpoints) };
    if let Some(access_key) = &args.access_key {
        let secret_key = std::env::var(SECRET_KEY_VARIABLE).map_err(|_| {
            Failure::config(anyhow!(
                "--access-key needs the secret key in the variable {SECRET_KEY_VARIABLE}"
            ))
        })?;
        let keys = Keys::new(access_key.as_str(), SecretString::from(secret_key));
        options.credentials = Arc::new(Fixed::new(keys));
    }
    if args.tls || args.tls_ca_file.is_some() {
        let trust = args.tls_ca_file.clone().map_or(Trust::SystemRoots, Trust::CaFile);
        options.tls = Tls::On { trust, identity: None };
    }
    Ok(options)
}
