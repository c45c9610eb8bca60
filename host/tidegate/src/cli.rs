//! The command line.

mod flow;
mod kafka;
mod live;
mod policy;
mod settle;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidegate_connector::units;

pub(crate) use flow::{FlowArgs, FlowCommand, FlowsArgs, TapArgs};
pub(crate) use kafka::{
    ClusterArgs, ConfigureArgs, DeleteArgs, DescribeArgs, GroupCommand, KafkaArgs, KafkaCommand, ResetArgs,
    To,
};
pub(crate) use live::{AdminArgs, LiveCommand, RecordArgs};
pub(crate) use policy::{
    BenchArgs, BuildArgs, InspectArgs, Language, NewArgs, PolicyArgs, PolicyCommand, PurposeName, ReplayArgs,
    RunPolicyArgs, Settings, Subject, TestArgs,
};
pub(crate) use settle::{DeferArgs, ReceiptArgs, RejectArgs, SettleArgs};

/// Consumes messages from brokers that lease work and lets sandboxed WebAssembly policies decide what happens to each.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 ok, 1 runtime, 2 configuration or usage, 3 environment \
(broker out of reach, refused credentials, port in use, output that cannot be written). A reader of the output that \
goes away, as `head` does, is no failure of a command; a flow that writes there fails (1).")]
pub(crate) struct Cli {
    /// Write data and errors as JSON; also the log of `run`, unless `host.log-format` says otherwise
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the flows of a configuration until told to stop
    Run(RunArgs),
    /// Check a configuration, and with --connect the brokers that it names
    Check(CheckArgs),
    /// Show one tenant's flood being held back, on an embedded broker, in under 45 seconds
    Demo(DemoArgs),
    /// Run an in-memory RocketMQ 5 lite broker to play with
    Broker(BrokerArgs),
    /// Send messages to a RocketMQ topic
    Send(SendArgs),
    /// Settle messages as done, by receipt
    Ack(SettleArgs),
    /// Settle messages as not now: they come again after a delay
    Defer(DeferArgs),
    /// Settle messages as never: to the broker's dead letters
    Reject(RejectArgs),
    /// Give messages back, to come again at once
    Release(SettleArgs),
    /// Explain receipts, and check them when there is a key
    Receipt(ReceiptArgs),
    /// Show how the flows of a running host are doing
    Flows(FlowsArgs),
    /// Pause, resume or end a flow of a running host
    Flow(FlowArgs),
    /// Show a live sample of what a running host's flow decides
    #[command(after_long_help = flow::TAP_HELP)]
    Tap(TapArgs),
    /// Work with what is at a Kafka cluster
    Kafka(KafkaArgs),
    /// List the keys of a configuration: those of a section, or a connector's options
    Options(OptionsArgs),
    /// Work with policies
    Policy(PolicyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.toml", env = "TIDEGATE_CONFIG")]
    pub(crate) config: PathBuf,
    /// Refuse to start when a policy cannot be loaded, instead of following its on-error
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.toml", env = "TIDEGATE_CONFIG")]
    pub(crate) config: PathBuf,
    /// Also ask the brokers: reach, TLS, credentials, topic, group
    #[arg(long)]
    pub(crate) connect: bool,
    /// Also say what changing from this other file to FILE would apply live and what needs a restart
    #[arg(long, value_name = "OLD")]
    pub(crate) against: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How long each of the three phases is measured, after 3 s to settle
    #[arg(long, value_name = "DURATION", default_value = "7s", value_parser = phase_duration)]
    pub(crate) phase: Duration,
    /// Record every decision of it, for `tidegate policy replay`; the file must not be there yet
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Also ask fair-share with these rules about every message, without following it, and count the differences
    #[arg(long, value_name = "RULES")]
    pub(crate) shadow: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BrokerArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081", value_parser = listen_address)]
    pub(crate) listen: SocketAddr,
    /// A topic to make, as KIND:NAME with KIND lite, normal, fifo or delay; may be given several times
    #[arg(long = "topic", value_name = "KIND:NAME", default_value = "lite:LiteMainTopic")]
    pub(crate) topics: Vec<String>,
    /// A consumer group to make, as NAME for normal topics, NAME:orderly, or NAME@LITETOPIC for a wildcard lite group
    #[arg(long = "group", value_name = "GROUP", default_value = "GID-lite@LiteMainTopic")]
    pub(crate) groups: Vec<String>,
    /// Which server to be like
    #[arg(long, value_enum, default_value_t = BrokerProfile::V551)]
    pub(crate) profile: BrokerProfile,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BrokerProfile {
    /// RocketMQ 5.5.0: refuses the client type LITE_SIMPLE_CONSUMER
    #[value(name = "5.5.0")]
    V550,
    /// RocketMQ 5.5.1: knows it
    #[value(name = "5.5.1")]
    V551,
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The proxy's gRPC address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8081")]
    pub(crate) endpoints: String,
    /// The topic; for a lite message the main topic
    #[arg(long)]
    pub(crate) topic: String,
    /// The lite topic, for a lite message
    #[arg(long, conflicts_with_all = ["message_group", "delay"])]
    pub(crate) lite_topic: Option<String>,
    /// The message group, for a FIFO message
    #[arg(long, conflicts_with = "delay")]
    pub(crate) message_group: Option<String>,
    /// Deliver only after so long
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) delay: Option<Duration>,
    /// The tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
    /// A key for look-up; may be given several times
    #[arg(long = "key", value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// A user property; may be given several times
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = property)]
    pub(crate) properties: Vec<(String, String)>,
    /// Send each body so many times
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) count: u64,
    /// Messages a second at most; as fast as it goes when not given
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) rate: Option<u64>,
    /// Write no message ids and no count, only what goes wrong
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The bodies, one message each; `-` reads one a line from standard input
    #[arg(required = true)]
    pub(crate) bodies: Vec<String>,
}

/// How a command reaches a broker, apart from where it is.
#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    /// The access key; the secret key is read from TIDEGATE_SECRET_KEY
    #[arg(long, env = "TIDEGATE_ACCESS_KEY")]
    pub(crate) access_key: Option<String>,
    /// Use TLS with the system's roots
    #[arg(long)]
    pub(crate) tls: bool,
    /// Use TLS with the roots in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca_file: Option<PathBuf>,
}

impl ClientArgs {
    /// Whether any of it was given.
    pub(crate) const fn is_given(&self) -> bool {
        self.access_key.is_some() || self.tls || self.tls_ca_file.is_some()
    }
}

#[derive(Debug, Args)]
pub(crate) struct OptionsArgs {
    /// A section (host, policies, flows, sources, sinks, settlers) or a connector; all of them are listed when not given
    #[arg(value_name = "SECTION|CONNECTOR")]
    pub(crate) name: Option<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    units::parse_duration(text).map_err(|error| error.to_string())
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be an IP address and a port, such as 127.0.0.1:8081".to_owned())
}

fn phase_duration(text: &str) -> Result<Duration, String> {
    let phase = duration(text)?;
    // Three of them and the draining stay under 45 s.
    let range = Duration::from_secs(2)..=Duration::from_secs(8);
    if range.contains(&phase) { Ok(phase) } else { Err("a phase lasts 2s to 8s".to_owned()) }
}

fn property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a property is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
