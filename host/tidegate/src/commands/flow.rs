//! `tidegate flows`, `flow pause`, `flow resume`, `flow drain` and `tap`: the flows of a running host.

pub(crate) mod list;
pub(crate) mod tap;

use anyhow::anyhow;
use serde_json::Value;

use super::block_on;
use super::live::{tell, text};
use crate::admin_client::{AdminClient, segment};
use crate::cli::{AdminArgs, FlowCommand};
use crate::exit::Failure;
use crate::output::Output;

pub(crate) fn run(command: &FlowCommand, output: &Output) -> Result<(), Failure> {
    match command {
        FlowCommand::Pause { name, admin } => {
            let body = change(name, "pause", admin)?;
            tell(&body, output, || {
                if body["changed"] == true {
                    format!("{name}: paused; what workers hold is finished, the rest goes back to the broker")
                } else {
                    format!("{name}: paused already")
                }
            })
        }
        FlowCommand::Resume { name, admin } => {
            let body = change(name, "resume", admin)?;
            let told = if body["changed"] == true { "it goes on" } else { "it was not paused" };
            tell(&body, output, || format!("{name}: {told}"))
        }
        FlowCommand::Drain { name, admin } => {
            let body = change(name, "drain", admin)?;
            let left = body["in-flight"].as_u64().unwrap_or(0);
            if text(&body["state"]) == "draining" {
                return Err(Failure::Runtime(anyhow!(
                    "`{name}` is still draining, with {left} deliveries; `tidegate flows` shows when it is over"
                )));
            }
            tell(&body, output, || format!("{name}: {}", drained(&body, left)))
        }
    }
}

fn drained(body: &Value, left: u64) -> String {
    match (text(&body["state"]), body["changed"] == true) {
        ("failed", _) => "it has failed, and is over".to_owned(),
        (_, false) => "it is over already".to_owned(),
        (_, true) if left > 0 => format!(
            "stopped; {left} deliveries were not finished in time, and come again when their leases end"
        ),
        (_, true) => "drained; the host goes on without it until it starts again".to_owned(),
    }
}

fn change(flow: &str, action: &str, admin: &AdminArgs) -> Result<Value, Failure> {
    let path = format!("/api/flows/{}/{action}", segment(flow));
    block_on(async { AdminClient::new(&admin.address).post(&path).await })?.into_body()
}
