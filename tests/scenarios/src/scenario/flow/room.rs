//! A flow that has no room.

use std::time::Duration;

use super::{LONG_LEASE, end, unacknowledged};
use crate::stage::{Setup, Stage, body};

/// Messages that hands take at one time.
const IN_HANDS: usize = 64;
const LITE_TOPICS: usize = 100;
/// After 10 s without a receive a broker counts on a client no more.
const FULL_FOR: Duration = Duration::from_secs(13);

/// While workers hold all that fits, the host does not receive, though it stays subscribed: for so long that the broker
/// may give its news of the other lite topics up. They come all the same when there is room.
pub(crate) async fn a_flow_that_was_full_for_long_gets_the_rest(stage: Stage) {
    let lite = stage.lite().await;
    let producer = stage.producer().await;
    let setup = Setup::new(&stage, &lite).with_lease(LONG_LEASE).with_flow("queue-messages = 1\n");
    let (program, mut hands) = setup.start().await;
    let mut bodies = super::send_many(&producer, &lite, LITE_TOPICS, 0..1).await;
    let held = hands.take_some(IN_HANDS).await;
    hands.silence(FULL_FOR).await;
    unacknowledged(&stage, &lite, bodies.len() as u64).await;
    bodies.retain(|known| !held.iter().any(|emission| body(emission) == *known));
    for emission in &held {
        hands.accept(emission).await;
    }
    hands.accept_until(bodies).await;
    stage.all_acknowledged(&lite).await;
    end(program).await;
}
