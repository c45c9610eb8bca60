//! Hosts and their workers over HTTP, as users see them: two hosts that settle each other's receipts, one that only
//! settles, rights, rubbish, the commands that settle, and costs that reach a policy.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_calls;
mod bad_input;
mod breakage;
mod commands;
mod cost;
mod drain;
mod fleet;
mod intake;
mod service;
mod stream;

use service::Service;
use tidegate_devbroker::Broker;
use tidegate_process_tests::{
    Configuration, Consumed, Ended, GROUP, Home, Program, TOPIC, Tenants, start_broker,
};

/// A key that a fleet shares.
const KEY: &str = "0011223344556677889900112233445566778899001122334455667788990011";

/// A host of a fleet with workers.
fn home(endpoint: &str, more_sink: &str, more_flow: &str) -> Home {
    let home = Home::new();
    home.write("fleet.key", KEY);
    let configuration = Configuration::new("drain-timeout = \"10s\"\nreceipt-key-file = \"fleet.key\"")
        .source(
            "tenants",
            Consumed { endpoint, topic: TOPIC, group: GROUP },
            "rocketmq.source.await-duration = \"5s\"\nrocketmq.source.invisible-duration = \"30s\"",
        )
        .workers("workers", "127.0.0.1:0", more_sink)
        .flow("tenants", "tenants", "workers", more_flow);
    home.put(&configuration);
    home
}

/// Starts it; gives its service for workers.
async fn start(home: &Home) -> (Program, Service) {
    let program = Program::start(home.path(), &["run"]);
    let service = Service::of(&program).await;
    if std::fs::read_to_string(home.file("tidegate.toml")).expect("the configuration").contains("[flows.") {
        // The service is there a moment before its flows.
        program.wait_for_log("flow running").await;
    }
    (program, service)
}

/// A host with workers, between its broker and somebody who sends.
struct Stage {
    broker: Broker,
    tenants: Tenants,
    home: Home,
    host: Program,
    service: Service,
}

impl Stage {
    async fn set() -> Self {
        Self::set_in(|endpoint| home(endpoint, "", "")).await
    }

    /// With what a broker at an endpoint is given as the host's home.
    async fn set_in(home: impl FnOnce(&str) -> Home) -> Self {
        let broker = start_broker().await;
        let tenants = Tenants::of(&broker).await;
        let home = home(&broker.address().to_string());
        let (host, service) = start(&home).await;
        Self { broker, tenants, home, host, service }
    }

    /// Everything ends well; with what the host said.
    async fn end(self) -> Ended {
        let ended = self.host.terminate().await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        self.tenants.close().await;
        self.broker.stop().await;
        ended
    }
}
