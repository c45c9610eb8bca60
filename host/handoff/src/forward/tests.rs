use tidegate_model::{DeliveryId, ReceiptKey, Routing, Timestamp};

use super::*;
use crate::options::ServiceOptions;
use crate::server::{Handoff, Parts};

const KEY: [u8; 32] = [7; 32];

fn receipt(owner: &str, number: u64) -> (Receipt, String) {
    let receipt = Receipt {
        routing: Routing { namespace: "owner".into(), ..Routing::default() },
        topic: "topic".into(),
        lite_topic: None,
        message_id: format!("message-{number}").into(),
        handle: format!("handle-{number}").into(),
        attempt: 1,
        owner: owner.into(),
        flow: "tenants".into(),
        delivery: DeliveryId(number),
        expires_at: Timestamp::from_unix_millis(0),
    };
    let text = receipt.encode(&ReceiptKey::new(KEY));
    (receipt, text)
}

fn accept(owner: &str, number: u64) -> (Receipt, String, Verb) {
    let (receipt, text) = receipt(owner, number);
    (receipt, text, Verb::Accept)
}

/// A host without flows: whatever it gave out once, it does not hold any more.
async fn host(id: &str, tokens: Option<std::path::PathBuf>, peers: Vec<PeerOptions>) -> Handoff {
    host_at("127.0.0.1:0".parse().unwrap(), id, tokens, peers).await
}

async fn host_at(
    listen: std::net::SocketAddr,
    id: &str,
    tokens_file: Option<std::path::PathBuf>,
    peers: Vec<PeerOptions>,
) -> Handoff {
    let options = ServiceOptions { listen, tls: None, tokens_file, held_max: 10, key_affinity: false };
    let parts = Parts {
        name: "workers".into(),
        options,
        key: ReceiptKey::new(KEY),
        host_id: id.into(),
        others: None,
        forwarder: Arc::new(forwarder(peers)),
        owner_settles: |routing| *routing.namespace == *"owner",
        clock: Clock::start(),
        telemetry: Telemetry::default(),
    };
    Handoff::start(parts).await.unwrap()
}

fn peer(name: &str, address: std::net::SocketAddr, token: Option<&str>) -> PeerOptions {
    PeerOptions {
        name: name.into(),
        endpoint: format!("http://{address}").into(),
        token: token.map(|token| token.to_owned().into()),
        tls: tidegate_connector::tls::Client::default(),
    }
}

fn forwarder(peers: Vec<PeerOptions>) -> Forwarder {
    Forwarder::start(peers, Clock::start(), Telemetry::default()).unwrap()
}

/// An address where nobody listens.
async fn nowhere() -> std::net::SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn the_owner_is_found_among_the_peers_and_its_word_comes_back() {
    let (first, second) = (host("host-1", None, vec![]).await, host("host-2", None, vec![]).await);
    let forwarder = forwarder(vec![peer("one", first.address(), None), peer("two", second.address(), None)]);
    let batch = vec![accept("host-2", 1), accept("host-1", 2), accept("host-3", 3), accept("host-2", 4)];
    let results = forwarder.settle(batch).await;
    let unknown = |result: &Forwarded, owner: &str| match result {
        Forwarded::Unknown(detail) => detail.contains(owner),
        _ => false,
    };
    assert!(unknown(&results[0], "host-2") && unknown(&results[1], "host-1"), "{results:?}");
    assert!(unknown(&results[3], "host-2"), "{results:?}");
    match &results[2] {
        Forwarded::Refused(detail) => {
            assert!(detail.contains("host-3") && detail.contains("`one`, `two`"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
    first.close().await;
    second.close().await;
}

#[tokio::test]
async fn an_owner_that_may_be_away_is_worth_another_try_and_is_found_when_it_is_back() {
    let here = host("host-1", None, vec![]).await;
    let away = nowhere().await;
    let forwarder = forwarder(vec![peer("here", here.address(), None), peer("away", away, None)]);
    match &forwarder.settle(vec![accept("host-2", 1)]).await[..] {
        [Forwarded::RetryLater(detail)] => {
            assert!(detail.contains("`away`") && detail.contains("end by themselves"), "{detail}");
            assert!(detail.contains("refused"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
    here.close().await;
}

#[tokio::test]
async fn a_peer_that_lets_nobody_in_is_told_with_the_key_that_must_change() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.toml");
    std::fs::write(&tokens, "[tokens.fleet]\ntoken = \"right-0123456789abcdef\"\nflows = [\"other\"]\n")
        .unwrap();
    let guarded = host("host-1", Some(tokens), vec![]).await;
    for (token, said) in [
        (None, "`token`"),
        (Some("wrong-0123456789abcdef"), "`token`"),
        (Some("right-0123456789abcdef"), "has no right to flow `tenants`"),
    ] {
        let forwarder = forwarder(vec![peer("guarded", guarded.address(), token)]);
        match &forwarder.settle(vec![accept("host-1", 1)]).await[..] {
            [Forwarded::Refused(detail)] => assert!(detail.contains(said), "{detail}"),
            other => panic!("{other:?}"),
        }
        assert!(!format!("{forwarder:?}").contains("0123456789"), "a token in Debug");
    }
    guarded.close().await;
}

/// Two hosts that have each other as peers do not pass one receipt to and fro, and whoever is called by another's name
/// says so.
#[tokio::test]
async fn what_was_passed_on_goes_no_further() {
    let third = host("host-3", None, vec![]).await;
    let on = vec![peer("third", third.address(), None)];
    let second = host("host-2", None, on).await;
    let line = Line::new(&peer("second", second.address(), None)).unwrap();
    let (_, text) = receipt("host-3", 1);
    let load = parcel::pack(vec![(0, errand(text, Verb::Accept))]).remove(0).load;
    let timeout = Duration::from_secs(5);
    let told = line.pass_on("host-2", &load, timeout).await.unwrap().remove(0).told;
    assert_eq!(told.status, proto::Status::Refused);
    assert!(told.detail.contains("goes no further"), "{told:?}");
    assert_eq!(line.pass_on("host-3", &load, timeout).await.err(), Some(CallError::Stranger));
    // Not passed on, it is.
    let mut client =
        proto::handoff_client::HandoffClient::connect(format!("http://{}", second.address())).await.unwrap();
    let parcel::Load::Settle(settlements) = load else { panic!("settlements") };
    let answer = client.settle(proto::SettleRequest { settlements }).await.unwrap().into_inner();
    assert_eq!(answer.results[0].status(), proto::Status::Unknown, "{answer:?}");
    second.close().await;
    third.close().await;
}

#[tokio::test]
async fn one_that_became_another_host_is_not_asked_in_its_name() {
    let old = host("host-1", None, vec![]).await;
    let address = old.address();
    let forwarder = forwarder(vec![peer("it", address, None)]);
    assert!(matches!(&forwarder.settle(vec![accept("host-1", 1)]).await[..], [Forwarded::Unknown(_)]));
    old.close().await;
    drop(old);
    // Its address is another's now.
    let new = host_at(address, "host-9", None, vec![]).await;
    match &forwarder.settle(vec![accept("host-1", 1)]).await[..] {
        [Forwarded::Refused(detail)] => assert!(detail.contains("none of the peers `it`"), "{detail}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(&forwarder.settle(vec![accept("host-9", 2)]).await[..], [Forwarded::Unknown(_)]));
    new.close().await;
}
