//! Against servers on this machine, with real TLS.

use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use super::*;

/// What a server writes once it has read a request's head.
#[derive(Clone)]
enum Answer {
    Bytes(Vec<u8>),
    /// A head and then one byte now and then, for ever.
    Dripping,
    /// Nothing.
    Silence,
}

/// A server that answers every connection alike.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
    heads: Arc<parking_lot::Mutex<Vec<String>>>,
    _runtime: Runtime,
}

impl Server {
    fn start(answer: Answer, tls: Option<TlsAcceptor>) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let heads = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let (count, seen) = (Arc::clone(&connections), Arc::clone(&heads));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (answer, tls, seen) = (answer.clone(), tls.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, answer, seen).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, answer, seen).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, connections, heads, _runtime: runtime }
    }

    fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: Answer,
    seen: Arc<parking_lot::Mutex<Vec<String>>>,
) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(bytes) => head.extend_from_slice(&piece[..bytes]),
        }
    }
    seen.lock().push(String::from_utf8_lossy(&head).into_owned());
    match answer {
        Answer::Bytes(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Answer::Dripping => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await;
            while stream.write_all(b"x").await.is_ok() {
                let _ = stream.flush().await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Answer::Silence => std::future::pending().await,
    }
}

fn ok(body: &str) -> Answer {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Kind: plain\r\nX-Raw: \u{fc}\r\n\r\n",
        body.len()
    );
    Answer::Bytes([head.as_bytes(), body.as_bytes()].concat())
}

/// Names as a test has them; each look-up gives the next answer, the last one again and again.
struct Fixed(Vec<Vec<&'static str>>, AtomicUsize);

impl Fixed {
    fn new(answers: &[&[&'static str]]) -> Arc<Self> {
        Arc::new(Self(answers.iter().map(|answer| answer.to_vec()).collect(), AtomicUsize::new(0)))
    }
}

impl Names for Fixed {
    fn lookup(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let at = self.1.fetch_add(1, Ordering::SeqCst).min(self.0.len() - 1);
        Ok(self.0[at].iter().map(|text| text.parse().unwrap()).collect())
    }
}

fn limits() -> Limits {
    let total_timeout = Duration::from_millis(500);
    Limits { total_timeout, response_bytes_max: 1000, ..Limits::default() }
}

fn client(granted: &[String], names: Arc<dyn Names>) -> Client {
    client_trusting(granted, names, None)
}

fn client_trusting(granted: &[String], names: Arc<dyn Names>, ca_file: Option<PathBuf>) -> Client {
    let limits = Limits { total_timeout: Duration::from_secs(20), ..limits() };
    let granted = granted.iter().map(|origin| origin.parse().unwrap()).collect();
    Client::new(granted, ca_file, limits, names)
}

fn impatient(granted: &str) -> Client {
    Client::new([granted.parse().unwrap()].into(), None, limits(), Arc::new(SystemNames))
}

fn get(url: &str) -> Request {
    Request { method: "GET".to_owned(), url: url.to_owned(), headers: Vec::new(), body: Vec::new() }
}

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn an_answer_comes_whole_and_over_its_own_connection() {
    let server = Server::start(ok("hello"), None);
    let origin = format!("http://127.0.0.1:{}", server.port);
    let client = client(std::slice::from_ref(&origin), Arc::new(SystemNames));
    for n in 1..=2 {
        let request = Request {
            method: "POST".to_owned(),
            headers: vec![("X-Token".to_owned(), "t".to_owned())],
            body: b"body".to_vec(),
            ..get(&format!("{origin}/path?q=1"))
        };
        let response = client.fetch(request, PATIENCE).unwrap();
        assert_eq!((response.status, &*response.body), (200, &b"hello"[..]));
        assert!(response.headers.contains(&("x-kind".to_owned(), "plain".to_owned())));
        assert!(response.headers.iter().all(|(name, _)| name != "x-raw"), "not text");
        assert_eq!(server.count(), n);
    }
    let head = server.heads.lock()[0].to_ascii_lowercase();
    assert!(head.starts_with("post /path?q=1 http/1.1\r\n"), "{head}");
    for line in
        [format!("host: 127.0.0.1:{}", server.port), "connection: close".into(), "content-length: 4".into()]
    {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
    }
}

#[test]
fn redirects_are_not_followed() {
    let target = Server::start(ok("secret"), None);
    let elsewhere = format!("http://127.0.0.1:{}", target.port);
    let head = format!("HTTP/1.1 302 Found\r\nLocation: {elsewhere}/\r\nContent-Length: 0\r\n\r\n");
    let server = Server::start(Answer::Bytes(head.into_bytes()), None);
    let origin = format!("http://127.0.0.1:{}", server.port);
    let client = client(&[origin.clone(), elsewhere], Arc::new(SystemNames));
    assert_eq!(client.fetch(get(&origin), PATIENCE).unwrap().status, 302);
    assert_eq!(target.count(), 0);
}

#[test]
fn a_huge_answer_is_dropped_with_and_without_a_length() {
    for head in ["HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
        let server = Server::start(Answer::Bytes([head.as_bytes(), &[b'x'; 1001]].concat()), None);
        let origin = format!("http://127.0.0.1:{}", server.port);
        let client = client(std::slice::from_ref(&origin), Arc::new(SystemNames));
        assert!(matches!(client.fetch(get(&origin), PATIENCE), Err(Failure::TooLarge(1000))));
    }
    let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100 << 10));
    let server = Server::start(Answer::Bytes(head.into_bytes()), None);
    let origin = format!("http://127.0.0.1:{}", server.port);
    let client = client(std::slice::from_ref(&origin), Arc::new(SystemNames));
    assert!(client.fetch(get(&origin), PATIENCE).is_err());
}

#[test]
fn a_server_that_drips_or_is_silent_is_left_in_time() {
    for answer in [Answer::Dripping, Answer::Silence] {
        let server = Server::start(answer, None);
        let origin = format!("http://127.0.0.1:{}", server.port);
        let began = tokio::time::Instant::now();
        assert!(matches!(impatient(&origin).fetch(get(&origin), PATIENCE), Err(Failure::TimedOut)));
        assert!(began.elapsed() < Duration::from_secs(5));
        // The caller's own patience may be shorter.
        let client = client(std::slice::from_ref(&origin), Arc::new(SystemNames));
        let began = tokio::time::Instant::now();
        assert!(matches!(client.fetch(get(&origin), Duration::from_millis(100)), Err(Failure::TimedOut)));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn a_name_server_that_does_not_answer_holds_up_nobody() {
    struct Stuck(parking_lot::Mutex<std::sync::mpsc::Receiver<()>>);
    impl Names for Stuck {
        fn lookup(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            let _ = self.0.lock().recv_timeout(Duration::from_secs(60));
            Err(io::ErrorKind::TimedOut.into())
        }
    }
    let (_held, gone) = std::sync::mpsc::sync_channel(1);
    let origin = "http://vault.example:80";
    let client = client(&[origin.to_owned()], Arc::new(Stuck(parking_lot::Mutex::new(gone))));
    let began = tokio::time::Instant::now();
    assert!(matches!(client.fetch(get(origin), Duration::from_millis(200)), Err(Failure::TimedOut)));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_name_that_leads_inside_is_refused_at_every_time_of_asking() {
    let server = Server::start(ok("inner"), None);
    let origin = format!("http://vault.example:{}", server.port);
    for inner in ["127.0.0.1", "::ffff:127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "0.0.0.0"] {
        let client = client(std::slice::from_ref(&origin), Fixed::new(&[&[inner]]));
        match client.fetch(get(&origin), PATIENCE) {
            Err(Failure::Refused(why)) => assert!(why.contains("public"), "{why}"),
            other => panic!("{inner}: {other:?}"),
        }
    }
    // Public when it is looked at, inner afterwards: it is asked once for each request, and that answer counts.
    let names = Fixed::new(&[&["203.0.113.1", "127.0.0.1"], &["127.0.0.1"]]);
    let client = client(std::slice::from_ref(&origin), Arc::clone(&names) as Arc<dyn Names>);
    assert!(matches!(client.fetch(get(&origin), PATIENCE), Err(Failure::Refused(_))));
    assert_eq!(names.1.load(Ordering::SeqCst), 1);
    assert!(matches!(client.fetch(get(&origin), PATIENCE), Err(Failure::Refused(_))));
    assert_eq!(server.count(), 0);
}

#[test]
fn an_inner_address_that_is_granted_itself_is_reached_at_that_port_only() {
    let server = Server::start(ok("inner"), None);
    let origin = format!("http://vault.example:{}", server.port);
    let other_port =
        client(&[origin.clone(), "http://127.0.0.1:9".to_owned()], Fixed::new(&[&["127.0.0.1"]]));
    assert!(matches!(other_port.fetch(get(&origin), PATIENCE), Err(Failure::Refused(_))));
    let address = format!("http://127.0.0.1:{}", server.port);
    let granted = client(&[origin.clone(), address.clone()], Fixed::new(&[&["127.0.0.1"]]));
    assert_eq!(granted.fetch(get(&origin), PATIENCE).unwrap().body, b"inner");
    assert_eq!(granted.fetch(get(&address), PATIENCE).unwrap().body, b"inner");
    let local = format!("http://localhost:{}", server.port);
    let localhost = client(std::slice::from_ref(&local), Fixed::new(&[&["127.0.0.1"]]));
    assert_eq!(localhost.fetch(get(&local), PATIENCE).unwrap().body, b"inner");
    let lied = client(std::slice::from_ref(&local), Fixed::new(&[&["10.0.0.1"]]));
    assert!(matches!(lied.fetch(get(&local), PATIENCE), Err(Failure::Refused(_))));
}

/// A server's TLS with a certificate for `name`, and the file of the authority that signed it.
fn tls(name: &str, directory: &std::path::Path) -> (TlsAcceptor, PathBuf) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let file = directory.join(format!("{name}.pem"));
    std::fs::write(&file, authority.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), file)
}

#[test]
fn certificates_are_checked() {
    let directory = tempfile::tempdir().unwrap();
    let (acceptor, authority) = tls("vault.example", directory.path());
    let (_, stranger) = tls("other.example", directory.path());
    let server = Server::start(ok("over TLS"), Some(acceptor));
    let address = format!("https://127.0.0.1:{}", server.port);
    let fetch = |host: &str, ca_file: Option<PathBuf>| {
        let origin = format!("https://{host}:{}", server.port);
        let granted = [origin.clone(), address.clone()];
        client_trusting(&granted, Fixed::new(&[&["127.0.0.1"]]), ca_file).fetch(get(&origin), PATIENCE)
    };
    assert_eq!(fetch("vault.example", Some(authority.clone())).unwrap().body, b"over TLS");
    let refusal = |result: Result<Response, Failure>| match result {
        Err(Failure::Other(why)) => why,
        other => panic!("{other:?}"),
    };
    let wrong_name = refusal(fetch("other.example", Some(authority)));
    assert!(wrong_name.contains("certificate"), "{wrong_name}");
    let wrong_authority = refusal(fetch("vault.example", Some(stranger)));
    assert!(wrong_authority.contains("certificate"), "{wrong_authority}");
    // With the system's roots alone, if there are any.
    refusal(fetch("vault.example", None));
    let absent = refusal(fetch("vault.example", Some(directory.path().join("absent"))));
    assert!(absent.contains("http-ca-file"), "{absent}");
}
