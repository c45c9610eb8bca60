//! Settling by receipt.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{ClientArgs, duration};

/// What receipts are settled with, and how the broker is reached.
#[derive(Debug, Args)]
pub(crate) struct SettleArgs {
    /// The configuration whose settlers, sources and peers know the brokers and the other hosts
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.toml", env = "TIDEGATE_CONFIG")]
    pub(crate) config: PathBuf,
    /// Settle at this proxy, whatever the receipts say, and read no configuration
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) endpoints: Option<String>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The key of the fleet's receipts, to check them with; the configuration's own when not given
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// The receipts; `-` reads one a line from standard input
    #[arg(required = true, value_name = "RECEIPT")]
    pub(crate) receipts: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DeferArgs {
    /// When the message comes again, from now
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) delay: Duration,
    #[command(flatten)]
    pub(crate) settle: SettleArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RejectArgs {
    /// Why, in a few words
    #[arg(long, value_name = "TEXT", default_value = "rejected by hand")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) settle: SettleArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiptArgs {
    /// The configuration whose key the receipts are checked with; without it they are only explained
    #[arg(short, long, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// The key of the fleet's receipts, in place of the configuration's
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// The receipts; `-` reads one a line from standard input
    #[arg(required = true, value_name = "RECEIPT")]
    pub(crate) receipts: Vec<String>,
}
