//! Runs every scenario on one kind of cluster.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tidegate_test_suite::{Part, Timing};

use crate::play::Play;
use crate::scenario::{ALL, Scenario};
use crate::stands::{Stands, Taken};

/// Plays all scenarios on what each of `all` hands out, side by side, and stops the clusters before it returns.
pub fn run<S: Stands>(all: Vec<S>) -> ExitCode {
    let timing = Timing {
        side_by_side: all.iter().map(Stands::side_by_side).sum(),
        playing: Duration::from_secs(180),
        taking: Duration::from_secs(1_800),
    };
    let all: Vec<Arc<S>> = all.into_iter().map(Arc::new).collect();
    // Scenario by scenario, so that those that wait for each other begin early everywhere.
    let parts = ALL.iter().flat_map(|scenario| {
        let fitting = all.iter().filter(|stands| scenario.only.is_none_or(|only| only == stands.side()));
        fitting.map(|stands| Piece { scenario: *scenario, stands: Arc::clone(stands) })
    });
    let parts = parts.collect();
    tidegate_test_suite::run(timing, Arc::new(all), parts)
}

/// A scenario and where its cluster comes from.
struct Piece<S> {
    scenario: Scenario,
    stands: Arc<S>,
}

impl<S: Stands> Part for Piece<S> {
    type Stage = Taken;

    fn name(&self) -> String {
        match self.stands.release() {
            Some(release) => format!("{} on {release}", self.scenario.name),
            None => self.scenario.name.to_owned(),
        }
    }

    async fn take(&self) -> Taken {
        self.stands.take(self.scenario.stand).await
    }

    async fn play(&self, stage: Taken) {
        (self.scenario.play)(Play::new(stage, self.scenario.name)).await;
    }
}
