//! What is found when somebody looks at a broker step by step, for people.

use std::fmt;

/// The width of a step's name, unless one is longer.
const NAME_CHARS: usize = 10;

/// What was found, in the order in which it was looked at.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckReport {
    /// One per thing looked at; the last one may be a failure that made the rest pointless.
    pub steps: Vec<CheckStep>,
}

/// One thing looked at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckStep {
    /// What, in a word or two.
    pub name: &'static str,
    /// How it is.
    pub outcome: CheckOutcome,
    /// In one sentence.
    pub detail: String,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CheckOutcome {
    /// As it should be.
    Good,
    /// It works, but there is something to know.
    Warning,
    /// It does not work.
    Failed,
}

impl CheckReport {
    /// Whether what was looked at would work.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.steps.iter().all(|step| step.outcome != CheckOutcome::Failed)
    }

    /// Notes something that is as it should be.
    pub fn good(&mut self, name: &'static str, detail: impl Into<String>) {
        self.push(name, CheckOutcome::Good, detail);
    }

    /// Notes something to know.
    pub fn warn(&mut self, name: &'static str, detail: impl Into<String>) {
        self.push(name, CheckOutcome::Warning, detail);
    }

    /// Notes something that does not work.
    pub fn fail(&mut self, name: &'static str, detail: impl Into<String>) {
        self.push(name, CheckOutcome::Failed, detail);
    }

    /// Notes one more step.
    pub fn push(&mut self, name: &'static str, outcome: CheckOutcome, detail: impl Into<String>) {
        self.steps.push(CheckStep { name, outcome, detail: detail.into() });
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wide = self.steps.iter().map(|step| step.name.len()).max().unwrap_or_default().max(NAME_CHARS);
        for CheckStep { name, outcome, detail } in &self.steps {
            let mark = match outcome {
                CheckOutcome::Good => "ok",
                CheckOutcome::Warning => "warning",
                CheckOutcome::Failed => "failed",
            };
            writeln!(f, "{name:<wide$} {mark:<8} {detail}")?;
        }
        Ok(())
    }
}
