//! The command line of `tidegate kafka`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct KafkaArgs {
    #[command(subcommand)]
    pub(crate) command: KafkaCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KafkaCommand {
    /// Look at share groups and change them
    #[command(subcommand, arg_required_else_help = true)]
    Group(GroupCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List the share groups that the client may see
    List {
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Show a group's state, settings and members
    Describe(DescribeArgs),
    /// Show where a group stands in each partition, and how much is left
    Offsets {
        /// The share group's id
        group: String,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Show what setting a group to other offsets would do, and with --execute do it; only while nobody is in the group
    Reset(ResetArgs),
    /// Show a group's settings, or change them
    Configure(ConfigureArgs),
    /// Delete a group, or with --topic where it stands in topics; only while nobody is in the group
    Delete(DeleteArgs),
}

/// How the cluster is reached.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// The cluster of this source of the configuration, reached as it is there
    #[arg(
        long, value_name = "NAME", help_heading = "Cluster",
        conflicts_with_all = ["bootstrap_servers", "properties", "properties_file"]
    )]
    pub(crate) source: Option<String>,
    /// The configuration file that --source is in
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "tidegate.toml",
        env = "TIDEGATE_CONFIG",
        help_heading = "Cluster"
    )]
    pub(crate) config: PathBuf,
    /// Brokers to ask first; may stand in --properties-file as bootstrap.servers
    #[arg(long, value_name = "HOST:PORT,…", help_heading = "Cluster")]
    pub(crate) bootstrap_servers: Option<String>,
    /// A property of Kafka's Java clients for the connection, such as security.protocol=SSL; secrets only as env:NAME or
    /// file:PATH; may be given several times, and goes before the file's
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = super::property, help_heading = "Cluster")]
    pub(crate) properties: Vec<(String, String)>,
    /// A file of such properties, as Kafka's own tools take it with --command-config
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub(crate) properties_file: Option<PathBuf>,
    /// How long the whole may take, while a coordinator is looked for again and again
    #[arg(
        long, value_name = "DURATION", default_value = "30s", value_parser = super::duration, help_heading = "Cluster"
    )]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// The share group's id
    pub(crate) group: String,
    /// Also say why nothing would arrive; exit code 1 when something keeps records away
    #[arg(long)]
    pub(crate) explain: bool,
    /// A topic that is to be fetched from; those of the group when not given; may be given several times
    #[arg(long = "topic", value_name = "TOPIC", requires = "explain")]
    pub(crate) topics: Vec<String>,
    /// Locks are to be renewed, as with a renewal policy
    #[arg(long, requires = "explain")]
    pub(crate) renews: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["to", "offsets"]))]
pub(crate) struct ResetArgs {
    /// The share group's id
    pub(crate) group: String,
    /// Where to: earliest, latest, or the first record since a time, such as 2026-03-01T12:00:00Z or milliseconds since 1970
    #[arg(long, value_name = "POSITION", value_parser = to)]
    pub(crate) to: Option<To>,
    /// With --to: only in this topic; all that the group stands in when not given; may be given several times
    #[arg(long = "topic", value_name = "TOPIC", requires = "to")]
    pub(crate) topics: Vec<String>,
    /// An offset for one partition; may be given several times
    #[arg(long = "offset", value_name = "TOPIC:PARTITION:OFFSET", value_parser = offset, conflicts_with = "to")]
    pub(crate) offsets: Vec<(String, i32, i64)>,
    /// Do it
    #[arg(long)]
    pub(crate) execute: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigureArgs {
    /// The share group's id; it need not be there yet
    pub(crate) group: String,
    /// Settings to change, such as share.auto.offset.reset=earliest; all of them or none
    #[arg(value_name = "NAME=VALUE", value_parser = super::property)]
    pub(crate) settings: Vec<(String, String)>,
    /// A setting that is to follow the brokers again; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) unset: Vec<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The share group's id
    pub(crate) group: String,
    /// Keep the group, and delete only where it stands in this topic; may be given several times
    #[arg(long = "topic", value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// Where a group is set to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum To {
    Earliest,
    Latest,
    /// In milliseconds since 1970.
    Time(u64),
}

fn to(text: &str) -> Result<To, String> {
    match text {
        "earliest" => Ok(To::Earliest),
        "latest" => Ok(To::Latest),
        _ => text.parse().ok().or_else(|| unix_millis(text)).map(To::Time).ok_or_else(|| {
            "must be earliest, latest, a time with its offset, such as 2026-03-01T12:00:00Z, or milliseconds since 1970"
                .to_owned()
        }),
    }
}

/// A time as RFC 3339 writes it, which TOML has as well.
fn unix_millis(text: &str) -> Option<u64> {
    let time: toml::value::Datetime = text.parse().ok()?;
    let (date, clock, offset) = (time.date?, time.time?, time.offset?);
    // Days since 1970 by the Gregorian calendar, counted from March so that a leap day is the last of its year.
    let (year, month) = (i64::from(date.year), i64::from(date.month));
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (month * 153 + 2) / 5
        + i64::from(date.day)
        - 719_469;
    let minutes_ahead = match offset {
        toml::value::Offset::Z => 0,
        toml::value::Offset::Custom { minutes } => i64::from(minutes),
    };
    let minutes = (days * 24 + i64::from(clock.hour)) * 60 + i64::from(clock.minute) - minutes_ahead;
    let millis = (minutes * 60 + i64::from(clock.second.unwrap_or(0))) * 1_000
        + i64::from(clock.nanosecond.unwrap_or(0) / 1_000_000);
    u64::try_from(millis).ok()
}

fn offset(text: &str) -> Result<(String, i32, i64), String> {
    let parts = || {
        let (rest, offset) = text.rsplit_once(':')?;
        let (topic, partition) = rest.rsplit_once(':')?;
        let (partition, offset): (i32, i64) = (partition.parse().ok()?, offset.parse().ok()?);
        (!topic.is_empty() && partition >= 0 && offset >= 0).then(|| (topic.to_owned(), partition, offset))
    };
    parts().ok_or_else(|| "must be TOPIC:PARTITION:OFFSET, such as orders:0:1200".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_offset() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-30T22:07:02.5Z", 1_796_076_422_500),
            ("2024-02-29T23:59:59+01:00", 1_709_247_599_000),
            ("2000-03-01T00:00:00Z", 951_868_800_000),
            ("1234", 1_234),
        ] {
            assert_eq!(to(text), Ok(To::Time(expected)), "{text}");
        }
        for text in ["", "now", "2026-11-30", "2026-11-30T22:07:02", "1960-01-01T00:00:00Z", "-5"] {
            assert!(to(text).is_err(), "{text}");
        }
        assert_eq!((to("earliest"), to("latest")), (Ok(To::Earliest), Ok(To::Latest)));
    }

    #[test]
    fn offsets_are_read_from_their_end() {
        assert_eq!(offset("a.b:0:12"), Ok(("a.b".to_owned(), 0, 12)));
        for text in ["", "t", "t:0", ":0:1", "t:-1:1", "t:0:-1", "t:0:x"] {
            assert!(offset(text).is_err(), "{text}");
        }
    }
}
