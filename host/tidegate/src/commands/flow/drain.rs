//! `tidegate flow drain`: ends a flow, and says meanwhile what it waits for.

use std::time::Duration;

use anyhow::anyhow;
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::block_on;
use crate::admin_client::{AdminClient, segment};
use crate::cli::AdminArgs;
use crate::commands::live::{tell, text};
use crate::exit::Failure;
use crate::output::{Output, talk};

/// When it is said first what a drain waits for: most are over before.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// How often it is looked at then. It is said again when it is something else.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) fn run(name: &str, admin: &AdminArgs, output: &Output) -> Result<(), Failure> {
    let body = block_on(drain(name, admin, output))?;
    if text(&body["state"]) == "draining" {
        let waits = waits_for(&body["in-flight"], &Value::Null).unwrap_or_default();
        return Err(Failure::Runtime(anyhow!(
            "`{name}` is still draining{waits}; it goes on by itself until the host's `drain-timeout`, and `tidegate flows` \
             shows when it is over"
        )));
    }
    tell(&body, output, || format!("{name}: {}", ended(&body)))
}

/// Asks for the end, and looks at the flow until the answer is there.
async fn drain(name: &str, admin: &AdminArgs, output: &Output) -> Result<Value, Failure> {
    let client = AdminClient::new(&admin.address);
    let path = format!("/api/flows/{}/drain", segment(name));
    let draining = client.post(&path);
    tokio::pin!(draining);
    let mut looks = interval_at(Instant::now() + FIRST_LOOK, LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut said = String::new();
    loop {
        tokio::select! {
            answered = &mut draining => return answered?.into_body(),
            _ = looks.tick() => {}
        }
        let flows = tokio::select! {
            answered = &mut draining => return answered?.into_body(),
            flows = client.get("/api/flows") => flows,
        };
        // When that does not work, the answer to the drain tells.
        let Ok(flows) = flows else { continue };
        let flow = flows["flows"].as_array().into_iter().flatten().find(|flow| text(&flow["name"]) == name);
        let Some(flow) = flow.filter(|flow| text(&flow["state"]) == "draining") else { continue };
        let waits = waits_for(&flow["in-flight"], flow);
        let line =
            format!("{name}: draining{}", waits.unwrap_or_else(|| ", takes leave of the broker".to_owned()));
        if line != said && !output.is_json() {
            talk(&line);
            said = line;
        }
    }
}

/// What a drain waits for; none when nothing is held any more.
fn waits_for(in_flight: &Value, flow: &Value) -> Option<String> {
    let held = in_flight.as_u64().filter(|held| *held > 0)?;
    let parts = [("emitted", "with the sink or its workers"), ("settling", "being settled")];
    let parts = parts.into_iter().filter_map(|(name, what)| {
        let count = flow[name].as_u64().filter(|count| *count > 0)?;
        Some(format!("{count} {what}"))
    });
    let parts: Vec<String> = parts.collect();
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    let deliveries = if held == 1 { "delivery" } else { "deliveries" };
    Some(format!(", waits for {held} {deliveries}{parts}"))
}

/// How it ended.
fn ended(body: &Value) -> String {
    let left = body["in-flight"].as_u64().unwrap_or(0);
    match (text(&body["state"]), body["changed"] == true) {
        ("failed", _) => "it has failed, and is over".to_owned(),
        (_, false) => "it is over already".to_owned(),
        (_, true) if left > 0 => format!(
            "stopped; {left} deliveries were not finished in time, and come again when their leases end; {}",
            became(&body["drain"])
        ),
        (_, true) => {
            format!("drained; {}; the host goes on without it until it starts again", became(&body["drain"]))
        }
    }
}

/// What became of what it held.
fn became(drain: &Value) -> String {
    let ends = [
        ("accepted", "accepted"),
        ("released", "given back to the broker"),
        ("deferred", "deferred"),
        ("rejected", "rejected"),
        ("failed", "not settled, to come again when their leases end"),
    ];
    let told = ends.into_iter().filter_map(|(name, what)| {
        let count = drain[name].as_u64().filter(|count| *count > 0)?;
        Some(format!("{count} {what}"))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { "nothing was under way".to_owned() } else { told.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_waited_for_is_told_by_where_it_is() {
        let flow = json!({ "in-flight": 12, "emitted": 8, "settling": 4 });
        assert_eq!(
            waits_for(&flow["in-flight"], &flow).expect("something"),
            ", waits for 12 deliveries: 8 with the sink or its workers, 4 being settled"
        );
        assert_eq!(waits_for(&json!(3), &Value::Null).expect("something"), ", waits for 3 deliveries");
        assert_eq!(waits_for(&json!(0), &flow), None);
    }

    #[test]
    fn the_end_says_what_became_of_everything() {
        let drain =
            json!({ "held": 9, "accepted": 5, "deferred": 1, "released": 3, "rejected": 0, "failed": 0 });
        let mut body = json!({ "state": "stopped", "changed": true, "in-flight": 0, "drain": drain });
        assert_eq!(
            ended(&body),
            "drained; 5 accepted, 3 given back to the broker, 1 deferred; the host goes on without it until it starts again"
        );
        body["in-flight"] = json!(2);
        assert!(
            ended(&body).starts_with("stopped; 2 deliveries were not finished in time"),
            "{}",
            ended(&body)
        );
        body["changed"] = json!(false);
        assert_eq!(ended(&body), "it is over already");
    }
}
