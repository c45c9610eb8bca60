//! What is not the same on every kind of brokers.

use std::time::Duration;

use tidegate_process_tests::Configuration;

use super::duplicates::Rules;
use super::secrets::Secrets;
use super::witness::Witness;
use crate::load::{Load, Shape};
use tidegate_process_tests::Random;

/// Brokers that run, with all that is on them, and what a host on them is like.
pub(crate) trait Brokers: Sized {
    /// The flows of the host that takes messages, each of which has sources, topics and groups of its own.
    const FLOWS: [&'static str; 2];
    /// How long nothing must have come before all has come that may come again.
    const QUIET: Duration;
    /// Deliveries after which the brokers give a message up: one that got there may be lost, and nobody would know.
    const ATTEMPTS_MAX: u64;
    /// How long a killed node stays away at most, in milliseconds.
    const NODE_AWAY_MAX: u64;
    /// Metrics in which a host counts what it takes.
    const TAKEN: [&'static str; 2];
    /// A node that may be killed.
    type Node: Copy;

    /// What is sent.
    fn shape(&self) -> Shape;
    /// Which deliveries beyond the first are explained.
    fn rules(&self) -> Rules;
    /// Names of policies, settlers or peers, under which the hosts' admin APIs are asked.
    fn names(&self) -> Vec<String>;
    /// The host that takes messages and hands them to workers.
    fn taker(&self, common: Configuration, secrets: &Secrets) -> Outfit;
    /// The host without a flow, which has settled what the one at `owner` gave out.
    fn settler(&self, common: Configuration, secrets: &Secrets, owner: &str) -> Outfit;
    /// Begins to send.
    async fn load(&self) -> anyhow::Result<Load>;
    /// Chooses a node to kill, when the brokers can do without one.
    async fn choose(&mut self, random: &mut Random) -> anyhow::Result<Victim<Self::Node>>;
    /// SIGKILL.
    fn kill(&mut self, node: Self::Node);
    /// Starts a killed node again.
    async fn revive(&mut self, node: Self::Node) -> anyhow::Result<()>;
    /// Messages that the brokers still count as not acknowledged.
    async fn lag(&self) -> anyhow::Result<u64>;
    /// Looks at who takes messages now, and at what the taking host says of itself.
    async fn look(&mut self, metrics: &str) -> anyhow::Result<()>;
    /// What the brokers say of who took messages.
    fn witness(&self) -> anyhow::Result<Witness>;
}

/// A node to be killed.
#[derive(Clone, Debug)]
pub(crate) struct Victim<N> {
    pub(crate) node: N,
    /// Its name for people.
    pub(crate) name: String,
    /// The columns whose leases end with it.
    pub(crate) columns: Vec<u32>,
}

/// What a host has of its own.
pub(crate) struct Outfit {
    pub(crate) configuration: Configuration,
    /// Shipped policies, each with its rules.
    pub(crate) policies: Vec<&'static str>,
    /// Rules in place of the shipped ones.
    pub(crate) rules: Vec<(&'static str, String)>,
    pub(crate) variables: Vec<(&'static str, String)>,
    /// The file with what it logs in with.
    pub(crate) login: Option<String>,
    /// Entries of the tokens' file beside those of workers.
    pub(crate) tokens: String,
}

impl Outfit {
    /// One of nothing but its configuration.
    pub(crate) const fn new(configuration: Configuration) -> Self {
        Self {
            configuration,
            policies: Vec::new(),
            rules: Vec::new(),
            variables: Vec::new(),
            login: None,
            tokens: String::new(),
        }
    }
}

/// The file that has [`Outfit::login`].
pub(crate) const LOGIN: &str = "login";
