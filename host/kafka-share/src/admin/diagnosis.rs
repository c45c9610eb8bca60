//! Why nothing would arrive. First everything that may be known is asked for, then it is judged, sans-io.

mod cause;
mod facts;
mod judge;

pub use cause::{Cause, Severity};

use super::ShareGroupAdmin;

/// What somebody means to do with a group.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Expectation {
    /// The topics to fetch from; when there are none, those that the group's members want or the group stands in.
    pub topics: Vec<Box<str>>,
    /// Whether locks are to be renewed.
    pub renews_locks: bool,
}

/// Something that keeps records away, or may.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is. Its text is a sentence that says what to do.
    pub cause: Cause,
}

impl ShareGroupAdmin {
    /// Why nothing would arrive at a member of `group`, the worst first; nothing when nothing is found. Changes nothing and
    /// joins nothing. What the client has no right to see is a finding too.
    pub async fn diagnose(&mut self, group: &str, expectation: &Expectation) -> Vec<Finding> {
        let facts = self.facts(group, expectation).await;
        let mut findings = judge::judge(&facts);
        findings.sort_by_key(|finding| finding.severity);
        findings
    }
}
