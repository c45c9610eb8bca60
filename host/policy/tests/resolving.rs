//! The shipped credential resolvers in a host, with real grants: a variable, a directory, an HTTP server.
//!
//! Needs the target `wasm32-unknown-unknown` (`rustup target add wasm32-unknown-unknown`).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test: what fails here is what it found")]

#[path = "shared/guests.rs"]
mod guests;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tempfile::TempDir;
use tidegate_connector::Clock;
use tidegate_connector::secret::{Purpose, Secret};
use tidegate_policy::{Engine, EngineOptions, Grants, Limits, PolicyHost, PolicySpec, Resolver, World};
use tidegate_telemetry::Telemetry;

const PATIENCE: Duration = Duration::from_secs(30);

/// A host over one shipped resolver.
struct Stage {
    directory: TempDir,
    host: PolicyHost,
    spec: PolicySpec,
}

impl Stage {
    fn start(name: &str, rules: &str, grants: Grants, limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let component = directory.path().join("resolver.wasm");
        fs::write(&component, guests::rebuilt(name)).unwrap();
        let file = directory.path().join("resolver.toml");
        fs::write(&file, rules).unwrap();
        let spec = PolicySpec {
            world: Some(World::CredentialResolver),
            rules: Some(file),
            grants,
            limits,
            ..PolicySpec::new("vault", component)
        };
        let engine = Engine::new(EngineOptions::new(Clock::start(), 42), Telemetry::default()).unwrap();
        let host = PolicyHost::start(&engine, vec![spec.clone()], None).unwrap();
        Self { directory, host, spec }
    }

    fn resolver(&self) -> Resolver {
        self.host.resolver("vault").unwrap().unwrap()
    }

    fn generation(&self) -> Option<u64> {
        self.host.status().remove(0).active.map(|active| active.generation)
    }
}

fn key(secret: &Secret) -> (String, String) {
    match secret {
        Secret::AccessKey(key) => (key.access_key().to_owned(), key.secret_key().expose_secret().to_owned()),
        other => panic!("{other:?}"),
    }
}

/// Answers every request after a while; counts them.
fn server(body: &'static str, pause: Duration) -> (u16, Arc<parking_lot::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heads = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut piece = [0; 4096];
            let bytes = stream.read(&mut piece).unwrap_or(0);
            seen.lock().push(String::from_utf8_lossy(&piece[..bytes]).into_owned());
            let (_held, wait) = std::sync::mpsc::sync_channel::<()>(1);
            let _ = wait.recv_timeout(pause);
            let length = body.len();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        }
    });
    (port, heads)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_comes_over_http_and_the_wait_is_not_the_guests() {
    let (port, heads) =
        server("{\"access_token\":\"t0ken-1\",\"expires_in\":3600}", Duration::from_millis(700));
    let rules = format!(
        "url = \"http://127.0.0.1:{port}/token?for=${{endpoint|url}}\"\ntoken = \"access_token\"\nexpires = \"expires_in\"\n\
         [headers]\nx-from = \"${{env:CARGO_PKG_NAME}}\"\n"
    );
    let grants = Grants {
        env: ["CARGO_PKG_NAME".into()].into(),
        http: [format!("http://127.0.0.1:{port}").parse().unwrap()].into(),
        ..Grants::default()
    };
    // The server takes seven times as long as the guest may compute.
    let limits = Limits { start_deadline: Duration::from_millis(100), ..Limits::default() };
    let stage = Stage::start("http-token", &rules, grants, limits);
    assert_eq!(stage.generation(), Some(1), "{:#?}", stage.host.status());
    let resolver = stage.resolver();
    let secret = resolver.ensure("broker:8081", Purpose::Consume, PATIENCE).await.unwrap();
    let Secret::Bearer(token) = &*secret else { panic!("{secret:?}") };
    assert_eq!(token.expose_secret(), "t0ken-1");
    let head = heads.lock().join("\n").to_lowercase();
    assert!(head.contains("x-from: tidegate-policy") && head.contains("broker%3a8081"), "{head}");
    assert_eq!(resolver.status(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_is_left_at_the_end_of_its_time() {
    let (port, _) = server("{}", Duration::from_secs(60));
    let rules = format!("url = \"http://127.0.0.1:{port}/\"\ntoken = \"t\"\n");
    let grants =
        Grants { http: [format!("http://127.0.0.1:{port}").parse().unwrap()].into(), ..Grants::default() };
    let limits = Limits { resolve_timeout: Duration::from_millis(300), ..Limits::default() };
    // It reads variables too, if its rules name any; so it must be granted one.
    let grants = Grants { env: ["CARGO_PKG_NAME".into()].into(), ..grants };
    let stage = Stage::start("http-token", &rules, grants, limits);
    let began = tokio::time::Instant::now();
    let error = stage.resolver().ensure("broker:8081", Purpose::Consume, PATIENCE).await.unwrap_err();
    assert!(error.to_string().contains("did not answer in time"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn mounted_files_are_followed_when_they_are_replaced() {
    let mount = tempfile::tempdir().unwrap();
    let put = |secret: &str| {
        fs::write(mount.path().join("id"), "alice").unwrap();
        fs::write(mount.path().join("secret"), secret).unwrap();
    };
    put("first-secret");
    let grants =
        Grants { directories: [("broker".into(), mount.path().to_owned())].into(), ..Grants::default() };
    let rules = "id = \"broker/id\"\nsecret = \"broker/secret\"\nvalid-for = \"1s\"\n";
    let stage = Stage::start("mounted-files", rules, grants, Limits::default());
    let resolver = stage.resolver();
    let secret = resolver.ensure("broker:8081", Purpose::Produce, PATIENCE).await.unwrap();
    assert_eq!(key(&secret), ("alice".to_owned(), "first-secret".to_owned()));
    put("second-secret");
    let followed = async {
        loop {
            let now = resolver.current("broker:8081", Purpose::Produce).expect("never without one");
            if key(&now).1 == "second-secret" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, followed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_grant_a_resolver_is_refused_and_with_it_a_new_generation() {
    let rules = "id = \"CARGO_PKG_NAME\"\nsecret = \"CARGO_PKG_VERSION\"\n";
    let stage = Stage::start("env-keys", rules, Grants::default(), Limits::default());
    assert_eq!(stage.generation(), None);
    let status = format!("{:?}", stage.host.status());
    assert!(status.contains("granted no environment variables"), "{status}");
    let resolver = stage.resolver();
    assert!(resolver.ensure("a:1", Purpose::Consume, PATIENCE).await.is_err());
    let granted = |names: &[&str]| PolicySpec {
        grants: Grants { env: names.iter().map(|name| (*name).into()).collect(), ..Grants::default() },
        ..stage.spec.clone()
    };
    stage.host.update(granted(&["CARGO_PKG_NAME"])).unwrap();
    assert_eq!(stage.generation(), Some(1));
    // One of the two is not granted yet, and counts as not set.
    assert!(resolver.ensure("b:1", Purpose::Consume, PATIENCE).await.is_err());
    // Another grant is another generation, and whoever waits for it is served at once.
    stage.host.update(granted(&["CARGO_PKG_NAME", "CARGO_PKG_VERSION"])).unwrap();
    assert_eq!(stage.generation(), Some(2));
    let served = async {
        loop {
            if let Ok(secret) = resolver.current("b:1", Purpose::Consume) {
                return key(&secret).0;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, served).await.unwrap(), "tidegate-policy");
    assert!(stage.directory.path().exists());
}
