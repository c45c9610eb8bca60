//! Locks that last as long as they are needed.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_client::{Verdict, Worker};
use tidegate_process_tests::eventually;
use tidegate_share_broker::{GroupOptions, Options};

use crate::{Owner, WORKER, append, cluster, tally};

const LOCK: Duration = Duration::from_secs(2);

/// A worker has room for one, and is slow: what it works on and what waits for it keep their locks past three of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_policy_keeps_locks_in_the_queue_and_with_a_worker() {
    let quick = Options::quick();
    let group = GroupOptions { record_lock_duration: LOCK, ..quick.group.clone() };
    let cluster = cluster(Options { group, ..quick }).await;
    append(&cluster, &["first", "second", "third"]);
    let owner = Owner::new(
        &cluster.bootstrap_servers(),
        "renewal-policy = \"steady\"\nrenewal-ahead-time = \"1s\"\n[policies.steady]\ncomponent = \"steady.wasm\"\n\
         rules = \"steady.toml\"",
        "renew-emitted = true",
    );
    owner.home.install("steady");
    let (program, service) = owner.start().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let worker = Worker::builder(format!("http://{}", service.address), "tenants")
        .token(WORKER)
        .credits(1)
        .keep_leases(false)
        .build()
        .unwrap();
    let handled = Arc::clone(&seen);
    let working = tokio::spawn(worker.run(move |delivery| {
        let handled = Arc::clone(&handled);
        async move {
            let is_first = handled.lock().is_empty();
            handled.lock().push((String::from_utf8_lossy(&delivery.body).into_owned(), delivery.attempt));
            if is_first {
                tokio::time::sleep(LOCK * 4).await;
            }
            Verdict::accept()
        }
    }));
    eventually("three accepted", || (tally(&cluster).accepted == 3).then_some(())).await;
    working.abort();
    let seen = seen.lock().clone();
    let expected = ["first", "second", "third"].map(|value| (value.to_owned(), 1));
    assert_eq!(seen, expected, "each came once, in order");
    let tally = tally(&cluster);
    assert_eq!((tally.acquired, tally.expired, tally.released), (3, 0, 0), "{tally:?}");
    // The first with its worker, and the others in the queue, each more than three times.
    assert!(tally.renewed >= 9, "{tally:?}");
    assert_eq!(program.terminate().await.code, Some(0));
    cluster.stop().await;
}
