//! Runs every scenario on one kind of broker.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tidegate_test_suite::{Part, Timing};

use crate::scenario::{ALL, Scenario};
use crate::stage::Stage;
use crate::stands::{Stands, Taken};

const TIMING: Timing =
    Timing { side_by_side: 24, playing: Duration::from_secs(240), taking: Duration::from_secs(900) };

/// Plays all scenarios on what `stands` hands out, and stops the brokers before it returns.
pub fn run(stands: impl Stands) -> ExitCode {
    let stands = Arc::new(stands);
    let parts =
        ALL.iter().map(|scenario| Piece { scenario: *scenario, stands: Arc::clone(&stands) }).collect();
    tidegate_test_suite::run(TIMING, stands, parts)
}

/// A scenario and where its broker comes from.
struct Piece<S> {
    scenario: Scenario,
    stands: Arc<S>,
}

impl<S: Stands> Part for Piece<S> {
    type Stage = Taken;

    fn name(&self) -> String {
        self.scenario.name.to_owned()
    }

    async fn take(&self) -> Taken {
        self.stands.take(self.scenario.stand).await
    }

    async fn play(&self, broker: Taken) {
        (self.scenario.play)(Stage::new(broker, self.scenario.name)).await;
    }
}
