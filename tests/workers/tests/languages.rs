//! Each worker takes messages, settles them as it should, and loses none: not when it is killed, and not when its host is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in the helpers of a test, a failure is the test's failure"
)]
#![allow(
    clippy::print_stdout,
    reason = "what took how long is shown beside a failure, and with `--nocapture`"
)]

use std::net::{Ipv4Addr, TcpListener};

use tidegate_devbroker::{Audit, Broker, MessageRecord};
use tidegate_process_tests::{
    Configuration, Consumed, GROUP, Home, Program, TOPIC, Tenants, eventually, http_ask, start_broker,
};
use tidegate_worker_tests::Language;

const FLOW: &str = "jobs";
/// What a service for workers has more.
const GUARDED: &str = "tokens-file = \"tokens.toml\"";
const TOKEN: &str = "jobs-0123456789abcdef";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs curl and Python; `cargo xtask test` runs it as the step `workers`"]
async fn with_curl() {
    journey(Language::Curl).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Go and gets modules; `cargo xtask test` runs it as the step `workers`"]
async fn in_go() {
    journey(Language::Go).await;
    settled_elsewhere(Language::Go).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Maven and gets artifacts; `cargo xtask test` runs it as the step `workers`"]
async fn in_java() {
    journey(Language::Java).await;
    settled_elsewhere(Language::Java).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Node.js and gets packages; `cargo xtask test` runs it as the step `workers`"]
async fn in_javascript() {
    journey(Language::JavaScript).await;
    settled_elsewhere(Language::JavaScript).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Python and gets packages; `cargo xtask test` runs it as the step `workers`"]
async fn in_python() {
    journey(Language::Python).await;
    settled_elsewhere(Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the example to be built; `cargo xtask test` runs it as the step `workers`"]
async fn in_rust() {
    journey(Language::Rust).await;
}

async fn journey(language: Language) {
    let ready = language.ready().await;
    let began = tokio::time::Instant::now();
    let told = |what: &str| println!("{:>7.1} s  {}: {what}", began.elapsed().as_secs_f64(), language.name());
    let stage = Stage::set().await;
    let host = stage.start_host().await;
    let worker = ready.start(&stage.address, FLOW, TOKEN);
    worker.wait_for(1, "subscribed at ").await;
    told("subscribed");

    stage.send(&["defer", "reject"], "odd").await;
    stage.send(&["job"; 10], "plain").await;
    stage.wait_for_done().await;
    worker.wait_for(11, "done accept ").await;
    assert_eq!((worker.count("done defer "), worker.count("done reject ")), (1, 1), "{:?}", worker.lines());
    let attempts = stage.attempts();
    assert!(
        attempts.iter().all(|(body, attempts)| *attempts == if body == "odd-defer" { 2 } else { 1 }),
        "{attempts:?}"
    );
    eventually("the dead letter", || {
        host.lines().iter().find(|line| line.contains("it says so itself")).cloned()
    })
    .await;
    told("every verdict is settled");

    stage.send(&["job"; 40], "killed").await;
    worker.wait_for(11 + 8, "done accept ").await;
    worker.kill().await;
    assert!(stage.open() > 0, "nothing was left to lose");
    let worker = ready.start(&stage.address, FLOW, TOKEN);
    stage.wait_for_done().await;
    told("nothing is lost with a worker");

    let before = worker.count("done accept ");
    stage.send(&["job"; 40], "drained").await;
    worker.wait_for(before + 8, "done accept ").await;
    let ended = host.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("nothing left behind"), "{}", ended.stderr);
    let host = stage.start_host().await;
    stage.wait_for_done().await;
    told("nothing is left behind when a host is told to end");

    let before = worker.count("done accept ");
    stage.send(&["job"; 40], "broken").await;
    worker.wait_for(before + 8, "done accept ").await;
    host.kill().await;
    assert!(stage.open() > 0, "nothing was left to lose");
    let host = stage.start_host().await;
    stage.wait_for_done().await;
    // What the worker finished meanwhile was settled by its receipt, at a host that knew nothing of it.
    let metric =
        |line: &&str| line.contains("handoff_settlements_total") && line.contains(r#"result="done""#);
    let (_, metrics) = http_ask(&host.admin().await, "GET", "/metrics");
    let past_the_flow = metrics.lines().filter(metric).find(|line| line.contains(r#"owner="other""#));
    assert!(past_the_flow.is_some(), "{}\n{metrics}", worker.lines().join("\n"));
    told("nothing is lost with a host");

    let (status, lines) = worker.terminate().await;
    assert!(status.success(), "{status}: {}", lines.join("\n"));
    assert_eq!(lines.last().map(String::as_str), Some("left"), "{}", lines.join("\n"));
    assert!(!lines.iter().any(|line| line.starts_with("unsettled ")), "{}", lines.join("\n"));
    let ended = host.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(stage.audit().lost().count(), 0);
    told("and both end well");
}

/// What is taken from one host is settled at another, which has no flow, also when the first is dead.
async fn settled_elsewhere(language: Language) {
    let ready = language.ready().await;
    let stage = Stage::set().await;
    let host = stage.start_host().await;
    let (settler, other) = stage.start_settler().await;
    let worker = ready.start_settling_at(&other, &stage.address, FLOW, TOKEN);
    worker.wait_for(1, "subscribed at ").await;

    // Ten times what it may hold: the host that gives them out knows that they are not held any more.
    stage.send(&["job"; 40], "elsewhere").await;
    worker.wait_for(40, "done accept ").await;
    assert_eq!(stage.open(), 0);
    assert!(stage.attempts().iter().all(|(_, attempts)| *attempts == 1), "{:?}", stage.attempts());
    assert_eq!(settlements(&host).await, Vec::<String>::new(), "it is asked for none");
    assert_eq!(settlements(&settler).await, [r#"result="done" owner="other" 40"#]);

    stage.send(&["job"; 40], "orphans").await;
    worker.wait_for(40 + 8, "done accept ").await;
    host.kill().await;
    let host = stage.start_host().await;
    stage.wait_for_done().await;

    let (status, lines) = worker.terminate().await;
    assert!(status.success(), "{status}: {}", lines.join("\n"));
    assert_eq!(lines.last().map(String::as_str), Some("left"), "{}", lines.join("\n"));
    for program in [host, settler] {
        let ended = program.terminate().await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    assert_eq!(stage.audit().lost().count(), 0);
}

/// How often a host was asked to settle, by owner and result.
async fn settlements(host: &Program) -> Vec<String> {
    let (_, metrics) = http_ask(&host.admin().await, "GET", "/metrics");
    let settlements = metrics.lines().filter_map(|line| {
        let (labels, count) = line.strip_prefix("tidegate_handoff_settlements_total{")?.split_once("} ")?;
        Some(format!("{} {count}", labels.replace(',', " ")))
    });
    settlements.collect()
}

/// A broker, a configuration, and whoever sends.
struct Stage {
    broker: Broker,
    tenants: Tenants,
    home: Home,
    /// Where the host serves workers.
    address: String,
}

impl Stage {
    async fn set() -> Self {
        let broker = start_broker().await;
        let tenants = Tenants::of(&broker).await;
        let home = Home::new();
        let address = free_address();
        home.write("fleet.key", "0123456789abcdef".repeat(4));
        home.write("tokens.toml", format!("[tokens.jobs]\ntoken = \"{TOKEN}\"\nflows = [\"{FLOW}\"]\n"));
        let endpoint = broker.address().to_string();
        let configuration = Configuration::new("receipt-key-file = \"fleet.key\"")
            .source(
                "jobs",
                Consumed { endpoint: &endpoint, topic: TOPIC, group: GROUP },
                "rocketmq.source.await-duration = \"5s\"\nrocketmq.source.invisible-duration = \"20s\"",
            )
            .workers("workers", &address, GUARDED)
            .sink("rejected", "stdout", "")
            .flow(FLOW, "jobs", "workers", "dead-letter = \"rejected\"");
        home.put(&configuration);
        Self { broker, tenants, home, address }
    }

    async fn start_host(&self) -> Program {
        let host = Program::start(self.home.path(), &["run"]);
        host.wait_for_log("workers are served").await;
        host
    }

    /// A host of the same fleet that only settles, and where it does.
    async fn start_settler(&self) -> (Program, String) {
        let address = free_address();
        let host = "receipt-key-file = \"fleet.key\"\nstate-dir = \"state-of-the-settler\"";
        let configuration = Configuration::new(host)
            .settler("fleet", &self.broker.address().to_string(), "")
            .workers("workers", &address, GUARDED);
        self.home.write("settler.toml", configuration.toml());
        let host = Program::start(self.home.path(), &["run", "--config", "settler.toml"]);
        host.wait_for_log("workers are served").await;
        (host, address)
    }

    /// Sends messages, each to a lite topic of its own.
    async fn send(&self, bodies: &[&str], name: &str) {
        for (number, body) in bodies.iter().enumerate() {
            let lite_topic =
                if *body == "job" { format!("{name}-{number}") } else { format!("{name}-{body}") };
            self.tenants.send(&lite_topic, body).await;
        }
    }

    fn audit(&self) -> Audit {
        self.broker.control().audit()
    }

    /// Messages that are not done.
    fn open(&self) -> usize {
        self.audit().unacked().count()
    }

    async fn wait_for_done(&self) {
        eventually("the end of all messages", || (self.open() == 0).then_some(())).await;
    }

    /// How often each message was delivered, by its lite topic.
    fn attempts(&self) -> Vec<(String, usize)> {
        let attempts = |record: &MessageRecord| {
            (record.lite_topic.as_deref().unwrap_or_default().to_owned(), record.deliveries.len())
        };
        self.audit().messages.iter().map(attempts).collect()
    }
}

/// An address that nobody listens on.
fn free_address() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").to_string()
}
