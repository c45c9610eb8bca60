//! `[sources.NAME]`, `[sinks.NAME]` and `[settlers.NAME]`: a connector and its options.

use std::path::Path;
use std::sync::Arc;

use tidegate_connector::options::{Kind, PolicyUse, Raw, Values};

use super::{read_values, report};
use crate::catalog::{Catalog, Connector, Role};
use crate::document::{Block, Reporter};
use crate::error::Problem;

/// The longest secret that is read from a file, in bytes: keys and certificates are far below.
pub const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// One source: a connector and its options.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The connector's identifier.
    pub connector: Arc<str>,
    /// Its options, checked, with defaults.
    pub values: Values,
}

/// One sink: a connector and its options.
#[derive(Clone, Debug, PartialEq)]
pub struct Sink {
    /// The connector's identifier.
    pub connector: Arc<str>,
    /// Its options, checked, with defaults.
    pub values: Values,
}

/// What settles receipts of other hosts: a connector and how to reach its brokers.
#[derive(Clone, Debug, PartialEq)]
pub struct Settler {
    /// The connector's identifier.
    pub connector: Arc<str>,
    /// Its options, checked, with defaults.
    pub values: Values,
}

/// Where an option of a connector names a policy.
#[derive(Debug)]
pub(crate) struct PolicyNamed {
    /// The path of the section.
    pub(crate) block: String,
    pub(crate) key: &'static str,
    pub(crate) policy: String,
    pub(crate) used_as: PolicyUse,
}

/// The connector's identifier and its options; `None` when there is no such connector, which has been reported.
pub(crate) fn read(
    reporter: &mut Reporter<'_>,
    block: &mut Block,
    role: Role,
    catalog: &Catalog<'_>,
    base_dir: &Path,
    uses: &mut Vec<PolicyNamed>,
) -> Option<(Arc<str>, Values)> {
    let connector = read_identifier(reporter, block, role, catalog)?;
    let table = connector.table();
    let errors_before = reporter.count();
    for (key, reason) in connector.refused_names() {
        if block.raw().contains_key(key) {
            reporter.at_key(block, key, Problem::Unsupported { reason: reason.to_owned() });
            block.take(key);
        }
    }
    for spec in table.on_side(role.side()).filter(|spec| spec.kind == Kind::Pairs) {
        block.gather(spec.key);
    }
    let mut values = read_values(reporter, block, role.side(), table);
    for spec in table.on_side(role.side()).filter(|spec| block.raw().contains_key(spec.key)) {
        if let Some(reason) = connector.unsupported(spec.key) {
            reporter.at_key(block, spec.key, Problem::Unsupported { reason: reason.to_owned() });
        } else if let (Kind::PolicyName(used_as), Some(policy)) = (spec.kind, values.text(spec.key)) {
            uses.push(PolicyNamed {
                key: spec.key,
                policy: policy.to_owned(),
                used_as,
                block: block.path.clone(),
            });
        }
    }
    // The connector looks at values that are valid each by itself, or it would report the same mistakes again.
    if reporter.count() == errors_before {
        for error in connector.check(role, &values) {
            report(reporter, block, table, role.side(), error);
        }
    }
    for spec in table.on_side(role.side()).filter(|spec| spec.kind == Kind::Path) {
        if let Some(path) = values.text(spec.key) {
            let path = base_dir.join(path).display().to_string();
            values.set_text(spec.key, path);
        }
    }
    Some((table.connector.into(), values))
}

fn read_identifier<'a>(
    reporter: &mut Reporter<'_>,
    block: &mut Block,
    role: Role,
    catalog: &Catalog<'a>,
) -> Option<&'a Connector<'a>> {
    const KEY: &str = "connector";
    let identifier = match block.take(KEY) {
        Some(Raw::Text(identifier)) => identifier,
        None => {
            let summary = role.connector_summary();
            reporter.at_key(block, KEY, Problem::Missing { summary });
            return None;
        }
        Some(other) => {
            let detail = format!("must be the identifier of a connector, not {}", noun(&other));
            reporter.at_value(block, KEY, Problem::Value { detail });
            return None;
        }
    };
    let connector = catalog.find(role, &identifier);
    if connector.is_none() {
        let known: Vec<_> =
            catalog.of(role).map(|connector| format!("`{}`", connector.table().connector)).collect();
        let problem = Problem::UnknownConnector {
            nearest: catalog.nearest(role, &identifier),
            found: identifier,
            role: role.name(),
            known: known.join(", "),
        };
        reporter.at_value(block, KEY, problem);
    }
    connector
}

fn noun(raw: &Raw) -> String {
    match raw {
        Raw::Text(text) => format!("`{text}`"),
        Raw::Integer(number) => format!("the number {number}"),
        Raw::Bool(value) => value.to_string(),
        Raw::List(_) => "an array".to_owned(),
        Raw::Pairs(_) => "a table".to_owned(),
        Raw::Other(what) => (*what).to_owned(),
    }
}
