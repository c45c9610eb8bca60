//! How a cluster is reached, as Java's clients have it in their properties.
//!
//! For tools that are given such properties by hand. Only what a connection needs is understood; a property that means
//! something else is refused by its name, so that nobody believes it to be in force.

mod file;
mod login;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use tidegate_connector::secret::{Secret, SecretSource};
use tidegate_connector::tls::{
    Client as Tls, Identity, OptionNames as TlsNames, Pem, ServerNameCheck, Trust,
};

use self::login::Login;
use crate::{ClientOptions, FixedSecret, Mechanism, OptionNames, Sasl, Security, TokenFile};

pub use file::{FileError, parse};

/// Properties by name. All values are secrets: which are not is known only when they are read.
pub type Properties = BTreeMap<Box<str>, SecretString>;

const PROTOCOL: &str = "security.protocol";
const MECHANISM: &str = "sasl.mechanism";
const JAAS: &str = "sasl.jaas.config";
const TOKEN_URL: &str = "sasl.oauthbearer.token.endpoint.url";
const TRUST_FILE: &str = "ssl.truststore.location";
const TRUST_TEXT: &str = "ssl.truststore.certificates";
const TRUST_TYPE: &str = "ssl.truststore.type";
const KEY_FILE: &str = "ssl.keystore.location";
const CHAIN: &str = "ssl.keystore.certificate.chain";
const KEY: &str = "ssl.keystore.key";
const KEY_TYPE: &str = "ssl.keystore.type";
const NAME_CHECK: &str = "ssl.endpoint.identification.algorithm";
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
    let read = Read(properties);
    let protocol = read.text(PROTOCOL).unwrap_or("PLAINTEXT");
    let (has_tls, has_sasl) = match protocol {
        "PLAINTEXT" => (false, false),
        "SSL" => (true, false),
        "SASL_PLAINTEXT" => (false, true),
        "SASL_SSL" => (true, true),
        _ => return Err(wrong(PROTOCOL, "must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")),
    };
    let idle =
        |names: &[&str], has: bool, what: &str| match names.iter().find(|name| read.text(name).is_some()) {
            Some(name) if !has => {
                Err(wrong(name, &format!("has no effect: `{PROTOCOL}` is {protocol}, which has no {what}")))
            }
            _ => Ok(()),
        };
    idle(&[TRUST_FILE, TRUST_TEXT, TRUST_TYPE, KEY_FILE, CHAIN, KEY, KEY_TYPE, NAME_CHECK], has_tls, "TLS")?;
    idle(&[MECHANISM, JAAS, TOKEN_URL], has_sasl, "SASL")?;
    let tls = if has_tls { Some(read.tls()?) } else { None };
    let sasl = if has_sasl { Some(read.sasl()?) } else { None };
    Ok(ClientOptions {
        security: Security { tls, sasl },
        client_id: read.text(CLIENT_ID).unwrap_or("tidegate").into(),
        names: &OPTION_NAMES,
        ..ClientOptions::default()
    })
}

struct Read<'a>(&'a Properties);

impl Read<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(ExposeSecret::expose_secret)
    }

    fn tls(&self) -> Result<Tls, PropertyError> {
        for name in [TRUST_TYPE, KEY_TYPE] {
            if self.text(name).is_some_and(|kind| kind != "PEM") {
                return Err(wrong(name, "must be PEM: Java's own stores are not read"));
            }
        }
        let file = |name| self.text(name).map(|path| Pem::File(PathBuf::from(path)));
        let text = |name| self.0.get(name).map(|text| Pem::Text(text.clone()));
        let trust = match (file(TRUST_FILE), text(TRUST_TEXT)) {
            (Some(_), Some(_)) => return Err(beside(TRUST_TEXT, TRUST_FILE)),
            (Some(pem), None) | (None, Some(pem)) => Trust::Certificates(pem),
            (None, None) => Trust::SystemRoots,
        };
        let identity = match (file(KEY_FILE), text(CHAIN), text(KEY)) {
            (None, None, None) => None,
            (Some(pem), None, None) => Some(Identity { certificates: pem.clone(), key: pem }),
            (None, Some(certificates), Some(key)) => Some(Identity { certificates, key }),
            (Some(_), Some(_), _) => return Err(beside(CHAIN, KEY_FILE)),
            (Some(_), None, Some(_)) => return Err(beside(KEY, KEY_FILE)),
            (None, Some(_), None) => return Err(wrong(CHAIN, &format!("needs `{KEY}` beside it"))),
            (None, None, Some(_)) => return Err(wrong(KEY, &format!("needs `{CHAIN}` beside it"))),
        };
        let server_name = match self.text(NAME_CHECK) {
            None | Some("https") => ServerNameCheck::On,
            Some("") => ServerNameCheck::Off,
            Some(_) => return Err(wrong(NAME_CHECK, "must be https, or empty to check no name")),
        };
        Ok(Tls { trust, server_name, identity })
    }

    fn sasl(&self) -> Result<Sasl, PropertyError> {
        let names: Vec<_> = Mechanism::ALL.iter().map(|mechanism| mechanism.name()).collect();
        let known = || format!("must be one of {}", names.join(", "));
        let Some(name) = self.text(MECHANISM) else { return Err(wrong(MECHANISM, &known())) };
        let mechanism = Mechanism::parse(name).ok_or_else(|| wrong(MECHANISM, &known()))?;
        let secrets: Arc<dyn SecretSource> = if mechanism == Mechanism::OauthBearer {
            let path = self.text(TOKEN_URL).and_then(|url| url.strip_prefix("file://"));
            let problem = "must be `file://PATH` for OAUTHBEARER: the file that has the token";
            Arc::new(TokenFile::new(path.ok_or_else(|| wrong(TOKEN_URL, problem))?))
        } else {
            let problem = format!("is missing: {mechanism} takes a name and a password");
            let text = self.text(JAAS).ok_or_else(|| wrong(JAAS, &problem))?;
            let Login { username, password } = Login::parse(text).map_err(|problem| wrong(JAAS, problem))?;
            Arc::new(FixedSecret::new(Secret::Login { username, password }))
        };
        Ok(Sasl { mechanism, secrets, extensions: Vec::new() })
    }
}

fn wrong(name: &str, problem: &str) -> PropertyError {
    PropertyError { name: name.into(), problem: problem.into() }
}

fn beside(name: &str, other: &str) -> PropertyError {
    wrong(name, &format!("cannot stand beside `{other}`: give one of them"))
}

#[cfg(test)]
mod tests;
