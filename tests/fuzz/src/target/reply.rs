//! Answers of a server to ReceiveMessage, byte by byte, through a real connection into the connector.

mod seeds;
mod server;
mod shape;

use std::io;
use std::time::Duration;

use tidegate_connector::Clock;
use tidegate_model::{BodyState, Capacity, Delivery};
use tidegate_rocketmq::{ClientOptions, Connection, Endpoints, SourceOptions, Start, connect};
use tidegate_telemetry::Telemetry;
use tokio::runtime::{Builder, Runtime};

use self::server::HostileServer;
use super::Target;
use crate::mutate;
use crate::random::Random;

pub(super) const TOPIC: &str = "T";
pub(super) const GROUP: &str = "G";
/// The property that only brokers may see.
const INTERNAL: &str = "INNER_MULTI_DISPATCH";
/// How rarely an answer is changed as bytes.
const RAW_ONCE_IN: usize = 100;
const CAPACITY: Capacity = Capacity { messages: 32, bytes: 64 << 20 };

/// A connector that talks to a server which says whatever it is told to.
pub(super) struct Replies {
    runtime: Runtime,
    server: HostileServer,
    connection: Connection,
}

impl Replies {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (server, connection) = runtime.block_on(async {
            let server = HostileServer::start().await?;
            let endpoints = Endpoints::parse(&server.address().to_string()).map_err(io::Error::other)?;
            let options = SourceOptions {
                await_duration: Duration::from_secs(1),
                start: Start::Within(Duration::from_secs(20)),
                ..SourceOptions::new(ClientOptions::new(endpoints), TOPIC, GROUP)
            };
            let connection = connect(options, Clock::start(), Telemetry::default(), "fuzz".into())
                .await
                .map_err(io::Error::other)?;
            Ok::<_, io::Error>((server, connection))
        })?;
        Ok(Self { runtime, server, connection })
    }
}

impl Target for Replies {
    fn name(&self) -> &'static str {
        "replies"
    }

    fn seeds(&self) -> io::Result<Vec<Vec<u8>>> {
        Ok(seeds::all().iter().map(|answer| server::frame(answer)).collect())
    }

    /// Refusals make the connector hold back, so they are few among what mutation begins from.
    fn likes(&self, seed: &[u8]) -> bool {
        server::parse(seed).len() > 2
    }

    /// Mostly answers that are wrong and readable: after one that is not, the connector holds back for a while.
    fn mutate(&self, random: &mut Random, seed: &[u8], other: &[u8]) -> Vec<u8> {
        if random.once_in(RAW_ONCE_IN) {
            let mut input = seed.to_vec();
            mutate::bytes(random, &mut input, other);
            return input;
        }
        let mut items = server::parse(seed);
        shape::mutate(random, &mut items);
        server::frame(&items)
    }

    /// The connector's own deadline of a receive, after an answer that tears the connection down.
    fn slow(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// Whatever the server says, what comes out are deliveries that can be trusted, or a sentence.
    fn run(&mut self, input: &[u8]) {
        self.server.answer_with(input);
        match self.runtime.block_on(self.connection.source.receive(CAPACITY)) {
            Ok(deliveries) => deliveries.iter().for_each(check),
            Err(error) => assert!(!error.detail.is_empty(), "an error without a sentence"),
        }
        let _ = self.connection.source.status();
    }
}

fn check(delivery: &Delivery) {
    let message = &delivery.message;
    assert_eq!(&*message.topic, TOPIC, "a message of another topic");
    assert!(message.properties.iter().all(|(name, _)| &**name != INTERNAL), "the broker's property shows");
    assert!(delivery.attempt >= 1, "attempt {}", delivery.attempt);
    assert!(delivery.expires_at > delivery.received_at, "a lease that has ended before it began");
    assert!(!delivery.handle.text.is_empty(), "a delivery that cannot be settled");
    if let BodyState::Corrupted { reason } = &message.body_state {
        assert!(!reason.is_empty(), "corrupted without a reason");
    }
}
