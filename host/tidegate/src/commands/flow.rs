//! `tidegate flows`, `flow pause`, `flow resume`, `flow drain` and `tap`: the flows of a running host.

mod drain;
pub(crate) mod list;
pub(crate) mod tap;

use serde_json::Value;

use super::block_on;
use super::live::tell;
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
        FlowCommand::Drain { name, admin } => drain::run(name, admin, output),
    }
}

fn change(flow: &str, action: &str, admin: &AdminArgs) -> Result<Value, Failure> {
    let path = format!("/api/flows/{}/{action}", segment(flow));
    block_on(async { AdminClient::new(&admin.address).post(&path).await })?.into_body()
}
