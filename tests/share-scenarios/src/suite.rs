//! Runs every scenario on one kind of cluster.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tidegate_test_suite::{Part, Timing};

use crate::play::Play;
use crate::scenario::{ALL, Scenario};
use crate::stands::{Stands, Taken};

/// Plays all scenarios on what `stands` hands out, and stops the clusters before it returns.
pub fn run(stands: impl Stands) -> ExitCode {
    let timing = Timing {
        side_by_side: stands.side_by_side(),
        playing: Duration::from_secs(180),
        taking: Duration::from_secs(900),
    };
    let (side, stands) = (stands.side(), Arc::new(stands));
    let mine = ALL.iter().filter(|scenario| scenario.only.is_none_or(|only| only == side));
    let parts = mine.map(|scenario| Piece { scenario: *scenario, stands: Arc::clone(&stands) }).collect();
    tidegate_test_suite::run(timing, stands, parts)
}

/// A scenario and where its cluster comes from.
struct Piece<S> {
    scenario: Scenario,
    stands: Arc<S>,
}

impl<S: Stands> Part for Piece<S> {
    type Stage = Taken;

    fn name(&self) -> &'static str {
        self.scenario.name
    }

    async fn take(&self) -> Taken {
        self.stands.take(self.scenario.stand).await
    }

    async fn play(&self, stage: Taken) {
        (self.scenario.play)(Play::new(stage, self.scenario.name)).await;
    }
}
