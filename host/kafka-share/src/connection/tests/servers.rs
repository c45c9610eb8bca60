//! Servers that are not there, say nothing, or are something else; and lists of them.

use tokio::net::TcpListener;

use super::peer::Broker;
use super::*;

/// An address where nobody listens.
async fn dead() -> BrokerAddress {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    BrokerAddress::parse(&format!("127.0.0.1:{port}")).unwrap()
}

fn list(addresses: &[&BrokerAddress]) -> BootstrapServers {
    let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    BootstrapServers::parse(&texts.join(",")).unwrap()
}

fn hasty() -> ClientOptions {
    let mut options = options();
    options.deadlines.greeting = SHORT;
    options
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_told_with_what_happened() {
    let address = dead().await;
    let error = Connector::new(options()).unwrap().open(&address).await.unwrap_err();
    assert!(error.to_string().contains(&format!("no connection ({address}: Connection refused")), "{error}");
    assert!(error.to_string().contains("properties.bootstrap.servers"), "{error}");
    assert_eq!((error.fault(), error.is_retriable()), (Fault::Network, true));
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_told() {
    let address = BrokerAddress::parse("no-such-host.invalid:9092").unwrap();
    let error = Connector::new(options()).unwrap().open(&address).await.unwrap_err();
    assert!(error.to_string().contains("cannot be resolved"), "{error}");
    assert_eq!((error.problem().phase(), error.is_retriable()), (Phase::Resolve, true));
}

/// `localhost` may be two addresses, and only one of them is listened at.
#[tokio::test]
async fn all_addresses_of_a_name_are_tried() {
    let broker = Broker::greeting(|mut peer| async move { peer.serve_metadata().await }).await;
    let address = BrokerAddress::parse(&format!("localhost:{}", broker.address.port())).unwrap();
    let mut connection = Connector::new(options()).unwrap().open(&address).await.unwrap();
    ask(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let broker = Broker::start(be_silent).await;
    let (text, problem) = refused(&broker, hasty()).await;
    assert!(text.contains("the first question took longer than 150ms"), "{text}");
    assert!(
        text.contains("does the listener fit `properties.security.protocol`, which is PLAINTEXT?"),
        "{text}"
    );
    assert!(problem.is_retriable());
}

#[tokio::test]
async fn the_whole_of_opening_has_a_deadline_too() {
    let broker = Broker::start(be_silent).await;
    let mut options = options();
    options.deadlines.open = SHORT;
    let (_, problem) = refused(&broker, options).await;
    assert_eq!(problem, OpenProblem::TimedOut { phase: Phase::Versions, after: SHORT });
}

#[tokio::test]
async fn a_server_that_speaks_something_else_is_told_with_its_first_words() {
    for (words, expected) in
        [(&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "48 54 54 50 (`HTTP`)"), (b"SSH-2.0-x\r\n", "`SSH-`")]
    {
        let broker = Broker::start(move |mut peer| async move {
            peer.must_hear().await;
            peer.say(words).await;
            be_silent(peer).await;
        })
        .await;
        let (text, problem) = refused(&broker, options()).await;
        assert!(text.contains("does not speak Kafka's protocol") && text.contains(expected), "{text}");
        assert_eq!((problem.fault(), problem.is_retriable()), (Fault::Configuration, false));
    }
}

#[tokio::test]
async fn dead_servers_of_a_list_are_passed_over() {
    let (nobody, silent) = (dead().await, Broker::start(be_silent).await);
    let good = Broker::greeting(|mut peer| async move { peer.serve_metadata().await }).await;
    let servers = list(&[&nobody, &silent.address, &good.address]);
    let connector = Connector::new(hasty()).unwrap();
    for seed in 0..12 {
        let mut connection = connector.open_any(&servers, seed).await.unwrap();
        assert_eq!(connection.address(), &good.address);
        ask(&mut connection).await.unwrap();
    }
    assert!(silent.accepted() > 0, "some orders begin with it");
}

#[tokio::test]
async fn when_all_are_dead_each_is_told_with_its_reason() {
    let (nobody, silent) = (dead().await, Broker::start(be_silent).await);
    let servers = list(&[&nobody, &silent.address]);
    let error = Connector::new(hasty()).unwrap().open_any(&servers, 1).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("none of the 2 bootstrap servers can be used: (1) "), "{text}");
    assert!(text.contains(&format!("{nobody}: no connection (")), "{text}");
    assert!(text.contains(&format!("{}: the first question took longer", silent.address)), "{text}");
    assert_eq!((error.failures().len(), error.untried().len()), (2, 0));
    assert_eq!((error.fault(), error.is_retriable()), (Fault::Network, true));
    let only = Connector::new(hasty()).unwrap().open_any(&nobody.clone().into(), 1).await.unwrap_err();
    assert!(only.to_string().starts_with(&format!("cannot connect to {nobody}: ")), "{only}");
}
