//! `tidegate policy status`: how the policies of a running host are doing.

use serde_json::Value;
use tidegate_model::Timestamp;

use super::ago::ago;
use super::{GREEN, RED, YELLOW, counts, table, text};
use crate::output::Output;

/// Enough to see which file it is.
const DIGEST_SHOWN: usize = 12;

/// A line for each policy.
pub(super) fn show_all(body: &Value, output: &Output) {
    let policies = body["policies"].as_array().map(Vec::as_slice).unwrap_or_default();
    if policies.is_empty() {
        output.data("the host has no policy in use");
        return;
    }
    let head = ["NAME", "STATE", "MODE", "GENERATION", "DECISIONS", "FAILURES", "WHAT"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for policy in policies {
        let active = &policy["active"];
        let generation = if active.is_object() { active["number"].to_string() } else { "-".to_owned() };
        rows.push(vec![
            text(&policy["name"]).to_owned(),
            text(&policy["state"]).to_owned(),
            text(&policy["mode"]).to_owned(),
            generation,
            sum(&policy["verdicts"]).to_string(),
            sum(&policy["failures"]).to_string(),
            headline(policy),
        ]);
    }
    for line in table::lines(&rows) {
        output.data(&line);
    }
}

/// Everything about one policy.
pub(super) fn show_one(policy: &Value, now: Timestamp, output: &Output) {
    let state = text(&policy["state"]);
    let colour = match state {
        "active" => GREEN,
        "outdated" | "absent" | "paused" => YELLOW,
        _ => RED,
    };
    let state = output.paint(colour, state);
    output.data(&format!("{}: {state}, {}", text(&policy["name"]), text(&policy["mode"])));
    for line in table::lines(&facts(policy, now)) {
        output.data(&line);
    }
}

fn facts(policy: &Value, now: Timestamp) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            rows.push(vec![format!("  {name}"), value]);
        }
    };
    fact("world", text(&policy["world"]).to_owned());
    fact("component", text(&policy["component"]).to_owned());
    fact("rules", text(&policy["rules"]).to_owned());
    fact("on-error", text(&policy["on-error"]).to_owned());
    let active = &policy["active"];
    if active.is_object() {
        fact("generation", generation(policy, active, now));
        fact(
            "policy",
            format!("{} {}: {}", text(&active["name"]), text(&active["version"]), text(&active["summary"])),
        );
        fact("sdk", text(&active["sdk"]).to_owned());
        fact("component sha256", digest(&active["component-sha256"]));
        fact("rules sha256", digest(&active["rules-sha256"]));
    }
    for remark in policy["remarks"].as_array().into_iter().flatten() {
        fact("note", text(remark).to_owned());
    }
    let refused = &policy["refused"];
    if refused.is_object() {
        let (check, cause) = (text(&refused["check"]), text(&refused["cause"]));
        let cause = if cause == check { String::new() } else { format!(" ({cause})") };
        let since = ago(&refused["since-unix-ms"], now);
        fact("refused", format!("{since} by {check}{cause}: {}", text(&refused["reason"])));
    }
    let breaker = &policy["breaker"];
    if breaker.is_object() {
        fact(
            "not asked",
            format!("since {}: {}", ago(&breaker["since-unix-ms"], now), text(&breaker["reason"])),
        );
    }
    let failure = &policy["last-failure"];
    if failure.is_object() {
        let (at, cause) = (ago(&failure["at-unix-ms"], now), text(&failure["cause"]));
        fact("last failure", format!("{at}, {cause}: {}", text(&failure["reason"])));
        for said in failure["said"].as_array().into_iter().flatten() {
            fact("  it said", text(said).to_owned());
        }
        for frame in failure["frames"].as_array().into_iter().flatten() {
            fact("  in", text(frame).to_owned());
        }
    }
    fact("decisions", counts(&policy["verdicts"]));
    fact("failures", counts(&policy["failures"]));
    fact(
        "reloads",
        format!(
            "{} applied, {} refused, {} rolled back",
            policy["reloads-applied"], policy["reloads-refused"], policy["rollbacks"]
        ),
    );
    if policy["poisoned"] != 0 {
        fact("poisoned", format!("{} messages", policy["poisoned"]));
    }
    let kept = &policy["kept"];
    fact(
        "keeps",
        format!("{} buckets, {} counters ({} evicted)", kept["buckets"], kept["counters"], kept["evicted"]),
    );
    rows
}

fn generation(policy: &Value, active: &Value, now: Timestamp) -> String {
    let mut told = format!("{}, since {}", active["number"], ago(&active["since-unix-ms"], now));
    match text(&active["origin"]) {
        "last-good" => told.push_str(", from the copy of what last ran well"),
        "earlier" => told.push_str(", an earlier one after a rollback"),
        _ => {}
    }
    if active["on-probation"] == true {
        told.push_str(", on probation");
    }
    if let Some(previous) = policy["previous-generation"].as_u64() {
        told.push_str(&format!("; a rollback goes back to {previous}"));
    }
    told
}

/// What is most worth knowing.
fn headline(policy: &Value) -> String {
    let (refused, breaker, active) = (&policy["refused"], &policy["breaker"], &policy["active"]);
    if breaker.is_object() {
        text(&breaker["reason"]).to_owned()
    } else if refused.is_object() {
        let reason = text(&refused["reason"]).lines().next().unwrap_or_default();
        format!("{}: {reason}", text(&refused["check"]))
    } else {
        format!("{} {}", text(&active["name"]), text(&active["version"])).trim().to_owned()
    }
}

fn digest(value: &Value) -> String {
    text(value).chars().take(DIGEST_SHOWN).collect()
}

fn sum(counts: &Value) -> u64 {
    counts.as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
}
