use super::*;
use crate::fixtures::{SMALLEST, config, example_lines, smallest_with};
use crate::sections::{FLOW_TABLE, HOST_TABLE};

fn planned(from: &str, to: &str) -> ReloadPlan {
    plan(&config(SMALLEST), &config(&smallest_with(from, to)))
}

#[test]
fn nothing_changes_when_only_the_writing_does() {
    let plan = planned(
        "[flows.orders]",
        "# a comment\n[flows.orders]\nkey = \"lite-topic\"\nqueue-bytes = \"65536KiB\"",
    );
    assert!(plan.is_empty(), "{plan}");
    assert_eq!(plan.to_string(), "nothing changed");
}

#[test]
fn valves_change_live() {
    let plan = planned("[flows.orders]", "[flows.orders]\nmax-delivery-attempt = 3\nexhausted = \"reject\"");
    assert_eq!(
        plan.to_string(),
        "`flows.orders.exhausted`: `accept` -> `reject` (at once)\n\
         `flows.orders.max-delivery-attempt`: 16 -> 3 (at once)"
    );
    assert_eq!(plan.flows().into_iter().collect::<Vec<_>>(), ["orders".into()]);
    assert!(plan.policies().is_empty() && !plan.changes_log_level());
}

#[test]
fn the_log_level_changes_live_and_the_format_does_not() {
    let plan =
        planned("[flows.orders]", "[host]\nlog-level = \"debug\"\nlog-format = \"json\"\n[flows.orders]");
    assert_eq!(
        plan.to_string(),
        "`host.log-level`: `info` -> `debug` (at once)\n`host.log-format`: none -> `json` (needs a restart)"
    );
    assert!(plan.changes_log_level());
}

#[test]
fn sources_and_sinks_need_a_restart() {
    let plan = planned("\"GID-orders\"", "\"GID-new\"\nrocketmq.source.fetch-concurrency = 4");
    assert_eq!(
        plan.to_string(),
        "`sources.orders.rocketmq.source.consumer-group`: `GID-orders` -> `GID-new` (needs a restart)\n\
         `sources.orders.rocketmq.source.fetch-concurrency`: 1 -> 4 (needs a restart)"
    );
}

#[test]
fn peers_need_a_restart_and_show_no_token() {
    let with = |peers: &str| config(&smallest_with("[flows.orders]", &format!("{peers}\n[flows.orders]")));
    let peer = |token: &str| with(&format!("[peers.a]\nendpoint = \"http://a:1\"\ntoken = \"{token}\""));
    assert_eq!(
        plan(&peer("one"), &peer("two")).to_string(),
        "`peers.a.token`: (secret) -> (secret) (needs a restart)"
    );
    assert_eq!(plan(&peer("one"), &with("")).to_string(), "`peers.a`: configured -> none (needs a restart)");
}

#[test]
fn policies_change_live_but_come_and_go_with_a_restart() {
    let with = |policy: &str| config(&smallest_with("[flows.orders]", &format!("{policy}\n[flows.orders]")));
    let before = with("[policies.p]\ncomponent = \"a.wasm\"");
    let after = with("[policies.p]\ncomponent = \"b.wasm\"\nrules = \"b.toml\"\nlimits.deadline = \"2ms\"");
    let change = plan(&before, &after);
    assert_eq!(
        change.to_string(),
        "`policies.p.component`: `a.wasm` -> `b.wasm` (at once)\n\
         `policies.p.limits.deadline`: 5ms -> 2ms (at once)\n\
         `policies.p.rules`: none -> `b.toml` (at once)"
    );
    assert_eq!(change.policies().into_iter().collect::<Vec<_>>(), ["p".into()]);
    assert_eq!(
        plan(&config(SMALLEST), &before).to_string(),
        "`policies.p`: none -> configured (needs a restart)"
    );
    assert_eq!(
        plan(&before, &config(SMALLEST)).to_string(),
        "`policies.p`: configured -> none (needs a restart)"
    );
}

#[test]
fn secrets_are_compared_and_not_shown() {
    let with = |secret: &str| {
        let keys = format!(
            "rocketmq.client.access-key = \"me\"\nrocketmq.client.secret-key = \"{secret}\"\n[sinks.out]"
        );
        config(&smallest_with("[sinks.out]", &keys))
    };
    assert_eq!(
        plan(&with("old"), &with("new")).to_string(),
        "`sources.orders.rocketmq.client.secret-key`: (secret) -> (secret) (needs a restart)"
    );
}

#[test]
fn the_example_marks_live_keys_as_they_are() {
    let lines: Vec<_> = example_lines().collect();
    for (live, table) in [(HOST_LIVE, &HOST_TABLE), (FLOW_LIVE, &FLOW_TABLE)] {
        for spec in table.options {
            let start = format!("{} = ", spec.key);
            let pair = lines.windows(2).find(|pair| pair[1].starts_with(&start)).expect("every key is in it");
            assert_eq!(pair[0].ends_with("(live)"), live.contains(&spec.key), "{}", spec.key);
        }
    }
}

#[test]
fn the_reference_says_which_keys_are_live() {
    for (live, table) in [(HOST_LIVE, &HOST_TABLE), (FLOW_LIVE, &FLOW_TABLE)] {
        let said = table.options.iter().filter(|spec| spec.summary.ends_with(" Changes live."));
        assert_eq!(said.map(|spec| spec.key).collect::<Vec<_>>(), live);
    }
}
