//! Rejected lite messages. The broker's own dead letters would come again in their lite topic for ever, so the host
//! publishes a copy and acknowledges.

use std::collections::BTreeSet;

use tidegate_model::Outcome;

use super::{LONG_LEASE, end, send, unacknowledged};
use crate::stage::{ORIGIN, Setup, Stage, bodies, body};

const RULES: &str = "[[rule]]\nlite-topic = \"closed-*\"\nreject = \"the tenant has left\"\n";

/// What the policy or a worker rejects is in the dead-letter topic, with its properties, and not in the broker's.
pub(crate) async fn rejected_messages_are_published_and_acknowledged(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    send(&producer, &lite, "closed-7", 2, &[0]).await;
    send(&producer, &lite, "open", 3, &[]).await;
    unacknowledged(&stage, &lite, 5).await;
    let (graveyard, graves) = stage.graveyard().await;
    let mut setup = Setup::new(&stage, &lite).with_lease(LONG_LEASE).with_rules(RULES);
    let (program, mut hands) = setup.start_burying(Box::new(graveyard)).await;

    for expected in ["open-0", "open-1", "open-2"] {
        let emission = hands.take().await;
        assert_eq!(body(&emission), expected);
        if expected == "open-1" {
            hands.report(&emission, Outcome::Rejected { reason: "cannot be read".into() }).await;
        } else {
            hands.accept(&emission).await;
        }
    }
    stage.all_acknowledged(&lite).await;

    let visitor = stage.consumer(&graves).await;
    let buried = visitor.take(3).await;
    assert_eq!(
        bodies(&buried).into_iter().collect::<BTreeSet<_>>(),
        ["closed-7-0", "closed-7-1", "open-1"].into()
    );
    for delivery in &buried {
        let message = &delivery.message;
        let body = std::str::from_utf8(&message.body).expect("text");
        assert_eq!(message.property(ORIGIN), Some(if body == "open-1" { "open" } else { "closed-7" }));
        assert_eq!(message.property("hold"), (body == "closed-7-0").then_some("yes"), "of {body}");
    }
    visitor.accept(&buried).await;
    assert_eq!(stage.broker.dead_letters(&lite.group).await, 0, "the broker was not asked to bury anything");
    assert!(hands.take_ready().is_none(), "and nothing came again");
    end(program).await;
}
