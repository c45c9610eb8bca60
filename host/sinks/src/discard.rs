//! The sink that accepts and forgets: for measuring, and for flows whose policy does the work.

use async_trait::async_trait;
use tidegate_connector::options::Table;
use tidegate_connector::{Inbox, Sink, SinkError};
use tidegate_model::{Outcome, Report};

/// Its options: none.
pub const DISCARD: Table =
    Table { connector: "discard", summary: "Accepts every delivery and forgets it.", options: &[] };

/// Accepts every emission at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

/// Enough that the sink never waits for the flow's next turn.
const CREDITS: usize = 1024;

#[async_trait]
impl Sink for Discard {
    fn credits(&self) -> usize {
        CREDITS
    }

    async fn run(self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        while let Some(batch) = inbox.next().await {
            let accepted = |id| Report { id, outcome: Outcome::Accepted, cost: None };
            inbox.report(batch.iter().map(|emission| accepted(emission.id)).collect()).await;
        }
        Ok(())
    }
}
