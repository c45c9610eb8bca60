//! The command line of what works on the policies of a running host, through its admin API.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tidegate_admin::RecordingWanted;

#[derive(Debug, Subcommand)]
pub(crate) enum LiveCommand {
    /// Show how the policies of a running host are doing
    Status {
        /// A policy of its configuration, to show everything about it
        name: Option<String>,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Have a running host read a policy's files now
    Reload {
        /// The policy's name in the configuration
        name: String,
        /// Make every check and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Have a running host go back to a policy's generation before
    Rollback {
        /// The policy's name in the configuration
        name: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Have a running host stop asking a policy: its messages follow its on-error
    Pause {
        /// The policy's name in the configuration
        name: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Have a running host ask a paused policy again
    Resume {
        /// The policy's name in the configuration
        name: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Show where the policies in shadow mode of a running host's flow would have decided differently
    Diff {
        /// The flow's name in the configuration
        flow: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Record what a running host's flow decides, to be replayed before other policies
    #[command(after_long_help = RECORD_HELP)]
    Record(RecordArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The flow's name in the configuration
    pub(crate) flow: String,
    /// The file to write, which must not be there yet; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// For how long
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = length)]
    pub(crate) length: Duration,
    /// End after so many decisions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Only this part of all keys, such as 0.1: a key is recorded with all its messages or not at all
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = part)]
    pub(crate) sample: f64,
    /// Mask the values of this property; `*` at the end stands for any ending; may be given several times
    #[arg(long, value_name = "PROPERTY")]
    pub(crate) mask: Vec<String>,
    /// Replace keys, lite topics and groups by hashes
    #[arg(long)]
    pub(crate) mask_keys: bool,
    /// Record so many bytes of each body; 0 records none
    #[arg(long, value_name = "N", default_value_t = RecordingWanted::default().body_bytes)]
    pub(crate) body_bytes: usize,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

const RECORD_HELP: &str = "\
A recording is a text file of one JSON object a line: what the flow's policy was asked, with all facts, clocks and random
numbers, and what became of the message. It has properties and the beginnings of bodies: mask what must not leave the
host. The flow does not wait for it: what cannot be taken in at the flow's speed is left out and counted, and a sample of
the keys helps. Ctrl-C ends it early. A policy with a memory is replayed most truly from the flow's first message on.";

/// How long a recording or a tap is to take.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    let length = tidegate_connector::units::parse_duration(text).map_err(|error| error.to_string())?;
    let max = RecordingWanted::LENGTH_MAX;
    if RecordingWanted::takes(length) {
        return Ok(length);
    }
    Err(format!("it takes 1ms to {} minutes", max.as_secs() / 60))
}

/// A part of all keys.
pub(super) fn part(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(part) if RecordingWanted::samples(part) => Ok(part),
        _ => Err("must be above 0 and at most 1".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// Where the host's admin API listens
    #[arg(
        long = "admin",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:9640",
        env = "TIDEGATE_ADMIN",
        value_parser = admin_address
    )]
    pub(crate) address: String,
}

fn admin_address(text: &str) -> Result<String, String> {
    let is_address = text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains(['/', ' ', '@']) && port.parse::<u16>().is_ok()
    });
    if is_address {
        Ok(text.to_owned())
    } else {
        Err("must be a host and a port, such as 127.0.0.1:9640".to_owned())
    }
}
