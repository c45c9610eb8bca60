//! A flow's end of one sink: what it owes, and what came back.

use std::collections::VecDeque;

use tidegate_connector::{Notice, Outbox, Reports, Sink, SinkError, inbox_of};
use tidegate_model::Emission;
use tokio::task::JoinHandle;

/// One running sink.
#[derive(Debug)]
pub(super) struct SinkPort {
    outbox: Outbox,
    task: Option<JoinHandle<Result<(), SinkError>>>,
    unreported: usize,
    /// What the sink is still to be told, when it wants to know: a few for each delivery that the book holds.
    notices: Option<VecDeque<Notice>>,
}

/// What a sink says.
#[derive(Debug)]
pub(super) enum SinkNews {
    Reports(Reports),
    /// It ended, which it should only do after the flow has closed its inbox.
    Ended(Result<(), SinkError>),
}

/// Notices in one batch.
const NOTICES_PER_BATCH: usize = 256;

impl SinkPort {
    pub(super) fn start(sink: Box<dyn Sink>) -> Self {
        let notices = sink.wants_notices().then(VecDeque::new);
        let (outbox, inbox) = inbox_of(&*sink);
        let task = tokio::spawn(sink.run(inbox));
        Self { outbox, task: Some(task), unreported: 0, notices }
    }

    /// Emissions that the sink may be given now.
    pub(super) fn room(&self) -> usize {
        self.outbox.limit().saturating_sub(self.unreported)
    }

    /// The most that may be with the sink now, unreported.
    pub(super) fn limit(&self) -> usize {
        self.outbox.limit()
    }

    /// The most that may ever be with it.
    pub(super) const fn credits(&self) -> usize {
        self.outbox.credits()
    }

    pub(super) fn send(&mut self, batch: Vec<Emission>) {
        let count = batch.len();
        // There are as many places as credits, so this only fails when the sink has ended, which it reports.
        if self.outbox.emit(batch) {
            self.unreported += count;
        }
    }

    /// Remembers something to tell the sink, when it wants to know.
    pub(super) fn note(&mut self, notice: impl FnOnce() -> Notice) {
        if let Some(notices) = &mut self.notices {
            notices.push_back(notice());
        }
    }

    /// Tells the sink what it is to know. False when it is so far behind that something is left.
    pub(super) fn notify(&mut self) -> bool {
        let Some(notices) = &mut self.notices else { return true };
        while !notices.is_empty() {
            let batch = notices.drain(..notices.len().min(NOTICES_PER_BATCH)).collect();
            if let Err(batch) = self.outbox.notify(batch) {
                batch.into_iter().rev().for_each(|notice| notices.push_front(notice));
                return false;
            }
        }
        true
    }

    /// What the sink says next. Waits for ever once it has ended.
    pub(super) async fn next(&mut self) -> SinkNews {
        if let Some(reports) = self.outbox.reports().await {
            self.unreported = self.unreported.saturating_sub(reports.ended.len());
            return SinkNews::Reports(reports);
        }
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let ended = task.await.unwrap_or_else(|panic| {
            Err(SinkError { sink: "".into(), detail: format!("it panicked: {panic}").into() })
        });
        self.task = None;
        self.outbox.end_inbox();
        SinkNews::Ended(ended)
    }

    pub(super) fn try_next(&mut self) -> Option<Reports> {
        let reports = self.outbox.try_reports()?;
        self.unreported = self.unreported.saturating_sub(reports.ended.len());
        Some(reports)
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.task.is_none()
    }

    /// Ends the inbox and waits until the sink has finished what it holds. Bounded by the flow's drain deadline,
    /// past which the flow's task is aborted and this port dropped.
    pub(super) async fn close(&mut self) {
        self.outbox.end_inbox();
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
