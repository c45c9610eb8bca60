//! The command line of `tidegate policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the policies of a configuration, loading each as `run` would
    List {
        /// The configuration file
        #[arg(short, long, value_name = "FILE", default_value = "tidegate.toml", env = "TIDEGATE_CONFIG")]
        config: PathBuf,
    },
    /// Write a new policy that builds and passes its tests
    New(NewArgs),
    /// Build a policy: from its sources in a directory, or a component from a core module
    #[command(after_long_help = BUILD_HELP)]
    Build(BuildArgs),
    /// Put a component through every rung of the ladder that `run` puts it through
    Check(Subject),
    /// Say what a component is: world, contract, imports, digest, parameters
    Inspect(InspectArgs),
    /// Ask a policy about one message and show all that is known of the answer
    #[command(after_long_help = MESSAGE_HELP)]
    Run(RunPolicyArgs),
    /// Run the test cases of policies
    #[command(after_long_help = TEST_HELP)]
    Test(TestArgs),
    /// Measure a policy: time and fuel of a decision, memory, start and compile time
    #[command(after_long_help = MESSAGE_HELP)]
    Bench(BenchArgs),
    /// Ask a policy again about recorded messages and show where it decides differently
    #[command(after_long_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    #[command(flatten)]
    Live(super::LiveCommand),
}

/// Which policy, with which rules and limits.
#[derive(Debug, Args)]
pub(crate) struct Subject {
    /// The component; the one that the configuration has for --policy when not given
    #[arg(value_name = "COMPONENT", required_unless_present = "policy")]
    pub(crate) component: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// The rules of a policy, and what else is said about it.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// Its rules
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// The configuration file that --policy is in
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.toml", env = "TIDEGATE_CONFIG")]
    pub(crate) config: PathBuf,
    /// Take limits, grants and rules from the policy of that name in the configuration
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// Its name, and that of the directory that is made for it
    pub(crate) name: String,
    /// The language that it is written in
    #[arg(long, value_enum, default_value_t = Language::Rust)]
    pub(crate) lang: Language,
    /// What it is to be
    #[arg(long, value_name = "WORLD", default_value = "throttle-policy")]
    pub(crate) world: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Language {
    Rust,
    Js,
    Python,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// A directory with a policy's sources, or a core module as built for wasm32-unknown-unknown
    #[arg(value_name = "DIR|CORE", default_value = ".")]
    pub(crate) from: PathBuf,
    /// Where to write the component; NAME.wasm in the directory when not given
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// The component
    pub(crate) component: PathBuf,
    /// Only what can be read without compiling it: not what it says about itself
    #[arg(long)]
    pub(crate) quick: bool,
    /// Write the parameters as a Markdown page
    #[arg(long, conflicts_with = "quick")]
    pub(crate) markdown: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunPolicyArgs {
    #[command(flatten)]
    pub(crate) subject: Subject,
    /// The message, and what is known of it, as JSON; `-` reads standard input
    #[arg(short, long, value_name = "FILE", required_unless_present = "endpoint")]
    pub(crate) message: Option<PathBuf>,
    /// For a credential resolver: the endpoint to ask about
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "message")]
    pub(crate) endpoint: Option<String>,
    /// For a credential resolver: what the host wants to do there
    #[arg(long, value_enum, default_value_t = PurposeName::Consume)]
    pub(crate) purpose: PurposeName,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum PurposeName {
    Consume,
    Produce,
    Acknowledge,
    Registry,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Test files, components with test files beside them, or directories of either
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) paths: Vec<PathBuf>,
    /// Only cases with this in their name
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) subject: Subject,
    /// The message to ask about, as JSON; one with something in every field when not given
    #[arg(short, long, value_name = "FILE", conflicts_with = "recording")]
    pub(crate) message: Option<PathBuf>,
    /// A recording whose messages are asked about, in turn
    #[arg(long, value_name = "FILE")]
    pub(crate) recording: Option<PathBuf>,
    /// Rounds to measure; the median counts
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The recording
    pub(crate) recording: PathBuf,
    /// The component to ask; the one that the configuration has for --policy when not given
    #[arg(long, value_name = "COMPONENT", required_unless_present = "policy")]
    pub(crate) with: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Show so many keys, and so many of the first and of the last differing messages
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=1_000))]
    pub(crate) top: u16,
    /// Fail with exit code 1 when a verdict differs
    #[arg(long)]
    pub(crate) fail_on_difference: bool,
}

const BUILD_HELP: &str = "\
In a directory the language is found by its files: Cargo.toml for Rust, package.json for JavaScript, requirements.txt
for Python. The toolchain of the language is run, the component is put through the checks of `policy check` that do not
depend on rules, and only then is the file written, in one step, so that a host may watch it.";

const MESSAGE_HELP: &str = r#"A message is a JSON object; every key may be left out, and an array of them is asked in order, with one state:

  {
    "topic": "orders", "lite-topic": "tenant-7", "id": "message-1", "tag": "new", "keys": ["a"],
    "properties": {"tier": "gold"}, "body": "text", "body-base64": "AAEC",
    "source": "orders", "key": "tenant-7", "attempt": 1,
    "age": "5s", "waited": "20ms", "deferred": "0s",
    "standing": {"key-in-flight": 1, "flow-in-flight": 10, "flow-budget": 1000, "flow-queued": 0,
                 "flow-emitted": 0, "active-keys": 3, "key-rate": 2.5, "flow-rate": 10.0,
                 "flow-throughput": 10.0, "key-share": 0.1},
    "at": "1500ms", "wall-ms": 1700000000000, "seed": 7
  }

`key` is the lite topic, else the first of `keys`, else the topic, when it is not given. `at` is the monotonic clock,
`seed` the beginning of the random numbers. A renewal policy is asked with "lease": {"remaining": "20s",
"length": "60s", "renewals": 0, "emitted": false, "queue-position": 3}. For a partitioner the properties are the
record's headers, the body its value, and "partitions" says among how many. Durations are strings such as "250ms", or
numbers of milliseconds."#;

const TEST_HELP: &str = r#"A test file is NAME.test.toml beside NAME.wasm, or any file in a directory `tests` beside the component:

  component = "../fair.wasm"        # the only component beside it when not given
  rules = "fair.toml"               # rules of cases that have none: a file beside this one, or a table

  [[case]]
  name = "a burst passes, then the rate holds"
  rules = { rate = 5, burst = 2 }
  facts = { lite-topic = "tenant-1" }         # what all messages of the case have

  [[case.message]]
  times = 2                                   # asked so often, `every` apart
  expect = "deliver"

  [[case.message]]
  at = "10ms"                                 # on the case's clock; the time of the message before when not given
  expect = "defer"
  delay = "150ms..250ms"                      # or exact, or open as in "150ms.."
  reason = "tokens"                           # in the reason

  [[case]]
  name = "a rate below zero is refused"
  rules = { rate = -1 }
  rules-error = "rate"                        # the key at fault
  rules-error-message = "above zero"          # in what is said about it

A message has the keys that `tidegate policy run --help` lists. `expect` is `deliver`, `defer`, `reject` or `discard`;
for renewal policies `renew` (with `delay` for the length), `release` or `lapse`; for partitioners a number; `error` for
a policy that fails, with `cause`. With `times` it may be a table of counts: { deliver = 5, defer = 3 }. Each case has an
empty state, a clock that begins at 0, and the same random numbers every time."#;

const REPLAY_HELP: &str = "\
A recording has the messages of a flow with all that the policy could look at: facts, clocks, random numbers. The policy
is asked in the recorded order, with an empty state at the beginning, and what it says is compared with what became of
each message. Nothing else is touched: no broker, no sink. Verdicts that agree may still differ in their delay, which is
counted apart.";
