//! Proxies and brokers that die and come back; several of them.

use std::time::Duration;

use tidegate_devbroker::{Broker, Control, Topology};
use tidegate_proto::rocketmq::{LiteSubscriptionAction as Action, QueryRouteResponse};

use crate::client::*;

async fn start() -> (Broker, Control, Client) {
    let broker = Broker::start(options()).await.unwrap();
    let client = Client::lite(&broker, "c").await;
    let control = broker.control();
    (broker, control, client)
}

#[tokio::test]
async fn a_restarted_proxy_drops_connections_and_forgets_settings_but_not_messages() {
    let (broker, control, mut client) = start().await;
    client.send_lite("m", "L").await;
    client.send_lite("n", "N").await;
    let message = client.gather(1, 30).await.remove(0);
    let mut waiting = Client::simple(&broker, "w", "NT", "GN").await;
    let request = waiting.receive_request(1, 10);
    let in_flight = waiting.receive_with(request, Some(Duration::from_secs(9)));
    let restart = async {
        while control.stats().receives_in_flight == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        control.restart_proxy(Duration::from_millis(20)).await;
    };
    let (cut, ()) = tokio::join!(in_flight, restart);
    assert!(cut.is_err());
    let mut again = Client::connect(&broker, "c", "LT", "GL", LITE).await;
    assert_eq!(again.heartbeat().await.code, 40_015);
    assert_eq!(again.receive(1, 10).await.code, 50_001);
    assert_eq!(code(&again.change(&message, 20, Some(true)).await.status), 50_001);
    assert_eq!(again.ack(&message).await.0, 20_000, "handles from before are good");
    // The broker still knows the registration: settings are enough.
    again.settle().await.unwrap();
    again.send_lite("o", "O").await;
    let mut bodies = again.bodies(32, 30).await;
    bodies.sort();
    assert!(bodies.contains(&"o".to_owned()), "{bodies:?}");
    broker.stop().await;
}

#[tokio::test]
async fn a_restarted_broker_is_down_then_unknown_then_forgetful() {
    let (broker, control, mut client) = start().await;
    client.send_all(&["z-0", "z-1"], "Z").await;
    let messages = client.gather(2, 20).await;
    assert_eq!(client.ack(&messages[0]).await.0, 20_000);
    let in_flight = client.receive_request(1, 10);
    let restart = async {
        while control.stats().receives_in_flight == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        control.restart_broker(Duration::from_secs(5), Duration::from_secs(20));
    };
    let (cut, ()) = tokio::join!(client.receive_with(in_flight, Some(Duration::from_secs(9))), restart);
    let cut = cut.unwrap();
    assert_eq!(cut.code, 50_001);
    assert!(cut.text.contains("RemotingSendRequestException"), "{}", cut.text);
    let down = client.receive(1, 10).await;
    assert_eq!(down.code, 50_001);
    assert!(down.text.contains("RemotingConnectException"), "{}", down.text);
    assert_eq!(client.ack(&messages[1]).await.0, 50_001);
    assert_eq!(client.sync(Action::CompleteAdd, &[]).await.code, 50_001);
    assert_eq!(code(&client.route().await.status), 20_000);
    assert_eq!(client.heartbeat().await.code, 20_000);
    control.advance(Duration::from_secs(5));
    assert_eq!(client.receive(1, 10).await.code, 40_402);
    assert_eq!(code(&client.route().await.status), 40_402);
    assert_eq!(client.heartbeat().await.code, 40_003);
    let message = client.lite_message("new", "Z");
    let refused = client.send(vec![message]).await.status.unwrap();
    assert_eq!(refused.code, 40_014);
    assert!(refused.message.contains("UNSPECIFIED"));
    control.advance(Duration::from_secs(20));
    client.finds_nothing().await;
    assert_eq!(client.sync(Action::CompleteAdd, &[]).await.code, 20_000);
    let again = client.gather(1, 10).await.remove(0);
    assert_eq!((body(&again), attempt(&again)), ("z-1".to_owned(), 1));
    broker.stop().await;
}

#[tokio::test]
async fn a_new_stream_of_the_same_client_outlives_the_old_one() {
    let (broker, control, mut client) = start().await;
    let mut older = Client::connect(&broker, "c", "LT", "GL", LITE).await;
    older.settle().await.unwrap();
    // The first stream ends after the second one began: the registration stays.
    client.hang_up();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(control.lite_clients("LT", "GL").len(), 1);
    broker.stop().await;
}

#[tokio::test]
async fn in_local_mode_each_proxy_has_its_own_broker() {
    let broker = several(Topology::Local).await;
    let mut first = Client::lite(&broker, "c").await;
    let ports = ports(&broker);
    assert_eq!(
        told(&first.route().await),
        [("broker-a".to_owned(), vec![ports[0]]), ("broker-b".to_owned(), vec![ports[1]])]
    );
    let mut second = Client::at(broker.addresses()[1], "c", "LT", "GL", LITE).await;
    second.send_lite("on-b", "L").await;
    second.settle().await.unwrap();
    second.broker = "broker-b".to_owned();
    // The registration at the first proxy did not reach this broker.
    let nothing = tokio::time::timeout(Duration::from_millis(100), second.receive(1, 10)).await;
    assert!(nothing.is_err());
    second.sync(Action::CompleteAdd, &[]).await;
    let message = second.gather(1, 10).await.remove(0);
    assert_eq!(body(&message), "on-b");
    assert_eq!(first.ack(&message).await.0, 40_013);
    broker.stop().await;
}

#[tokio::test]
async fn in_cluster_mode_every_proxy_reaches_every_broker() {
    let broker = several(Topology::Cluster).await;
    let control = broker.control();
    let mut first = Client::lite(&broker, "c").await;
    let ports = ports(&broker);
    // A client that knows one proxy is told of that one only, for both brokers.
    let one = |name: &str| (name.to_owned(), vec![ports[0]]);
    assert_eq!(told(&first.route().await), [one("broker-a"), one("broker-b")]);
    let all = |name: &str| (name.to_owned(), ports.clone());
    assert_eq!(told(&first.route_asked_at(&ports).await), [all("broker-a"), all("broker-b")]);
    for number in 0..20 {
        first.send_lite(&format!("{number}-0"), &format!("L{number}")).await;
        first.send_lite(&format!("{number}-1"), &format!("L{number}")).await;
    }
    let mut brokers = Vec::new();
    for name in ["broker-a", "broker-b"] {
        first.broker = name.to_owned();
        let mut bodies = Vec::new();
        loop {
            let more = first.receive(32, 30).await.messages;
            if more.is_empty() {
                break;
            }
            bodies.extend(more.iter().map(body));
        }
        bodies.sort();
        brokers.push(bodies);
    }
    assert_eq!(brokers[0].len() + brokers[1].len(), 40, "the registration reached both brokers");
    assert!(brokers.iter().all(|bodies| !bodies.is_empty() && bodies.len() % 2 == 0), "{brokers:?}");
    for bodies in &brokers {
        for pair in bodies.chunks(2) {
            assert_eq!(pair[0].replace("-0", "-1"), pair[1], "a lite topic is at one broker");
        }
    }
    control.stop_broker_at(1);
    assert_eq!(first.receive(1, 10).await.code, 50_001, "broker-b is away");
    control.start_broker_at(1, Duration::from_secs(5));
    assert_eq!(
        told(&first.route_asked_at(&ports).await),
        [all("broker-a")],
        "and not in the route for a while"
    );
    control.advance(Duration::from_secs(5));
    assert_eq!(told(&first.route_asked_at(&ports).await), [all("broker-a"), all("broker-b")]);
    broker.stop().await;
}

#[tokio::test]
async fn a_stopped_proxy_listens_no_more_until_it_is_started() {
    let broker = several(Topology::Cluster).await;
    let control = broker.control();
    control.stop_proxy_at(1).await;
    control.stop_proxy_at(1).await;
    let address = broker.addresses()[1];
    tokio::net::TcpStream::connect(address).await.unwrap_err();
    control.start_proxy_at(1).await;
    control.start_proxy_at(1).await;
    tokio::net::TcpStream::connect(address).await.unwrap();
    broker.stop().await;
}

async fn several(topology: Topology) -> Broker {
    let mut options = options();
    options.more_listeners = vec![options.listen];
    options.topology = topology;
    Broker::start(options).await.unwrap()
}

fn ports(broker: &Broker) -> Vec<i32> {
    broker.addresses().iter().map(|address| i32::from(address.port())).collect()
}

/// The brokers of a route, each with the ports of its addresses.
fn told(route: &QueryRouteResponse) -> Vec<(String, Vec<i32>)> {
    let brokers = route.message_queues.iter().map(|queue| {
        let broker = queue.broker.clone().unwrap();
        let ports = broker.endpoints.unwrap().addresses.iter().map(|address| address.port).collect();
        (broker.name, ports)
    });
    let mut brokers: Vec<_> = brokers.collect();
    brokers.dedup();
    brokers
}

#[tokio::test]
async fn a_stopped_broker_leaves_nothing_behind() {
    let (broker, _control, mut client) = start().await;
    let address = broker.address();
    let request = client.receive_request(1, 10);
    let poll = tokio::spawn(async move {
        let received = client.receive_with(request, Some(Duration::from_secs(9))).await;
        received.map(|received| received.code)
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    broker.stop().await;
    assert!(poll.await.unwrap().is_err());
    // The port is free again.
    let mut options = options();
    options.listen = address;
    Broker::start(options).await.unwrap().stop().await;
}
