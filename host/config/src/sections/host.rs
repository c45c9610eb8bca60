//! `[host]`: the process as a whole.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_connector::options::{Default, Kind, OptionSpec, Side, Table, Values};

use super::{path_from, read_values};
use crate::document::{Block, Reporter};
use crate::error::Problem;

/// The keys of `[host]`.
pub const HOST_TABLE: Table = Table {
    connector: "host",
    summary: "The process as a whole. Paths count from the directory of the configuration file.",
    options: &[
        option("policy-dir", Kind::Path, "policies", "The directory of components and rules files."),
        option("state-dir", Kind::Path, "state", "The directory for what the host keeps: made when absent."),
        OptionSpec {
            key: "receipt-key-file",
            kind: Kind::Path,
            default: Default::None,
            side: Side::Both,
            secret: false,
            summary: "The file with the key of the fleet's receipts: 64 hexadecimal digits, as `openssl rand -hex 32 > FILE` makes \
                      them. Hosts with the same key settle each other's receipts. Without it `receipt.key` in the state \
                      directory, made at the first start.",
        },
        option("admin-listen", Kind::Text, "127.0.0.1:9640", "Address and port of the admin HTTP API."),
        option(
            "admin-allow-remote",
            Kind::Bool,
            "false",
            "Lets the admin API listen on an address that other machines can reach. It has no authentication.",
        ),
        option(
            "drain-timeout",
            Kind::Duration { min_millis: 0, max_millis: 3_600_000 },
            "30s",
            "How long a stopping host waits for what workers hold before it leaves the rest to the broker.",
        ),
        option(
            "log-level",
            Kind::Choice(&LogLevel::WORDS),
            "info",
            "The least important lines to log. Changes live.",
        ),
        OptionSpec {
            key: "log-format",
            kind: Kind::Choice(&["text", "json"]),
            default: Default::None,
            side: Side::Both,
            secret: false,
            summary: "How log lines look: text for people, or one JSON object a line. Without it text, and JSON for \
                      `tidegate --json run`.",
        },
    ],
};

/// What a reload applies at once.
pub(crate) const HOST_LIVE: &[&str] = &["log-level"];

/// The process as a whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Host {
    /// The directory of components and rules files.
    pub policy_dir: PathBuf,
    /// The directory for what the host keeps.
    pub state_dir: PathBuf,
    /// The file with the key of the fleet's receipts, when it is not the state directory's own.
    pub receipt_key_file: Option<PathBuf>,
    /// Where the admin API listens.
    pub admin_listen: SocketAddr,
    /// Whether that may be an address that other machines can reach.
    pub admin_allow_remote: bool,
    /// How long a stopping host waits for what workers hold.
    pub drain_timeout: Duration,
    /// The least important lines to log.
    pub log_level: LogLevel,
    /// How log lines look, when the configuration says so.
    pub log_format: Option<LogFormat>,
}

/// How important a log line is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogLevel {
    /// Something is broken and somebody must act.
    Error,
    /// Something is wrong and the host goes on.
    Warn,
    /// What changed.
    Info,
    /// Why it changed.
    Debug,
    /// Everything.
    Trace,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogLevel {
    const WORDS: [&'static str; 5] = ["error", "warn", "info", "debug", "trace"];

    /// The word for it, which is also a log filter.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace]
            .into_iter()
            .find(|level| level.as_str() == word)
    }
}

impl Host {
    /// `None` when a key does not fit, which has been reported.
    pub(crate) fn read(reporter: &mut Reporter<'_>, block: &Block, base: &Path) -> (Values, Option<Self>) {
        let values = read_values(reporter, block, Side::Both, &HOST_TABLE);
        let admin_listen = read_admin_listen(reporter, block, &values);
        let host = Self::from_values(&values, admin_listen, base);
        (values, host)
    }

    fn from_values(values: &Values, admin_listen: Option<SocketAddr>, base: &Path) -> Option<Self> {
        Some(Self {
            policy_dir: path_from(base, values.text("policy-dir")?),
            state_dir: path_from(base, values.text("state-dir")?),
            receipt_key_file: values.text("receipt-key-file").map(|file| path_from(base, file)),
            admin_listen: admin_listen?,
            admin_allow_remote: values.flag("admin-allow-remote"),
            drain_timeout: values.duration("drain-timeout")?,
            log_level: LogLevel::from_word(values.text("log-level")?)?,
            log_format: values.text("log-format").map(|word| match word {
                "json" => LogFormat::Json,
                _ => LogFormat::Text,
            }),
        })
    }
}

fn read_admin_listen(reporter: &mut Reporter<'_>, block: &Block, values: &Values) -> Option<SocketAddr> {
    let text = values.text("admin-listen")?;
    let Ok(address) = text.parse::<SocketAddr>() else {
        let detail = format!("must be an IP address and a port, such as `127.0.0.1:9640`, not `{text}`");
        reporter.at_value(block, "admin-listen", Problem::Value { detail });
        return None;
    };
    if !address.ip().is_loopback() && !values.flag("admin-allow-remote") {
        reporter.at_value(block, "admin-listen", Problem::AdminRemote { address: text.to_owned() });
    }
    Some(address)
}

const fn option(key: &'static str, kind: Kind, default: &'static str, summary: &'static str) -> OptionSpec {
    OptionSpec { key, kind, default: Default::Value(default), side: Side::Both, secret: false, summary }
}
