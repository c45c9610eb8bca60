//! `[peers.NAME]`: another host of the fleet, which settles what only it may.

use std::path::Path;

use tidegate_connector::options::{Default, Kind, OptionSpec, Side, Table, Values};

use super::read_values;
use crate::document::{Block, Reporter};
use crate::error::Problem;

/// The keys of `[peers.NAME]`.
pub const PEER_TABLE: Table = Table {
    connector: "peers",
    summary: "Another host of the fleet, under any name. Receipts that only the host that gave them out can settle (those of Kafka \
              share groups) are passed on to it. Which host it is, it says itself.",
    options: &[
        option(
            ENDPOINT,
            Kind::Text,
            Default::Required,
            "Where its `handoff` sink listens: `http://HOST:PORT`, or `https://HOST:PORT` when that has TLS.",
        ),
        OptionSpec {
            secret: true,
            ..option(
                TOKEN,
                Kind::Text,
                Default::None,
                "A bearer token of its `tokens-file`, with the right to the flows whose receipts are passed on.",
            )
        },
        option(
            CA_FILE,
            Kind::Path,
            Default::None,
            "PEM file with the certificates that its own must lead to; without it the system's.",
        ),
        option(
            CERT_FILE,
            Kind::Path,
            Default::None,
            "PEM file with this host's certificate chain, for a peer with `tls-client-ca-file`; together with `tls-key-file`.",
        ),
        option(KEY_FILE, Kind::Path, Default::None, "PEM file with the private key of that certificate."),
    ],
};

const ENDPOINT: &str = "endpoint";
const TOKEN: &str = "token";
const CA_FILE: &str = "tls-ca-file";
const CERT_FILE: &str = "tls-cert-file";
const KEY_FILE: &str = "tls-key-file";
const HTTP: &str = "http://";
const HTTPS: &str = "https://";

/// Another host of the fleet, and how it is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Its keys, checked, with paths that count from the configuration's directory.
    pub values: Values,
}

impl Peer {
    /// `http://HOST:PORT`, or `https://`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        self.values.text(ENDPOINT).unwrap_or_default().trim_end_matches('/')
    }

    /// A bearer token of its service; a reference until secrets are looked up.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.values.text(TOKEN)
    }

    /// The file with the certificates to trust.
    #[must_use]
    pub fn ca_file(&self) -> Option<&Path> {
        self.values.text(CA_FILE).map(Path::new)
    }

    /// The files with this host's own certificate and its key.
    #[must_use]
    pub fn identity_files(&self) -> Option<(&Path, &Path)> {
        Some((Path::new(self.values.text(CERT_FILE)?), Path::new(self.values.text(KEY_FILE)?)))
    }

    /// What does not fit has been reported.
    pub(crate) fn read(reporter: &mut Reporter<'_>, block: &Block, base: &Path) -> Self {
        let mut values = read_values(reporter, block, Side::Both, &PEER_TABLE);
        check_endpoint(reporter, block, &values);
        let mut missing = |key: &str, given: &str| {
            if values.text(given).is_some() && values.text(key).is_none() {
                let detail = format!("is missing: `{given}` is given, and one needs the other");
                reporter.at_value(block, key, Problem::Value { detail });
            }
        };
        missing(KEY_FILE, CERT_FILE);
        missing(CERT_FILE, KEY_FILE);
        for key in [CA_FILE, CERT_FILE, KEY_FILE] {
            if let Some(path) = values.text(key) {
                let path = base.join(path).display().to_string();
                values.set_text(key, path);
            }
        }
        Self { values }
    }
}

fn check_endpoint(reporter: &mut Reporter<'_>, block: &Block, values: &Values) {
    let Some(endpoint) = values.text(ENDPOINT) else { return };
    if let Some(detail) = endpoint_problem(endpoint) {
        reporter.at_value(block, ENDPOINT, Problem::Value { detail });
    } else if !endpoint.starts_with(HTTPS) {
        for key in [CA_FILE, CERT_FILE, KEY_FILE].into_iter().filter(|key| values.text(key).is_some()) {
            let detail = format!("has no effect without TLS: `{ENDPOINT}` begins with `{HTTP}`");
            reporter.at_value(block, key, Problem::Value { detail });
        }
    }
}

/// What is wrong with the text, as the rest of a sentence.
fn endpoint_problem(text: &str) -> Option<String> {
    let Some(authority) = text.strip_prefix(HTTP).or_else(|| text.strip_prefix(HTTPS)) else {
        return Some(format!(
            "begins with `{HTTP}` or `{HTTPS}`, such as `http://10.0.0.7:9641`, not `{text}`"
        ));
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains('@') {
        return Some("holds no name and no password; a bearer token goes into `token`".to_owned());
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']' | '%');
    if !authority.chars().all(is_part) {
        return Some(format!("is a machine and a port and nothing behind them, not `{text}`"));
    }
    let split = authority.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    // An IPv6 address has colons of its own, inside brackets.
    let split = split.filter(|(host, _)| {
        host.starts_with('[') == host.ends_with(']') && (host.starts_with('[') || !host.contains(':'))
    });
    match split.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(1..)) => None,
        _ => Some(format!("names a machine and a port, such as `http://10.0.0.7:9641`, not `{text}`")),
    }
}

const fn option(key: &'static str, kind: Kind, default: Default, summary: &'static str) -> OptionSpec {
    OptionSpec { key, kind, default, side: Side::Both, secret: false, summary }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_machine_and_a_port() {
        for good in
            ["http://127.0.0.1:9641", "https://tide-1.example:9641/", "http://[::1]:1", "http://a_b:65535"]
        {
            assert_eq!(endpoint_problem(good), None, "{good}");
        }
        for bad in [
            "",
            "127.0.0.1:9641",
            "grpc://a:1",
            "http://",
            "http://:1",
            "http://a",
            "http://a:",
            "http://a:0",
            "http://a:65536",
            "http://a:1/path",
            "http://a:1?b",
            "http://::1:9641",
            "http://[::1:9641",
            "http://u:p@a:1",
            "http://a b:1",
        ] {
            assert!(endpoint_problem(bad).is_some(), "{bad}");
        }
    }
}
