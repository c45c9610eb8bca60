//! TLS with real certificates, and both kinds of server called in the wrong way.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use secrecy::SecretString;
use tidegate_connector::tls::{Client, Identity, Pem, ServerNameCheck, Trust};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use super::peer::Broker;
use super::*;

/// An authority and what it signs.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate with its key, both PEM.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn trust(&self) -> Trust {
        Trust::Certificates(pem(&self.0.pem()))
    }

    /// A server for `name`; one that wants clients of this authority, if so wished.
    fn acceptor(&self, name: &str, wants_clients: bool) -> TlsAcceptor {
        let (chain, key) = self.sign(name);
        let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if wants_clients {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(self.0.pem().as_bytes()).unwrap()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
    }

    async fn broker(&self, name: &str, wants_clients: bool) -> Broker {
        Broker::start_tls(self.acceptor(name, wants_clients), |mut peer| async move {
            peer.greet(peer::KAFKA_4_3).await;
            peer.serve_metadata().await;
        })
        .await
    }
}

fn pem(text: &str) -> Pem {
    Pem::Text(SecretString::from(text.to_owned()))
}

fn encrypted(tls: Client) -> ClientOptions {
    ClientOptions { security: Security { tls: Some(tls), sasl: None }, ..options() }
}

fn trusting(trust: Trust) -> ClientOptions {
    encrypted(Client { trust, ..Client::default() })
}

#[tokio::test]
async fn a_believed_server_is_spoken_to() {
    let authority = Authority::new();
    let broker = authority.broker("127.0.0.1", false).await;
    let mut connection = open(&broker, trusting(authority.trust())).await.unwrap();
    ask(&mut connection).await.unwrap();
    connection.close().await;
}

#[tokio::test]
async fn a_server_of_another_authority_is_not_believed() {
    let broker = Authority::new().broker("127.0.0.1", false).await;
    let (text, problem) = refused(&broker, trusting(Authority::new().trust())).await;
    assert!(text.contains("the TLS handshake failed (invalid peer certificate"), "{text}");
    assert!(text.contains("as `properties.ssl.truststore.location`"), "{text}");
    assert_eq!((problem.fault(), problem.is_retriable()), (Fault::Configuration, false));
    open(&broker, trusting(Trust::Anyone)).await.unwrap();
}

#[tokio::test]
async fn a_server_of_another_name_is_not_believed_unless_names_are_unchecked() {
    let authority = Authority::new();
    let broker = authority.broker("broker.test", false).await;
    let (text, problem) = refused(&broker, trusting(authority.trust())).await;
    assert!(matches!(problem, OpenProblem::TlsFailed { fault: TlsFault::ServerName, .. }), "{problem:?}");
    assert!(text.contains("an empty `properties.ssl.endpoint.identification.algorithm`"), "{text}");
    let unchecked = Client { trust: authority.trust(), server_name: ServerNameCheck::Off, identity: None };
    open(&broker, encrypted(unchecked)).await.unwrap();
}

/// With TLS 1.3 the client hears of it only after the handshake.
#[tokio::test]
async fn a_server_that_wants_to_know_its_clients() {
    let authority = Authority::new();
    let broker = authority.broker("127.0.0.1", true).await;
    let (text, problem) = refused(&broker, trusting(authority.trust())).await;
    assert!(
        matches!(problem, OpenProblem::TlsFailed { fault: TlsFault::ClientCertificate, .. }),
        "{problem:?}"
    );
    assert!(text.contains("`properties.ssl.keystore.certificate.chain` with `properties.ssl.keystore.key`"));
    let identity = |authority: &Authority| {
        let (certificates, key) = authority.sign("client");
        Some(Identity { certificates: pem(&certificates), key: pem(&key) })
    };
    let stranger =
        Client { trust: authority.trust(), identity: identity(&Authority::new()), ..Client::default() };
    let (_, problem) = refused(&broker, encrypted(stranger)).await;
    assert!(matches!(problem, OpenProblem::TlsFailed { .. }), "{problem:?}");
    let known = Client { trust: authority.trust(), identity: identity(&authority), ..Client::default() };
    let options = encrypted(known);
    assert!(options.check().is_empty());
    let mut connection = open(&broker, options).await.unwrap();
    ask(&mut connection).await.unwrap();
}

#[tokio::test]
async fn plain_text_to_a_tls_server_is_told_as_such() {
    let authority = Authority::new();
    let broker = authority.broker("127.0.0.1", false).await;
    let (text, problem) = refused(&broker, options()).await;
    assert_eq!(problem, OpenProblem::WantsTls, "{text}");
    assert!(text.ends_with("make `properties.security.protocol` SSL or SASL_SSL, not PLAINTEXT"), "{text}");
    assert!(!problem.is_retriable());
}

/// What a broker does that takes the beginning of a handshake for the length of a request.
#[tokio::test]
async fn tls_to_a_plain_server_is_told_as_such() {
    let broker = Broker::start(|mut peer| async move {
        let length = peer.stream.read_u32().await.unwrap();
        assert!(length > 100 << 20, "a broker refuses that");
    })
    .await;
    let (text, problem) = refused(&broker, trusting(Trust::Anyone)).await;
    assert_eq!(problem, OpenProblem::Closed { phase: Phase::Tls }, "{text}");
    assert!(
        text.ends_with("if the listener takes no TLS, say so with `properties.security.protocol`"),
        "{text}"
    );
    let talker = Broker::start(|mut peer| async move {
        peer.stream.write_all(b"220 hello\r\n").await.unwrap();
        be_silent_bytes(peer).await;
    })
    .await;
    let (text, problem) = refused(&talker, trusting(Trust::Anyone)).await;
    assert!(matches!(problem, OpenProblem::NotTls { .. }), "{text}");
    let silent = Broker::start(be_silent_bytes).await;
    let mut hasty = trusting(Trust::Anyone);
    hasty.deadlines.greeting = SHORT;
    let (text, problem) = refused(&silent, hasty).await;
    assert_eq!(problem, OpenProblem::TimedOut { phase: Phase::Tls, after: SHORT });
    assert!(text.contains("if the listener takes no TLS"), "{text}");
}

async fn be_silent_bytes(mut peer: Peer) {
    let mut bytes = [0; 512];
    while peer.stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
}

#[tokio::test]
async fn large_answers_come_over_tls_too() {
    use bytes::Bytes;
    use kafka_wire::share_fetch_response::{PartitionData, ShareFetchableTopicResponse};
    use kafka_wire::{ShareFetchRequest, ShareFetchResponse};
    const BYTES: usize = 12 << 20;
    let authority = Authority::new();
    let broker = Broker::start_tls(authority.acceptor("127.0.0.1", false), |mut peer| async move {
        peer.greet(peer::KAFKA_4_3).await;
        let heard = peer.must_hear().await;
        let mut partition = PartitionData::default();
        partition.records = Bytes::from(vec![7; BYTES]);
        let mut topic = ShareFetchableTopicResponse::default();
        topic.partitions = vec![partition];
        let mut answer = ShareFetchResponse::default();
        answer.responses = vec![topic];
        peer.answer::<ShareFetchRequest>(&heard, &answer).await;
        be_silent(peer).await;
    })
    .await;
    let mut connection = open(&broker, trusting(authority.trust())).await.unwrap();
    let answer = connection.call(&ShareFetchRequest::default(), LONG).await.unwrap();
    let records = &answer.body.responses[0].partitions[0].records;
    assert!(records.len() == BYTES && records.iter().all(|byte| *byte == 7));
}

#[test]
fn files_are_looked_at_before_anything_is_connected() {
    let mut options = trusting(Trust::Certificates(Pem::File("/nonexistent/ca.pem".into())));
    let told: Vec<_> = options.check().iter().map(ToString::to_string).collect();
    assert!(
        told.len() == 1 && told[0].starts_with("`properties.ssl.truststore.location` names `"),
        "{told:?}"
    );
    assert!(Connector::new(options.clone()).is_err());
    options.security.tls = None;
    assert!(options.check().is_empty());
    assert_eq!(options.security.protocol(), "PLAINTEXT");
}
