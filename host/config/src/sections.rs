//! The sections as types. Each is read through an option table, like a connector's options, so that its keys,
//! defaults, errors and reference come from one place.

mod connectors;
mod flow;
mod host;
mod peer;
mod policy;

use std::path::{Path, PathBuf};

use tidegate_connector::options::{OptionError, Side, Table, Values};

pub use connectors::{SECRET_BYTES_MAX, Settler, Sink, Source};
pub use flow::{AckMode, Exhausted, FLOW_TABLE, Flow, KeyBy, Valves};
pub use host::{HOST_TABLE, Host, LogFormat, LogLevel};
pub use peer::{PEER_TABLE, Peer};
pub use policy::{Grants, Limits, Mode, OnError, POLICY_TABLE, Policy};

pub(crate) use connectors::{PolicyNamed, read as read_connector};
pub(crate) use flow::FLOW_LIVE;
pub(crate) use host::HOST_LIVE;

use crate::document::{Block, EMPTY_TABLE, Reporter};
use crate::error::Problem;

/// A section of the host's own, as opposed to those that have a connector's options.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// How its header is written.
    pub header: &'static str,
    /// Its keys. The table is called like the first part of the header.
    pub table: &'static Table,
}

/// The sections of the host's own. The parser reads them through the same tables.
pub const SECTIONS: [Section; 4] = [
    Section { header: "[host]", table: &HOST_TABLE },
    Section { header: "[policies.NAME]", table: &POLICY_TABLE },
    Section { header: "[flows.NAME]", table: &FLOW_TABLE },
    Section { header: "[peers.NAME]", table: &PEER_TABLE },
];

/// Reads a block through a table, reporting every mistake at its place. What is valid is returned either way.
pub(crate) fn read_values(reporter: &mut Reporter<'_>, block: &Block, side: Side, table: &Table) -> Values {
    let (values, errors) = table.read_valid(side, block.raw());
    let meant: Vec<_> = errors
        .iter()
        .filter_map(|error| match error {
            OptionError::Unknown { nearest, .. } => *nearest,
            _ => None,
        })
        .collect();
    for error in errors {
        // A required key that is only misspelt is one mistake.
        if !matches!(error, OptionError::Missing { key, .. } if meant.contains(&key)) {
            report(reporter, block, table, side, error);
        }
    }
    values
}

fn report(reporter: &mut Reporter<'_>, block: &Block, table: &Table, side: Side, error: OptionError) {
    let key = error.key().to_owned();
    match error {
        OptionError::Unknown { .. } => {
            let problem = misplaced(table, side, &key).unwrap_or_else(|| error.into());
            // A sub-table whose keys are all commented out says nothing wrong.
            let is_bare_group = matches!(problem, Problem::Group { .. }) && block.raw()[&key] == EMPTY_TABLE;
            if !is_bare_group {
                reporter.at_key(block, &key, problem);
            }
        }
        OptionError::WrongSide { .. } | OptionError::Missing { .. } => {
            reporter.at_key(block, &key, error.into());
        }
        OptionError::Invalid { .. } => reporter.at_value(block, &key, error.into()),
    }
}

/// What is wrong with an unknown key that is the beginning of a known one, or the other way round.
fn misplaced(table: &Table, side: Side, key: &str) -> Option<Problem> {
    let is_below = |key: &str, group: &str| key.strip_prefix(group).is_some_and(|rest| rest.starts_with('.'));
    table.on_side(side).find_map(|spec| {
        if is_below(spec.key, key) {
            Some(Problem::Group { example: spec.key.to_owned() })
        } else if is_below(key, spec.key) {
            Some(Problem::TooDeep { parent: spec.key, kind: spec.kind.to_string() })
        } else {
            None
        }
    })
}

/// A path in the configuration counts from the directory `base`.
pub(crate) fn path_from(base: &Path, text: &str) -> PathBuf {
    base.join(text)
}
