//! Trying a policy without running it: `tidegate policy check`.

use std::sync::Arc;

use serde::Serialize;

use crate::bindings::v1::lifecycle::{Description, Parameter, ParameterKind};
use crate::engine::Engine;
use crate::ladder::{Candidate, Ladder, RungOutcome, RungReport};
use crate::section::Trailer;
use crate::spec::PolicySpec;
use crate::world::{World, grants_needed};

/// Every check and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CheckReport {
    /// The policy's name.
    pub policy: Arc<str>,
    /// Whether it would go into force.
    pub passed: bool,
    /// The checks in their order.
    pub rungs: Vec<RungReport>,
    /// Digest of the component, when it could be read.
    pub component_sha256: Option<Arc<str>>,
    /// What it is for, when it came that far and passed.
    pub world: Option<World>,
    /// Whether it wants to know how deliveries end.
    pub observes: bool,
    /// The interfaces that it imports.
    pub imports: Vec<String>,
    /// Those among them that it must be granted something of: `env`, `files`, `http`.
    pub grants_needed: Vec<&'static str>,
    /// The section at the end of the component.
    pub trailer: Option<Trailer>,
    /// What the policy says about itself, when it came that far and passed.
    pub description: Option<Described>,
}

/// What a policy says about itself.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Described {
    /// What it calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it does.
    pub summary: String,
    /// What its rules may set.
    pub parameters: Vec<DescribedParameter>,
}

/// One thing that a rules file may set.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DescribedParameter {
    /// The key.
    pub name: String,
    /// How it is written: `boolean`, `integer`, `number`, `text`, `duration`, `size`, `list` or `table`.
    pub kind: &'static str,
    /// Whether it must be set.
    pub required: bool,
    /// What holds when it is not set, as JSON.
    pub default: Option<String>,
    /// What it does.
    pub summary: String,
}

impl CheckReport {
    /// Why it would not go into force.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.rungs.iter().find_map(|report| match &report.outcome {
            RungOutcome::Failed(reason) => Some(reason.as_str()),
            _ => None,
        })
    }
}

/// Puts the files of `spec` through every check that a reload makes, changing nothing.
#[must_use]
pub fn check(engine: &Engine, spec: &PolicySpec) -> CheckReport {
    climb(engine, spec).0
}

/// The same, with what passed.
pub(crate) fn climb(engine: &Engine, spec: &PolicySpec) -> (CheckReport, Option<Candidate>) {
    let mut ladder = Ladder::default();
    let files = ladder.read(spec);
    let candidate = files.as_ref().ok().and_then(|files| ladder.check(engine, spec, files, None).ok());
    let prepared = candidate.as_ref().map(|candidate| &*candidate.prepared);
    let report = CheckReport {
        policy: Arc::clone(&spec.name),
        passed: prepared.is_some(),
        component_sha256: files.ok().map(|files| files.component_sha256),
        world: prepared.map(|prepared| prepared.world),
        observes: prepared.is_some_and(|prepared| prepared.linked.observes()),
        imports: prepared.map(|prepared| prepared.imports.clone()).unwrap_or_default(),
        grants_needed: prepared.map(|prepared| grants_needed(&prepared.imports)).unwrap_or_default(),
        trailer: prepared.and_then(|prepared| prepared.trailer.clone()),
        description: prepared.map(|prepared| Described::of(&prepared.description)),
        rungs: ladder.into_rungs(),
    };
    (report, candidate)
}

impl Described {
    pub(crate) fn of(description: &Description) -> Self {
        Self {
            name: description.name.clone(),
            version: description.version.clone(),
            summary: description.summary.clone(),
            parameters: description.parameters.iter().map(parameter).collect(),
        }
    }
}

fn parameter(parameter: &Parameter) -> DescribedParameter {
    let kind = match parameter.kind {
        ParameterKind::Boolean => "boolean",
        ParameterKind::Integer => "integer",
        ParameterKind::Number => "number",
        ParameterKind::Text => "text",
        ParameterKind::Duration => "duration",
        ParameterKind::Size => "size",
        ParameterKind::List => "list",
        ParameterKind::Table => "table",
    };
    DescribedParameter {
        name: parameter.name.clone(),
        kind,
        required: parameter.required,
        default: parameter.default.clone(),
        summary: parameter.summary.clone(),
    }
}
