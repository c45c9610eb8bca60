//! The host as the admin API shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_admin::{
    Breaker, CallFailure, FlowState, FlowTotals, FlowView, Generation, Inspect, PolicyState, PolicyView,
    Refusal, UndecidedEndings,
};
use tidegate_pipeline::{FlowStatus, Host};
use tidegate_policy::PolicyStatus;

/// The running host, for the admin API.
#[derive(Clone, Debug)]
pub(crate) struct View(pub(crate) Arc<Host>);

impl Inspect for View {
    fn flows(&self) -> Vec<FlowView> {
        self.0.flows().into_iter().map(flow_view).collect()
    }

    fn policies(&self) -> Vec<PolicyView> {
        self.0.policies().into_iter().map(policy_view).collect()
    }
}

fn flow_view(status: FlowStatus) -> FlowView {
    let totals = status.totals;
    let undecided = totals.undecided_endings;
    FlowView {
        name: status.name.to_string(),
        source: status.source.to_string(),
        throttle: status.throttle.map(|name| name.to_string()),
        sink: status.sink.to_string(),
        state: match status.state {
            tidegate_pipeline::FlowState::Running => FlowState::Running,
            tidegate_pipeline::FlowState::Draining => FlowState::Draining,
            tidegate_pipeline::FlowState::Stopped => FlowState::Stopped,
            tidegate_pipeline::FlowState::Failed => FlowState::Failed,
        },
        joined: status.joined,
        remarks: status.remarks,
        in_flight: status.in_flight,
        in_flight_bytes: status.in_flight_bytes,
        undecided: status.undecided,
        queued: status.queued,
        emitted: status.emitted,
        active_keys: status.active_keys,
        totals: FlowTotals {
            received: totals.received,
            delivered: totals.delivered,
            deferred: totals.deferred,
            rejected: totals.rejected,
            discarded: totals.discarded,
            undecided_endings: UndecidedEndings {
                dropped: undecided.dropped,
                expired: undecided.expired,
                merged: undecided.merged,
                released: undecided.released,
            },
            on_error: totals.on_error,
            emitted: totals.emitted,
            accepted: totals.accepted,
            settle_failures: totals.settle_failures,
            expired: totals.expired,
            redelivered: totals.redelivered,
            receive_errors: totals.receive_errors,
        },
    }
}

fn policy_view(status: PolicyStatus) -> PolicyView {
    use tidegate_policy::PolicyState as State;
    let named = |counts: BTreeMap<&'static str, u64>| {
        counts.into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
    };
    PolicyView {
        name: status.name.to_string(),
        state: match status.state {
            State::Active => PolicyState::Active,
            State::Outdated => PolicyState::Outdated,
            State::Absent => PolicyState::Absent,
            State::Failed => PolicyState::Failed,
            State::Broken => PolicyState::Broken,
            State::Paused => PolicyState::Paused,
        },
        component: status.component.display().to_string(),
        rules: status.rules.map(|path| path.display().to_string()),
        on_error: status.on_error,
        active: status.active.map(|active| Generation {
            number: active.generation,
            since_unix_ms: active.since,
            component_sha256: active.component_sha256.to_string(),
            rules_sha256: active.rules_sha256.map(|digest| digest.to_string()),
            name: active.name,
            version: active.version,
            summary: active.summary,
        }),
        remarks: status.remarks,
        refused: status.last_error.map(|error| Refusal {
            since_unix_ms: error.since,
            check: error.rung.label().to_owned(),
            reason: error.reason,
        }),
        breaker: status
            .breaker
            .map(|breaker| Breaker { since_unix_ms: breaker.since, reason: breaker.reason.to_owned() }),
        last_failure: status.last_failure.map(|last| CallFailure {
            at_unix_ms: last.at,
            reason: last.failure.to_string(),
            frames: last.failure.frames,
        }),
        verdicts: named(status.counts.verdicts),
        failures: named(status.counts.failures),
        reloads_applied: status.counts.reloads_applied,
        reloads_refused: status.counts.reloads_rejected,
    }
}
