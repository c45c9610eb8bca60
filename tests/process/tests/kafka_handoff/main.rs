//! Workers of flows on Kafka share groups: they settle at the host that gave them a message, and through any other that has
//! it as a peer; on a cluster in memory, and on a real one.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod leases;
mod owner;
mod peers;
#[cfg(feature = "real")]
mod real;
mod resolver;
#[path = "../handoff/service.rs"]
mod service;

use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};
use service::{Service, bodies};
use tidegate_process_tests::{Configuration, Ended, Home, Program, eventually, run_to_end};
use tidegate_share_broker as broker;

/// A key that a fleet shares.
const KEY: &str = "0011223344556677889900112233445566778899001122334455667788990011";
const GROUP: &str = "fulfilment";
const TOPIC: &str = "orders";
/// What the owner of a receipt knows its callers by.
const WORKER: &str = "worker-0123456789abcdef";
const FLEET: &str = "fleet-0123456789abcdef";

/// A host that gives out what it gets from a share group, at an address that it has again after a restart.
struct Owner {
    home: Home,
    address: String,
}

impl Owner {
    /// With what is added to its source and its flow.
    fn new(servers: &str, more_source: &str, more_flow: &str) -> Self {
        let home = Home::new();
        home.write("fleet.key", KEY);
        let token = |name: &str, token: &str| {
            format!("[tokens.{name}]\ntoken = \"{token}\"\nflows = [\"tenants\"]\n")
        };
        home.write("tokens.toml", [token("worker", WORKER), token("fleet", FLEET)].concat());
        // Free a moment ago, and asked for again at once.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        drop(listener);
        let source = format!("topic = \"{TOPIC}\"\n{more_source}");
        let configuration = Configuration::new("drain-timeout = \"2s\"\nreceipt-key-file = \"fleet.key\"")
            .share_source("orders", servers, GROUP, &source)
            .workers("workers", &address, "tokens-file = \"tokens.toml\"")
            .flow("tenants", "orders", "workers", &format!("key = \"record-key\"\n{more_flow}"));
        home.put(&configuration);
        Self { home, address }
    }

    /// Starts it; gives its service for workers.
    async fn start(&self) -> (Program, Service) {
        let program = Program::start(self.home.path(), &["run"]);
        let service = Service::of(&program).await.with_token(WORKER);
        program.wait_for_log("flow running").await;
        (program, service)
    }
}

/// A host that gives out nothing, and passes on what it can.
fn other(peers: &str, more_sink: &str) -> Home {
    let home = Home::new();
    home.write("fleet.key", KEY);
    home.write("peer.token", FLEET);
    let mut configuration = Configuration::new("receipt-key-file = \"fleet.key\"");
    if peers.is_empty() {
        // Something that it can do.
        configuration = configuration.settler("others", "127.0.0.1:9", "");
    }
    let configuration = configuration.workers("workers", "127.0.0.1:0", more_sink);
    home.write("tidegate.toml", format!("{}{peers}", configuration.toml()));
    home
}

/// That an owner is a peer.
fn first(owner: &Owner) -> String {
    format!("[peers.first]\nendpoint = \"http://{}\"\ntoken = \"file:peer.token\"\n", owner.address)
}

async fn start_other(home: &Home) -> (Program, Service) {
    let program = Program::start(home.path(), &["run"]);
    let service = Service::of(&program).await;
    (program, service)
}

/// A command in a home, to its end.
async fn command(home: &Home, arguments: &[&str]) -> Ended {
    let directory = home.path().to_owned();
    let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
    let running = tokio::task::spawn_blocking(move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run_to_end(&directory, &arguments)
    });
    running.await.expect("no panic")
}

/// A cluster in memory with one partition of the topic.
async fn cluster(options: broker::Options) -> broker::Service {
    let cluster = broker::Service::start(options).await.expect("the cluster");
    cluster.with(|cluster, _| cluster.create_topic(TOPIC, 1));
    cluster
}

fn append(cluster: &broker::Service, values: &[&str]) {
    let records = values.iter().map(|value| broker::Record::new((*value).to_owned()).keyed("k"));
    cluster.with(|cluster, _| cluster.append(TOPIC, 0, records).expect("it is there"));
}

fn tally(cluster: &broker::Service) -> broker::Tally {
    cluster.with(|cluster, _| cluster.tally(GROUP))
}

/// The delivery with this value.
fn of<'d>(deliveries: &'d [Value], value: &str) -> &'d [Value] {
    let found = deliveries.iter().find(|delivery| delivery["value"] == value);
    std::slice::from_ref(found.unwrap_or_else(|| panic!("`{value}` is not among {:?}", bodies(deliveries))))
}

fn receipt(deliveries: &[Value], value: &str) -> String {
    of(deliveries, value)[0]["receipt"].as_str().expect("a receipt").to_owned()
}

/// Settles one; gives its status and what is said about it.
fn settle_one(service: &Service, receipt: &str, verdict: &Value) -> (String, String) {
    let mut settlement = verdict.clone();
    settlement["receipt"] = receipt.into();
    let (status, answer) =
        service.ask("POST", "/v1/settle", &json!({ "settlements": [settlement] }).to_string());
    assert_eq!(status, 200, "{answer}");
    let result = &answer["results"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&result["status"]), text(&result["detail"]))
}

/// Keeps one's lock; gives the status and what is left.
fn renew_one(service: &Service, receipt: &str, length: Duration) -> (String, u64) {
    let renewal =
        json!({ "receipt": receipt, "length-ms": u64::try_from(length.as_millis()).expect("short") });
    let (status, answer) = service.ask("POST", "/v1/renew", &json!({ "renewals": [renewal] }).to_string());
    assert_eq!(status, 200, "{answer}");
    let result = &answer["results"][0];
    (result["status"].as_str().expect("a status").to_owned(), result["lease-ms"].as_u64().unwrap_or(0))
}

/// What workers hold of the owner's flow.
fn held(service: &Service) -> u64 {
    let (status, answer) = service.ask("GET", "/v1/flows", "");
    assert_eq!(status, 200, "{answer}");
    answer["flows"][0]["held"].as_u64().expect("a count")
}

/// Settles five deliveries through `service` in each way there is, takes what comes again from the owner, and accepts that
/// through `service`, too. What the broker was told is for the caller to look at.
async fn settle_in_every_way(owner: &Service, service: &Service) {
    let taken = owner.pull_all(5).await;
    let done = |value: &str, verdict: Value| {
        assert_eq!(
            settle_one(service, &receipt(&taken, value), &verdict),
            ("done".into(), String::new()),
            "{value}"
        );
    };
    // For longer than a lock is.
    let (status, left) = renew_one(service, &receipt(&taken, "renew"), Duration::from_secs(60));
    assert_eq!(status, "done");
    assert!(left > 0, "a lock that lasts");
    done("renew", json!({ "verdict": "accept", "cost": 2.5 }));
    done("accept", json!({ "verdict": "accept" }));
    done("accept", json!({ "verdict": "accept" }));
    done("defer", json!({ "verdict": "defer", "delay-ms": 500 }));
    done("release", json!({ "verdict": "release" }));
    done("reject", json!({ "verdict": "reject", "reason": "cannot be read" }));
    let (status, told) = settle_one(service, &receipt(&taken, "accept"), &json!({ "verdict": "release" }));
    assert_eq!(status, "unknown", "{told}");
    let again = owner.pull_all(2).await;
    let mut names = bodies(&again);
    names.sort();
    assert_eq!(names, ["defer", "release"]);
    assert_eq!(service.settle(&again, &json!({ "verdict": "accept" })), ["done", "done"]);
    // Their places are free at the owner, and nobody had to say so.
    eventually("nothing held", || (held(owner) == 0).then_some(())).await;
}

const FIVE: [&str; 5] = ["accept", "defer", "release", "reject", "renew"];

/// That the broker was told of all five, each in its way.
async fn five_are_settled(cluster: &broker::Service) {
    eventually("four accepted and one rejected", || {
        let tally = tally(cluster);
        ((tally.accepted, tally.rejected) == (4, 1)).then_some(())
    })
    .await;
    let tally = tally(cluster);
    // A deferral keeps its lock, a release gives it back.
    assert_eq!((tally.acquired, tally.released, tally.expired), (6, 1, 0), "{tally:?}");
    assert!(tally.renewed >= 1, "{tally:?}");
}
