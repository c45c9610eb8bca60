//! The command line of what works on the policies of a running host, through its admin API.

use clap::{Args, Subcommand};

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
