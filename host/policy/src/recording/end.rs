//! The last line of a recording.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// How the line begins, by which it is told from a decision.
pub(super) const BEGINNING: &[u8] = br#"{"end":"#;

/// The last line of a recording that was not broken off.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct End {
    /// Why it ended.
    pub end: EndCause,
    /// Decisions in the recording.
    pub recorded: u64,
    /// Decisions about keys of the recording that are not in it, because whoever took them in was too slow. A policy
    /// with a memory may answer differently after a gap.
    pub missed: u64,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndCause {
    /// Its time was over.
    Time,
    /// It has as many decisions as it was to have.
    Count,
    /// The flow ended, or the host.
    Flow,
    /// Whoever recorded it had enough. What was missed until then is not known.
    Interrupted,
}

impl End {
    /// Writes it as a line.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        super::write_line(self, to)
    }
}
