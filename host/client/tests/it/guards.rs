//! Tokens and certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tidegate_client::{Event, RunError, Tls, Verdict, Worker, WorkerBuilder};
use tidegate_handoff::TlsFiles;

use crate::support::{Broker, FLOW, Host, HostOptions, Running, eventually};

const LEASE: Duration = Duration::from_secs(60);

async fn guarded(broker: &Broker, directory: &TempDir) -> Host {
    let path = directory.path().join("tokens.toml");
    let tokens = "[tokens.jobs]\ntoken = \"jobs-0123456789abcdef\"\nflows = [\"jobs\"]\n\
                  [tokens.bills]\ntoken = \"bills-0123456789abcdef\"\nflows = [\"bills\"]\n";
    fs::write(&path, tokens).unwrap();
    let mut options = HostOptions::default();
    options.service.tokens_file = Some(path);
    Host::start(broker, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_token_with_the_right_to_a_flow_gets_in() {
    let (broker, directory) = (Broker::start(LEASE), TempDir::new().unwrap());
    let host = guarded(&broker, &directory).await;
    broker.send(["one"]);
    let accept = |_| async { Verdict::accept() };
    for (token, told) in [
        (None, "a bearer token is needed"),
        (Some("jobs-0123456789abcdee"), "not known"),
        (Some("bills-0123456789abcdef"), "no right to flow `jobs`"),
    ] {
        let builder = Worker::builder(host.url(), FLOW);
        let builder = match token {
            Some(token) => builder.token(token),
            None => builder,
        };
        let RunError::Refused { address, detail } = Running::start(builder, accept).end().await.unwrap_err()
        else {
            panic!("something else");
        };
        assert_eq!(address, host.url());
        assert!(detail.contains(told), "{detail}");
    }
    let worker = Running::start(Worker::builder(host.url(), FLOW).token("jobs-0123456789abcdef"), accept);
    broker.wait_for_done(1).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_that_refuses_is_passed_by() {
    let (broker, directory) = (Broker::start(LEASE), TempDir::new().unwrap());
    let refusing = guarded(&broker, &directory).await;
    let open = Host::start(&broker, HostOptions { name: "host-b", ..HostOptions::default() }).await;
    broker.send(["one"]);
    let builder = Worker::builder(refusing.url(), FLOW).or_at(open.url());
    let worker = Running::start(builder, |_| async { Verdict::accept() });
    broker.wait_for_done(1).await;
    worker.stop().await.unwrap();
}

/// A certificate authority, and certificates of it for hosts and for workers.
struct Certificates {
    directory: TempDir,
}

impl Certificates {
    fn make() -> Self {
        let directory = TempDir::new().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let certificates = Self { directory };
        fs::write(certificates.path("ca.pem"), ca.pem()).unwrap();
        for name in ["host", "worker"] {
            let key = KeyPair::generate().unwrap();
            let params =
                CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &ca).unwrap();
            fs::write(certificates.path(&format!("{name}.pem")), certificate.pem()).unwrap();
            fs::write(certificates.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        certificates
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::join(self.directory.path(), name)
    }

    fn host_options(&self, client_ca: Option<&Self>) -> HostOptions {
        let mut options = HostOptions::default();
        options.service.tls = Some(TlsFiles {
            certificates: self.path("host.pem"),
            key: self.path("host.key"),
            client_ca: client_ca.map(|ca| ca.path("ca.pem")),
        });
        options
    }
}

/// Says what keeps a worker out.
async fn kept_out(builder: WorkerBuilder) -> String {
    let worker = Running::start(builder, |_| async { Verdict::accept() });
    let is_out = |event: &Event| matches!(event, Event::Unsubscribed { .. });
    let Event::Unsubscribed { detail, .. } = worker.seen.wait_for("a failure", is_out).await else {
        panic!("something else");
    };
    eventually("another try", || (worker.seen.count(is_out) > 1).then_some(())).await;
    worker.stop().await.unwrap();
    detail
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_the_host_is_checked() {
    let (broker, ours, theirs) = (Broker::start(LEASE), Certificates::make(), Certificates::make());
    let host = Host::start(&broker, ours.host_options(None)).await;
    broker.send(["one"]);
    let url = host.url_of("https", "localhost");
    let stranger = Worker::builder(&*url, FLOW).tls(Tls::new().ca_file(theirs.path("ca.pem")));
    let detail = kept_out(stranger).await;
    assert!(detail.contains("certificate"), "{detail}");
    let other_name = Tls::new().ca_file(ours.path("ca.pem")).server_name("example.org");
    let detail = kept_out(Worker::builder(&*url, FLOW).tls(other_name)).await;
    assert!(detail.contains("certificate"), "{detail}");
    // The system's authorities do not know it.
    let detail = kept_out(Worker::builder(&*url, FLOW)).await;
    assert!(detail.contains("certificate"), "{detail}");
    let trusting = Worker::builder(&*url, FLOW).tls(Tls::new().ca_file(ours.path("ca.pem")));
    let worker = Running::start(trusting, |_| async { Verdict::accept() });
    broker.wait_for_done(1).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_may_want_a_certificate() {
    let (broker, ours, theirs) = (Broker::start(LEASE), Certificates::make(), Certificates::make());
    let host = Host::start(&broker, ours.host_options(Some(&ours))).await;
    broker.send(["one"]);
    let url = host.url_of("https", "127.0.0.1");
    let trusting = Tls::new().ca_file(ours.path("ca.pem"));
    kept_out(Worker::builder(&*url, FLOW).tls(trusting.clone())).await;
    let stranger = trusting.clone().identity_files(theirs.path("worker.pem"), theirs.path("worker.key"));
    kept_out(Worker::builder(&*url, FLOW).tls(stranger)).await;
    assert_eq!(broker.done(), 0);
    let known = trusting.identity_files(ours.path("worker.pem"), ours.path("worker.key"));
    let worker = Running::start(Worker::builder(&*url, FLOW).tls(known), |_| async { Verdict::accept() });
    broker.wait_for_done(1).await;
    worker.stop().await.unwrap();
}
