//! The host as the admin API shows and changes it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tidegate_admin::{
    Breaker, CallFailure, ComparisonView, DeadLetterTotals, DifferenceView, DrainView, FlowChange, FlowState,
    FlowTotals, FlowView, Generation, Inspect, Kept, KeyCount, Operate, OperateError, Origin, PairCount,
    PauseView, PausedBy, PolicyMode, PolicyState, PolicyView, RecordingWanted, Refusal, ReloadView,
    RollbackView, RungOutcome, RungView, SinkTrouble, SinkView, TapWanted, UndecidedEndings, Verdict,
};
use tidegate_connector::{Clock, SinkStatus};
use tidegate_pipeline::{ControlError, Drain, FlowStatus, Host, Pause, RecordingOptions, TapOptions};
use tidegate_policy::{
    Active, Comparison, Kind, LoadError, Masking, PolicyStatus, ReloadError, Rung, RungOutcome as Outcome,
    RungReport,
};
use tokio::runtime::Handle;

/// The most of a body that is recorded: as much as a broker takes, so that each line can be read again.
const BODY_BYTES_MAX: usize = 4 << 20;

/// How long an answer waits for a drain, which goes on all the same. Shorter than the API's own bound for a change.
const DRAIN_ANSWER: Duration = Duration::from_secs(150);

/// The running host, for the admin API.
#[derive(Clone, Debug)]
pub(crate) struct View(pub(crate) Arc<Host>);

impl Inspect for View {
    fn flows(&self) -> Vec<FlowView> {
        let clock = self.0.clock();
        self.0.flows().into_iter().map(|flow| flow_view(flow, &clock)).collect()
    }

    fn policies(&self) -> Vec<PolicyView> {
        let flows = self.0.flows();
        let uses = |name: &Option<Arc<str>>, policy: &str| name.as_deref() == Some(policy);
        let only_beside = |policy: &str| {
            flows.iter().any(|flow| uses(&flow.shadow, policy))
                && !flows.iter().any(|flow| uses(&flow.throttle, policy))
        };
        let view = |status: PolicyStatus| {
            let is_shadow = status.mode == "shadow" || only_beside(&status.name);
            policy_view(status, if is_shadow { PolicyMode::Shadow } else { PolicyMode::Enforce })
        };
        self.0.policies().into_iter().map(view).collect()
    }

    fn comparisons(&self, flow: &str) -> Option<Vec<ComparisonView>> {
        let comparisons = self.0.comparisons(flow)?;
        Some(comparisons.iter().map(|(policy, comparison)| comparison_view(policy, comparison)).collect())
    }
}

impl Operate for View {
    fn reload(&self, policy: &str, dry_run: bool) -> Result<ReloadView, OperateError> {
        match self.0.reload_policy(policy, dry_run) {
            Ok(report) => Ok(ReloadView {
                policy: policy.to_owned(),
                dry_run,
                passed: true,
                generation: Some(report.generation).filter(|number| *number > 0),
                changed: report.changed,
                error: None,
                rungs: rung_views(&report.rungs, None),
            }),
            Err(ReloadError::Rejected { rungs, source, .. }) => Ok(ReloadView {
                policy: policy.to_owned(),
                dry_run,
                passed: false,
                generation: self.generation(policy),
                changed: false,
                error: Some(sentence(&*source)),
                rungs: rung_views(&rungs, Some(&*source)),
            }),
            Err(error) => Err(operate_error(&error)),
        }
    }

    fn roll_back(&self, policy: &str) -> Result<RollbackView, OperateError> {
        let generation = self.0.roll_back_policy(policy).map_err(|error| operate_error(&error))?;
        Ok(RollbackView { policy: policy.to_owned(), generation })
    }

    fn set_paused(&self, policy: &str, paused: bool) -> Result<PauseView, OperateError> {
        let changed = self.0.pause_policy(policy, paused).map_err(|error| operate_error(&error))?;
        Ok(PauseView { policy: policy.to_owned(), paused, changed })
    }

    fn record(&self, flow: &str, wanted: RecordingWanted) -> Result<BoxStream<'static, Bytes>, OperateError> {
        let options = recording_options(wanted)?;
        let recording = self.0.record(flow, options).ok_or_else(|| unknown_flow(flow))?;
        let recording = recording.map_err(|error| OperateError::Conflict(sentence(&error)))?;
        let lines = stream::unfold(recording, |mut recording| async {
            Some((recording.next_lines().await?, recording))
        });
        Ok(lines.boxed())
    }

    fn tap(&self, flow: &str, wanted: TapWanted) -> Result<BoxStream<'static, Bytes>, OperateError> {
        let tap = self.0.tap(flow, tap_options(wanted)?).ok_or_else(|| unknown_flow(flow))?;
        let tap = tap.map_err(|error| OperateError::Conflict(sentence(&error)))?;
        let lines = stream::unfold(tap, |mut tap| async { Some((tap.next_lines().await?, tap)) });
        Ok(lines.boxed())
    }

    fn set_flow_paused(&self, flow: &str, paused: bool) -> Result<FlowChange, OperateError> {
        let set =
            async { if paused { self.0.pause_flow(flow).await } else { self.0.resume_flow(flow).await } };
        let set = Handle::current().block_on(set).ok_or_else(|| unknown_flow(flow))?;
        let changed = set.map_err(|error| match error {
            ControlError::Ending(_) => OperateError::Conflict(sentence(&error)),
            ControlError::Late => OperateError::Busy(sentence(&error)),
        })?;
        self.flow_change(flow, changed)
    }

    fn drain_flow(&self, flow: &str) -> Result<FlowChange, OperateError> {
        let draining = self.0.drain_flow(flow, DRAIN_ANSWER);
        let changed = Handle::current().block_on(draining).ok_or_else(|| unknown_flow(flow))?;
        self.flow_change(flow, changed)
    }
}

impl View {
    /// The number of what runs.
    fn generation(&self, policy: &str) -> Option<u64> {
        let status = self.0.policies().into_iter().find(|status| *status.name == *policy)?;
        Some(status.active?.generation)
    }

    fn flow_change(&self, flow: &str, changed: bool) -> Result<FlowChange, OperateError> {
        let status = self.0.flows().into_iter().find(|status| *status.name == *flow);
        let status = status.ok_or_else(|| unknown_flow(flow))?;
        let state = flow_state(status.state);
        let (in_flight, drain) = (status.in_flight, status.drain.map(drain_view));
        Ok(FlowChange { flow: flow.to_owned(), state, changed, in_flight, drain })
    }
}

fn unknown_flow(flow: &str) -> OperateError {
    OperateError::Unknown(format!("there is no flow `{flow}` in this host"))
}

fn tap_options(wanted: TapWanted) -> Result<TapOptions, OperateError> {
    let TapWanted { length, count, sample, key, verdicts, mask, mask_keys, body_bytes } = wanted;
    let verdict = |wanted| match wanted {
        Verdict::Deliver => Kind::Deliver,
        Verdict::Defer => Kind::Defer,
        Verdict::Reject => Kind::Reject,
        Verdict::Discard => Kind::Discard,
        Verdict::Stop => Kind::NoAnswer,
    };
    Ok(TapOptions {
        length,
        count_max: count.unwrap_or(u64::MAX),
        sample,
        key,
        verdicts: verdicts.into_iter().map(verdict).collect(),
        masking: masking(mask, body_bytes, mask_keys)?,
    })
}

fn masking(mask: Vec<String>, body_bytes: usize, keys: bool) -> Result<Masking, OperateError> {
    Masking::new(mask, body_bytes.min(BODY_BYTES_MAX), keys)
        .map_err(|error| OperateError::Conflict(sentence(&error)))
}

fn recording_options(wanted: RecordingWanted) -> Result<RecordingOptions, OperateError> {
    let RecordingWanted { length, count, sample, mask, mask_keys, body_bytes } = wanted;
    let masking = masking(mask, body_bytes, mask_keys)?;
    Ok(RecordingOptions { length, count_max: count.unwrap_or(u64::MAX), sample, masking })
}

fn operate_error(error: &ReloadError) -> OperateError {
    let text = sentence(error);
    match error {
        ReloadError::Unknown(_) => OperateError::Unknown(text),
        ReloadError::Rejected { .. } | ReloadError::NoRollback { .. } => OperateError::Conflict(text),
        ReloadError::Busy(_) | ReloadError::Crowded | ReloadError::Ended => OperateError::Busy(text),
    }
}

/// An error with its causes.
fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Every check in its order. Some refusals come without a failed check, as that of rules that became blank: the check
/// that they belong to shows them all the same.
fn rung_views(reports: &[RungReport], refused: Option<&LoadError>) -> Vec<RungView> {
    let is_told = reports.iter().any(|report| matches!(report.outcome, Outcome::Failed(_)));
    let untold = refused.filter(|_| !is_told);
    let view = |rung: &Rung| {
        let report = reports.iter().find(|report| report.rung == *rung);
        let (outcome, text) = match (untold, report.map(|report| &report.outcome)) {
            (Some(error), _) if error.rung() == *rung => (RungOutcome::Failed, Some(sentence(error))),
            (_, Some(Outcome::Passed)) => (RungOutcome::Passed, None),
            (_, Some(Outcome::Noted(text))) => (RungOutcome::Passed, Some(text.clone())),
            (_, Some(Outcome::Failed(text))) => (RungOutcome::Failed, Some(text.clone())),
            (_, Some(Outcome::Skipped) | None) => (RungOutcome::Skipped, None),
        };
        let took = report.map_or(0, |report| report.took.as_micros());
        let took_us = u64::try_from(took).unwrap_or(u64::MAX);
        RungView { rung: rung.label().to_owned(), outcome, text, took_us }
    };
    Rung::ALL.iter().map(view).collect()
}

fn comparison_view(policy: &str, comparison: &Comparison) -> ComparisonView {
    let mut keys: Vec<_> = comparison
        .by_key
        .iter()
        .map(|(key, count)| KeyCount { key: key.to_string(), count: *count })
        .collect();
    // Keys of one count stay in the order of their names.
    keys.sort_by_key(|key| Reverse(key.count));
    let differences = comparison.differences.iter().map(|difference| DifferenceView {
        at_unix_ms: difference.at_unix_ms,
        message_id: difference.message_id.to_string(),
        key: difference.key.to_string(),
        live: difference.live.label().to_owned(),
        shadow: difference.other.label().to_owned(),
    });
    ComparisonView {
        policy: policy.to_owned(),
        compared: comparison.compared,
        differing: comparison.differing(),
        pairs: pair_counts(comparison),
        keys,
        further_keys: comparison.further_keys,
        differences: differences.collect(),
    }
}

/// Pairs of verdicts, counted.
pub(crate) fn pair_counts(comparison: &Comparison) -> Vec<PairCount> {
    let count = |((live, other), count): (&(Kind, Kind), &u64)| PairCount {
        live: live.label().to_owned(),
        shadow: other.label().to_owned(),
        count: *count,
    };
    comparison.pairs.iter().map(count).collect()
}

const fn flow_state(state: tidegate_pipeline::FlowState) -> FlowState {
    match state {
        tidegate_pipeline::FlowState::Running => FlowState::Running,
        tidegate_pipeline::FlowState::Paused => FlowState::Paused,
        tidegate_pipeline::FlowState::Draining => FlowState::Draining,
        tidegate_pipeline::FlowState::Stopped => FlowState::Stopped,
        tidegate_pipeline::FlowState::Failed => FlowState::Failed,
    }
}

const fn drain_view(drain: Drain) -> DrainView {
    let Drain { held, accepted, deferred, released, rejected, failed } = drain;
    DrainView { held, accepted, deferred, released, rejected, failed }
}

fn sink_view(status: SinkStatus, clock: &Clock) -> SinkView {
    SinkView {
        name: status.name.to_string(),
        workers: status.workers,
        trouble: status.trouble.map(|trouble| SinkTrouble {
            since_unix_ms: clock.wall_at(trouble.since).as_unix_millis(),
            reason: trouble.detail.into(),
        }),
    }
}

fn flow_view(status: FlowStatus, clock: &Clock) -> FlowView {
    let totals = status.totals;
    let dead = totals.dead_letters;
    let undecided = totals.undecided_endings;
    FlowView {
        name: status.name.to_string(),
        source: status.source.to_string(),
        throttle: status.throttle.map(|name| name.to_string()),
        shadow: status.shadow.map(|name| name.to_string()),
        sink: status.sink.to_string(),
        sinks: status.sinks.into_iter().map(|sink| sink_view(sink, clock)).collect(),
        dead_letter: status.dead_letter.map(|sink| sink_view(sink, clock)),
        state: flow_state(status.state),
        paused_by: status.pause.map(|pause| match pause {
            Pause::Operator => PausedBy::Operator,
            Pause::DeadLetters { .. } => PausedBy::DeadLetters,
        }),
        drain: status.drain.map(drain_view),
        joined: status.joined,
        remarks: status.remarks,
        in_flight: status.in_flight,
        in_flight_bytes: status.in_flight_bytes,
        undecided: status.undecided,
        queued: status.queued,
        emitted: status.emitted,
        settling: status.settling,
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
            dead_letters: DeadLetterTotals {
                taken: dead.taken,
                broker: dead.broker,
                dropped: dead.dropped,
                refused: dead.refused,
                held_back: dead.held_back,
            },
        },
    }
}

fn policy_view(status: PolicyStatus, mode: PolicyMode) -> PolicyView {
    use tidegate_policy::PolicyState as State;
    let named = |counts: BTreeMap<&'static str, u64>| {
        counts.into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
    };
    PolicyView {
        name: status.name.to_string(),
        world: status.world.map(|world| world.name().to_owned()),
        state: match status.state {
            State::Active => PolicyState::Active,
            State::Outdated => PolicyState::Outdated,
            State::Absent => PolicyState::Absent,
            State::Failed => PolicyState::Failed,
            State::Broken => PolicyState::Broken,
            State::Paused => PolicyState::Paused,
        },
        mode,
        component: status.component.display().to_string(),
        rules: status.rules.map(|path| path.display().to_string()),
        on_error: status.on_error,
        active: status.active.map(generation_view),
        previous_generation: status.previous_generation,
        generations: status.generations,
        remarks: status.remarks,
        refused: status.last_error.map(|error| Refusal {
            since_unix_ms: error.since,
            check: error.rung.label().to_owned(),
            cause: error.cause.to_owned(),
            reason: error.reason,
        }),
        last_success_unix_ms: status.last_success,
        breaker: status
            .breaker
            .map(|breaker| Breaker { since_unix_ms: breaker.since, reason: breaker.reason.to_owned() }),
        last_failure: status.last_failure.map(|last| CallFailure {
            at_unix_ms: last.at,
            cause: last.failure.cause.label().to_owned(),
            reason: last.failure.to_string(),
            said: last.failure.said,
            frames: last.failure.frames,
        }),
        verdicts: named(status.counts.verdicts),
        failures: named(status.counts.failures),
        reloads_applied: status.counts.reloads_applied,
        reloads_refused: status.counts.reloads_rejected,
        rollbacks: status.counts.rollbacks,
        poisoned: status.counts.poisoned,
        instances_started: status.counts.instances_started,
        kept: Kept {
            buckets: status.kept.buckets,
            counters: status.kept.counters,
            evicted: status.kept.evicted,
        },
    }
}

fn generation_view(active: Active) -> Generation {
    Generation {
        number: active.generation,
        origin: match active.origin {
            "last-good" => Origin::LastGood,
            "earlier" => Origin::Earlier,
            _ => Origin::Files,
        },
        on_probation: active.on_probation,
        since_unix_ms: active.since,
        component_sha256: active.component_sha256.to_string(),
        rules_sha256: active.rules_sha256.map(|digest| digest.to_string()),
        name: active.name,
        version: active.version,
        summary: active.summary,
        sdk: active.sdk,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(rung: Rung, outcome: Outcome) -> RungReport {
        RungReport { rung, outcome, took: Duration::from_micros(7) }
    }

    fn outcomes(rungs: &[RungView]) -> Vec<(&str, RungOutcome)> {
        rungs.iter().map(|rung| (rung.rung.as_str(), rung.outcome)).collect()
    }

    #[test]
    fn every_check_is_told_in_its_order() {
        let made = [
            report(Rung::Read, Outcome::Passed),
            report(Rung::Instantiate, Outcome::Noted("quick".to_owned())),
            report(Rung::Rules, Outcome::Failed("no".to_owned())),
            report(Rung::Format, Outcome::Skipped),
        ];
        let rungs = rung_views(&made, None);
        assert_eq!(rungs.len(), Rung::ALL.len());
        assert_eq!(
            outcomes(&rungs)[..3],
            [("read", RungOutcome::Passed), ("size", RungOutcome::Skipped), ("format", RungOutcome::Skipped),]
        );
        assert_eq!(rungs[11].text.as_deref(), Some("quick"));
        assert_eq!((rungs[13].outcome, rungs[13].took_us), (RungOutcome::Failed, 7));
        assert_eq!(
            outcomes(&rungs)[14..],
            [("configure", RungOutcome::Skipped), ("self-test", RungOutcome::Skipped),]
        );
    }

    #[test]
    fn a_refusal_without_a_failed_check_is_told_by_the_check_that_it_belongs_to() {
        let error = LoadError::Draining { generations: 3 };
        let made = [report(Rung::Read, Outcome::Passed), report(Rung::SelfTest, Outcome::Passed)];
        let rungs = rung_views(&made, Some(&error));
        assert_eq!(rungs[15].outcome, RungOutcome::Failed);
        assert!(rungs[15].text.as_deref().is_some_and(|text| text.contains("3 generations")), "{rungs:?}");
    }
}
