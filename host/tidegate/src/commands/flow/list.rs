//! `tidegate flows`: how the flows of a running host are doing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tidegate_connector::Clock;
use tidegate_model::Timestamp;
use tokio::time::Instant;

use super::block_on;
use crate::admin_client::AdminClient;
use crate::cli::FlowsArgs;
use crate::commands::live::ago::lasting;
use crate::commands::live::{GREEN, RED, YELLOW, look, table, text};
use crate::exit::Failure;
use crate::output::Output;

/// The totals that are shown, and that rates are of.
const COUNTED: [&str; 5] = ["received", "accepted", "deferred", "rejected", DEAD];
/// Stands for all rejected messages that do not come again, wherever they went.
const DEAD: &str = "dead";

pub(crate) fn run(args: &FlowsArgs, output: &Output) -> Result<(), Failure> {
    let mut body = match args.rates {
        None => look("/api/flows", &args.admin)?,
        Some(apart) => with_rates(args, apart)?,
    };
    if output.is_json() {
        output.data(&body.to_string());
        return Ok(());
    }
    let flows = body["flows"].as_array_mut().map(std::mem::take).unwrap_or_default();
    if flows.is_empty() {
        output.data("the host has no flow");
        return Ok(());
    }
    show(&flows, args.rates.is_some(), output);
    Ok(())
}

/// What the API says, with the rates between two looks in each flow.
fn with_rates(args: &FlowsArgs, apart: Duration) -> Result<Value, Failure> {
    let (before, after, seconds) = block_on(async {
        let client = AdminClient::new(&args.admin.address);
        let before = client.get("/api/flows").await?;
        let began = Instant::now();
        tokio::time::sleep(apart).await;
        let after = client.get("/api/flows").await?;
        Ok((before, after, began.elapsed().as_secs_f64()))
    })?;
    Ok(rated(&before, after, seconds))
}

fn rated(before: &Value, mut after: Value, seconds: f64) -> Value {
    let flows = before["flows"].as_array().into_iter().flatten();
    let totals: BTreeMap<&str, &Value> = flows.map(|flow| (text(&flow["name"]), &flow["totals"])).collect();
    for flow in after["flows"].as_array_mut().into_iter().flatten() {
        let rate = |counted: &str| {
            let then = totals.get(text(&flow["name"])).and_then(|totals| total(totals, counted))?;
            let now = total(&flow["totals"], counted)?;
            // Counts of a host that was started anew in between begin at zero.
            let rate = now.saturating_sub(then) as f64 / seconds.max(f64::MIN_POSITIVE);
            Some(json!((rate * 10.0).round() / 10.0))
        };
        let rates: Map<String, Value> =
            COUNTED.iter().map(|counted| ((*counted).to_owned(), rate(counted).into())).collect();
        flow["rates"] = rates.into();
    }
    after
}

/// One of a flow's totals.
fn total(totals: &Value, counted: &str) -> Option<u64> {
    if counted != DEAD {
        return totals[counted].as_u64();
    }
    let dead = &totals["dead-letters"];
    Some(dead["taken"].as_u64()? + dead["broker"].as_u64()? + dead["dropped"].as_u64()?)
}

fn show(flows: &[Value], rates: bool, output: &Output) {
    let now = Clock::start().wall();
    let mut head: Vec<String> =
        ["NAME", "SOURCE", "POLICY", "SINK", "STATE", "JOINED", "WORKERS", "IN FLIGHT", "QUEUED", "EMITTED"]
            .map(str::to_owned)
            .into();
    head.extend(
        COUNTED.map(|counted| format!("{}{}", counted.to_uppercase(), if rates { "/S" } else { "" })),
    );
    let mut rows = vec![head];
    rows.extend(flows.iter().map(|flow| row(flow, rates)));
    let mut lines = table::lines(&rows).into_iter();
    output.data(&lines.next().unwrap_or_default());
    for (flow, line) in flows.iter().zip(lines) {
        let state = text(&flow["state"]);
        let remarks = sink_remarks(flow, now);
        let colour = match state {
            "running" if flow["joined"] == true && remarks.is_empty() => GREEN,
            "running" | "draining" | "stopped" => YELLOW,
            "paused" if flow["paused-by"] != "dead-letters" => YELLOW,
            _ => RED,
        };
        output.data(&output.paint(colour, &line));
        for remark in flow["remarks"].as_array().into_iter().flatten() {
            output.data(&format!("  {}: {}", text(&flow["name"]), text(remark)));
        }
        for remark in remarks {
            output.data(&format!("  {}: {remark}", text(&flow["name"])));
        }
    }
}

/// What is wrong behind a flow.
fn sink_remarks(flow: &Value, now: Timestamp) -> Vec<String> {
    let mut remarks = Vec::new();
    let sinks = flow["sinks"].as_array().into_iter().flatten().map(|sink| ("sink", sink));
    let dead_letter = flow["dead-letter"].as_object().map(|_| ("dead-letter sink", &flow["dead-letter"]));
    for (what, sink) in sinks.chain(dead_letter) {
        let name = text(&sink["name"]);
        if let Some(trouble) = sink["trouble"].as_object() {
            let (length, reason) = (lasting(&trouble["since-unix-ms"], now), text(&trouble["reason"]));
            remarks.push(format!("{what} `{name}` has been in trouble for {length}: {reason}"));
        }
        if sink["workers"] == 0 && flow["state"] == "running" {
            remarks.push(format!("no worker is connected to {what} `{name}`"));
        }
    }
    if let Some(dropped) = flow["totals"]["dead-letters"]["dropped"].as_u64().filter(|count| *count > 0) {
        remarks.push(format!("{dropped} rejected messages were dropped: it has no `dead-letter` sink"));
    }
    remarks
}

/// The workers of all its sinks that have some.
fn workers(flow: &Value) -> String {
    let counts = flow["sinks"].as_array().into_iter().flatten().filter_map(|sink| sink["workers"].as_u64());
    counts.reduce(|all, some| all + some).map_or_else(|| "-".to_owned(), |count| count.to_string())
}

fn row(flow: &Value, rates: bool) -> Vec<String> {
    let or_dash = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let policy = match (&flow["throttle"], &flow["shadow"]) {
        (throttle, Value::String(shadow)) => format!("{} beside {shadow}", or_dash(throttle)),
        (throttle, _) => or_dash(throttle),
    };
    let mut row = vec![
        or_dash(&flow["name"]),
        or_dash(&flow["source"]),
        policy,
        or_dash(&flow["sink"]),
        or_dash(&flow["state"]),
        if flow["joined"] == true { "yes" } else { "no" }.to_owned(),
        workers(flow),
        flow["in-flight"].to_string(),
        flow["queued"].to_string(),
        flow["emitted"].to_string(),
    ];
    row.extend(COUNTED.map(|counted| {
        let count = if rates {
            flow["rates"].get(counted).cloned()
        } else {
            total(&flow["totals"], counted).map(Into::into)
        };
        count.filter(|count| !count.is_null()).map_or_else(|| "-".to_owned(), |count| count.to_string())
    }));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_behind_a_flow_is_told() {
        let sinks = json!([
            { "name": "workers", "workers": 0, "trouble": null },
            { "name": "web", "workers": null, "trouble": { "since-unix-ms": 18_000, "reason": "no answer" } }
        ]);
        let dead_letters = json!({ "taken": 4, "broker": 0, "dropped": 2, "refused": 1, "held-back": 9 });
        let mut flow = json!({
            "name": "tenants", "state": "running", "sinks": sinks, "dead-letter": sinks[1],
            "totals": { "dead-letters": dead_letters },
        });
        flow["dead-letter"]["name"] = json!("graveyard");
        let found = sink_remarks(&flow, Timestamp::from_unix_millis(60_000));
        assert_eq!(
            found,
            [
                "no worker is connected to sink `workers`",
                "sink `web` has been in trouble for 42 s: no answer",
                "dead-letter sink `graveyard` has been in trouble for 42 s: no answer",
                "2 rejected messages were dropped: it has no `dead-letter` sink",
            ]
        );
        assert_eq!((workers(&flow), total(&flow["totals"], DEAD)), ("0".to_owned(), Some(6)));
        let plain =
            json!({ "state": "running", "sinks": [{ "name": "out", "workers": null, "trouble": null }] });
        assert_eq!(
            (sink_remarks(&plain, Timestamp::from_unix_millis(1)), workers(&plain)),
            (vec![], "-".to_owned())
        );
    }

    #[test]
    fn rates_are_of_the_same_flow_and_never_negative() {
        let flows = |received: [u64; 2]| {
            let flow = |name: &str, received| {
                let totals = json!({ "received": received, "accepted": 5, "deferred": 0, "rejected": 0 });
                json!({ "name": name, "totals": totals })
            };
            json!({ "flows": [flow("a", received[0]), flow("b", received[1])] })
        };
        let mut before = flows([100, 900]);
        before["flows"].as_array_mut().expect("flows").reverse();
        let found = rated(&before, flows([350, 10]), 2.0);
        assert_eq!(found["flows"][0]["rates"]["received"], 125.0);
        assert_eq!(found["flows"][0]["rates"]["accepted"], 0.0);
        assert_eq!(found["flows"][1]["rates"]["received"], 0.0, "it has begun anew");
        assert_eq!(found["flows"][0]["rates"]["dead"], Value::Null, "this host does not tell");
        let new = rated(&json!({ "flows": [] }), flows([350, 10]), 2.0);
        assert_eq!(new["flows"][0]["rates"]["received"], Value::Null);
    }
}
