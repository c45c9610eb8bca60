//! Roads that lead nowhere, or to somebody else: each must be found within five seconds and named.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use tidegate_connector::Clock;
use tidegate_connector::check::CheckReport;
use tidegate_devbroker::Tls as ServerTls;
use tidegate_rocketmq::{
    ConnectError, IdentityFiles, Outgoing, SourceOptions, Start, Tls, Trust, check, connect,
};
use tidegate_telemetry::Telemetry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::{Stage, client, options};

/// What a wrong mode may take to be named.
const FOUND_WITHIN: Duration = Duration::from_secs(5);

#[tokio::test]
async fn nobody_listens() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.local_addr().expect("bound").to_string()
    };
    let said = refusal(source(&address, Tls::Off)).await;
    assert!(said.contains("Connection refused") && said.contains("8081"), "{said}");
}

/// Reported as clients 281: users give the name server's port.
#[tokio::test]
async fn a_peer_that_hangs_up_on_grpc_is_taken_for_a_name_server() {
    let address = peer(|mut stream| async move {
        let mut head = [0; 4];
        // Reads a length of a gigabyte, as a name server does, and closes.
        let _ = stream.read_exact(&mut head).await;
    })
    .await;
    let said = refusal(source(&address, Tls::Off)).await;
    assert!(said.contains("9876") && said.contains("8081"), "{said}");
}

#[tokio::test]
async fn a_peer_that_talks_something_else_is_quoted() {
    let address = peer(|mut stream| async move {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let said = refusal(source(&address, Tls::Off)).await;
    assert!(said.contains("does not speak HTTP/2") && said.contains("SSH-"), "{said}");
    assert!(said.contains("8081"), "{said}");
}

#[tokio::test]
async fn a_peer_that_says_nothing_runs_into_the_deadline() {
    let address = peer(|mut stream| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let said = refusal(source(&address, Tls::Off)).await;
    assert!(said.contains("says nothing"), "{said}");
}

#[tokio::test]
async fn plain_text_to_a_server_that_wants_tls_names_tls() {
    let pki = Pki::new();
    let address = tls_only(&pki, false).await;
    let said = refusal(source(&address, Tls::Off)).await;
    assert!(said.contains("TLS") && said.contains("rocketmq.client.tls-enabled"), "{said}");
}

/// Reported as clients 355 and 1070.
#[tokio::test]
async fn tls_to_a_plain_server_names_tls() {
    let stage = Stage::start().await;
    let said = refusal(source(&stage.broker.address().to_string(), on(Trust::Anyone))).await;
    assert!(said.contains("TLS") && said.contains("does not speak TLS"), "{said}");
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_named_with_the_option() {
    let pki = Pki::new();
    let stage = with_tls(&pki).await;
    let said = refusal(source(&stage.broker.address().to_string(), on(Trust::SystemRoots))).await;
    assert!(said.contains("certificate") && said.contains("tls-ca-file"), "{said}");
}

#[tokio::test]
async fn a_ca_file_a_client_certificate_and_trusting_anyone_all_work() {
    let pki = Pki::new();
    let files = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let ca = write("ca.pem", &pki.ca_pem);
    let identity = IdentityFiles {
        certificates: write("client.pem", &pki.certificate_pem),
        key: write("client.key", &pki.key_pem),
    };
    let stage = with_tls(&pki).await;
    for tls in [on(Trust::CaFile(ca.clone())), on(Trust::Anyone)] {
        let mut options = client(&stage.broker.address().to_string());
        options.tls = tls;
        let producer =
            tidegate_rocketmq::Producer::connect(options, stage.clock, stage.telemetry.clone(), "p".into());
        let producer = producer.await.expect("set up");
        producer.send(Outgoing::lite("T", "tenant-1", "x")).await.expect("sent");
        producer.close().await;
    }
    // A server that asks for a certificate: with one the handshake is done and what follows is not TLS's affair.
    let address = tls_only(&pki, true).await;
    let with = Tls::On { trust: Trust::CaFile(ca.clone()), identity: Some(identity) };
    let said = refusal(source(&address, with)).await;
    assert!(!said.contains("certificate required"), "{said}");
    let said = refusal(source(&address, on(Trust::CaFile(ca)))).await;
    assert!(said.contains("TLS") && said.contains("tls-cert-file"), "{said}");
}

#[tokio::test]
async fn a_ca_file_that_is_not_there_fails_at_once_and_is_named() {
    let missing = on(Trust::CaFile(Path::new("/nonexistent/ca.pem").into()));
    let error = connect(source("127.0.0.1:1", missing), Clock::start(), Telemetry::default(), "s".into());
    let Err(ConnectError::Setup { source, .. }) = error.await else { panic!("set up") };
    let cause = std::error::Error::source(&source).expect("a cause").to_string();
    assert!(cause.contains("/nonexistent/ca.pem"), "{cause}");
}

/// What the check and a start that waits say about an address; both must say it in time.
async fn refusal(options: SourceOptions) -> String {
    let begun = tokio::time::Instant::now();
    let report = check(&options, Clock::start(), Telemetry::default()).await;
    assert!(begun.elapsed() < FOUND_WITHIN, "{:?}", begun.elapsed());
    assert!(!report.is_good(), "{report}");
    let mut options = options;
    options.start = Start::Within(FOUND_WITHIN);
    let started = connect(options, Clock::start(), Telemetry::default(), "s".into()).await;
    let Err(ConnectError::Refused { source, .. }) = started else { panic!("{report}") };
    let said = last(&report);
    assert_eq!(source.to_string(), said, "both say the same");
    said
}

fn last(report: &CheckReport) -> String {
    report.steps.last().expect("a step").detail.clone()
}

fn source(address: &str, tls: Tls) -> SourceOptions {
    let mut options = SourceOptions::new(client(address), "T", "G");
    options.client.tls = tls;
    options.client.request_timeout = Duration::from_secs(2);
    options
}

fn on(trust: Trust) -> Tls {
    Tls::On { trust, identity: None }
}

/// A peer that does `serve` with every connection.
async fn peer<F>(serve: impl Fn(tokio::net::TcpStream) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// A server that speaks TLS and nothing else, perhaps only with clients that have a certificate.
async fn tls_only(pki: &Pki, asks: bool) -> String {
    let acceptor = TlsAcceptor::from(Arc::new(pki.server(asks)));
    peer(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let _ = stream.read(&mut [0; 1]).await;
            }
        }
    })
    .await
}

async fn with_tls(pki: &Pki) -> Stage {
    let mut options = options();
    options.tls =
        Some(ServerTls { certificate_pem: pki.certificate_pem.clone(), key_pem: pki.key_pem.clone() });
    Stage::with(options).await
}

/// An authority and a certificate for 127.0.0.1 that it signed, good for servers and clients.
struct Pki {
    ca_pem: String,
    certificate_pem: String,
    key_pem: String,
    ca: rustls::pki_types::CertificateDer<'static>,
    certificate: rustls::pki_types::CertificateDer<'static>,
    key: Vec<u8>,
}

impl Pki {
    fn new() -> Self {
        let mut authority = CertificateParams::new(Vec::<String>::new()).expect("params");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("signed");
        let key = KeyPair::generate().expect("a key");
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let certificate =
            CertificateParams::new(names).expect("params").signed_by(&key, &issuer).expect("signed");
        Self {
            ca_pem: issuer.pem(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            ca: issuer.der().clone(),
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
        }
    }

    fn server(&self, asks: bool) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = if asks {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(self.ca.clone()).expect("a root");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(self.key.clone()).expect("a key");
        let mut config =
            builder.with_single_cert(vec![self.certificate.clone()], key).expect("a certificate");
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }
}
