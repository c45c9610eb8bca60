//! A sink whose work a scenario does by hand: as slowly as it likes, and in any order.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_connector::{Inbox, Sink, SinkError};
use tidegate_model::{Emission, Outcome, Report};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::PATIENCE;

/// Emissions that scenarios hold at one time, at most.
const CREDITS: usize = 64;

/// The host's end.
struct Bench {
    taken: mpsc::Sender<Emission>,
    reports: mpsc::Receiver<Report>,
}

/// The scenario's end.
pub(crate) struct Hands {
    taken: mpsc::Receiver<Emission>,
    reports: mpsc::Sender<Report>,
}

/// Both ends.
pub(crate) fn by_hand() -> (Box<dyn Sink>, Hands) {
    let (taken_sender, taken) = mpsc::channel(CREDITS);
    let (reports, report_receiver) = mpsc::channel(CREDITS);
    (Box::new(Bench { taken: taken_sender, reports: report_receiver }), Hands { taken, reports })
}

#[async_trait]
impl Sink for Bench {
    fn credits(&self) -> usize {
        CREDITS
    }

    async fn run(mut self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        let gone = || SinkError { sink: "hands".into(), detail: "the scenario let go".into() };
        loop {
            tokio::select! {
                batch = inbox.next() => {
                    let Some(batch) = batch else { return Ok(()) };
                    for emission in batch {
                        self.taken.send(emission).await.map_err(|_| gone())?;
                    }
                }
                report = self.reports.recv() => inbox.report(vec![report.ok_or_else(gone)?]).await,
            }
        }
    }
}

impl Hands {
    /// Waits for the next one.
    pub(crate) async fn take(&mut self) -> Emission {
        self.take_within(PATIENCE).await
    }

    /// The same with another patience.
    pub(crate) async fn take_within(&mut self, patience: Duration) -> Emission {
        match timeout(patience, self.taken.recv()).await {
            Ok(Some(emission)) => emission,
            Ok(None) => panic!("the flow has ended"),
            Err(_) => panic!("nothing came within {patience:?}"),
        }
    }

    /// Waits for so many, which are held.
    pub(crate) async fn take_some(&mut self, count: usize) -> Vec<Emission> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            taken.push(self.take().await);
        }
        taken
    }

    /// Asserts that nothing comes for so long.
    pub(crate) async fn silence(&mut self, at_least: Duration) {
        if let Ok(Some(emission)) = timeout(at_least, self.taken.recv()).await {
            panic!("unexpected: {}", body(&emission));
        }
    }

    /// What has come by now, or none.
    pub(crate) fn take_ready(&mut self) -> Option<Emission> {
        self.taken.try_recv().ok()
    }

    /// Takes and accepts everything until each of `bodies` has come at least once. Gives back all bodies, in the order
    /// in which they came.
    pub(crate) async fn accept_until(&mut self, bodies: impl IntoIterator<Item = String>) -> Vec<String> {
        self.accept_until_within(PATIENCE, bodies).await
    }

    /// The same with another patience.
    pub(crate) async fn accept_until_within(
        &mut self,
        patience: Duration,
        bodies: impl IntoIterator<Item = String>,
    ) -> Vec<String> {
        let deadline = Instant::now() + patience;
        let mut missing: BTreeSet<String> = bodies.into_iter().collect();
        let mut seen = Vec::new();
        while !missing.is_empty() {
            let taken = timeout_at(deadline, self.taken.recv()).await;
            let Ok(Some(emission)) = taken else {
                panic!("within {patience:?} these did not come: {missing:?}; these did: {seen:?}")
            };
            let body = body(&emission);
            missing.remove(&body);
            seen.push(body);
            self.accept(&emission).await;
        }
        seen
    }

    /// Takes and accepts whatever comes, for ever: for `select!`.
    pub(crate) async fn accept_all(&mut self) {
        while let Some(emission) = self.taken.recv().await {
            self.accept(&emission).await;
        }
    }

    /// Says that one is done.
    pub(crate) async fn accept(&self, emission: &Emission) {
        self.report(emission, Outcome::Accepted).await;
    }

    /// Says how one ended.
    pub(crate) async fn report(&self, emission: &Emission, outcome: Outcome) {
        let report = Report { id: emission.id, outcome, cost: None };
        self.reports.send(report).await.expect("the host's sink listens");
    }
}

/// A body as text.
pub(crate) fn body(emission: &Emission) -> String {
    String::from_utf8(emission.message.body.to_vec()).expect("scenarios send text")
}

/// Bodies as text, in order.
pub(crate) fn bodies_of(emissions: &[Emission]) -> Vec<String> {
    emissions.iter().map(body).collect()
}
