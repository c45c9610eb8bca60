//! The sink that is several: each emission goes to all of them, and is accepted when all have accepted it.

mod tally;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::select_all;
use tidegate_connector::{
    Inbox, News, Notice, Outbox, Reporter, Reports, Sink, SinkError, SinkMonitor, inbox_of,
};
use tidegate_model::{Emission, Report};
use tokio::task::JoinHandle;

use self::tally::Tally;

/// Gives each emission to several sinks.
///
/// It is accepted when all have accepted it. When all have reported and some did not: rejected if one rejects it, else
/// deferred by the longest delay if one defers it, else released. The largest cost counts. So whoever took an emission that
/// another did not take gets it again when the message comes again.
pub struct FanOut {
    name: Arc<str>,
    sinks: Vec<(Arc<str>, Box<dyn Sink>)>,
}

/// The credits of a fan-out without sinks, which accepts everything at once.
const CREDITS_ALONE: usize = 1024;

/// Batches of notices that wait for a sink that is behind with reading. With more of them nothing is taken from the flow
/// until it reads; the flow waits in the same way.
const NOTICES_MAX: usize = 64;
/// When a sink that was behind with reading is looked at again: nothing tells when it reads.
const NOTICES_RETRY: Duration = Duration::from_millis(20);

impl FanOut {
    /// The sink `name` over `sinks`, each under its own name.
    #[must_use]
    pub fn new(name: Arc<str>, sinks: Vec<(Arc<str>, Box<dyn Sink>)>) -> Self {
        Self { name, sinks }
    }
}

#[async_trait]
impl Sink for FanOut {
    fn credits(&self) -> usize {
        self.sinks.iter().map(|(_, sink)| sink.credits().max(1)).min().unwrap_or(CREDITS_ALONE)
    }

    fn limit_at_start(&self) -> usize {
        self.sinks.iter().map(|(_, sink)| sink.limit_at_start()).min().unwrap_or(CREDITS_ALONE)
    }

    fn hands_out_receipts(&self) -> bool {
        self.sinks.iter().any(|(_, sink)| sink.hands_out_receipts())
    }

    fn wants_notices(&self) -> bool {
        self.sinks.iter().any(|(_, sink)| sink.wants_notices())
    }

    fn monitors(&self) -> Vec<Arc<dyn SinkMonitor>> {
        self.sinks.iter().flat_map(|(_, sink)| sink.monitors()).collect()
    }

    async fn run(self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        let names = self.sinks.iter().map(|(name, _)| Arc::clone(name)).collect();
        let mut room = Room {
            name: self.name,
            tally: Tally::new(names),
            branches: self.sinks.into_iter().map(|(name, sink)| Branch::start(name, sink)).collect(),
            reporter: inbox.reporter(),
        };
        let result = room.run(&mut inbox).await;
        // Whatever still runs then has nobody to work for.
        for branch in &mut room.branches {
            branch.stop().await;
        }
        result
    }
}

impl fmt::Debug for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.sinks.iter().map(|(name, _)| name).collect();
        f.debug_struct("FanOut").field("name", &self.name).field("sinks", &names).finish()
    }
}

struct Room {
    name: Arc<str>,
    tally: Tally,
    branches: Vec<Branch>,
    reporter: Reporter,
}

/// One of the sinks, running.
struct Branch {
    name: Arc<str>,
    outbox: Outbox,
    task: Option<JoinHandle<Result<(), SinkError>>>,
    /// Whether its inbox has ended, so that it may end, too.
    is_closed: bool,
    unreported: usize,
    /// What it has no room for now; the credits of the whole bound it.
    waiting: VecDeque<Emission>,
    /// What it is still to be told, when it wants to know.
    notices: Option<VecDeque<Vec<Notice>>>,
}

enum Event {
    News(Option<News>),
    Reports(usize, Reports),
    Ended(usize, Result<(), SinkError>),
    NoticesDue,
}

impl Room {
    /// Until the inbox has ended and all sinks with it, or one of them ends before.
    async fn run(&mut self, inbox: &mut Inbox) -> Result<(), SinkError> {
        let mut open = true;
        let mut running = self.branches.len();
        loop {
            self.set_limit();
            for branch in &mut self.branches {
                branch.hand_over(open);
            }
            if !open && running == 0 {
                return Ok(());
            }
            match self.next(inbox, open).await {
                Event::News(None) => open = false,
                Event::News(Some(News::Emissions(emissions))) => self.take(emissions).await,
                Event::News(Some(News::Notices(notices))) => {
                    self.branches.iter_mut().for_each(|branch| branch.note(&notices));
                }
                Event::Reports(of, reports) => self.report(of, reports).await,
                Event::Ended(of, Ok(())) if self.branches[of].is_closed => running -= 1,
                Event::Ended(of, ended) => return Err(self.given_up(of, ended)),
                Event::NoticesDue => {}
            }
        }
    }

    async fn next(&mut self, inbox: &mut Inbox, open: bool) -> Event {
        let backlog = self.branches.iter().map(|branch| branch.notices.as_ref().map_or(0, VecDeque::len));
        let backlog = backlog.max().unwrap_or(0);
        let running = self.branches.iter_mut().enumerate().filter(|(_, branch)| branch.task.is_some());
        let mut branches: Vec<_> = running.map(|(of, branch)| Box::pin(branch.next(of))).collect();
        let reports = async {
            // `select_all` wants at least one.
            if branches.is_empty() {
                return std::future::pending().await;
            }
            select_all(branches.drain(..)).await.0
        };
        tokio::select! {
            news = inbox.news(), if open && backlog < NOTICES_MAX => Event::News(news),
            event = reports => event,
            () = tokio::time::sleep(NOTICES_RETRY), if backlog > 0 => Event::NoticesDue,
        }
    }

    async fn take(&mut self, emissions: Vec<Emission>) {
        let ended: Vec<Report> =
            emissions.iter().filter_map(|emission| self.tally.handle_emission(emission.id)).collect();
        for branch in &mut self.branches {
            branch.waiting.extend(emissions.iter().cloned());
        }
        if !ended.is_empty() {
            self.reporter.send(Reports { ended, renewals: Vec::new() }).await;
        }
    }

    async fn report(&mut self, of: usize, reports: Reports) {
        let Reports { ended, renewals } = reports;
        self.branches[of].unreported = self.branches[of].unreported.saturating_sub(ended.len());
        let ended: Vec<Report> =
            ended.into_iter().filter_map(|report| self.tally.handle_report(of, report)).collect();
        if !ended.is_empty() || !renewals.is_empty() {
            self.reporter.send(Reports { ended, renewals }).await;
        }
    }

    /// The least of the sinks' limits is that of the whole.
    fn set_limit(&self) {
        let running = self.branches.iter().filter(|branch| branch.task.is_some());
        if let Some(limit) = running.map(|branch| branch.outbox.limit()).min()
            && limit != self.reporter.limit()
        {
            self.reporter.set_limit(limit);
        }
    }

    fn given_up(&self, of: usize, ended: Result<(), SinkError>) -> SinkError {
        let branch = &self.branches[of].name;
        let detail = match ended {
            Ok(()) => format!("its sink `{branch}` ended"),
            Err(SinkError { detail, .. }) => format!("its sink `{branch}` cannot go on: {detail}"),
        };
        SinkError { sink: (*self.name).into(), detail: detail.into() }
    }
}

impl Branch {
    fn start(name: Arc<str>, sink: Box<dyn Sink>) -> Self {
        let notices = sink.wants_notices().then(VecDeque::new);
        let (outbox, inbox) = inbox_of(&*sink);
        let task = tokio::spawn(sink.run(inbox));
        Self {
            name,
            outbox,
            task: Some(task),
            is_closed: false,
            unreported: 0,
            waiting: VecDeque::new(),
            notices,
        }
    }

    fn note(&mut self, notices: &[Notice]) {
        if let Some(waiting) = &mut self.notices {
            waiting.push_back(notices.to_vec());
        }
    }

    /// Gives the sink what it has room for, and ends its inbox when nothing more comes.
    fn hand_over(&mut self, open: bool) {
        let room = self.outbox.limit().saturating_sub(self.unreported).min(self.waiting.len());
        if room > 0 {
            // There are as many places as credits: it only fails when the sink has ended, which is told.
            self.outbox.emit(self.waiting.drain(..room).collect());
            self.unreported += room;
        }
        while let Some(batch) = self.notices.as_mut().and_then(VecDeque::pop_front) {
            if let Err(batch) = self.outbox.notify(batch) {
                self.notices.get_or_insert_default().push_front(batch);
                break;
            }
        }
        let is_told = self.notices.as_ref().is_none_or(VecDeque::is_empty);
        if !open && is_told && self.waiting.is_empty() {
            self.outbox.end_inbox();
            self.is_closed = true;
        }
    }

    /// What the sink says next.
    async fn next(&mut self, of: usize) -> Event {
        if let Some(reports) = self.outbox.reports().await {
            return Event::Reports(of, reports);
        }
        let Some(task) = &mut self.task else { return std::future::pending().await };
        let ended = task.await.unwrap_or_else(|panic| {
            Err(SinkError { sink: (*self.name).into(), detail: format!("it panicked: {panic}").into() })
        });
        self.task = None;
        Event::Ended(of, ended)
    }

    /// Ends the sink's task and joins it.
    async fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
