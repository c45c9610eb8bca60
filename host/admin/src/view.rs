//! What the API shows.

mod comparison;
mod flow;
mod policy;

use serde::Serialize;

pub use comparison::{ComparisonView, DifferenceView, KeyCount, PairCount};
pub use flow::{
    DeadLetterTotals, DrainView, FlowState, FlowTotals, FlowView, PausedBy, SinkTrouble, SinkView,
    UndecidedEndings,
};
pub use policy::{
    Breaker, CallFailure, Generation, Kept, Origin, PolicyMode, PolicyState, PolicyView, Refusal,
};

/// Where the API gets what it shows. Called for each request on a thread that may block for a moment.
pub trait Inspect: Send + Sync + 'static {
    /// Every configured flow, by name.
    fn flows(&self) -> Vec<FlowView>;

    /// Every configured policy, by name.
    fn policies(&self) -> Vec<PolicyView>;

    /// What a flow's policies in shadow mode would have said, by policy; `None` when there is no such flow.
    fn comparisons(&self, flow: &str) -> Option<Vec<ComparisonView>>;
}

/// Whether every flow runs and is served by its broker, or was paused or drained by an operator.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Readiness {
    /// Whether every flow runs and is served by its broker, or was paused or drained by an operator.
    pub ready: bool,
    /// The flows of which neither is true.
    pub reasons: Vec<Unready>,
}

/// A flow that does not run or is not served.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Unready {
    /// The flow.
    pub flow: String,
    /// Why not, in a sentence.
    pub reason: String,
}

/// What is running.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct VersionView {
    /// The host's version.
    pub version: &'static str,
    /// The processor that it was built for.
    pub arch: &'static str,
    /// The operating system that it was built for.
    pub os: &'static str,
}

impl Readiness {
    /// Of a host with these flows.
    #[must_use]
    pub fn of(flows: &[FlowView]) -> Self {
        let unready = |flow: &FlowView| {
            let reason = flow.unready()?;
            Some(Unready { flow: flow.name.clone(), reason })
        };
        let reasons: Vec<_> = flows.iter().filter_map(unready).collect();
        Self { ready: reasons.is_empty(), reasons }
    }
}

impl VersionView {
    /// Of this build.
    #[must_use]
    pub const fn current() -> Self {
        Self { version: env!("CARGO_PKG_VERSION"), arch: std::env::consts::ARCH, os: std::env::consts::OS }
    }
}
