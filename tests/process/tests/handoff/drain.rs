//! A flow that an operator drains while workers hold something of it.

use std::time::Duration;

use serde_json::json;
use tidegate_process_tests::{PATIENCE, run_to_end};

use crate::Stage;

/// It says what it waits for, and at the end what became of it; the host stays ready, and who asks for work of a flow that
/// is over is told so.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_says_what_it_waits_for() {
    let stage = Stage::set().await;
    stage.tenants.send("a", "held").await;
    let taken = stage.service.pull_all(1).await;

    let (directory, admin) = (stage.home.path().to_owned(), stage.host.admin().await);
    let draining = tokio::task::spawn_blocking(move || {
        run_to_end(&directory, &["flow", "drain", "tenants", "--admin", &admin])
    });
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let flow = loop {
        let flow = stage.host.get("/api/flows").await["flows"][0].clone();
        if flow["state"] == "draining" {
            break flow;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {flow}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((&flow["emitted"], &flow["drain"]["held"]), (&json!(1), &json!(1)), "{flow}");
    assert_eq!(stage.host.ask("/readyz").await.0, 200, "it was meant so");
    // Time for the command to look at it. When that is too little, it says less.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(stage.service.settle(&taken, &json!({ "verdict": "accept" })), ["done"]);
    let drained = draining.await.expect("no panic");
    assert_eq!(
        (drained.code, &*drained.stdout),
        (Some(0), "tenants: drained; 1 accepted; the host goes on without it until it starts again\n"),
        "{drained:?}"
    );
    let said = drained.stderr.lines().next();
    assert_eq!(said, Some("tenants: draining, waits for 1 delivery: 1 with the sink or its workers"));

    let (status, refused) = stage.service.ask("POST", "/v1/flows/tenants/pull", "{\"max-messages\":1}");
    assert_eq!(status, 503, "{refused}");
    let told = refused["error"].as_str().unwrap_or_default();
    assert!(told.contains("is over in this host, drained or failed"), "{refused}");
    assert_eq!(stage.host.ask("/readyz").await.0, 200);
    stage.end().await;
}
