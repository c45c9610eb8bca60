//! Workers report what their work cost, and the policy `cost-share` slows whoever costs much.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_client::{Delivery, Verdict, Worker};
use tidegate_process_tests::{Tenants, eventually, run_to_end, start_broker};
use tokio::sync::oneshot;

use crate::{home, start};

const DEAR: &str = "dear";
const CHEAP: [&str; 7] = ["cheap-1", "cheap-2", "cheap-3", "cheap-4", "cheap-5", "cheap-6", "cheap-7"];

/// Messages of each tenant. All are there from the beginning, and take the same time.
const PER_TENANT: usize = 300;
const TAKES: Duration = Duration::from_millis(20);

/// What became of them.
struct Served {
    /// Messages of the dear tenant that were done when the last one of the others was.
    done_beside_others: usize,
    /// Key and reason of each deferral.
    deferrals: Vec<(String, String)>,
}

/// The tenants differ in nothing but the number that a worker writes beside its verdict.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_slowed_by_the_cost_that_its_worker_reports() {
    let (dear, alike) = tokio::join!(serve(50.0), serve(1.0));
    let (slowed, free) = (dear.done_beside_others, alike.done_beside_others);
    assert!(slowed * 3 < free * 2, "{slowed} of {PER_TENANT} beside the others, and {free} at their cost");

    let costly = |served: &Served| {
        let is_costly = |(_, reason): &&(String, String)| reason.starts_with("costly: ");
        served.deferrals.iter().filter(is_costly).cloned().collect::<Vec<_>>()
    };
    let held_back = costly(&dear);
    assert!(!held_back.is_empty(), "{:?}", dear.deferrals);
    for (key, reason) in &held_back {
        assert_eq!(key, DEAR, "{reason}");
        assert!(reason.ends_with("; 50.000 a message"), "{reason}");
    }
    assert_eq!(costly(&alike), []);
}

/// A host with the policy, and a worker that reports this cost for a message of the dear tenant and 1 for any other.
async fn serve(cost: f64) -> Served {
    let broker = start_broker().await;
    let tenants = Tenants::of(&broker).await;
    let everybody = || CHEAP.into_iter().chain([DEAR]);
    let messages = (0..PER_TENANT).flat_map(|number| everybody().map(move |tenant| (tenant, number)));
    tenants.send_all(messages.map(|(tenant, number)| (tenant.to_owned(), number.to_string()))).await;

    let policy = "throttle = \"cost\"\n\
                  [policies.cost]\ncomponent = \"cost-share.wasm\"\nrules = \"cost-share.toml\"\n";
    let home = home(&broker.address().to_string(), "", policy);
    home.install("cost-share");
    let (host, service) = start(&home).await;
    let arguments =
        ["tap", "tenants", "--json", "--verdict", "defer", "--for", "1h", "--admin", &host.admin().await]
            .map(str::to_owned);
    let directory = home.path().to_owned();
    let tap =
        tokio::task::spawn_blocking(move || run_to_end(&directory, &arguments.each_ref().map(|a| &**a)));
    eventually("a tap that begins", || host.log().contains("a tap of the flow begins").then_some(())).await;

    let done = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let done = Arc::clone(&done);
        move |delivery: Delivery| {
            let done = Arc::clone(&done);
            async move {
                tokio::time::sleep(TAKES).await;
                let cost = if delivery.key == DEAR { cost } else { 1.0 };
                done.lock().push(delivery.key);
                Verdict::accept().with_cost(cost)
            }
        }
    };
    let worker = Worker::builder(format!("http://{}", service.address), "tenants").name("rust").credits(4);
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move { stopped.await.unwrap_or_default() };
    let working = tokio::spawn(worker.build().expect("a worker").run_until(handler, stopped));
    let all = PER_TENANT * (CHEAP.len() + 1);
    eventually("all messages", || (done.lock().len() >= all).then_some(())).await;
    stop.send(()).expect("a worker that runs");
    working.await.expect("no panic").expect("a worker that was let in");

    host.signal("TERM");
    let tapped = tap.await.expect("the end of the tap");
    let ended = host.wait().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    tenants.close().await;
    broker.stop().await;

    let done = done.lock();
    let last_of_others = done.iter().rposition(|key| key != DEAR).expect("all were done");
    Served {
        done_beside_others: done[..last_of_others].iter().filter(|key| *key == DEAR).count(),
        deferrals: tapped.stdout.lines().filter_map(deferral).collect(),
    }
}

/// What a line of the tap says, if it is a decision.
fn deferral(line: &str) -> Option<(String, String)> {
    let line: Value = serde_json::from_str(line).expect("JSON");
    Some((line["key"].as_str()?.to_owned(), line["reason"].as_str()?.to_owned()))
}
