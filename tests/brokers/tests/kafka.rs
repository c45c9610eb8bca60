//! The launcher of Kafka and its driver, on every release and every listener.
#![allow(clippy::unwrap_used, reason = "in the helpers of a test, a failure is the test's failure")]

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use kafka_wire::{
    ApiVersionsRequest, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    ShareAcknowledgeRequest, ShareFetchRequest, ShareFetchResponse, ShareGroupHeartbeatRequest,
    share_acknowledge_request, share_fetch_request,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tidegate_test_brokers::kafka::{
    Acl, Certificates, Cluster, ClusterOptions, Connection, Driver, Identity, Listener, Mechanism, NewTopic,
    NodeId, Operation, Producer, Record, Resource, Sasl, Topic, Version, batch, unsecured_token,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;

const MEMBER: &str = "member-1";
const ACCEPT: i8 = 1;

#[allow(clippy::print_stdout, reason = "how long starts take is worth seeing, and no assertion")]
async fn start(options: ClusterOptions) -> Cluster {
    let (version, nodes) = (options.version, options.nodes);
    let began = Instant::now();
    let cluster = Cluster::start(options).await.unwrap();
    println!("Kafka {version} with {nodes} node(s) was up after {:?}", began.elapsed());
    cluster
}

/// Joins and heartbeats until a partition is assigned.
async fn join(driver: &Driver, group: &str, topic: &str) {
    let coordinator = driver.coordinator(group).await.unwrap();
    let mut request = ShareGroupHeartbeatRequest::default();
    request.group_id = group.into();
    request.member_id = MEMBER.into();
    request.subscribed_topic_names = Some(vec![topic.into()]);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = driver.call(coordinator, &request, 1).await.unwrap();
        // 14 to 16: the coordinator is just beginning.
        assert!(matches!(answer.error_code, 0 | 14..=16), "{answer:?}");
        if answer.assignment.is_some_and(|assignment| !assignment.topic_partitions.is_empty()) {
            return;
        }
        assert!(Instant::now() < deadline, "no assignment");
        if answer.error_code == 0 {
            request.member_epoch = answer.member_epoch;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Fetches until records of partition 0 come; opens the share session.
async fn fetch(connection: &mut Connection, group: &str, topic: &Topic) -> ShareFetchResponse {
    let mut partition = share_fetch_request::FetchPartition::default();
    partition.partition_index = 0;
    let mut of_topic = share_fetch_request::FetchTopic::default();
    of_topic.topic_id = topic.id;
    of_topic.partitions = vec![partition];
    let mut request = ShareFetchRequest::default();
    request.group_id = Some(group.into());
    request.member_id = Some(MEMBER.into());
    request.max_wait_ms = 500;
    request.min_bytes = 1;
    request.max_bytes = 1 << 20;
    request.max_records = 100;
    request.batch_size = 100;
    request.topics = vec![of_topic];
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = connection.call(&request, 2).await.unwrap();
        assert_eq!(answer.error_code, 0, "{answer:?}");
        let acquired = answer.responses.iter().flat_map(|topic| &topic.partitions);
        if acquired.flat_map(|partition| &partition.acquired_records).next().is_some() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no records: {answer:?}");
        request.share_session_epoch += 1;
        request.topics = Vec::new();
    }
}

async fn accept(connection: &mut Connection, group: &str, topic: &Topic, first: i64, last: i64) {
    let mut range = share_acknowledge_request::AcknowledgementBatch::default();
    range.first_offset = first;
    range.last_offset = last;
    range.acknowledge_types = vec![ACCEPT];
    let mut partition = share_acknowledge_request::AcknowledgePartition::default();
    partition.acknowledgement_batches = vec![range];
    let mut of_topic = share_acknowledge_request::AcknowledgeTopic::default();
    of_topic.topic_id = topic.id;
    of_topic.partitions = vec![partition];
    let mut request = ShareAcknowledgeRequest::default();
    request.group_id = Some(group.into());
    request.member_id = Some(MEMBER.into());
    // Closes the session, which takes acknowledgements too.
    request.share_session_epoch = -1;
    request.topics = vec![of_topic];
    let answer = connection.call(&request, 2).await.unwrap();
    assert_eq!(answer.error_code, 0, "{answer:?}");
    assert_eq!(answer.responses[0].partitions[0].error_code, 0, "{answer:?}");
}

fn records() -> Vec<Record> {
    vec![
        Record::new("first").key("k").header("h", "1").header("h", "2"),
        Record { headers: vec![("absent".into(), None)], ..Record::default() },
        Record::new(vec![b'x'; 1000]),
    ]
}

#[tokio::test]
async fn one_node_of_each_release_serves_a_share_group() {
    for version in Version::ALL {
        let cluster = start(ClusterOptions { version, ..ClusterOptions::default() }).await;
        let driver = cluster.driver();
        let topic = driver.create_topic("t", 1).await.unwrap();
        driver.configure_group("g", &[("share.auto.offset.reset", "earliest")]).await.unwrap();
        let refusal = driver.configure_group("g", &[("share.nope", "1")]).await.unwrap_err();
        assert_eq!(refusal.code(), Some(40), "{refusal}");
        let sent = batch(&records(), Producer::ANONYMOUS);
        assert_eq!(driver.produce_batch("t", 0, sent.clone()).await.unwrap(), 0);

        join(&driver, "g", "t").await;
        let address = cluster.address(NodeId(1), Listener::Plaintext);
        let mut connection = Connection::open(&address).await.unwrap();
        let answer = fetch(&mut connection, "g", &topic).await;
        let partition = &answer.responses[0].partitions[0];
        let acquired = &partition.acquired_records[0];
        assert_eq!((acquired.first_offset, acquired.last_offset, acquired.delivery_count), (0, 2, 1));
        // Before it are offset and leader epoch, which the broker gives.
        assert_eq!(partition.records[16..], sent[16..], "the batch is stored as it was sent");
        accept(&mut connection, "g", &topic, 0, 1).await;
        let settled = driver.share_offsets("g", "t").await.unwrap()[0];
        assert_eq!((settled.start, settled.lag), (Some(2), Some(1)), "two of three are accepted");
        let group = driver.describe_group("g").await.unwrap();
        assert_eq!(group.members[0].member_id.as_str(), MEMBER);

        let began = Instant::now();
        cluster.kill(NodeId(1));
        TcpStream::connect(&address).expect_err("a killed node listens no more");
        cluster.revive(NodeId(1)).await.unwrap();
        println!("and again after {:?}", began.elapsed());
        assert_eq!(driver.produce("t", 0, &records()).await.unwrap(), 3, "what was acknowledged is kept");
        let directory = cluster.directory().to_owned();
        cluster.stop().await;
        TcpStream::connect(&address).expect_err("a stopped cluster listens nowhere");
        assert!(!directory.exists(), "{} is still there", directory.display());
    }
}

#[tokio::test]
async fn the_driver_changes_topics_records_and_groups() {
    let cluster = start(ClusterOptions::default()).await;
    let driver = cluster.driver();
    let topic = driver.create(&NewTopic::new("t", 1).setting("compression.type", "zstd")).await.unwrap();
    assert_eq!(driver.create_topic("t", 1).await.unwrap_err().code(), Some(36));

    let mut transaction = driver.transaction("tx").await.unwrap();
    assert_eq!(transaction.produce("t", 0, &records()).await.unwrap(), 0);
    assert_eq!(transaction.produce("t", 0, &records()).await.unwrap(), 3);
    transaction.commit().await.unwrap();
    assert_eq!(driver.offsets("t", 0).await.unwrap(), 0..7, "six records and a marker");
    let mut transaction = driver.transaction("tx").await.unwrap();
    assert_eq!(transaction.produce("t", 0, &records()).await.unwrap(), 7);
    transaction.abort().await.unwrap();
    assert_eq!(driver.offsets("t", 0).await.unwrap(), 0..11);

    assert_eq!(driver.delete_records("t", 0, 5).await.unwrap(), 5);
    assert_eq!(driver.offsets("t", 0).await.unwrap(), 5..11);
    assert_eq!(driver.add_partitions("t", 3).await.unwrap().partitions.len(), 3);
    driver.configure_topic("t", &[("compression.type", "gzip")]).await.unwrap();
    let untouched = driver.share_offsets("none", "t").await.unwrap();
    assert_eq!(untouched.iter().filter(|offset| offset.start.is_none()).count(), 3, "{untouched:?}");
    assert_eq!(driver.describe_group("none").await.unwrap_err().code(), Some(69));

    driver.delete_topic("t").await.unwrap();
    assert!(driver.topic("t").await.unwrap().is_none());
    assert_ne!(driver.create_topic("t", 1).await.unwrap().id, topic.id);

    join(&driver, "g", "t").await;
    assert_eq!(driver.delete_group("g").await.unwrap_err().code(), Some(68), "it has a member");
    cluster.stop().await;
}

#[tokio::test]
async fn a_cluster_without_share_groups_can_be_had() {
    let features = vec![("share.version", 0)];
    let cluster = start(ClusterOptions { features, ..ClusterOptions::default() }).await;
    let driver = cluster.driver();
    let mut request = ShareGroupHeartbeatRequest::default();
    request.group_id = "g".into();
    request.member_id = MEMBER.into();
    request.subscribed_topic_names = Some(vec!["t".into()]);
    let answer = driver.call(NodeId(1), &request, 1).await.unwrap();
    assert_eq!(answer.error_code, 35, "{answer:?}");
    cluster.stop().await;
}

#[tokio::test]
async fn any_of_three_nodes_can_go() {
    let cluster = start(ClusterOptions { nodes: 3, ..ClusterOptions::default() }).await;
    let driver = cluster.driver();
    let topic = driver.create_topic("t", 1).await.unwrap();
    assert_eq!(topic.partitions[0].replicas.len(), 3);

    for killed in cluster.nodes() {
        driver.move_leader("t", 0, killed).await.unwrap();
        assert_eq!(driver.leader("t", 0).await.unwrap(), killed);
        let began = Instant::now();
        cluster.kill(killed);
        let next = driver.leader_after(killed, "t", 0).await.unwrap();
        println!("{next} leads {:?} after the kill of {killed}", began.elapsed());
        driver.produce("t", 0, &records()).await.unwrap();
        let began = Instant::now();
        cluster.revive(killed).await.unwrap();
        println!("{killed} was back after {:?}", began.elapsed());
    }

    let leader = driver.leader("t", 0).await.unwrap();
    let began = Instant::now();
    cluster.terminate(leader).await.unwrap();
    println!("{leader} ended {:?} after SIGTERM", began.elapsed());
    let next = driver.leader_after(leader, "t", 0).await.unwrap();
    println!("{next} leads {:?} after it", began.elapsed());
    cluster.revive(leader).await.unwrap();

    let began = Instant::now();
    cluster.pause(next).unwrap();
    let after = driver.leader_after(next, "t", 0).await.unwrap();
    println!("{after} leads {:?} after the freeze of {next}", began.elapsed());
    cluster.resume(next).unwrap();
    driver.move_leader("t", 0, next).await.unwrap();
    assert_eq!(driver.offsets("t", 0).await.unwrap(), 0..9, "three records after each kill");
    let coordinator = driver.coordinator("g").await.unwrap();
    assert!(cluster.nodes().any(|node| node == coordinator), "{coordinator}");
    cluster.stop().await;
}

fn tls(certificates: &Certificates, client: Option<&Identity>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificates.authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let certificate = CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(client.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    TlsConnector::from(Arc::new(config))
}

async fn handshake(
    connector: &TlsConnector,
    address: &str,
) -> std::io::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    let stream = tokio::net::TcpStream::connect(address).await?;
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
}

async fn authenticate<S: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut Connection<S>,
    mechanism: &str,
    first: &str,
) -> SaslAuthenticateResponse {
    let mut request = SaslHandshakeRequest::default();
    request.mechanism = mechanism.into();
    let answer = connection.call(&request, 1).await.unwrap();
    assert_eq!(answer.error_code, 0, "{answer:?}");
    let mut request = SaslAuthenticateRequest::default();
    request.auth_bytes = first.to_owned().into();
    connection.call(&request, 2).await.unwrap()
}

#[tokio::test]
async fn every_listener_answers() {
    let certificates = Certificates::generate().unwrap();
    let sasl = Sasl::default()
        .user(Mechanism::Plain, "ann", "ann's \"secret\"")
        .user(Mechanism::ScramSha256, "bob", "bob-secret")
        .user(Mechanism::ScramSha512, "cyd", "cyd-secret");
    let cluster = start(ClusterOptions {
        sasl: Some(sasl),
        tls: Some(certificates.clone()),
        authorizer: true,
        ..ClusterOptions::default()
    })
    .await;
    let driver = cluster.driver();
    driver.create_topic("t", 1).await.unwrap();
    let address = |listener| cluster.address(NodeId(1), listener);

    let plain = "\0ann\0ann's \"secret\"";
    let mut connection = Connection::open(&address(Listener::SaslPlaintext)).await.unwrap();
    assert_eq!(authenticate(&mut connection, "PLAIN", plain).await.error_code, 0);
    let acl = Acl { user: "ann", operation: Operation::Read, resource: Resource::Topic, name: "t" };
    driver.allow(&[acl]).await.unwrap();
    assert!(driver.withdraw(&acl).await.unwrap());
    assert!(!driver.withdraw(&acl).await.unwrap(), "it is gone");

    let mut connection = Connection::open(&address(Listener::SaslPlaintext)).await.unwrap();
    let wrong = authenticate(&mut connection, "PLAIN", "\0ann\0wrong").await;
    assert_eq!(wrong.error_code, 58, "{wrong:?}");
    for (mechanism, user) in [("SCRAM-SHA-256", "bob"), ("SCRAM-SHA-512", "cyd")] {
        let mut connection = Connection::open(&address(Listener::SaslPlaintext)).await.unwrap();
        let challenge = authenticate(&mut connection, mechanism, &format!("n,,n={user},r=nonce")).await;
        assert_eq!(challenge.error_code, 0, "{challenge:?}");
        assert!(challenge.auth_bytes.starts_with(b"r=nonce"), "{challenge:?}");
    }
    let token = unsecured_token("eve", Duration::from_secs(60));
    let mut connection = Connection::open(&address(Listener::SaslPlaintext)).await.unwrap();
    let answer =
        authenticate(&mut connection, "OAUTHBEARER", &format!("n,,\x01auth=Bearer {token}\x01\x01")).await;
    assert_eq!((answer.error_code, answer.auth_bytes.len()), (0, 0), "{answer:?}");
    assert!(answer.session_lifetime_ms <= 60_000, "{answer:?}");

    let anonymous = tls(&certificates, None);
    let stream = handshake(&anonymous, &address(Listener::SaslSsl)).await.unwrap();
    assert_eq!(authenticate(&mut Connection::over(stream), "PLAIN", plain).await.error_code, 0);

    let mut request = ApiVersionsRequest::default();
    request.client_software_name = "tests".into();
    request.client_software_version = "1".into();
    let stream =
        handshake(&tls(&certificates, Some(&certificates.client)), &address(Listener::Ssl)).await.unwrap();
    let answer = Connection::over(stream).call(&request, 4).await.unwrap();
    assert_eq!(answer.error_code, 0, "{answer:?}");
    // The broker's alert comes after our side of the handshake is done.
    let stream = handshake(&anonymous, &address(Listener::Ssl)).await.unwrap();
    Connection::over(stream).call(&request, 4).await.expect_err("no certificate, no service");
    cluster.stop().await;
}
