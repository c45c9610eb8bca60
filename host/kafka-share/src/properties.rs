//! How a cluster is reached, as Java's clients have it in their properties.
//!
//! For tools that are given such properties by hand. Only what a connection needs is understood; a property that means
//! something else is refused by its name, so that nobody believes it to be in force.

mod file;
mod jaas;
mod security;

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use tidegate_connector::tls::OptionNames as TlsNames;

pub(crate) use self::security::{Given, Problem, read};
use crate::{ClientOptions, OptionNames};

pub use file::{FileError, parse};

/// Properties by name. All values are secrets: which are not is known only when they are read.
pub type Properties = BTreeMap<Box<str>, SecretString>;

pub(crate) const PROTOCOL: &str = "security.protocol";
pub(crate) const MECHANISM: &str = "sasl.mechanism";
pub(crate) const JAAS: &str = "sasl.jaas.config";
pub(crate) const TOKEN_URL: &str = "sasl.oauthbearer.token.endpoint.url";
pub(crate) const TRUST_FILE: &str = "ssl.truststore.location";
pub(crate) const TRUST_TEXT: &str = "ssl.truststore.certificates";
pub(crate) const TRUST_TYPE: &str = "ssl.truststore.type";
pub(crate) const KEY_FILE: &str = "ssl.keystore.location";
pub(crate) const CHAIN: &str = "ssl.keystore.certificate.chain";
pub(crate) const KEY: &str = "ssl.keystore.key";
pub(crate) const KEY_TYPE: &str = "ssl.keystore.type";
pub(crate) const NAME_CHECK: &str = "ssl.endpoint.identification.algorithm";
const CLIENT_ID: &str = "client.id";
/// Where the servers are said. It is among the properties of files that are made for Java's tools.
pub const BOOTSTRAP_SERVERS: &str = "bootstrap.servers";

/// All that is understood.
pub const NAMES: [&str; 14] = [
    BOOTSTRAP_SERVERS,
    PROTOCOL,
    MECHANISM,
    JAAS,
    TOKEN_URL,
    TRUST_FILE,
    TRUST_TEXT,
    TRUST_TYPE,
    KEY_FILE,
    CHAIN,
    KEY,
    KEY_TYPE,
    NAME_CHECK,
    CLIENT_ID,
];

/// Those that hold a secret, which must not stand where others can see it.
pub const SECRETS: [&str; 2] = [JAAS, KEY];

/// What errors of connections call the options here.
const OPTION_NAMES: OptionNames = OptionNames {
    bootstrap_servers: "--bootstrap-servers",
    security_protocol: PROTOCOL,
    tls: TlsNames { trust: TRUST_FILE, certificates: CHAIN, key: KEY },
    endpoint_identification: NAME_CHECK,
    mechanism: MECHANISM,
    login: JAAS,
};

/// A property that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("property `{name}` {problem}")]
pub struct PropertyError {
    /// Which.
    pub name: Box<str>,
    /// What is wrong with it, in words that follow its name.
    pub problem: Box<str>,
}

/// How to reach a cluster by these properties.
///
/// # Errors
/// The first property that cannot be used.
pub fn client_options(properties: &Properties) -> Result<ClientOptions, PropertyError> {
    if let Some(unknown) = properties.keys().find(|name| !NAMES.contains(&&***name)) {
        let problem = format!("is not one that a connection needs; there are {}", NAMES.join(", "));
        return Err(PropertyError { name: unknown.clone(), problem: problem.into() });
    }
    let mut problems = Vec::new();
    let security = read(&Plain(properties), &mut problems);
    if let Some(Problem { name, text }) = problems.into_iter().next() {
        return Err(PropertyError { name: name.into(), problem: text.into() });
    }
    let client_id = properties.get(CLIENT_ID).map_or("tidegate", ExposeSecret::expose_secret);
    Ok(ClientOptions {
        security,
        client_id: client_id.into(),
        names: &OPTION_NAMES,
        ..ClientOptions::default()
    })
}

/// Properties as they are, with nothing beside them.
struct Plain<'a>(&'a Properties);

impl Given for Plain<'_> {
    fn text(&self, name: &'static str) -> Option<&str> {
        self.0.get(name).map(ExposeSecret::expose_secret)
    }

    fn called(&self, name: &'static str) -> String {
        name.to_owned()
    }

    fn resolver(&self) -> Option<&str> {
        None
    }

    fn is_elsewhere(&self, _value: &str) -> bool {
        false
    }

    fn token_advice(&self) -> String {
        "give a file that has it, as `file:///run/secrets/token`".to_owned()
    }
}

#[cfg(test)]
mod tests;
