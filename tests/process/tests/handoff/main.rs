//! Hosts and their workers over HTTP, as users see them: two hosts that settle each other's receipts, one that only
//! settles, rights, rubbish, the commands that settle, and costs that reach a policy.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_calls;
mod bad_input;
mod breakage;
mod commands;
mod cost;
mod fleet;
mod intake;
mod service;
mod stream;

use service::Service;
use tidegate_process_tests::{GROUP, Home, Program, TOPIC};

/// A key that a fleet shares.
const KEY: &str = "0011223344556677889900112233445566778899001122334455667788990011";

/// A host of a fleet with workers.
fn home(endpoint: &str, more_sink: &str, more_flow: &str) -> Home {
    let home = Home::new();
    home.write("fleet.key", KEY);
    home.write(
        "tidegate.toml",
        format!(
            r#"
[host]
admin-listen = "127.0.0.1:0"
drain-timeout = "10s"
receipt-key-file = "fleet.key"

[sources.tenants]
connector = "rocketmq-grpc"
rocketmq.client.endpoints = "{endpoint}"
rocketmq.source.main-topic = "{TOPIC}"
rocketmq.source.consumer-group = "{GROUP}"
rocketmq.source.await-duration = "5s"
rocketmq.source.invisible-duration = "30s"

[sinks.workers]
connector = "handoff"
listen = "127.0.0.1:0"
{more_sink}

[flows.tenants]
source = "tenants"
sink = "workers"
{more_flow}
"#
        ),
    );
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
