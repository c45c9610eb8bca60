//! A flow's end of one sink: what it owes, and what came back.

use tidegate_connector::{Sink, SinkError, inbox};
use tidegate_model::{Emission, Report};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// One running sink.
#[derive(Debug)]
pub(super) struct SinkPort {
    emissions: Option<mpsc::Sender<Vec<Emission>>>,
    reports: mpsc::Receiver<Vec<Report>>,
    task: Option<JoinHandle<Result<(), SinkError>>>,
    credits: usize,
    unreported: usize,
}

/// What a sink says.
#[derive(Debug)]
pub(super) enum SinkNews {
    Reports(Vec<Report>),
    /// It ended, which it should only do after the flow has closed its inbox.
    Ended(Result<(), SinkError>),
}

impl SinkPort {
    pub(super) fn start(sink: Box<dyn Sink>) -> Self {
        let credits = sink.credits().max(1);
        let (emissions, inbox, reports) = inbox(credits);
        let task = tokio::spawn(sink.run(inbox));
        Self { emissions: Some(emissions), reports, task: Some(task), credits, unreported: 0 }
    }

    /// Emissions that the sink may be given now.
    pub(super) const fn room(&self) -> usize {
        if self.emissions.is_some() { self.credits.saturating_sub(self.unreported) } else { 0 }
    }

    pub(super) fn send(&mut self, batch: Vec<Emission>) {
        let Some(emissions) = &self.emissions else { return };
        let count = batch.len();
        // There are as many places as credits, so a send only fails when the sink has ended, which it reports.
        if emissions.try_send(batch).is_ok() {
            self.unreported += count;
        }
    }

    /// What the sink says next. Waits for ever once it has ended.
    pub(super) async fn next(&mut self) -> SinkNews {
        if let Some(reports) = self.reports.recv().await {
            self.unreported = self.unreported.saturating_sub(reports.len());
            return SinkNews::Reports(reports);
        }
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let ended = task.await.unwrap_or_else(|panic| {
            Err(SinkError { sink: "".into(), detail: format!("it panicked: {panic}").into() })
        });
        self.task = None;
        self.emissions = None;
        SinkNews::Ended(ended)
    }

    pub(super) fn try_next(&mut self) -> Option<Vec<Report>> {
        let reports = self.reports.try_recv().ok()?;
        self.unreported = self.unreported.saturating_sub(reports.len());
        Some(reports)
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.task.is_none()
    }

    /// Ends the inbox and waits until the sink has finished what it holds. Bounded by the flow's drain deadline,
    /// past which the flow's task is aborted and this port dropped.
    pub(super) async fn close(&mut self) {
        self.emissions = None;
        while !self.has_ended() {
            self.next().await;
        }
    }
}

impl Drop for SinkPort {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
