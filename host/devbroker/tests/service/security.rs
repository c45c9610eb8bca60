//! TLS beside plaintext, signatures and permissions.

use std::net::SocketAddr;

use tidegate_devbroker::{Broker, Tls, User};
use tidegate_proto::rocketmq::LiteSubscriptionAction as Action;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::client::*;

/// HMAC-SHA1 of `20260101T000000Z` with the key `secretKey`.
const SIGNATURE: &str = "963ABD36AD60920C3F000248E63AD8782DD2A04E";

fn signed(user: &str, signature: &str) -> Option<(String, String)> {
    let header =
        format!("MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={signature}");
    Some((header, "20260101T000000Z".to_owned()))
}

async fn start() -> Broker {
    let mut options = options();
    options.users = vec![User {
        access_key: "alice".to_owned(),
        secret_key: "secretKey".to_owned(),
        is_admin: false,
        topics: vec!["LT".to_owned()],
        groups: vec!["GL".to_owned()],
    }];
    Broker::start(options).await.unwrap()
}

#[tokio::test]
async fn a_caller_must_be_who_it_says() {
    let broker = start().await;
    let mut client = Client::connect(&broker, "c", "LT", "GL", LITE).await;
    for (authorization, text) in [
        (None, "username cannot be null."),
        (signed("alice", "00"), "check signature failed."),
        (signed("zed", SIGNATURE), "User:zed is not found."),
    ] {
        client.authorization = authorization;
        let status = client.route().await.status.unwrap();
        assert_eq!((status.code, status.message.as_str()), (40_100, text));
        let received = client.receive(1, 10).await;
        assert_eq!((received.code, received.text.as_str()), (40_100, text));
        // The stream does not fail: its answer says it.
        assert_eq!(client.settle().await.unwrap().status.unwrap().code, 40_100);
    }
    client.authorization = signed("alice", SIGNATURE);
    client.ready().await;
    client.send_lite("m", "L").await;
    let message = client.gather(1, 10).await.remove(0);
    assert_eq!(client.ack(&message).await.0, 20_000);
    broker.stop().await;
}

#[tokio::test]
async fn a_user_may_only_what_it_was_given() {
    let broker = start().await;
    let mut client = Client::connect(&broker, "c", "LT2", "GL2", LITE).await;
    client.authorization = signed("alice", SIGNATURE);
    let text = "User:alice has no permission to access Topic:LT2 from 127.0.0.1, no matched policies.";
    let message = client.lite_message("m", "L");
    let status = client.send(vec![message]).await.status.unwrap();
    assert_eq!((status.code, status.message.as_str()), (40_100, text));
    let answer = client.settle().await.unwrap();
    assert_eq!(answer.status.unwrap().message, text);
    assert_eq!(client.sync(Action::CompleteAdd, &[]).await.code, 20_000, "not checked");
    client.topic = "LT".to_owned();
    let received = client.receive(1, 10).await;
    assert!(
        received.text.starts_with("User:alice has no permission to access Group:GL2"),
        "{}",
        received.text
    );
    broker.stop().await;
}

#[tokio::test]
async fn one_port_serves_tls_and_plaintext() {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut options = options();
    options.tls =
        Some(Tls { certificate_pem: issued.cert.pem(), key_pem: issued.signing_key.serialize_pem() });
    let broker = Broker::start(options).await.unwrap();
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(issued.cert.pem()))
        .domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{}", broker.address())).unwrap();
    let channel = endpoint.tls_config(tls).unwrap().connect().await.unwrap();
    let mut encrypted = Client::over(channel, "t", "LT", "GL", LITE);
    encrypted.ready().await;
    let mut plain = Client::connect(&broker, "p", "LT", "", 1).await;
    plain.send_lite("m", "L").await;
    assert_eq!(encrypted.bodies(1, 10).await, ["m"]);
    // A client that trusts nobody here is turned away.
    let stranger = Endpoint::from_shared(format!("https://{}", broker.address())).unwrap();
    let stranger = stranger.tls_config(ClientTlsConfig::new().domain_name("localhost")).unwrap();
    assert!(stranger.connect().await.is_err());
    broker.stop().await;
}

#[tokio::test]
async fn tls_to_a_plaintext_port_and_bad_certificates_fail() {
    let broker = Broker::start(options()).await.unwrap();
    let endpoint = Endpoint::from_shared(format!("https://{}", broker.address())).unwrap();
    let tls = ClientTlsConfig::new().domain_name("localhost");
    assert!(endpoint.tls_config(tls).unwrap().connect().await.is_err());
    let mut bad = options();
    bad.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    bad.tls = Some(Tls { certificate_pem: "no".to_owned(), key_pem: "no".to_owned() });
    let error = Broker::start(bad).await.unwrap_err();
    assert_eq!(error.to_string(), "the development broker cannot serve TLS");
    let mut taken = options();
    taken.listen = broker.address();
    let error = Broker::start(taken).await.unwrap_err();
    assert!(error.to_string().contains(&broker.address().to_string()), "{error}");
    broker.stop().await;
}
