//! A host that does not answer, or fails.

use axum::body::Bytes;
use futures::stream::BoxStream;

use super::*;
use crate::operate::{
    FlowChange, OperateError, PauseView, RecordingWanted, ReloadView, RollbackView, TapWanted,
};
use crate::view::{ComparisonView, FlowView, Inspect, PolicyView};

/// A host whose flows are stuck until the sender is dropped, and that fails on its policies.
struct Stuck(parking_lot::Mutex<std::sync::mpsc::Receiver<()>>);

impl Inspect for Stuck {
    fn flows(&self) -> Vec<FlowView> {
        let _ = self.0.lock().recv();
        Vec::new()
    }

    fn policies(&self) -> Vec<PolicyView> {
        panic!("a bug");
    }

    fn comparisons(&self, _flow: &str) -> Option<Vec<ComparisonView>> {
        None
    }
}

impl Operate for Stuck {
    fn reload(&self, _policy: &str, _dry_run: bool) -> Result<ReloadView, OperateError> {
        let _ = self.0.lock().recv();
        Err(OperateError::Busy("stuck".to_owned()))
    }

    fn roll_back(&self, _policy: &str) -> Result<RollbackView, OperateError> {
        panic!("a bug");
    }

    fn set_paused(&self, _policy: &str, _paused: bool) -> Result<PauseView, OperateError> {
        panic!("a bug");
    }

    fn record(
        &self,
        _flow: &str,
        _wanted: RecordingWanted,
    ) -> Result<BoxStream<'static, Bytes>, OperateError> {
        panic!("a bug");
    }

    fn tap(&self, _flow: &str, _wanted: TapWanted) -> Result<BoxStream<'static, Bytes>, OperateError> {
        panic!("a bug");
    }

    fn set_flow_paused(&self, _flow: &str, _paused: bool) -> Result<FlowChange, OperateError> {
        panic!("a bug");
    }

    fn drain_flow(&self, _flow: &str) -> Result<FlowChange, OperateError> {
        panic!("a bug");
    }
}

#[tokio::test]
async fn a_stuck_host_costs_an_answer_and_not_the_api() {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let options = Options { request_timeout: Duration::from_millis(50), ..options() };
    let host = Arc::new(Stuck(parking_lot::Mutex::new(receiver)));
    let server = Server::start(options, host, Telemetry::default()).await.expect("a free port");

    let stuck = ask(server.address(), "GET", "/api/flows").await;
    assert_eq!(stuck.status, 504);
    assert_eq!(stuck.json(), json!({ "error": "no answer within 50ms; the host is overloaded" }));
    assert_described("/api/flows", &stuck);

    assert_eq!(ask(server.address(), "GET", "/healthz").await.status, 200);
    drop(sender);
}

/// Asks for a reload on a connection that is past its age before the answer can come.
#[tokio::test]
async fn a_change_has_time_of_its_own() {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let brief = Duration::from_millis(50);
    let options = Options { request_timeout: brief, connection_age_max: brief, ..options() };
    let host = Arc::new(Stuck(parking_lot::Mutex::new(receiver)));
    let server = Server::start(options, host, Telemetry::default()).await.expect("a free port");
    let reload = tokio::spawn(async move { ask(server.address(), "POST", "/api/policies/any/reload").await });
    tokio::time::sleep(brief * 5).await;
    sender.send(()).expect("it waits");
    let answer = reload.await.expect("answered");
    assert_eq!((answer.status, answer.json()), (503, json!({ "error": "stuck" })));

    let (_sender, receiver) = std::sync::mpsc::sync_channel(1);
    let host = Arc::new(Stuck(parking_lot::Mutex::new(receiver)));
    let options = Options { change_timeout: brief, ..super::options() };
    let server = Server::start(options, host, Telemetry::default()).await.expect("a free port");
    let late = ask(server.address(), "POST", "/api/policies/any/reload").await;
    assert_eq!(late.status, 504);
    assert_described("/api/policies/{name}/reload", &late);
}

#[tokio::test]
async fn a_failing_host_is_told_as_such() {
    let (_sender, receiver) = std::sync::mpsc::sync_channel(1);
    let host = Arc::new(Stuck(parking_lot::Mutex::new(receiver)));
    let server = Server::start(options(), host, Telemetry::default()).await.expect("a free port");
    let failed = ask(server.address(), "GET", "/api/policies").await;
    assert_eq!(failed.status, 500);
    assert_described("/api/policies", &failed);
}
