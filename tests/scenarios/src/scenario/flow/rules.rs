//! Rules and components that change while messages are held.

use std::time::Duration;

use tidegate_policy::PolicyState;

use super::{LONG_LEASE, PASS, assert_first_deliveries_in_order, deferred, end, unacknowledged};
use crate::stage::{Program, Setup, Stage};

const LITE_TOPICS: usize = 6;
const EACH: usize = 3;
/// One message of all passes.
const TIGHT: &str = r#"
[[rule]]
rate = 0.001
burst = 1
per = "rule"
delay = "1s"
max-delay = "1s"
jitter = 0
"#;
/// A key that there is not.
const MISTAKE: &str = "[[rule]]\nrates = 5\n";

/// A wrong edit and a wrong component change nothing and are named; a right edit lets everything through, in order.
pub(crate) async fn rules_are_edited_while_messages_are_held(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let bodies = super::send_many(&producer, &lite, LITE_TOPICS, 0..EACH).await;
    unacknowledged(&stage, &lite, bodies.len() as u64).await;
    let setup = Setup::new(&stage, &lite).with_lease(LONG_LEASE).with_rules(TIGHT);
    let (program, mut hands) = setup.start().await;
    let first = hands.take().await;
    hands.accept(&first).await;
    deferred(&stage, &program, 1).await;
    let generation = generation(&program);

    setup.write_rules(MISTAKE);
    refused(&stage, &program, "rates").await;
    setup.write_rules(TIGHT);
    stage.until("the old rules are back", || async { program.policy().state == PolicyState::Active }).await;
    setup.write_component(b"half a file");
    refused(&stage, &program, "component").await;
    setup.ship_component();
    stage.until("the component is back", || async { program.policy().state == PolicyState::Active }).await;
    assert_eq!(self::generation(&program), generation, "nothing else came into force");
    let so_far = program.flow().totals.deferred;
    deferred(&stage, &program, so_far + 1).await;
    hands.silence(Duration::from_millis(1)).await;

    setup.write_rules(PASS);
    let rest = bodies.iter().filter(|body| **body != crate::stage::body(&first)).cloned();
    let mut seen = vec![crate::stage::body(&first)];
    seen.extend(hands.accept_until(rest).await);
    assert_first_deliveries_in_order(&seen);
    assert!(self::generation(&program) > generation);
    stage.all_acknowledged(&lite).await;
    end(program).await;
}

/// Waits until the policy's status says why what is on disk does not run.
async fn refused(stage: &Stage, program: &Program, word: &str) {
    stage
        .until(&format!("the policy's status names `{word}`"), || async {
            let status = program.policy();
            status.state == PolicyState::Outdated
                && status.last_error.is_some_and(|error| error.reason.contains(word))
        })
        .await;
}

fn generation(program: &Program) -> u64 {
    program.policy().active.expect("a generation").generation
}
