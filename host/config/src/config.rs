//! From a text to a configuration in which every value is in range and every name leads somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_connector::files::{self, ReadError};
use tidegate_connector::options::{PolicyUse, Values, nearest};

use crate::catalog::{Catalog, Connector, Role};
use crate::document::{Block, Document, Reporter};
use crate::error::{Errors, Oddity, Problem, Warning};
use crate::sections::{
    Exhausted, Flow, Host, Peer, Policy, PolicyNamed, Settler, Sink, Source, read_connector,
};

/// The largest configuration that is read, in bytes. A thousand flows with all their keys take about half of it.
pub const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A complete configuration with a comment on every key, to begin from.
pub const EXAMPLE: &str = include_str!("../example.toml");

/// A valid configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The process as a whole.
    pub host: Host,
    /// By name.
    pub policies: BTreeMap<Arc<str>, Policy>,
    /// By name.
    pub sources: BTreeMap<Arc<str>, Source>,
    /// By name.
    pub sinks: BTreeMap<Arc<str>, Sink>,
    /// By name.
    pub settlers: BTreeMap<Arc<str>, Settler>,
    /// By name.
    pub peers: BTreeMap<Arc<str>, Peer>,
    /// By name.
    pub flows: BTreeMap<Arc<str>, Flow>,
    /// What policies are used for, by name; those that nothing uses are not in it.
    pub policy_uses: BTreeMap<Arc<str>, PolicyUse>,
    /// What is odd about it.
    pub warnings: Vec<Warning>,
    /// The directory that relative paths count from.
    pub(crate) base_dir: PathBuf,
    /// The values of `[host]`, policies and flows by the path of their section, for comparing.
    pub(crate) written: BTreeMap<String, Values>,
}

/// Why a file gave no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot read the configuration `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is not a configuration by its size alone.
    #[error("the configuration `{}` is larger than {TEXT_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It is not text.
    #[error("the configuration `{}` is not UTF-8: line {line} has a byte that is no text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first line that is not text, from 1.
        line: usize,
    },
    /// It has mistakes in it.
    #[error(transparent)]
    Invalid(Errors),
}

/// What a text makes.
#[derive(Debug)]
pub enum Draft {
    /// A valid configuration.
    Whole(Box<Config>),
    /// One with mistakes.
    Flawed {
        /// What is valid. Sections may be missing that others name; `None` when the text or its `[host]` cannot be read.
        valid: Option<Box<Config>>,
        /// Every mistake.
        errors: Errors,
    },
}

impl Draft {
    /// The valid configuration.
    ///
    /// # Errors
    /// Every mistake.
    pub fn finish(self) -> Result<Config, Errors> {
        match self {
            Self::Whole(config) => Ok(*config),
            Self::Flawed { errors, .. } => Err(errors),
        }
    }
}

/// Reads and checks a configuration file.
///
/// # Errors
/// When the file cannot be read, or with every mistake in it.
pub fn load(path: &Path, catalog: &Catalog<'_>) -> Result<Config, LoadError> {
    draft(path, catalog)?.finish().map_err(LoadError::Invalid)
}

/// Reads a configuration file for those who look at what is valid although there are mistakes.
///
/// # Errors
/// When the file cannot be read, never [`LoadError::Invalid`].
pub fn draft(path: &Path, catalog: &Catalog<'_>) -> Result<Draft, LoadError> {
    let read = |source| LoadError::Read { path: path.to_owned(), source };
    let bytes = files::read(path, TEXT_BYTES_MAX).map_err(|error| match error {
        ReadError::Io(source) => read(source),
        ReadError::NotAFile { .. } => read(io::Error::other("it is not a regular file")),
        ReadError::TooLarge { .. } => LoadError::TooLarge { path: path.to_owned() },
    })?;
    let text = str::from_utf8(&bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        LoadError::NotText { path: path.to_owned(), line }
    })?;
    Ok(sketch(&path.display().to_string(), text, catalog))
}

/// Checks a configuration. `file` is its name for people, and its directory is where relative paths count from.
///
/// # Errors
/// Every mistake in it.
pub fn parse(file: &str, text: &str, catalog: &Catalog<'_>) -> Result<Config, Errors> {
    sketch(file, text, catalog).finish()
}

fn sketch(file: &str, text: &str, catalog: &Catalog<'_>) -> Draft {
    let mut reporter = Reporter::new(file, text);
    let config = Document::read(&mut reporter)
        .and_then(|document| read(&mut reporter, document, base_dir(file), catalog));
    match config.map(Box::new) {
        Some(config) if reporter.count() == 0 => Draft::Whole(config),
        valid => Draft::Flawed { valid, errors: Errors::new(reporter.into_errors()) },
    }
}

/// `None` when something does not fit, which has been reported.
fn read(
    reporter: &mut Reporter<'_>,
    mut document: Document,
    base_dir: PathBuf,
    catalog: &Catalog<'_>,
) -> Option<Config> {
    let mut written = BTreeMap::new();
    let (values, host) = Host::read(reporter, &document.host, &base_dir);
    written.insert(document.host.path.clone(), values);

    let policy_dir = host.as_ref().map(|host| &*host.policy_dir);
    let mut policies = BTreeMap::new();
    for block in &mut document.policies {
        let (values, policy) = Policy::read(reporter, block, policy_dir);
        written.insert(block.path.clone(), values);
        policies.extend(policy.map(|policy| (Arc::clone(&block.name), policy)));
    }
    let mut named = Vec::new();
    let mut sources = BTreeMap::new();
    for block in &mut document.sources {
        let read = read_connector(reporter, block, Role::Source, catalog, &base_dir, &mut named);
        if let Some((connector, values)) = read {
            sources.insert(Arc::clone(&block.name), Source { connector, values });
        }
    }
    let mut alone = BTreeSet::new();
    let mut sinks = BTreeMap::new();
    for block in &mut document.sinks {
        let read = read_connector(reporter, block, Role::Sink, catalog, &base_dir, &mut named);
        if let Some((connector, values)) = read {
            if catalog.find(Role::Sink, &connector).is_some_and(Connector::runs_alone) {
                alone.insert(block.path.clone());
            }
            sinks.insert(Arc::clone(&block.name), Sink { connector, values });
        }
    }
    let mut settlers = BTreeMap::new();
    for block in &mut document.settlers {
        let read = read_connector(reporter, block, Role::Settler, catalog, &base_dir, &mut named);
        if let Some((connector, values)) = read {
            settlers.insert(Arc::clone(&block.name), Settler { connector, values });
        }
    }
    let read_peer = |block: &Block| (Arc::clone(&block.name), Peer::read(reporter, block, &base_dir));
    let peers = document.peers.iter().map(read_peer).collect();
    let mut flows = BTreeMap::new();
    let mut names = Names::new(&document);
    names.used.extend(alone);
    for PolicyNamed { block, key, policy, used_as } in &named {
        let mut blocks = document.sources.iter().chain(&document.sinks).chain(&document.settlers);
        if let Some(block) = blocks.find(|candidate| candidate.path == *block) {
            names.check_policy(reporter, block, key, policy, *used_as);
        }
    }
    for block in &document.flows {
        let (values, flow) = Flow::read(reporter, block);
        names.check_flow(reporter, block, &values);
        written.insert(block.path.clone(), values);
        flows.extend(flow.map(|flow| (Arc::clone(&block.name), flow)));
    }
    // A host without flows may still settle what others gave out.
    let settles = !document.settlers.is_empty() || !document.peers.is_empty();
    if document.flows.is_empty() && !settles && reporter.count() == 0 {
        reporter.at_top(Problem::NoFlows);
    }
    let mut warnings = names.unused(reporter, &document);
    warnings.extend(document.flows.iter().filter_map(|block| {
        let flow = flows.get(&block.name)?;
        let drops = flow.valves.exhausted == Exhausted::Reject && flow.dead_letter.is_none();
        let place = || reporter.place_of_value(block, "exhausted");
        drops.then(|| Warning { place: place(), oddity: Oddity::NoDeadLetter })
    }));
    warnings.sort_by(|a, b| a.place.order().cmp(&b.place.order()));
    let policy_uses = names.policy_uses;
    let host = host?;
    Some(Config {
        host,
        policies,
        sources,
        sinks,
        settlers,
        peers,
        flows,
        policy_uses,
        warnings,
        base_dir,
        written,
    })
}

/// The names that flows may refer to, whether or not what they name is valid: a mistake is reported once, where it is.
struct Names<'d> {
    sources: BTreeSet<&'d str>,
    sinks: BTreeSet<&'d str>,
    policies: BTreeSet<&'d str>,
    /// Which flow a source feeds.
    fed: BTreeMap<String, Arc<str>>,
    /// The paths of sections that flows refer to.
    used: BTreeSet<String>,
    policy_uses: BTreeMap<Arc<str>, PolicyUse>,
}

impl<'d> Names<'d> {
    fn new(document: &'d Document) -> Self {
        let names = |blocks: &'d [Block]| blocks.iter().map(|block| &*block.name).collect();
        Self {
            sources: names(&document.sources),
            sinks: names(&document.sinks),
            policies: names(&document.policies),
            fed: BTreeMap::new(),
            used: BTreeSet::new(),
            policy_uses: BTreeMap::new(),
        }
    }

    fn check_flow(&mut self, reporter: &mut Reporter<'_>, block: &Block, values: &Values) {
        let named = [
            ("source", "source", "sources", &self.sources, values.text("source")),
            ("sink", "sink", "sinks", &self.sinks, values.text("sink")),
            ("dead-letter", "sink", "sinks", &self.sinks, values.text("dead-letter")),
        ];
        let named = named
            .into_iter()
            .filter_map(|(key, what, section, known, name)| Some((key, what, section, known, name?)));
        let several = values.list("sinks").iter();
        let several = several.map(|name| ("sinks", "sink", "sinks", &self.sinks, name.as_str()));
        for (key, what, section, known, name) in named.chain(several) {
            if known.contains(name) {
                self.used.insert(format!("{section}.{name}"));
            } else {
                let problem = Problem::UnknownName {
                    what,
                    found: name.to_owned(),
                    nearest: nearest(name, known.iter().copied()).map(Into::into),
                    known: list(known),
                };
                reporter.at_value(block, key, problem);
            }
        }
        for key in ["throttle", "shadow"] {
            if let Some(policy) = values.text(key) {
                self.check_policy(reporter, block, key, policy, PolicyUse::Throttle);
            }
        }
        if let (Some(throttle), Some(shadow)) = (values.text("throttle"), values.text("shadow"))
            && throttle == shadow
        {
            let detail =
                format!("names the policy `{shadow}`, which decides already; a shadow is another policy");
            reporter.at_value(block, "shadow", Problem::Value { detail });
        }
        let Some(source) = values.text("source") else { return };
        match self.fed.get(source) {
            Some(flow) => {
                let problem =
                    Problem::SourceShared { source_name: source.to_owned(), flow: flow.to_string() };
                reporter.at_value(block, "source", problem);
            }
            None => {
                self.fed.insert(source.to_owned(), Arc::clone(&block.name));
            }
        }
    }

    /// Whether there is such a policy, and it is used for nothing else: a component is of one world.
    fn check_policy(
        &mut self,
        reporter: &mut Reporter<'_>,
        block: &Block,
        key: &str,
        name: &str,
        used_as: PolicyUse,
    ) {
        if !self.policies.contains(name) {
            let problem = Problem::UnknownName {
                what: "policy",
                found: name.to_owned(),
                nearest: nearest(name, self.policies.iter().copied()).map(Into::into),
                known: list(&self.policies),
            };
            return reporter.at_value(block, key, problem);
        }
        self.used.insert(format!("policies.{name}"));
        let first = self.policy_uses.entry(name.into()).or_insert(used_as);
        if *first != used_as {
            let (first, now) = (first.name(), used_as.name());
            let detail = format!(
                "uses the policy `{name}` as {now}, and it is used as {first} elsewhere; configure it twice, under \
                 two names"
            );
            reporter.at_value(block, key, Problem::Value { detail });
        }
    }

    fn unused(&self, reporter: &Reporter<'_>, document: &Document) -> Vec<Warning> {
        let blocks = [&document.policies, &document.sources, &document.sinks];
        let unused = blocks.into_iter().flatten().filter(|block| !self.used.contains(&block.path));
        unused.map(|block| Warning { place: reporter.place_of(block), oddity: Oddity::Unused }).collect()
    }
}

fn list(known: &BTreeSet<&str>) -> String {
    /// More would bury the sentence.
    const LISTED_MAX: usize = 8;
    let mut text =
        known.iter().take(LISTED_MAX).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if known.len() > LISTED_MAX {
        text.push_str(&format!(" and {} more", known.len() - LISTED_MAX));
    }
    text
}

fn base_dir(file: &str) -> PathBuf {
    Path::new(file).parent().unwrap_or(Path::new("")).to_owned()
}

#[cfg(test)]
mod tests;
