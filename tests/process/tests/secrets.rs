//! No secret travels: marked secrets go into the program by every way there is, and nothing that comes out of it has
//! anything of them.
//!
//! What is collected is checked too: a text that is no secret goes the same ways and must be found at their ends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in the helpers of a test, a failure is the test's failure"
)]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use secrecy::SecretString;
use serde_json::{Value, json};
use tidegate_connector::Clock;
use tidegate_devbroker::{Broker, User};
use tidegate_process_tests::secrets::{Haul, Marker};
use tidegate_process_tests::{
    Configuration, Consumed, Home, Program, TOPIC, admin, eventually_asked, run_to_end, run_with_variables,
    start_guarded_broker,
};
use tidegate_rocketmq::{ClientOptions, Endpoints, Fixed, Keys, Outgoing, Producer};
use tidegate_telemetry::Telemetry;
use tidegate_test_guests::Guest;

const RUN: [&str; 3] = ["run", "--config", "tidegate.toml"];
/// The most verbose there is.
const LEVEL: &str = "trace";
/// What a host writes in the place of a secret.
const MARK: &str = "[redacted]";
/// Messages of one batch.
const BATCH: usize = 20;

/// How the log is written.
const FORMATS: [&str; 2] = ["text", "json"];

/// A text that is no secret and must be found.
fn control() -> Marker {
    Marker::new("no secret")
}

/// A broker that lets two users in, a program beside it, and all that must not come out of that.
struct Stage {
    broker: Broker,
    producer: Producer,
    home: Home,
    format: &'static str,
    policies: String,
    flows: Vec<(String, String)>,
    variables: Vec<(String, String)>,
    secrets: Vec<Marker>,
    sent: usize,
}

impl Stage {
    /// Flows are decided about by `rate-rules`, with a shadow beside it.
    async fn new(format: &'static str, users: &[(&str, &Marker)]) -> Self {
        let users: Vec<User> = users.iter().map(|(name, secret)| admin(name, secret.text())).collect();
        let broker = start_guarded_broker(users.clone(), (0..16).map(group)).await;
        let endpoints = Endpoints::parse(&broker.address().to_string()).expect("an address");
        let keys = Keys::new(users[0].access_key.as_str(), SecretString::from(users[0].secret_key.clone()));
        let options =
            ClientOptions { credentials: Arc::new(Fixed::new(keys)), ..ClientOptions::new(endpoints) };
        let producer = Producer::connect(options, Clock::start(), Telemetry::default(), Arc::from("tests"));
        let producer = producer.await.expect("a producer");

        let home = Home::new();
        home.install("rate-rules");
        let rules = format!(
            "# {control}\n[[rule]]\nlite-topic = \"closed-*\"\nreject = \"{control}\"\n\
             [[rule]]\nlite-topic = \"*\"\nrate = 1000\nburst = 1000\n",
            control = control().core()
        );
        home.write("policies/rate-rules.toml", rules);
        home.write("policies/shadow.wasm", Guest::default().component());
        fs::create_dir(home.file("keys")).unwrap();
        let policies = "[policies.gate]\ncomponent = \"rate-rules.wasm\"\nrules = \"rate-rules.toml\"\n\
             probation = { calls = 5, time = \"1s\" }\n[policies.shadow]\ncomponent = \"shadow.wasm\"\n";
        Self {
            broker,
            producer,
            home,
            format,
            policies: policies.to_owned(),
            flows: Vec::new(),
            variables: Vec::new(),
            secrets: Vec::new(),
            sent: 0,
        }
    }

    /// What `marker` must not be found in is everything from now on.
    fn hide(&mut self, marker: Marker) -> Marker {
        if !self.secrets.contains(&marker) {
            self.secrets.push(marker.clone());
        }
        marker
    }

    fn variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// A resolver, and a flow of the same name that is let in with what it says.
    fn resolver(&mut self, name: &str, component: &str, rules: &str, grants: &str) {
        self.home.write(&format!("policies/{name}.toml"), rules);
        self.policies.push_str(&format!(
            "[policies.{name}]\ncomponent = \"{component}.wasm\"\nrules = \"{name}.toml\"\n\
             probation = {{ calls = 1, time = \"1s\" }}\nlimits.start-deadline = \"10s\"\n{grants}\n"
        ));
        self.flow(name, &format!("rocketmq.client.credentials-resolver = \"{name}\"\n"));
    }

    fn flow(&mut self, name: &str, source: &str) {
        self.flows.push((name.to_owned(), source.to_owned()));
    }

    fn config(&self) -> Configuration {
        let host =
            format!("drain-timeout = \"5s\"\nlog-level = \"{LEVEL}\"\nlog-format = \"{}\"", self.format);
        let endpoint = self.broker.address().to_string();
        let mut configuration = Configuration::new(&host).sink("out", "stdout", &self.policies);
        for (number, (name, source)) in self.flows.iter().enumerate() {
            let consumed = Consumed { endpoint: &endpoint, topic: TOPIC, group: &group(number) };
            configuration = configuration
                .source(name, consumed, &format!("rocketmq.source.await-duration = \"1s\"\n{source}"))
                .flow(name, name, "out", "throttle = \"gate\"\nshadow = \"shadow\"");
        }
        configuration
    }

    fn start(&self) -> Program {
        self.home.put(&self.config());
        Program::start_with_variables(self.home.path(), &RUN, &self.borrowed())
    }

    fn borrowed(&self) -> Vec<(&str, &str)> {
        self.variables.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    /// Replaces a file at once, as one that is mounted is.
    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        self.home.write("draft", content);
        fs::rename(self.home.file("draft"), self.home.file(name)).unwrap();
    }

    /// Sends a batch, of which one message is rejected, and waits until the flow has accepted the others.
    async fn messages_flow(&mut self, program: &Program, flow: &str) {
        let before = total(program, flow, "accepted").await;
        for number in 0..BATCH {
            let body = format!("{} {}", control().core(), self.sent + number);
            let tenant = format!("tenant-{}", number % 4);
            self.producer.send(Outgoing::lite(TOPIC, &*tenant, body)).await.expect("sent");
        }
        let closed = format!("closed-{}", control().core());
        self.producer.send(Outgoing::lite(TOPIC, closed, "late".to_owned())).await.expect("sent");
        self.sent += BATCH;
        eventually_asked(&format!("{BATCH} more accepted by {flow}"), async || {
            let accepted = total(program, flow, "accepted").await;
            (accepted >= before + BATCH as u64).then_some(())
        })
        .await;
    }

    /// The same, and records what the flow decides.
    async fn messages_flow_and_are_recorded(&mut self, program: &Program, flow: &str, haul: &mut Haul) {
        let (directory, flow_name, admin) =
            (self.home.path().to_owned(), flow.to_owned(), program.admin().await);
        let look = |command: &[&'static str], output: &'static [&'static str]| {
            let (command, directory) = (command.to_vec(), directory.clone());
            let (flow_name, admin) = (flow_name.clone(), admin.clone());
            tokio::task::spawn_blocking(move || {
                let from = [&*flow_name, "--count", "10", "--admin", &*admin];
                run_to_end(&directory, &[&*command, &from, output].concat())
            })
        };
        let (recording, tap) = (look(&["policy", "record"], &["-o", "-"]), look(&["tap"], &[]));
        program.wait_for_log("a recording of the flow's decisions begins").await;
        program.wait_for_log("a tap of the flow begins").await;
        self.messages_flow(program, flow).await;
        for (name, looking) in [("tidegate policy record", recording), ("tidegate tap", tap)] {
            let ended = looking.await.unwrap();
            haul.add(name, ended.stdout + &ended.stderr);
            haul.expect(name, control().core());
        }
    }

    /// Asks the running program everything that its API says can be asked.
    async fn ask_all(&self, program: &Program, haul: &mut Haul) {
        let policies: Vec<String> = names(&program.get("/api/policies").await["policies"]);
        let flows: Vec<String> = names(&program.get("/api/flows").await["flows"]);
        let api = program.get("/openapi.json").await;
        let mut asked = 0;
        // A recording and a tap have no end of their own: they are made while messages flow. None flow any more after a
        // drain.
        let is_asked = |path: &str| !["/recording", "/tap", "/drain"].iter().any(|end| path.ends_with(end));
        let paths = api["paths"].as_object().expect("paths").iter();
        for (path, methods) in paths.filter(|(path, _)| is_asked(path)) {
            let named: Vec<String> = match path.split_once("{name}") {
                None => vec![path.clone()],
                Some((before, after)) => {
                    let names = if path.contains("flows") { &flows } else { &policies };
                    names.iter().map(|name| format!("{before}{name}{after}")).collect()
                }
            };
            for method in methods.as_object().expect("methods").keys() {
                for path in &named {
                    asked += 1;
                    let method = method.to_uppercase();
                    let (status, body) = program.ask_as(&method, path).await;
                    assert!(status < 500 || path == "/readyz", "{method} {path}: {status} {body}");
                    haul.add(format!("{method} {path}"), body);
                }
            }
        }
        assert!(asked > 10, "there is more to ask: {api}");
    }

    /// Runs every command that looks at policies or at the configuration, in the format of this stage.
    async fn run_all(&self, program: &Program, haul: &mut Haul) {
        let policies: Vec<String> = names(&program.get("/api/policies").await["policies"]);
        let flows: Vec<String> = names(&program.get("/api/flows").await["flows"]);
        let admin = program.admin().await;
        let mut commands: Vec<Vec<&str>> = vec![
            vec!["policy", "status", "--admin", &admin],
            vec!["policy", "list"],
            vec!["check"],
            vec!["check", "--connect"],
        ];
        for policy in &policies {
            commands.push(vec!["policy", "status", policy, "--admin", &admin]);
            commands.push(vec!["policy", "check", "--policy", policy]);
            commands.push(vec!["policy", "reload", policy, "--dry-run", "--admin", &admin]);
            commands.push(vec!["policy", "run", "--policy", policy, "--endpoint", "127.0.0.1:8081"]);
        }
        for flow in &flows {
            commands.push(vec!["policy", "diff", flow, "--admin", &admin]);
        }
        let components: Vec<PathBuf> = fs::read_dir(self.home.file("policies"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "wasm"))
            .collect();
        for component in &components {
            commands.push(vec!["policy", "inspect", component.to_str().unwrap()]);
        }
        for mut command in commands {
            let name = format!("tidegate {}", command.join(" "));
            if self.format == "json" {
                command.push("--json");
            }
            let ended = tokio::task::block_in_place(|| {
                run_with_variables(self.home.path(), &command, &self.borrowed())
            });
            haul.add(name, ended.stdout + &ended.stderr);
        }
    }

    /// Ends it all, and looks for the secrets in all that came out.
    async fn nothing_shows(self, program: Program, mut haul: Haul) -> Haul {
        self.ask_all(&program, &mut haul).await;
        self.run_all(&program, &mut haul).await;
        for (flow, _) in &self.flows {
            let (_, body) = program.ask_as("POST", &format!("/api/flows/{flow}/drain")).await;
            haul.add(format!("POST /api/flows/{flow}/drain"), body);
        }
        let ended = program.terminate().await;
        haul.add("standard output", ended.stdout);
        haul.add("the log", ended.stderr);
        // Where the secrets were written to by this test.
        let except = [self.home.file("keys"), self.home.file("tidegate.toml")];
        haul.add_files(self.home.path(), &except.each_ref().map(PathBuf::as_path));
        self.producer.close().await;
        self.broker.stop().await;

        // The collection is one: what is no secret went everywhere.
        for from in ["standard output", "the log", "GET /api/flows/", "policy diff", "state/policies/gate."] {
            haul.expect(from, control().core());
        }
        haul.expect("GET /metrics", "tidegate_");
        for text in ["rejected and dropped", "credentials resolved", "DEBUG"] {
            haul.expect("the log", text);
        }
        assert!(!haul.leaks([&control()]).is_empty(), "the search finds what is there");
        for (flow, _) in &self.flows {
            haul.expect("the log", flow);
        }
        let leaks = haul.leaks(&self.secrets);
        assert!(leaks.is_empty(), "{} secrets show: {leaks:#?}", leaks.len());
        haul
    }
}

fn group(number: usize) -> String {
    format!("GID-{number}")
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|each| each["name"].as_str().unwrap().to_owned()).collect()
}

async fn total(program: &Program, flow: &str, name: &str) -> u64 {
    let flows = program.get("/api/flows").await;
    let flow = flows["flows"].as_array().unwrap().iter().find(|each| each["name"] == flow).unwrap();
    flow["totals"][name].as_u64().unwrap()
}

/// Waits until the log, from here on, has a line with `text`.
async fn wait_for_new_log(program: &Program, seen: &mut usize, text: &str) {
    eventually_asked(&format!("`{text}` in the log"), async || {
        let log = program.log();
        let at = log.get(*seen..)?.find(text)?;
        *seen += at + text.len();
        Some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_from_mounted_files_show_nowhere() {
    for format in FORMATS {
        let (alice, bob) = (Marker::odd("alice's key"), Marker::odd("bob's key"));
        let mut stage = Stage::new(format, &[("alice", &alice), ("bob", &bob)]).await;
        let [wrong, half, binary] = ["a wrong key", "a key in half a file", "a key in a binary file"]
            .map(|name| stage.hide(Marker::odd(name)));
        let token = stage.hide(Marker::new("a session token"));
        for marker in [&alice, &bob] {
            stage.hide(marker.clone());
        }
        stage.home.install("mounted-files");
        let rules = "json = \"keys/all.json\"\nid = \"user.id\"\nsecret = \"user.secret\"\n\
             session-token = \"user.token\"\nvalid-for = \"1s\"\n";
        let grants = format!("grants.directories = {{ keys = \"{}\" }}", stage.home.file("keys").display());
        stage.resolver("mounted", "mounted-files", rules, &grants);
        let keys = |id: &str, secret: &Marker| {
            json!({ "user": { "id": id, "secret": secret.text(), "token": token.text() } }).to_string()
        };

        stage.put("keys/all.json", keys("alice", &alice));
        let program = stage.start();
        let mut seen = 0;
        stage.messages_flow(&program, "mounted").await;
        stage.put("keys/all.json", keys("bob", &bob));
        wait_for_new_log(&program, &mut seen, "credentials resolved").await;
        let mut haul = Haul::default();
        stage.messages_flow_and_are_recorded(&program, "mounted", &mut haul).await;

        stage.put("keys/all.json", keys("bob", &wrong));
        wait_for_new_log(&program, &mut seen, "check signature failed").await;
        stage.put("keys/all.json", format!("{{\"user\": {{\"id\": \"bob\", \"secret\": \"{}\n", half.text()));
        wait_for_new_log(&program, &mut seen, "is not JSON at byte").await;
        stage.ask_all(&program, &mut haul).await;
        stage.put("keys/all.json", [b"\xff", binary.text().as_bytes()].concat());
        wait_for_new_log(&program, &mut seen, "is not text").await;

        // The other way to write it: a file for each part.
        stage.put("keys/id", "alice\n");
        stage.put("keys/secret", format!("{}\n", alice.text()));
        let rules = "id = \"keys/id\"\nsecret = \"keys/secret\"\nvalid-for = \"1s\"\n";
        stage.put("policies/mounted.toml", rules);
        wait_for_new_log(&program, &mut seen, "credentials resolved").await;
        stage.messages_flow(&program, "mounted").await;
        stage.nothing_shows(program, haul).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_from_variables_and_from_the_configuration_show_nowhere() {
    for format in FORMATS {
        let (alice, bob) = (Marker::odd("alice's key"), Marker::odd("bob's key"));
        let mut stage = Stage::new(format, &[("alice", &alice), ("bob", &bob)]).await;
        let [wrong, written, cut] = ["a wrong key", "a key that is written out", "a key in a broken line"]
            .map(|name| stage.hide(Marker::new(name)));
        for marker in [&alice, &bob] {
            stage.hide(marker.clone());
        }
        stage.home.install("env-keys");
        stage.variable("KEY_ID", "alice");
        stage.variable("KEY_SECRET", alice.text());
        stage.variable("KEY_WRONG", wrong.text());
        stage.variable("BOB", "bob");
        let rules = |secret: &str| format!("id = \"KEY_ID\"\nsecret = \"{secret}\"\nvalid-for = \"1s\"\n");
        let grants = "grants.env = [\"KEY_ID\", \"KEY_SECRET\", \"KEY_WRONG\"]";
        stage.resolver("variables", "env-keys", &rules("KEY_SECRET"), grants);
        stage.resolver("refused", "env-keys", &rules("KEY_WRONG"), grants);
        stage.put("keys/bob", format!("{}\n", bob.text()));
        let keys = |id: &str, secret: &str| {
            format!("rocketmq.client.access-key = \"{id}\"\nrocketmq.client.secret-key = \"{secret}\"\n")
        };
        stage.flow("from-a-file", &keys("env:BOB", "file:keys/bob"));
        stage.flow("from-a-variable", &keys("alice", "env:KEY_SECRET"));
        stage.flow("written-out", &keys("alice", written.text()));

        let program = stage.start();
        let mut seen = 0;
        for flow in ["variables", "from-a-file", "from-a-variable"] {
            stage.messages_flow(&program, flow).await;
        }
        wait_for_new_log(&program, &mut seen, "check signature failed").await;

        // The rules lead to another variable, and back.
        stage.put("policies/variables.toml", rules("KEY_WRONG"));
        wait_for_new_log(&program, &mut seen, "check signature failed").await;
        stage.put("policies/variables.toml", rules("KEY_SECRET"));
        stage.messages_flow(&program, "variables").await;

        // Edits of the configuration, all of them with a secret in the line at fault.
        let mut haul = Haul::default();
        let config = stage.config().toml().to_owned();
        let line = format!("rocketmq.client.secret-key = \"{}\"", written.text());
        assert!(config.contains(&line));
        for broken in [
            format!("rocketmq.client.secret-key = \"{}", cut.text()),
            format!("rocketmq.client.secret-key = {}", cut.text()),
            format!("rocketmq.client.secret-key = {}", cut.core()),
            format!("rocketmq.client.secret-key = [\"{}\"]", cut.text()),
            format!("rocketmq.client.secret-key = {{ key = \"{}\" }}", cut.text()),
            format!("rocketmq.client.secret-kye = \"{}\"", cut.text()),
            format!("rocketmq.client.secret-key \"{}\"", cut.text()),
            format!("rocketmq.client.secret-key = \"{}\\q\"", cut.text()),
            format!("rocketmq.client.secret-key = \"env:{}\"", "NOT_SET"),
        ] {
            stage.put("tidegate.toml", config.replace(&line, &broken));
            let ended = tokio::task::block_in_place(|| run_to_end(stage.home.path(), &["check"]));
            haul.add(format!("check of {broken:.30}"), ended.stdout + &ended.stderr);
            program.signal("HUP");
            wait_for_new_log(&program, &mut seen, "tidegate.toml").await;
        }
        stage.put("tidegate.toml", config.replace(written.text(), cut.text()));
        program.signal("HUP");
        wait_for_new_log(&program, &mut seen, "(secret) -> (secret)").await;
        stage.put("tidegate.toml", config);

        let endpoints = stage.broker.address().to_string();
        let send = ["send", "--endpoints", &endpoints, "--topic", TOPIC, "--access-key", "alice", "body"];
        let variables = [("TIDEGATE_SECRET_KEY", wrong.text())];
        let ended = tokio::task::block_in_place(|| run_with_variables(stage.home.path(), &send, &variables));
        assert!(ended.stderr.contains("check signature failed"), "{ended:?}");
        haul.add("tidegate send", ended.stdout + &ended.stderr);
        stage.nothing_shows(program, haul).await;
    }
}

/// A server that gives tokens: answers every request with what it is told to.
struct TokenServer {
    port: u16,
    answer: Arc<Mutex<String>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TokenServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answer, heads) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(Vec::new())));
        let (told, seen) = (Arc::clone(&answer), Arc::clone(&heads));
        // Ends with the process.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut piece = [0; 8192];
                let bytes = stream.read(&mut piece).unwrap_or(0);
                seen.lock().push(String::from_utf8_lossy(&piece[..bytes]).into_owned());
                let _ = stream.write_all(told.lock().as_bytes());
            }
        });
        Self { port, answer, heads }
    }

    fn answers(&self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        *self.answer.lock() = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
        );
    }

    fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_from_a_server_show_nowhere() {
    for format in FORMATS {
        let (alice, bob) = (Marker::odd("alice's key"), Marker::odd("bob's key"));
        let mut stage = Stage::new(format, &[("alice", &alice), ("bob", &bob)]).await;
        let [wrong, half, other, place] =
            ["a wrong key", "a key in half an answer", "a key that is refused", "a key in a redirect"]
                .map(|name| stage.hide(Marker::new(name)));
        let client = stage.hide(Marker::odd("the client's own secret"));
        for marker in [&alice, &bob] {
            stage.hide(marker.clone());
        }
        let server = TokenServer::start();
        let answers = |id: &str, secret: &Marker| {
            let body = json!({ "id": id, "secret": secret.text(), "expires_in": 1 }).to_string();
            server.answers("200 OK", "", &body);
        };
        stage.home.install("http-token");
        stage.variable("CLIENT_SECRET", client.text());
        let rules = format!(
            "url = \"{}/token?client_secret=${{env:CLIENT_SECRET|url}}\"\nid = \"id\"\nsecret = \"secret\"\n\
             body = '{{\"client\": \"${{env:CLIENT_SECRET|json}}\"}}'\nexpires = \"expires_in\"\n\
             [basic]\nusername = \"tidegate\"\npassword = \"${{env:CLIENT_SECRET}}\"\n\
             [headers]\nx-client = \"${{env:CLIENT_SECRET|url}}\"\n",
            server.origin()
        );
        let grants = format!("grants.env = [\"CLIENT_SECRET\"]\ngrants.http = [\"{}\"]", server.origin());
        stage.resolver("server", "http-token", &rules, &grants);

        answers("alice", &alice);
        let program = stage.start();
        let mut seen = 0;
        stage.messages_flow(&program, "server").await;
        answers("bob", &bob);
        wait_for_new_log(&program, &mut seen, "credentials resolved").await;
        stage.messages_flow(&program, "server").await;
        assert!(server.heads.lock().iter().any(|head| head.contains("client_secret=")), "it was asked so");
        answers("bob", &wrong);
        wait_for_new_log(&program, &mut seen, "check signature failed").await;
        let body = json!({ "error": other.text(), "secret": other.text() }).to_string();
        let redirect =
            format!("Location: {}/{}\r\nX-Trace: {}\r\n", server.origin(), place.core(), place.core());
        let answers = [
            ("403 Forbidden", "", &*body),
            ("500 Internal Server Error", "", &*body),
            ("302 Found", &*redirect, &*body),
            ("200 OK", "", &*format!("{{\"secret\": \"{}", half.text())),
            ("200 OK", "", &*json!({ "secrets": half.text() }).to_string()),
            (&*format!("200 {}", half.core()), "", ""),
            (&*half.core().to_owned(), "", ""),
        ];
        for (number, (status, headers, body)) in answers.into_iter().enumerate() {
            server.answers(status, headers, body);
            // Another generation is asked at once, however often the one before has failed.
            stage.put("policies/server.toml", format!("{rules}# {number}\n"));
            wait_for_new_log(&program, &mut seen, "policy in force").await;
            wait_for_new_log(&program, &mut seen, "no credentials (").await;
        }
        let mut haul = Haul::default();
        stage.ask_all(&program, &mut haul).await;
        stage.nothing_shows(program, haul).await;
    }
}

/// A policy that says its secret wherever a policy can say something.
#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_that_says_its_secret_aloud_is_not_heard() {
    let module = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../guests/target/wasm32-unknown-unknown/release/leaking.wasm");
    assert!(module.exists(), "the guests are built, as `cargo xtask guests` does: {}", module.display());
    for format in FORMATS {
        let alice = Marker::new("alice's key");
        let mut stage = Stage::new(format, &[("alice", &alice)]).await;
        stage.hide(alice.clone());
        let described = stage.hide(Marker::odd("a variable in a description"));
        let server = TokenServer::start();
        let kept = json!({ "id": "alice", "secret": alice.text(), "more": ["a", 1] }).to_string();
        server.answers("200 OK", "", &kept);
        stage.put("keys/all.json", &kept);
        stage.put("keys/half.json", format!("{{\"id\": \"alice\", \"secret\": \"{}", alice.text()));
        stage.variable("ALICE", alice.text());
        stage.variable("LEAKING_DESCRIBED", described.text());
        let built = run_to_end(
            stage.home.path(),
            &["policy", "build", module.to_str().unwrap(), "--output", "policies/leaking.wasm"],
        );
        assert_eq!(built.code, Some(0), "{built:?}");

        let grants = format!(
            "grants.env = [\"ALICE\", \"LEAKING_DESCRIBED\"]\ngrants.directories = {{ keys = \"{}\" }}\n\
             grants.http = [\"{}\"]",
            stage.home.file("keys").display(),
            server.origin()
        );
        let url = format!("{}/", server.origin());
        let places = [
            ("variable", "env:ALICE"),
            ("file", "keys/all.json"),
            ("half", "keys/half.json"),
            ("server", &*url),
        ];
        for (place, from) in places {
            for aloud in ["log", "panic", "failure"] {
                let rules = format!("id = \"alice\"\nfrom = \"{from}\"\naloud = \"{aloud}\"\n");
                stage.resolver(&format!("{aloud}-{place}"), "leaking", &rules, &grants);
            }
        }
        for (place, aloud) in [("variable", "rules"), ("file", "start"), ("half", "rules")] {
            let from = places.iter().find(|(name, _)| *name == place).unwrap().1;
            let rules = format!("id = \"alice\"\nfrom = \"{from}\"\naloud = \"{aloud}\"\n");
            stage.resolver(&format!("{aloud}-{place}"), "leaking", &rules, &grants);
        }
        let program = stage.start();
        for place in ["variable", "file", "half", "server"] {
            stage.messages_flow(&program, &format!("log-{place}")).await;
        }
        for place in ["variable", "file", "half", "server"] {
            for (aloud, count) in [("panic", "panic"), ("failure", "unresolved")] {
                let path = format!("/api/policies/{aloud}-{place}");
                eventually_asked(&format!("{path} has failed"), async || {
                    let policy = program.get(&path).await.to_string();
                    policy.contains(&format!("\"{count}\":")).then_some(())
                })
                .await;
            }
        }
        let mut haul = Haul::default();
        stage.messages_flow_and_are_recorded(&program, "log-file", &mut haul).await;
        let haul = stage.nothing_shows(program, haul).await;
        for place in ["variable", "file", "half", "server"] {
            // It was heard saying something, each time with a mark in the secret's place.
            haul.expect(&format!("GET /api/policies/panic-{place}"), &format!("the secret is {MARK} for "));
            haul.expect(&format!("GET /api/policies/panic-{place}"), "panicked at ");
        }
        for said in [
            format!("the secret is {MARK} for "),
            format!("GET /?secret={MARK}"),
            format!("authorization: Basic YWxpY2U6{MARK}"),
        ] {
            haul.expect("the log", &said);
        }
        haul.expect("GET /api/policies/rules-variable", &format!("has {MARK}"));
        haul.expect("GET /api/policies/start-file", &format!("at the start there is {MARK}"));
        haul.expect("GET /api/policies/log-file", &format!("Says aloud {MARK}"));
        haul.expect("tidegate policy run --policy failure-file", &format!("the secret is {MARK}"));
    }
}
