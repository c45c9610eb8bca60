//! The ack pool: receipts of deliveries that another client took.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::{ReceiptSettler as _, SettleByReceipt};
use tidegate_devbroker::{Call, Effect, Fault, Method, Profile, Topology, User};
use tidegate_model::{Delivery, Handle, Receipt, Routing, SettleError, SettleFault, Verb};
use tidegate_rocketmq::{AckClient, AckPool, AckScope, Endpoints, Fixed, Keys, Outgoing, TopicKind};
use tokio::time::Instant;

use crate::support::{Stage, bodies, eventually, options, receipt, settlement};

type Results = Vec<Result<Option<Handle>, SettleError>>;

/// A client that subscribes and does not receive takes the news of lite topics from those that do (measured).
#[tokio::test]
async fn what_another_client_received_is_acknowledged_and_nothing_is_ever_handed_to_the_pool() {
    for profile in [Profile::V5_5_0, Profile::V5_5_1] {
        let mut options = options();
        options.profile = profile;
        let stage = Stage::with(options).await;
        let consumer = stage.consumer(stage.lite()).await;
        let pool = pool(&stage);
        let mut received = 0;
        for round in 0..5 {
            for tenant in 0..8 {
                stage.send_lite(&format!("tenant-{tenant}"), 3).await;
            }
            let deliveries = consumer.receive(24).await;
            received += deliveries.len();
            let (first, rest) = deliveries.split_at(1);
            // The session of the pool's client has been there for a while when the later rounds are sent.
            pool.settle(by_receipt(first, &Verb::Renew(Duration::from_secs(30))))
                .await
                .remove(0)
                .expect("renewed");
            let batch = by_receipt(first, &Verb::Accept).into_iter().chain(by_receipt(rest, &Verb::Accept));
            let results = pool.settle(batch.collect()).await;
            assert!(results.iter().all(Result::is_ok), "round {round}: {results:?}");
        }
        assert_eq!(received, 120, "each once: nothing went elsewhere");
        assert_eq!(stage.control.audit().unacked().count(), 0);
        let requests = stage.control.requests();
        let clients_of = |is: fn(&Call) -> bool| -> HashSet<Arc<str>> {
            requests.iter().filter(|seen| is(&seen.call)).map(|seen| Arc::clone(&seen.client)).collect()
        };
        let settled =
            clients_of(|call| matches!(call, Call::AckMessage { .. } | Call::ChangeInvisible { .. }));
        let subscribed =
            clients_of(|call| matches!(call, Call::SyncLite { .. } | Call::ReceiveMessage { .. }));
        assert_eq!(settled.len(), 1);
        assert!(settled.is_disjoint(&subscribed), "{settled:?} {subscribed:?}");
        let registered: HashSet<_> = stage.control.lite_clients("T", "G").into_iter().collect();
        assert!(settled.is_disjoint(&registered));
        pool.close().await;
        consumer.source.close().await;
    }
}

#[tokio::test]
async fn a_defer_a_release_and_what_was_left_come_again() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    let pool = pool(&stage);
    stage.send_lite("tenant-1", 4).await;
    let deliveries = consumer.receive(4).await;
    let receipts: Vec<_> = deliveries.iter().map(receipt).collect();
    // In one batch, and in this order: an acknowledgement after the release would not stick.
    let verbs = [Verb::Accept, Verb::Accept, Verb::Release];
    let results = pool.settle(receipts.into_iter().zip(verbs).map(entry).collect()).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let again = consumer.receive(2).await;
    assert_eq!(bodies(&again), ["2", "3"]);
    let deferred = Verb::Defer(Duration::from_secs(40));
    pool.settle(by_receipt(&again[..1], &deferred)).await.remove(0).expect("deferred");
    stage.control.advance(Duration::from_secs(41));
    let last = consumer.receive(2).await;
    assert_eq!(bodies(&last), ["2", "3"]);
    assert!(pool.settle(by_receipt(&last, &Verb::Accept)).await.iter().all(Result::is_ok));
    assert_eq!(stage.control.audit().unacked().count(), 0);
    pool.close().await;
    consumer.source.close().await;
}

#[tokio::test]
async fn a_renewal_gives_a_new_handle_that_settles_after_the_old_lease() {
    let stage = Stage::start().await;
    for (topic, group, kind) in [("T", "G", TopicKind::Lite), ("N", "GN", TopicKind::Normal)] {
        let mut source = stage.of(topic, group, kind);
        source.invisible_duration = Duration::from_secs(10);
        let consumer = stage.consumer(source).await;
        let pool = pool(&stage);
        send(&stage, topic, kind, 1).await;
        let delivery = consumer.receive(1).await.remove(0);
        let renew = Verb::Renew(Duration::from_secs(600));
        let handle = pool.settle(by_receipt(std::slice::from_ref(&delivery), &renew)).await.remove(0);
        let handle = handle.expect("renewed").expect("a new handle");
        assert_ne!(handle.text, delivery.handle.text);
        assert_eq!(handle.routing, delivery.handle.routing);
        stage.control.advance(Duration::from_secs(300));
        let late = pool.settle(by_receipt(std::slice::from_ref(&delivery), &Verb::Accept)).await.remove(0);
        assert_eq!(late.expect_err("the old lease is over").fault, SettleFault::LeaseGone, "{topic}");
        let renewed = Receipt { handle: handle.text, ..receipt(&delivery) };
        pool.settle(vec![entry((renewed, Verb::Accept))]).await.remove(0).expect("acknowledged");
        assert_eq!(stage.control.audit().unacked().count(), 0, "{topic}");
        pool.close().await;
        consumer.source.close().await;
    }
}

/// The server's own dead letters put an un-ackable copy back into the lite topic for ever (measured).
#[tokio::test]
async fn a_lite_message_is_not_rejected_here_and_a_normal_one_becomes_a_dead_letter() {
    let stage = Stage::start().await;
    let pool = pool(&stage);
    let reject = Verb::Reject { reason: "poison".into() };
    let lite = stage.consumer(stage.lite()).await;
    send(&stage, "T", TopicKind::Lite, 1).await;
    let deliveries = lite.receive(1).await;
    let error = pool.settle(by_receipt(&deliveries, &reject)).await.remove(0).expect_err("refused");
    assert_eq!(error.fault, SettleFault::Refused);
    assert!(error.detail.contains("reject it at the host that gave it out"), "{}", error.detail);
    assert_eq!(stage.control.audit().unacked().count(), 1, "it is still there");
    let normal = stage.consumer(stage.of("N", "GN", TopicKind::Normal)).await;
    send(&stage, "N", TopicKind::Normal, 1).await;
    let deliveries = normal.receive(1).await;
    pool.settle(by_receipt(&deliveries, &reject)).await.remove(0).expect("dead-lettered");
    assert_eq!(stage.control.stats().count(Method::ForwardMessageToDeadLetterQueue), 1);
    let audit = stage.control.audit();
    assert_eq!(audit.messages.iter().filter(|message| message.dead_lettered).count(), 1);
    pool.close().await;
    lite.source.close().await;
    normal.source.close().await;
}

#[tokio::test]
async fn thousands_go_out_in_full_acknowledgements() {
    const COUNT: usize = 5_000;
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.of("N", "GN", TopicKind::Normal)).await;
    let pool = pool(&stage);
    send(&stage, "N", TopicKind::Normal, COUNT).await;
    let deliveries = consumer.receive(COUNT).await;
    stage.control.clear_requests();
    let results = pool.settle(by_receipt(&deliveries, &Verb::Accept)).await;
    assert_eq!(results.len(), COUNT);
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(stage.control.audit().unacked().count(), 0);
    let calls = stage.control.stats().count(Method::AckMessage);
    assert!(calls <= COUNT.div_ceil(32) as u64 + 4, "{calls}");
    assert!(metric(&stage, "rocketmq_settlements_total{source=\"pool\",verb=\"accept\",result=\"ok\"} 5000"));
    pool.close().await;
    consumer.source.close().await;
}

#[tokio::test]
async fn a_stale_handle_is_a_counted_warning_asked_once() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    let pool = pool(&stage);
    stage.control.inject(Fault::new(Method::ReceiveMessage, Effect::ExpiredHandle, 1));
    stage.send_lite("tenant-1", 1).await;
    let deliveries = consumer.receive(1).await;
    let error = pool.settle(by_receipt(&deliveries, &Verb::Accept)).await.remove(0).expect_err("expired");
    assert_eq!(error.fault, SettleFault::LeaseGone);
    assert_eq!(stage.control.stats().count(Method::AckMessage), 1, "never retried");
    assert!(metric(&stage, "rocketmq_stale_handles_total{source=\"pool\"} 1"));
    pool.close().await;
    consumer.source.close().await;
}

#[tokio::test]
async fn of_a_batch_only_what_cannot_be_settled_fails() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    let pool = pool(&stage);
    stage.send_lite("tenant-1", 1).await;
    stage.send_lite("tenant-2", 1).await;
    stage.send_lite("tenant-3", 1).await;
    let mut deliveries = consumer.receive(3).await;
    deliveries[0].handle.text = "garbage".into();
    let mut receipts: Vec<_> = deliveries.iter().map(receipt).collect();
    receipts[2].routing.namespace = "elsewhere".into();
    assert!(pool.serves(&receipts[0]) && !pool.serves(&receipts[2]));
    let results =
        pool.settle(receipts.into_iter().map(|receipt| entry((receipt, Verb::Accept))).collect()).await;
    assert_eq!(results[0].as_ref().expect_err("garbage").fault, SettleFault::Refused);
    assert_eq!(results[1], Ok(None));
    let error = results[2].as_ref().expect_err("not served");
    assert_eq!(error.fault, SettleFault::Refused);
    assert!(error.detail.contains("group `G` in namespace `elsewhere`"), "{}", error.detail);
    assert_eq!(stage.control.audit().unacked().count(), 2);
    pool.close().await;
    consumer.source.close().await;
}

#[tokio::test]
async fn hiccups_and_restarts_are_outlived() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    let pool = pool(&stage);
    for tenant in 0..6 {
        stage.send_lite(&format!("tenant-{tenant}"), 2).await;
    }
    let deliveries = consumer.receive(12).await;
    let down = "connect to 127.0.0.1:10911 failed. RemotingConnectException";
    let down = Effect::Code { code: 50_001, message: down.into() };
    stage.control.inject(Fault::new(Method::AckMessage, down, 2));
    let (first, rest) = deliveries.split_at(2);
    let results = pool.settle(by_receipt(first, &Verb::Accept)).await;
    assert!(results.iter().all(Result::is_ok), "the third try: {results:?}");
    stage.control.restart_proxy(Duration::from_millis(300)).await;
    settle_in_the_end(&pool, by_receipt(&rest[..5], &Verb::Accept)).await;
    // A proxy that came back knows nobody, and changes a lease only for those it knows.
    stage.control.restart_proxy(Duration::from_millis(300)).await;
    settle_in_the_end(&pool, by_receipt(&rest[5..], &Verb::Renew(Duration::from_secs(50)))).await;
    settle_in_the_end(&pool, by_receipt(&rest[5..], &Verb::Accept)).await;
    assert_eq!(stage.control.audit().unacked().count(), 0);
    pool.close().await;
    consumer.source.close().await;
}

/// Each of thousands on its own would take hours.
#[tokio::test]
async fn an_endpoint_that_cannot_be_reached_fails_a_large_batch_soon() {
    let stage = Stage::start().await;
    // A second proxy of the cluster that is down.
    let mut both = client(&stage);
    both.client.endpoints = reached(&format!("{};127.0.0.1:1", stage.broker.address()));
    let pool = pool_of(&stage, vec![both]);
    let consumer = stage.consumer(stage.of("N", "GN", TopicKind::Normal)).await;
    send(&stage, "N", TopicKind::Normal, 1).await;
    let mut nowhere = receipt(&consumer.receive(1).await[0]);
    nowhere.routing.endpoint = "127.0.0.1:1".into();
    let begun = Instant::now();
    let batch = (0..20_000).map(|_| entry((nowhere.clone(), Verb::Renew(Duration::from_secs(30))))).collect();
    let results = pool.settle(batch).await;
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(
        results.iter().all(|result| result.as_ref().is_err_and(|error| error.fault == SettleFault::Broker))
    );
    nowhere.routing.endpoint = "no address".into();
    let error = pool.settle(vec![entry((nowhere, Verb::Accept))]).await.remove(0).expect_err("no address");
    assert_eq!(error.fault, SettleFault::Refused);
    assert!(error.detail.contains("`no address`"), "{}", error.detail);
    pool.close().await;
    consumer.source.close().await;
}

/// As `--endpoints` of the command line.
#[tokio::test]
async fn an_endpoint_of_the_users_own_wins_over_the_receipts() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    let address = stage.broker.address().to_string();
    let endpoint = Some(Endpoints::parse(&address).expect("an address"));
    let pool = pool_of(&stage, vec![AckClient { endpoint, ..client(&stage) }]);
    stage.send_lite("tenant-1", 1).await;
    let mut moved = receipt(&consumer.receive(1).await[0]);
    moved.routing.endpoint = "127.0.0.1:1".into();
    let renewed =
        pool.settle(vec![entry((moved.clone(), Verb::Renew(Duration::from_secs(60))))]).await.remove(0);
    let handle = renewed.expect("renewed").expect("a new handle");
    assert_eq!(&*handle.routing.endpoint, "127.0.0.1:1", "the receipt stays what it was");
    pool.settle(vec![entry((moved, Verb::Accept))]).await.remove(0).expect("acknowledged");
    assert_eq!(stage.control.audit().unacked().count(), 0);
    pool.close().await;
    consumer.source.close().await;
}

/// A receipt is no reason to show one cluster the keys of another.
#[tokio::test]
async fn keys_do_not_go_where_only_a_receipt_says() {
    let (ours, theirs) = (Stage::start().await, Stage::start().await);
    let consumer = theirs.consumer(theirs.lite()).await;
    theirs.send_lite("tenant-1", 1).await;
    let foreign = receipt(&consumer.receive(1).await[0]);
    let own_group = AckScope::Groups(vec![("".into(), "G".into())]);
    let keyed = |name: &str, scope| {
        let mut configured = AckClient { name: name.into(), scope, ..client(&ours) };
        let secret = secrecy::SecretString::from("secret-of-ours");
        configured.client.credentials = Arc::new(Fixed::new(Keys::new("key-of-ours", secret)));
        configured
    };
    let pool = pool_of(&ours, vec![keyed("settler", AckScope::Namespace), keyed("source", own_group)]);
    let before = theirs.control.requests().len();
    for verb in [Verb::Accept, Verb::Renew(Duration::from_secs(30)), Verb::Release] {
        let mut receipts = vec![foreign.clone()];
        // One address of ours among them makes it no better.
        let endpoint = format!("{};{}", ours.broker.address(), theirs.broker.address()).into();
        receipts
            .push(Receipt { routing: Routing { endpoint, ..foreign.routing.clone() }, ..foreign.clone() });
        let batch = receipts.into_iter().map(|receipt| entry((receipt, verb.clone())));
        for result in pool.settle(batch.collect()).await {
            let error = result.expect_err("a stranger");
            assert_eq!(error.fault, SettleFault::Refused, "{error}");
            let address = theirs.broker.address().to_string();
            assert!(error.detail.contains(&address) && error.detail.contains("`endpoints`"), "{error}");
        }
    }
    let clients: HashSet<_> = theirs.control.requests()[before..]
        .iter()
        .filter(|seen| !matches!(seen.call, Call::ReceiveMessage { .. }))
        .map(|seen| Arc::clone(&seen.client))
        .collect();
    let own: HashSet<_> =
        theirs.control.requests()[..before].iter().map(|seen| Arc::clone(&seen.client)).collect();
    assert!(clients.is_subset(&own), "the pool was there: {clients:?}");
    assert_eq!(theirs.control.audit().unacked().count(), 1);
    pool.close().await;
    consumer.source.close().await;
}

/// In a cluster whose proxies each serve their own broker, receipts name brokers that no configuration does.
#[tokio::test]
async fn brokers_that_the_access_point_names_belong_to_it() {
    let mut options = options();
    options.more_listeners = vec![([127, 0, 0, 1], 0).into()];
    options.topology = Topology::Local;
    let stage = Stage::with(options).await;
    let mut source = stage.lite();
    source.fetch_concurrency = 2;
    let consumer = stage.consumer(source).await;
    for tenant in 0..20 {
        stage.send_lite(&format!("tenant-{tenant}"), 1).await;
    }
    let other = stage.broker.addresses()[1].to_string();
    let is_elsewhere = |delivery: &Delivery| *delivery.handle.routing.endpoint == *other;
    let mut deliveries = Vec::new();
    while !deliveries.iter().any(is_elsewhere) {
        deliveries.extend(consumer.receive(1).await);
    }
    let pool = pool(&stage);
    let results = pool.settle(by_receipt(&deliveries, &Verb::Accept)).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    // While the access point is away nothing is known of a stranger, and that is no refusal.
    let mut away = client(&stage);
    away.client.endpoints = reached("127.0.0.1:1");
    let unable = pool_of(&stage, vec![away]);
    let error = unable.settle(by_receipt(&deliveries[..1], &Verb::Accept)).await.remove(0).expect_err("away");
    assert_eq!(error.fault, SettleFault::Broker, "{error}");
    for pool in [pool, unable] {
        pool.close().await;
    }
    consumer.source.close().await;
}

/// Asking an access point that never answers takes its time; who has nothing to do with it is answered meanwhile.
#[tokio::test]
async fn what_an_access_point_is_asked_about_keeps_nothing_else_waiting() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    stage.send_lite("tenant-1", 1).await;
    let here = receipt(&consumer.receive(1).await[0]);
    let mut elsewhere = here.clone();
    elsewhere.routing =
        Routing { endpoint: "127.0.0.1:1".into(), group: "G-silent".into(), ..here.routing.clone() };
    let mut lite_reject = here.clone();
    lite_reject.topic = "U".into();
    // Connections are made, and nobody is there.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let scope = AckScope::Groups(vec![("".into(), "G-silent".into())]);
    let mut silent = AckClient { name: "silent".into(), scope, ..client(&stage) };
    silent.client.endpoints = reached(&nobody.local_addr().expect("its address").to_string());
    let pool = pool_of(&stage, vec![client(&stage), silent]);
    let told = parking_lot::Mutex::new(Vec::new());
    let batch = vec![
        entry((elsewhere.clone(), Verb::Accept)),
        entry((here, Verb::Accept)),
        entry((elsewhere, Verb::Release)),
        entry((lite_reject, Verb::Reject { reason: "poison".into() })),
    ];
    pool.settle_each(batch, &|some| told.lock().extend(some)).await;
    let told = told.into_inner();
    let places: Vec<_> = told.iter().map(|(at, _)| *at).collect();
    assert_eq!(places, [3, 1, 0, 2], "who waits for nobody comes first: {told:?}");
    assert_eq!(told[1].1, Ok(None));
    for (_, result) in &told[2..] {
        assert_eq!(result.as_ref().expect_err("nobody said").fault, SettleFault::Broker);
    }
    assert_eq!(stage.control.audit().unacked().count(), 0);
    pool.close().await;
    consumer.source.close().await;
}

#[tokio::test]
async fn each_group_is_settled_with_the_keys_of_its_own_client() {
    let mut options = options();
    let user = |name: &str, group: &str| User {
        access_key: name.into(),
        secret_key: format!("{name}-secret"),
        is_admin: false,
        topics: vec!["N".into(), "T".into()],
        groups: vec![group.into()],
    };
    options.users = vec![user("alice", "GN"), user("bob", "G")];
    let stage = Stage::with(options).await;
    let keys = |name: &str| {
        let secret = secrecy::SecretString::from(format!("{name}-secret"));
        let mut client = stage.client();
        client.credentials = Arc::new(Fixed::new(Keys::new(name, secret)));
        client
    };
    let mut source = stage.of("N", "GN", TopicKind::Normal);
    source.client = keys("alice");
    let consumer = stage.consumer(source).await;
    let producer =
        tidegate_rocketmq::Producer::connect(keys("alice"), stage.clock, stage.telemetry.clone(), "p".into());
    let producer = producer.await.expect("set up");
    for _ in 0..2 {
        producer.send(Outgoing::normal("N", "x")).await.expect("sent");
    }
    let deliveries = consumer.receive(2).await;
    let scoped = |name: &str, group: &str| AckClient {
        name: name.into(),
        client: keys(name),
        scope: AckScope::Groups(vec![("".into(), group.into())]),
        endpoint: None,
    };
    let wrong = pool_of(&stage, vec![scoped("bob", "GN")]);
    let error =
        wrong.settle(by_receipt(&deliveries[..1], &Verb::Accept)).await.remove(0).expect_err("no right");
    assert_eq!(error.fault, SettleFault::Refused, "{error}");
    assert!(!error.detail.contains("bob-secret"), "{}", error.detail);
    let pool = pool_of(&stage, vec![scoped("bob", "G"), scoped("alice", "GN")]);
    let results = pool.settle(by_receipt(&deliveries, &Verb::Accept)).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert!(!format!("{pool:?}").contains("-secret"));
    for pool in [wrong, pool] {
        pool.close().await;
    }
    consumer.source.close().await;
    producer.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_nobody_uses_takes_leave() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    let pool = pool(&stage);
    stage.send_lite("tenant-1", 2).await;
    let deliveries = consumer.receive(2).await;
    let renew = Verb::Renew(Duration::from_secs(3_000));
    pool.settle(by_receipt(&deliveries[..1], &renew)).await.remove(0).expect("renewed");
    let renewed = pool.settle(by_receipt(&deliveries[1..], &renew)).await.remove(0).expect("renewed");
    assert!(metric(&stage, "rocketmq_ack_clients{source=\"pool\"} 1"), "one for both");
    tokio::time::advance(Duration::from_secs(61)).await;
    eventually(|| metric(&stage, "rocketmq_ack_clients{source=\"pool\"} 0").then_some(())).await;
    assert!(metric(&stage, "rocketmq_ack_client_ends_total{source=\"pool\",cause=\"idle\"} 1"));
    let changed = stage.control.requests().into_iter().find_map(|seen| match seen.call {
        Call::ChangeInvisible { .. } => Some(seen.client),
        _ => None,
    });
    let left =
        stage.control.requests().into_iter().any(|seen| {
            matches!(seen.call, Call::Terminate { .. }) && Some(&seen.client) == changed.as_ref()
        });
    assert!(left, "it took leave");
    let handle = renewed.expect("a new handle").text;
    let last = Receipt { handle, ..receipt(&deliveries[1]) };
    pool.settle(vec![entry((last, Verb::Release))]).await.remove(0).expect("a new client");
    pool.close().await;
    consumer.source.close().await;
}

#[tokio::test]
async fn however_many_groups_there_are_the_clients_are_bounded() {
    const GROUPS: usize = 300;
    const CLIENTS_MAX: usize = 256;
    const TRIES_MAX: usize = 10;
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    stage.send_lite("tenant-1", 1).await;
    let mut garbage = receipt(&consumer.receive(1).await[0]);
    garbage.handle = "garbage".into();
    let pool = pool(&stage);
    let of_group = |group: usize| {
        let mut receipt = garbage.clone();
        receipt.routing.group = format!("group-{group}").into();
        entry((receipt, Verb::Accept))
    };
    // On a slow machine some wait too long for a place and are told to try again: never anything else.
    let mut left: Vec<usize> = (0..GROUPS).collect();
    for _ in 0..TRIES_MAX {
        let results = pool.settle(left.iter().copied().map(of_group).collect()).await;
        let mut again = Vec::new();
        for (group, result) in left.into_iter().zip(results) {
            let error = result.expect_err("the handle is none");
            // The broker's answer to a handle that is none: this one was asked.
            if error.fault != SettleFault::Refused {
                assert!(error.is_retryable() && error.detail.contains("holds its 256 clients"), "{error}");
                again.push(group);
            }
        }
        left = again;
    }
    assert!(left.is_empty(), "each gets its turn: {left:?}");
    assert_eq!(stage.control.stats().count(Method::AckMessage), GROUPS as u64);
    eventually(|| {
        let held = value(&stage, "rocketmq_ack_clients{source=\"pool\"}")?;
        let gone = value(&stage, "rocketmq_ack_client_ends_total{source=\"pool\",cause=\"displaced\"}")?;
        assert!(held <= CLIENTS_MAX, "{held}");
        (held + gone == GROUPS).then_some(())
    })
    .await;
    pool.close().await;
    assert!(metric(&stage, "rocketmq_ack_clients{source=\"pool\"} 0"), "all are joined");
    let after = pool.settle(vec![of_group(0)]).await.remove(0).expect_err("closed");
    assert!(after.is_retryable() && after.detail.contains("closing"), "{after}");
    consumer.source.close().await;
}

#[tokio::test]
async fn many_callers_share_one_client() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.of("N", "GN", TopicKind::Normal)).await;
    let pool = Arc::new(pool(&stage));
    send(&stage, "N", TopicKind::Normal, 400).await;
    let deliveries = consumer.receive(400).await;
    let mut tasks = tokio::task::JoinSet::new();
    for delivery in deliveries {
        let pool = Arc::clone(&pool);
        tasks.spawn(async move { pool.settle(vec![entry((receipt(&delivery), Verb::Accept))]).await });
    }
    while let Some(settled) = tasks.join_next().await {
        settled.expect("no panic").remove(0).expect("acknowledged");
    }
    assert_eq!(stage.control.audit().unacked().count(), 0);
    let clients: HashSet<_> = stage
        .control
        .requests()
        .into_iter()
        .filter(|seen| matches!(seen.call, Call::AckMessage { .. }))
        .map(|seen| seen.client)
        .collect();
    assert_eq!(clients.len(), 1);
    pool.close().await;
    consumer.source.close().await;
}

/// The broker does not keep an acknowledgement while an earlier message of the lite topic is open, and answers OK (measured).
#[tokio::test]
async fn what_comes_in_later_about_a_lite_topic_does_not_overtake() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    let pool = pool(&stage);
    stage.send_lite("tenant-1", 4).await;
    stage.send_lite("tenant-2", 1).await;
    let deliveries = consumer.receive(5).await;
    let of = |lite_topic: &str, bodies: &[&str]| {
        let is = |delivery: &&Delivery| {
            delivery.message.lite_topic.as_deref() == Some(lite_topic)
                && bodies.iter().any(|body| *delivery.message.body == *body.as_bytes())
        };
        let chosen: Vec<Delivery> = deliveries.iter().filter(is).cloned().collect();
        assert_eq!(chosen.len(), bodies.len());
        by_receipt(&chosen, &Verb::Accept)
    };
    let slow = Fault::new(Method::AckMessage, Effect::Delay(Duration::from_millis(700)), 1);
    stage.control.inject(slow);
    let done = parking_lot::Mutex::new(Vec::new());
    let settle = async |name: &'static str, batch| {
        let results = pool.settle(batch).await;
        assert!(results.iter().all(Result::is_ok), "{name}: {results:?}");
        done.lock().push(name);
    };
    tokio::join!(
        biased;
        settle("first", of("tenant-1", &["0", "1"])),
        settle("second", of("tenant-1", &["2"])),
        settle("third", of("tenant-1", &["3"])),
        settle("another", of("tenant-2", &["0"])),
    );
    assert_eq!(*done.lock(), ["another", "first", "second", "third"]);
    assert_eq!(stage.control.audit().unacked().count(), 0, "none of them is to come again");
    pool.close().await;
    consumer.source.close().await;
}

#[tokio::test]
async fn whoever_gives_up_lets_those_behind_go_on() {
    let stage = Stage::start().await;
    let consumer = stage.consumer(stage.lite()).await;
    let pool = Arc::new(pool(&stage));
    stage.send_lite("tenant-1", 2).await;
    let deliveries = consumer.receive(2).await;
    let never = Fault::new(Method::AckMessage, Effect::DropReply, 1);
    stage.control.inject(never);
    let (first, second) = deliveries.split_at(1);
    let giving_up = {
        let (pool, batch) = (Arc::clone(&pool), by_receipt(first, &Verb::Accept));
        tokio::spawn(async move { pool.settle(batch).await })
    };
    eventually(|| (stage.control.stats().count(Method::AckMessage) == 1).then_some(())).await;
    let behind = {
        let (pool, batch) = (Arc::clone(&pool), by_receipt(second, &Verb::Accept));
        tokio::spawn(async move { pool.settle(batch).await })
    };
    tokio::task::yield_now().await;
    giving_up.abort();
    behind.await.expect("no panic").remove(0).expect("acknowledged");
    assert_eq!(stage.control.audit().unacked().count(), 0);
    pool.close().await;
    consumer.source.close().await;
}

/// Not a promise about a machine's speed but a comparison: run it by hand, in a release build.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure_the_pool_beside_the_hosts_own_settler() {
    const COUNT: usize = 100_000;
    let mut options = options();
    options.journal_max = 0;
    options.audited_messages_max = 0;
    let stage = Stage::with(options).await;
    let consumer = stage.consumer(stage.of("N", "GN", TopicKind::Normal)).await;
    let pool = Arc::new(pool(&stage));
    for by_pool in [false, true].repeat(6) {
        send(&stage, "N", TopicKind::Normal, COUNT).await;
        let mut deliveries = Vec::new();
        while deliveries.len() < COUNT {
            deliveries.extend(consumer.receive(32).await);
        }
        let receipts = by_receipt(&deliveries, &Verb::Accept);
        let begun = Instant::now();
        if by_pool {
            let results = pool.settle(receipts).await;
            assert!(results.iter().all(Result::is_ok));
        } else {
            // As a flow does it: batches as large as the settler wants them, each on a task of its own, eight at a time.
            let mut tasks = tokio::task::JoinSet::new();
            for batch in deliveries.chunks(consumer.settler.batch_max()) {
                if tasks.len() >= 8 {
                    tasks.join_next().await.expect("one").expect("no panic");
                }
                let settler = Arc::clone(&consumer.settler);
                let batch: Vec<_> = batch.iter().map(|delivery| settlement(delivery, Verb::Accept)).collect();
                tasks.spawn(async move { assert!(settler.settle(batch).await.iter().all(Result::is_ok)) });
            }
            while let Some(done) = tasks.join_next().await {
                done.expect("no panic");
            }
        }
        println!("{COUNT} by {}: {:?}", if by_pool { "the pool" } else { "the settler" }, begun.elapsed());
    }
    pool.close().await;
    consumer.source.close().await;
}

fn pool(stage: &Stage) -> AckPool {
    pool_of(stage, vec![client(stage)])
}

fn pool_of(stage: &Stage, clients: Vec<AckClient>) -> AckPool {
    AckPool::start(clients, stage.clock, stage.telemetry.clone()).expect("set up")
}

/// One for everything.
fn client(stage: &Stage) -> AckClient {
    AckClient { name: "pool".into(), client: stage.client(), scope: AckScope::Namespace, endpoint: None }
}

fn reached(text: &str) -> Endpoints {
    Endpoints::parse(text).expect("endpoints")
}

fn entry((receipt, verb): (Receipt, Verb)) -> SettleByReceipt {
    SettleByReceipt { receipt, verb }
}

fn by_receipt(deliveries: &[Delivery], verb: &Verb) -> Vec<SettleByReceipt> {
    deliveries.iter().map(|delivery| entry((receipt(delivery), verb.clone()))).collect()
}

async fn send(stage: &Stage, topic: &str, kind: TopicKind, count: usize) {
    let producer = stage.producer().await;
    for from in (0..count).step_by(1_000) {
        let messages = (from..count.min(from + 1_000)).map(|number| match kind {
            TopicKind::Lite => Outgoing::lite(topic, "tenant-1", number.to_string()),
            _ => Outgoing::normal(topic, number.to_string()),
        });
        for sent in producer.send_batch(messages.collect()).await {
            sent.expect("sent");
        }
    }
    producer.close().await;
}

/// As a caller does it: what failed through the broker's fault is settled once more.
async fn settle_in_the_end(pool: &AckPool, batch: Vec<SettleByReceipt>) {
    let settling = async {
        let mut open = batch;
        while !open.is_empty() {
            let results: Results = pool.settle(open.clone()).await;
            let failed = open.into_iter().zip(results).filter_map(|(entry, result)| {
                let error = result.err()?;
                assert!(error.is_retryable(), "{error}");
                Some(entry)
            });
            open = failed.collect();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, settling).await.expect("settled in the end");
}

fn value(stage: &Stage, name: &str) -> Option<usize> {
    let metrics = stage.telemetry.encode();
    metrics.lines().find_map(|line| line.strip_prefix("tidegate_")?.strip_prefix(name)?.trim().parse().ok())
}

fn metric(stage: &Stage, line: &str) -> bool {
    let metrics = stage.telemetry.encode();
    metrics.lines().any(|shown| shown == format!("tidegate_{line}"))
}
