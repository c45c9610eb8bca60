//! The host that the API's tests look into.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use crate::operate::{
    FlowChange, Operate, OperateError, PauseView, RecordingWanted, ReloadView, RollbackView, RungOutcome,
    RungView, TapWanted,
};
use crate::view::{
    Breaker, CallFailure, ComparisonView, DifferenceView, DrainView, FlowState, FlowTotals, FlowView,
    Generation, Inspect, Kept, KeyCount, Origin, PairCount, PausedBy, PolicyMode, PolicyState, PolicyView,
    Refusal, SinkTrouble, SinkView,
};

/// A host with two flows and two policies, one of each in trouble or not.
#[derive(Clone, Copy)]
pub(super) struct Host {
    pub(super) second: FlowState,
    pub(super) joined: bool,
    pub(super) paused_by: Option<PausedBy>,
    /// The second, by an operator.
    pub(super) drained: bool,
}

impl Host {
    pub(super) const fn new(second: FlowState, joined: bool) -> Self {
        Self { second, joined, paused_by: None, drained: false }
    }
}

impl Inspect for Host {
    fn flows(&self) -> Vec<FlowView> {
        let flow = |name: &str, state, remarks: &[&str]| FlowView {
            name: name.to_owned(),
            source: "tenants".to_owned(),
            throttle: (name == "first").then(|| "fair".to_owned()),
            shadow: (name == "first").then(|| "new".to_owned()),
            sink: "workers".to_owned(),
            sinks: vec![SinkView {
                name: "workers".to_owned(),
                workers: Some(2),
                trouble: (name == "second").then(trouble),
            }],
            dead_letter: (name == "second").then(|| SinkView {
                name: "dead".to_owned(),
                workers: None,
                trouble: None,
            }),
            state,
            paused_by: self.paused_by.filter(|_| name == "second"),
            drain: (self.drained && name == "second").then(DrainView::default),
            joined: self.joined || name == "first",
            remarks: remarks.iter().map(ToString::to_string).collect(),
            in_flight: 3,
            in_flight_bytes: 4096,
            undecided: 0,
            queued: 1,
            emitted: 2,
            settling: 0,
            active_keys: 2,
            totals: FlowTotals { received: 9, delivered: 7, deferred: 2, ..FlowTotals::default() },
        };
        let remarks: &[&str] = match self.second {
            FlowState::Failed => &["standard output is closed"],
            FlowState::Paused => &["it paused itself"],
            FlowState::Running if !self.joined => &["not connected yet to the cluster behind b:8081"],
            _ => &[],
        };
        vec![flow("first", FlowState::Running, &[]), flow("second", self.second, remarks)]
    }

    fn policies(&self) -> Vec<PolicyView> {
        let absent = PolicyView {
            name: "absent".to_owned(),
            world: None,
            state: PolicyState::Absent,
            mode: PolicyMode::Enforce,
            component: "policies/absent.wasm".to_owned(),
            rules: None,
            on_error: "defer:5s".to_owned(),
            active: None,
            previous_generation: None,
            generations: 0,
            remarks: Vec::new(),
            refused: None,
            last_success_unix_ms: None,
            breaker: None,
            last_failure: None,
            verdicts: BTreeMap::new(),
            failures: BTreeMap::new(),
            reloads_applied: 0,
            reloads_refused: 0,
            rollbacks: 0,
            poisoned: 0,
            instances_started: 0,
            kept: Kept::default(),
        };
        let broken = PolicyView {
            name: "broken".to_owned(),
            world: Some("throttle-policy".to_owned()),
            state: PolicyState::Broken,
            mode: PolicyMode::Shadow,
            rules: Some("policies/fair.toml".to_owned()),
            active: Some(Generation {
                number: 2,
                origin: Origin::LastGood,
                on_probation: true,
                since_unix_ms: 1_764_450_000_000,
                component_sha256: "00".repeat(32),
                rules_sha256: None,
                name: "fair-share".to_owned(),
                version: "0.1.0".to_owned(),
                summary: "Holds noisy keys back.".to_owned(),
                sdk: Some("tidegate-policy-sdk 0.1.0".to_owned()),
            }),
            previous_generation: Some(1),
            generations: 2,
            last_success_unix_ms: Some(1_764_450_000_000),
            remarks: vec!["the rules' file sets nothing".to_owned()],
            refused: Some(Refusal {
                since_unix_ms: 1_764_450_000_001,
                check: "rules".to_owned(),
                cause: "rules".to_owned(),
                reason: "unknown rule `shrae`".to_owned(),
            }),
            breaker: Some(Breaker { since_unix_ms: 1_764_450_000_002, reason: "too many traps".to_owned() }),
            last_failure: Some(CallFailure {
                at_unix_ms: 1_764_450_000_003,
                cause: "panic".to_owned(),
                reason: "it panicked; it last said: no such key".to_owned(),
                said: vec!["no such key".to_owned()],
                frames: vec!["decide".to_owned()],
            }),
            verdicts: BTreeMap::from([("deliver".to_owned(), 7)]),
            failures: BTreeMap::from([("trap".to_owned(), 1)]),
            ..absent.clone()
        };
        vec![absent, broken]
    }

    fn comparisons(&self, flow: &str) -> Option<Vec<ComparisonView>> {
        let comparison = ComparisonView {
            policy: "new".to_owned(),
            compared: 10,
            differing: 1,
            pairs: vec![
                PairCount { live: "deliver".to_owned(), shadow: "deliver".to_owned(), count: 9 },
                PairCount { live: "deliver".to_owned(), shadow: "no-answer".to_owned(), count: 1 },
            ],
            keys: vec![KeyCount { key: "tenant".to_owned(), count: 1 }],
            further_keys: 0,
            differences: vec![DifferenceView {
                at_unix_ms: 1_764_450_000_004,
                message_id: "0101".to_owned(),
                key: "tenant".to_owned(),
                live: "deliver".to_owned(),
                shadow: "no-answer".to_owned(),
            }],
        };
        match flow {
            "first" => Some(vec![comparison]),
            "second" => Some(Vec::new()),
            _ => None,
        }
    }
}

/// What is asked of `absent` does not work, `broken` does everything, and `busy` has no time.
impl Operate for Host {
    fn reload(&self, policy: &str, dry_run: bool) -> Result<ReloadView, OperateError> {
        let passed = known(policy)? == "broken";
        let rung = |rung: &str, outcome, text: Option<&str>| RungView {
            rung: rung.to_owned(),
            outcome,
            text: text.map(str::to_owned),
            took_us: 12,
        };
        let rungs = if passed {
            vec![rung("read", RungOutcome::Passed, Some("120 bytes"))]
        } else {
            vec![
                rung("read", RungOutcome::Failed, Some("policies/absent.wasm is not there")),
                rung("size", RungOutcome::Skipped, None),
            ]
        };
        Ok(ReloadView {
            policy: policy.to_owned(),
            dry_run,
            passed,
            generation: passed.then_some(3),
            changed: passed,
            error: (!passed).then(|| "policies/absent.wasm is not there".to_owned()),
            rungs,
        })
    }

    fn roll_back(&self, policy: &str) -> Result<RollbackView, OperateError> {
        match known(policy)? {
            "broken" => Ok(RollbackView { policy: policy.to_owned(), generation: 3 }),
            _ => Err(OperateError::Conflict("nothing to go back to".to_owned())),
        }
    }

    fn set_paused(&self, policy: &str, paused: bool) -> Result<PauseView, OperateError> {
        Ok(PauseView { policy: known(policy)?.to_owned(), paused, changed: true })
    }

    fn record(&self, flow: &str, wanted: RecordingWanted) -> Result<BoxStream<'static, Bytes>, OperateError> {
        lines(flow, wanted.length, format!("{wanted:?}\n"))
    }

    fn tap(&self, flow: &str, wanted: TapWanted) -> Result<BoxStream<'static, Bytes>, OperateError> {
        lines(flow, wanted.length, format!("{wanted:?}\n"))
    }

    fn set_flow_paused(&self, flow: &str, paused: bool) -> Result<FlowChange, OperateError> {
        let state = if paused { FlowState::Paused } else { FlowState::Running };
        change(flow, state)
    }

    fn drain_flow(&self, flow: &str) -> Result<FlowChange, OperateError> {
        change(flow, FlowState::Stopped)
    }
}

fn trouble() -> SinkTrouble {
    SinkTrouble {
        since_unix_ms: 1_764_450_000_000,
        reason: "`http://web:80` refused the connection".to_owned(),
    }
}

/// `second` is draining and takes no orders.
fn change(flow: &str, state: FlowState) -> Result<FlowChange, OperateError> {
    match flow {
        "first" => {
            let drain = (state == FlowState::Stopped).then(DrainView::default);
            Ok(FlowChange { flow: flow.to_owned(), state, changed: true, in_flight: 3, drain })
        }
        "second" if state == FlowState::Stopped => Ok(FlowChange {
            flow: flow.to_owned(),
            state: FlowState::Draining,
            changed: false,
            in_flight: 3,
            drain: Some(DrainView::default()),
        }),
        "second" => Err(OperateError::Conflict("the flow is draining".to_owned())),
        _ => Err(OperateError::Unknown(format!("there is no flow `{flow}` in this host"))),
    }
}

/// What is wanted, and at the end of its time that it is over.
fn lines(flow: &str, length: Duration, wanted: String) -> Result<BoxStream<'static, Bytes>, OperateError> {
    match flow {
        "first" => {}
        "second" => return Err(OperateError::Conflict("8 others look on at this flow already".to_owned())),
        _ => return Err(OperateError::Unknown(format!("there is no flow `{flow}` in this host"))),
    }
    let told = stream::once(async move { Bytes::from(wanted) });
    let over = stream::once(async move {
        tokio::time::sleep(length.min(Duration::from_secs(5))).await;
        Bytes::from_static(b"over\n")
    });
    Ok(told.chain(over).boxed())
}

fn known(policy: &str) -> Result<&str, OperateError> {
    match policy {
        "absent" | "broken" => Ok(policy),
        "busy" => Err(OperateError::Busy("the loader has too much to do".to_owned())),
        _ => Err(OperateError::Unknown(format!("there is no policy `{policy}`"))),
    }
}
