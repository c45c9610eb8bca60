//! The options of the `handoff` sink.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_connector::options::{Default, Kind, OptionError, OptionSpec, Side, Table, Values};

/// The sink's options.
pub const TABLE: Table = Table {
    connector: "handoff",
    summary: "Hands messages to workers over gRPC (tidegate.v1) and HTTP, and takes their settlements.",
    options: &[
        option(
            "listen",
            Kind::Text,
            Default::Value("127.0.0.1:9641"),
            "Address and port of the service. One that other machines can reach needs `tokens-file` or `tls-client-ca-file`.",
        ),
        option(
            "tls-cert-file",
            Kind::Path,
            Default::None,
            "PEM file with the service's certificate chain; turns TLS on, together with `tls-key-file`.",
        ),
        option(
            "tls-key-file",
            Kind::Path,
            Default::None,
            "PEM file with the private key of that certificate.",
        ),
        option(
            "tls-client-ca-file",
            Kind::Path,
            Default::None,
            "PEM file with the certificates that workers' own certificates must lead to; without it workers need none.",
        ),
        option(
            "tokens-file",
            Kind::Path,
            Default::None,
            "TOML file with bearer tokens: `[tokens.NAME]` with `token`, of 16 characters or more, or the `sha256` of it in 64 \
             hexadecimal digits, and `flows`, the names of those that it is for; without them it is for all. An edit is in \
             force within seconds.",
        ),
        option(
            "max-held",
            Kind::Integer { min: 1, max: 1_000_000 },
            Default::Value("10000"),
            "Messages of one flow that workers may hold in all, whatever their credits are. A flow takes in what its workers have room for, and some more.",
        ),
        option(
            "key-affinity",
            Kind::Bool,
            Default::Value("false"),
            "Whether messages of one key go to one worker as long as it holds any of them: a lite topic stays where it is.",
        ),
    ],
};

/// What a user may choose, checked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServiceOptions {
    /// Where the service listens.
    pub listen: SocketAddr,
    /// Whether and how connections are encrypted.
    pub tls: Option<TlsFiles>,
    /// The file of bearer tokens.
    pub tokens_file: Option<PathBuf>,
    /// Messages of one flow that workers may hold in all.
    pub held_max: usize,
    /// Whether messages of one key go to one worker as long as it holds any of them.
    pub key_affinity: bool,
}

/// PEM files of a service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlsFiles {
    /// The certificate chain.
    pub certificates: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// What clients' certificates must lead to, if they need one.
    pub client_ca: Option<PathBuf>,
}

impl ServiceOptions {
    /// Reads the options.
    ///
    /// # Errors
    /// Every mistake that the table alone cannot see.
    pub fn from_values(values: &Values) -> Result<Self, Vec<OptionError>> {
        let mut errors = Vec::new();
        let mut invalid = |key, problem: String| errors.push(OptionError::Invalid { key, problem });
        let path = |key| values.text(key).map(PathBuf::from);
        let listen = values.text("listen").unwrap_or_default();
        let address = listen.parse::<SocketAddr>().ok();
        if address.is_none() {
            let problem =
                format!("must be an IP address and a port, such as `127.0.0.1:9641`, not `{listen}`");
            invalid("listen", problem);
        }
        let client_ca = path("tls-client-ca-file");
        let tls = match (path("tls-cert-file"), path("tls-key-file")) {
            (Some(certificates), Some(key)) => {
                Some(TlsFiles { certificates, key, client_ca: client_ca.clone() })
            }
            (Some(_), None) => {
                invalid(
                    "tls-key-file",
                    "is missing: `tls-cert-file` is given, and one needs the other".into(),
                );
                None
            }
            (None, Some(_)) => {
                invalid(
                    "tls-cert-file",
                    "is missing: `tls-key-file` is given, and one needs the other".into(),
                );
                None
            }
            (None, None) => {
                if client_ca.is_some() {
                    invalid("tls-client-ca-file", "has no effect without `tls-cert-file`".into());
                }
                None
            }
        };
        let tokens_file = path("tokens-file");
        let guarded = tokens_file.is_some() || client_ca.is_some();
        if address.is_some_and(|address| !address.ip().is_loopback()) && !guarded {
            let problem = format!(
                "is `{listen}`, which other machines can reach, and anybody there could take and settle messages: \
                 give `tokens-file` or `tls-client-ca-file`, or listen on 127.0.0.1"
            );
            invalid("listen", problem);
        }
        let held_max = values.integer("max-held").and_then(|max| usize::try_from(max).ok());
        match address {
            Some(listen) if errors.is_empty() => Ok(Self {
                listen,
                tls,
                tokens_file,
                held_max: held_max.unwrap_or(10_000),
                key_affinity: values.flag("key-affinity"),
            }),
            _ => Err(errors),
        }
    }
}

const fn option(key: &'static str, kind: Kind, default: Default, summary: &'static str) -> OptionSpec {
    OptionSpec { key, kind, default, side: Side::Sink, secret: false, summary }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidegate_connector::options::Raw;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<ServiceOptions, String> {
        let raw: BTreeMap<String, Raw> =
            pairs.iter().map(|(key, value)| ((*key).into(), Raw::Text((*value).into()))).collect();
        let values = TABLE.read(Side::Sink, &raw).unwrap();
        ServiceOptions::from_values(&values)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn other_machines_need_a_guard() {
        let told = read(&[("listen", "0.0.0.0:9641")]).unwrap_err();
        assert!(told.contains("tokens-file"), "{told}");
        assert!(read(&[("listen", "0.0.0.0:9641"), ("tokens-file", "t.toml")]).is_ok());
        let tls = [("listen", "0.0.0.0:9641"), ("tls-cert-file", "c"), ("tls-key-file", "k")];
        assert!(read(&tls).is_err(), "TLS alone lets everybody in");
        let mutual = [&tls[..], &[("tls-client-ca-file", "ca")]].concat();
        assert!(read(&mutual).is_ok());
        assert!(read(&[("listen", "[::1]:9641")]).is_ok());
    }

    #[test]
    fn files_go_together() {
        assert!(read(&[("tls-cert-file", "c")]).unwrap_err().contains("tls-key-file"));
        assert!(read(&[("tls-key-file", "k")]).unwrap_err().contains("tls-cert-file"));
        assert!(read(&[("tls-client-ca-file", "ca")]).unwrap_err().contains("no effect"));
        assert!(read(&[("listen", "localhost:9641")]).unwrap_err().contains("IP address"));
    }
}
