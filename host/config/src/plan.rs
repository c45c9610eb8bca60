//! What changes between two configurations: what a running host applies at once, and what needs a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use tidegate_connector::options::Values;

use crate::config::Config;
use crate::sections::{FLOW_LIVE, HOST_LIVE};

/// The differences between two configurations, in the order of their keys.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ReloadPlan {
    /// Applied at once.
    pub live: Vec<Change>,
    /// In force after a restart.
    pub restart: Vec<Change>,
}

/// One difference. Shows no secret.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Change {
    /// The full path of the key, such as `flows.tenants.exhausted`, or of a section that came or went.
    pub key: String,
    /// The value before; `None` when there was none.
    pub old: Option<String>,
    /// The value now; `None` when there is none.
    pub new: Option<String>,
}

/// What a running host would have to do to get from `old` to `new`.
#[must_use]
pub fn plan(old: &Config, new: &Config) -> ReloadPlan {
    let mut plan = ReloadPlan::default();
    let (old_sections, new_sections) = (sections(old), sections(new));
    let paths: BTreeSet<_> = old_sections.keys().chain(new_sections.keys()).collect();
    for path in paths {
        match (old_sections.get(path), new_sections.get(path)) {
            (Some(old), Some(new)) => plan.compare(path, old, new),
            (Some(_), None) => plan.restart.push(Change::section(path, Some("configured"), None)),
            (None, Some(_)) => plan.restart.push(Change::section(path, None, Some("configured"))),
            (None, None) => {}
        }
    }
    plan
}

// === impl ReloadPlan ===

impl ReloadPlan {
    /// Whether the two configurations are the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.restart.is_empty()
    }

    /// Whether the log level changes, live.
    #[must_use]
    pub fn changes_log_level(&self) -> bool {
        self.live.iter().any(|change| change.key == "host.log-level")
    }

    /// The policies that change live.
    #[must_use]
    pub fn policies(&self) -> BTreeSet<Arc<str>> {
        self.names("policies")
    }

    /// The flows whose valves change live.
    #[must_use]
    pub fn flows(&self) -> BTreeSet<Arc<str>> {
        self.names("flows")
    }

    fn names(&self, section: &str) -> BTreeSet<Arc<str>> {
        let names = self.live.iter().filter_map(|change| {
            let mut parts = change.key.split('.');
            (parts.next() == Some(section)).then(|| parts.next()).flatten()
        });
        names.map(Arc::from).collect()
    }

    fn compare(&mut self, path: &str, old: &Section<'_>, new: &Section<'_>) {
        if old.connector != new.connector {
            let shown = |connector: Option<&str>| connector.map(|connector| format!("`{connector}`"));
            self.restart.push(Change {
                key: format!("{path}.connector"),
                old: shown(old.connector),
                new: shown(new.connector),
            });
            return;
        }
        let keys: BTreeSet<_> = old.values.keys().chain(new.values.keys()).collect();
        for key in keys.into_iter().filter(|key| old.values.get(key) != new.values.get(key)) {
            let change = Change {
                key: format!("{path}.{key}"),
                old: old.values.shown(key),
                new: new.values.shown(key),
            };
            if old.liveness.is_live(key) {
                self.live.push(change);
            } else {
                self.restart.push(change);
            }
        }
    }
}

/// For people: one line each.
impl fmt::Display for ReloadPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing changed");
        }
        let live = self.live.iter().map(|change| (change, "at once"));
        let restart = self.restart.iter().map(|change| (change, "needs a restart"));
        for (at, (change, when)) in live.chain(restart).enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{change} ({when})")?;
        }
        Ok(())
    }
}

// === impl Change ===

impl Change {
    fn section(path: &str, old: Option<&str>, new: Option<&str>) -> Self {
        Self { key: path.to_owned(), old: old.map(Into::into), new: new.map(Into::into) }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        write!(f, "`{}`: {} -> {}", self.key, shown(&self.old), shown(&self.new))
    }
}

/// What is compared of one section.
struct Section<'a> {
    connector: Option<&'a str>,
    values: &'a Values,
    liveness: Liveness,
}

/// Which keys of a section change live.
#[derive(Clone, Copy)]
enum Liveness {
    All,
    None,
    Only(&'static [&'static str]),
}

impl Liveness {
    fn is_live(self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Only(keys) => keys.contains(&key),
        }
    }
}

fn sections(config: &Config) -> BTreeMap<String, Section<'_>> {
    let own = config.written.iter().map(|(path, values)| {
        let liveness = match path.split('.').next() {
            Some("policies") => Liveness::All,
            Some("flows") => Liveness::Only(FLOW_LIVE),
            _ => Liveness::Only(HOST_LIVE),
        };
        (path.clone(), Section { connector: None, values, liveness })
    });
    let sources =
        config.sources.iter().map(|(name, source)| ("sources", name, &source.connector, &source.values));
    let sinks = config.sinks.iter().map(|(name, sink)| ("sinks", name, &sink.connector, &sink.values));
    let settlers =
        config.settlers.iter().map(|(name, settler)| ("settlers", name, &settler.connector, &settler.values));
    let connected = sources.chain(sinks).chain(settlers).map(|(section, name, connector, values)| {
        let section_values = Section { connector: Some(connector), values, liveness: Liveness::None };
        (format!("{section}.{name}"), section_values)
    });
    let peers = config.peers.iter().map(|(name, peer)| {
        let section = Section { connector: None, values: &peer.values, liveness: Liveness::None };
        (format!("peers.{name}"), section)
    });
    own.chain(connected).chain(peers).collect()
}

#[cfg(test)]
mod tests;
