mod calls;
mod peer;
mod sasl;
mod servers;
mod tls;

use std::time::Duration;

use kafka_wire::MetadataRequest;
use peer::{Broker, Peer};

use super::*;

/// Long enough that it is never the reason.
const LONG: Duration = Duration::from_secs(60);
/// For waits that are meant to end by it.
const SHORT: Duration = Duration::from_millis(150);

fn options() -> ClientOptions {
    let deadlines = Deadlines { open: LONG, resolve: LONG, connect: LONG, greeting: LONG, sasl: LONG };
    ClientOptions { client_id: "tester".into(), deadlines, ..ClientOptions::default() }
}

async fn open(broker: &Broker, options: ClientOptions) -> Result<Connection, OpenError> {
    Connector::new(options).unwrap().open(&broker.address).await
}

/// The sentence of the error, which names the address.
async fn refused(broker: &Broker, options: ClientOptions) -> (String, OpenProblem) {
    let error = open(broker, options).await.expect_err("no connection");
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot connect to {}: ", broker.address)), "{text}");
    (text, error.problem().clone())
}

async fn ask(connection: &mut Connection) -> Result<Answer<kafka_wire::MetadataResponse>, CallError> {
    connection.call(&MetadataRequest::default(), LONG).await
}

/// Nothing is said any more, until the client goes.
async fn be_silent(mut peer: Peer) {
    while peer.hear().await.is_some() {}
}
