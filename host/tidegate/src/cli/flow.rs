//! The command line of what works on the flows of a running host, through its admin API.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use tidegate_admin::{TapWanted, Verdict};

use super::live::{AdminArgs, length, part};

#[derive(Debug, Args)]
pub(crate) struct FlowsArgs {
    /// Look twice, so long apart, and show rates instead of totals
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "1s", value_parser = super::duration)]
    pub(crate) rates: Option<Duration>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FlowArgs {
    #[command(subcommand)]
    pub(crate) command: FlowCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// Stop a flow's receiving: what workers hold is finished, the rest goes back to the broker, for other hosts
    #[command(after_help = PAUSE_HELP)]
    Pause {
        /// The flow's name in the configuration
        name: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Let a paused flow go on, also one that paused itself because it rejected too many messages
    Resume {
        /// The flow's name in the configuration
        name: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// End a flow for good, within the host's drain-timeout; the host runs on without it, and stays ready, until it starts again
    #[command(after_help = DRAIN_HELP)]
    Drain {
        /// The flow's name in the configuration
        name: String,
        #[command(flatten)]
        admin: AdminArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TapArgs {
    /// The flow's name in the configuration
    pub(crate) flow: String,
    /// For how long
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = length)]
    pub(crate) length: Duration,
    /// End after so many decisions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Only this part of all keys, such as 0.1: a key is shown with all its messages or not at all
    #[arg(long, value_name = "PART", default_value_t = 1.0, value_parser = part)]
    pub(crate) sample: f64,
    /// Only this key; `*` at the end stands for any ending
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Only this verdict; may be given several times
    #[arg(long = "verdict", value_name = "VERDICT", value_enum)]
    pub(crate) verdicts: Vec<VerdictName>,
    /// Mask the values of this property; `*` at the end stands for any ending; may be given several times
    #[arg(long, value_name = "PROPERTY")]
    pub(crate) mask: Vec<String>,
    /// Replace keys, lite topics and groups by hashes
    #[arg(long)]
    pub(crate) mask_keys: bool,
    /// Show so many bytes of each body; 0 shows none
    #[arg(long, value_name = "N", default_value_t = TapWanted::default().body_bytes)]
    pub(crate) body_bytes: usize,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// A verdict as people write it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum VerdictName {
    Deliver,
    Defer,
    Reject,
    Discard,
    Stop,
}

// One line for each paragraph: the width is the terminal's.
const PAUSE_HELP: &str = "\
    What goes back to the broker comes again as one more delivery attempt: the broker counts every time that it hands a message \
    out, whatever for. While a flow is paused the other hosts of its group get all messages, and the host stays ready.";

const DRAIN_HELP: &str = "\
    What workers hold is finished, the rest goes back to the broker, as one more delivery attempt each. Meanwhile it says on standard \
    error what it waits for, and at the end what became of everything.";

pub(super) const TAP_HELP: &str = "\
    A tap consumes nothing, and the flow does not wait for it: what comes faster than 1,000 decisions a second, or than it \
    is taken in, is not shown, and counted.\n\nIt shows each decision as it is made, with whose it is (the policy's, its \
    on-error's, or none's), and how the delivery ended when the flow can tell. With --json each is an object on a line of its \
    own, the last of which says how it ended. It shows properties and the beginnings of bodies: mask what others must not \
    see. Ctrl-C ends it.";

impl From<VerdictName> for Verdict {
    fn from(name: VerdictName) -> Self {
        match name {
            VerdictName::Deliver => Self::Deliver,
            VerdictName::Defer => Self::Defer,
            VerdictName::Reject => Self::Reject,
            VerdictName::Discard => Self::Discard,
            VerdictName::Stop => Self::Stop,
        }
    }
}
