//! A sink that cannot take anything: the flow holds at its budget, goes on by itself, and loses nothing.
#![allow(clippy::expect_used, reason = "in the helpers of a test, a failure is the test's failure")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_devbroker::{Broker, Method};
use tidegate_process_tests::{
    Configuration, Consumed, GROUP, Home, PATIENCE, Program, TOPIC, Tenants, start_impatient_broker,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// So many that what a broker hands out of each before it waits for an answer is more than any budget here.
const LITE_TOPICS: usize = 200;
const MESSAGES: usize = 10_000;
/// Taken into memory, the backlog would be twenty megabytes and more.
const BODY_BYTES: usize = 2 << 10;
/// What the process may grow while it holds: a quarter of the backlog. It holds what it held, but allocators and logs
/// breathe.
const GROWTH_MAX: u64 = (MESSAGES * BODY_BYTES / 4) as u64;
/// The shortest lease that brokers grant, so that several end while a sink is down.
const LEASE: Duration = Duration::from_secs(10);
const QUEUE: usize = 92;

/// A renewal policy keeps what the flow holds, so that a server that is down for several leases costs no message the few
/// attempts that its broker allows.
#[tokio::test(flavor = "multi_thread")]
async fn a_web_server_that_is_down() {
    let server = Server::down();
    let url = format!("url = \"http://{}/\"\nconcurrency = 4\nretry-max-wait = \"1s\"", server.address);
    let stage = Stage::set(2, "http", &url, true).await;
    // Two deliveries for each place of a request.
    let budget = QUEUE + 2 * 4;
    let program = Program::start(stage.home.path(), &["run"]);
    stage.is_held(&program, budget).await;

    // Without renewals all that is held would be handed out anew with each lease.
    let began = Instant::now();
    stage.holds_until(&program, budget, async || began.elapsed() > LEASE).await;
    let held = program.resident_bytes();
    stage.holds_until(&program, budget, async || began.elapsed() > 3 * LEASE + LEASE / 2).await;
    let renewals = stage.broker.control().stats().count(Method::ChangeInvisibleDuration);
    assert!(renewals > 0, "nothing was renewed");
    let handed_out = stage.handed_out();
    assert!(handed_out < 2 * budget, "the broker handed {handed_out} out for {budget} that are held");
    assert_eq!(program.totals().await["accepted"], 0);
    let now = program.resident_bytes();
    assert!(now < held + GROWTH_MAX, "grown from {held} to {now} bytes");

    let server = server.comes_up();
    stage.has_nothing_left().await;
    stage.all_are_there(&server.bodies.lock());
    stage.end(program).await;
}

/// Nobody renews here: leases end, and messages come again while the disk is full. They are not lost either.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full() {
    // As deep as the file's sink holds lines under way.
    let budget = QUEUE + 1_024;
    let home = Home::new();
    let disk = home.file("disk");
    std::fs::create_dir(&disk).expect("a directory of our own");
    let file = disk.join("out.jsonl");
    let stage = Stage::set_in(home, 17, "file", &format!("path = \"{}\"", file.display()), false).await;
    let program = Program::start_on_a_small_disk(stage.home.path(), &["run"], &disk, 512);
    stage.is_held(&program, budget).await;

    // In the first round everything is done for the first time; the next one shows whether something piles up.
    let rounds = async |rounds| program.totals().await["expired"].as_u64() > Some((rounds * budget) as u64);
    stage.holds_until(&program, budget, async || rounds(1).await).await;
    let held = program.resident_bytes();
    stage.holds_until(&program, budget, async || rounds(2).await).await;
    let accepted = program.totals().await["accepted"].as_u64().expect("a count");
    assert!(accepted < MESSAGES as u64 / 10, "the disk had no room for so many: {accepted}");
    let now = program.resident_bytes();
    assert!(now < held + GROWTH_MAX, "grown from {held} to {now} bytes");

    program.make_room(&disk);
    stage.has_nothing_left().await;
    stage.all_are_there(&lines_of(&program.seen_from_outside(&file)));
    stage.end(program).await;
}

/// A broker full of messages, and a configuration.
struct Stage {
    home: Home,
    broker: Broker,
}

impl Stage {
    async fn set(attempts_max: u32, connector: &str, sink: &str, renews: bool) -> Self {
        Self::set_in(Home::new(), attempts_max, connector, sink, renews).await
    }

    async fn set_in(home: Home, attempts_max: u32, connector: &str, sink: &str, renews: bool) -> Self {
        let broker = start_impatient_broker(attempts_max).await;
        let tenants = Tenants::of(&broker).await;
        tenants.send_all((0..MESSAGES).map(|number| (lite_topic(number), body(number)))).await;
        tenants.close().await;
        home.install("steady");
        let renewing = "rocketmq.source.renewal-policy = \"steady\"";
        let source = format!(
            "rocketmq.source.await-duration = \"5s\"\nrocketmq.source.invisible-duration = \"{}s\"\n{}",
            LEASE.as_secs(),
            if renews { renewing } else { "" },
        );
        let flow = format!("queue-messages = {QUEUE}\nrenew-emitted = {renews}");
        let endpoint = broker.address().to_string();
        let configuration = Configuration::new("drain-timeout = \"10s\"")
            .policy("steady", "steady")
            .source("tenants", Consumed { endpoint: &endpoint, topic: TOPIC, group: GROUP }, &source)
            .sink("out", connector, sink)
            .flow("tenants", "tenants", "out", &flow);
        home.put(&configuration);
        Self { home, broker }
    }

    /// Waits until the flow holds what it may and the sink says that it cannot go on.
    async fn is_held(&self, program: &Program, budget: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let held = in_flight(program).await;
            if held == budget && program.metric("sink_in_trouble{sink=\"out\"}").await == 1 {
                return;
            }
            assert!(Instant::now() < deadline, "{held} of {budget} are held\n{}", program.log());
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Looks again and again until something holds; the flow never has more than its budget, and never much less.
    async fn holds_until(&self, program: &Program, budget: usize, holds: impl AsyncFn() -> bool) {
        let deadline = Instant::now() + 2 * PATIENCE;
        let mut most = 0;
        while !holds().await {
            most = most.max(in_flight(program).await);
            assert!(most <= budget, "{most} are held, and {budget} may be");
            assert!(Instant::now() < deadline, "not within {:?}: {}", 2 * PATIENCE, program.totals().await);
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(most, budget, "it stands ready all the while");
    }

    /// Times that the broker has handed out a message.
    fn handed_out(&self) -> usize {
        self.broker.control().audit().messages.iter().map(|message| message.deliveries.len()).sum()
    }

    /// Waits until the broker has nothing left; looks at what it gave up.
    async fn has_nothing_left(&self) {
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            let audit = self.broker.control().audit();
            let given_up = audit.messages.iter().filter(|message| message.dead_lettered).count();
            assert_eq!(given_up, 0, "the broker gave messages up");
            let left = audit.unacked().count();
            if left == 0 {
                return;
            }
            assert!(Instant::now() < deadline, "{left} messages are left at the broker");
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Asserts that each message came, and each lite topic's first ones in order.
    fn all_are_there(&self, bodies: &[String]) {
        let came: BTreeSet<&str> = bodies.iter().map(String::as_str).collect();
        let missing: Vec<_> = (0..MESSAGES).map(body).filter(|body| !came.contains(&**body)).collect();
        assert_eq!(missing, [""; 0], "not all came");
        let mut last: BTreeMap<usize, usize> = BTreeMap::new();
        for number in bodies.iter().map(|body| number_of(body)) {
            let expected = last.entry(number % LITE_TOPICS).or_insert(number % LITE_TOPICS);
            assert!(number <= *expected, "{number} came before {expected}");
            *expected = (*expected).max(number + LITE_TOPICS);
        }
    }

    async fn end(self, program: Program) {
        let ended = program.terminate().await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        self.broker.stop().await;
    }
}

async fn in_flight(program: &Program) -> usize {
    let flow = program.get("/api/flows").await["flows"][0].clone();
    usize::try_from(flow["in-flight"].as_u64().expect("a count")).expect("few")
}

fn lite_topic(number: usize) -> String {
    format!("tenant-{}", number % LITE_TOPICS)
}

fn body(number: usize) -> String {
    format!("{number:<BODY_BYTES$}")
}

fn number_of(body: &str) -> usize {
    body.trim_end().parse().expect("a number")
}

/// The bodies in a file of records.
fn lines_of(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("the file is there");
    text.lines().map(body_of).collect()
}

fn body_of(record: &str) -> String {
    let record: Value = serde_json::from_str(record).expect("a whole record");
    record["value"].as_str().expect("a value").to_owned()
}

/// A web server that is not there yet. Its port is taken, so that nobody else comes up there: connections are refused.
struct Down {
    socket: TcpSocket,
    address: SocketAddr,
}

/// One that says yes to everything.
struct Server {
    bodies: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Server {
    fn down() -> Down {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = socket.local_addr().expect("bound");
        Down { socket, address }
    }
}

impl Down {
    fn comes_up(self) -> Server {
        let listener = self.socket.listen(64).expect("a listener");
        let bodies: Arc<Mutex<Vec<String>>> = Arc::default();
        let task = tokio::spawn(accept(listener, Arc::clone(&bodies)));
        Server { bodies, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, bodies: Arc<Mutex<Vec<String>>>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        connections.spawn(serve(connection, Arc::clone(&bodies)));
    }
}

/// Answers one connection's requests until it ends.
async fn serve(connection: TcpStream, bodies: Arc<Mutex<Vec<String>>>) -> std::io::Result<()> {
    let mut connection = BufReader::new(connection);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if connection.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut record = vec![0; length];
        connection.read_exact(&mut record).await?;
        bodies.lock().push(body_of(std::str::from_utf8(&record).expect("JSON is text")));
        connection.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
    }
}
