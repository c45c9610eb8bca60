//! The emitting side: where accepted deliveries go.
//!
//! A sink is one task. It takes [`Emission`]s from its [`Inbox`] and reports each one's outcome through it, in
//! any order and as late as the work takes. The host never has more unreported emissions with a sink than its
//! [`Sink::credits`], so a sink that stops reporting stops the flow, and the flow stops receiving.
//!
//! A sink whose room changes, such as one with workers that come and go, lowers and raises the number with
//! [`Inbox::set_limit`]. One that owes somebody an answer about each outcome asks for [`Notice`]s.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tidegate_model::{DeliveryId, Emission, Report, SettleError};
use tokio::sync::mpsc;

use crate::monitor::SinkMonitor;

/// Where accepted deliveries go.
#[async_trait]
pub trait Sink: Send + 'static {
    /// The most emissions that may ever be with the sink and not reported yet. What a sink cannot work on soon is
    /// better left in the lease book, where keys take turns and leases are watched.
    fn credits(&self) -> usize;

    /// What it has room for before it has said anything with [`Inbox::set_limit`].
    fn limit_at_start(&self) -> usize {
        self.credits()
    }

    /// Whether it gives receipts to others who work for long, and who may settle with them past the host meanwhile.
    fn hands_out_receipts(&self) -> bool {
        false
    }

    /// Whether the flow shall tell it what became of its reports and of leases that end.
    fn wants_notices(&self) -> bool {
        false
    }

    /// What tells how it is doing while it runs, under the name that the configuration has for it. A sink that is several
    /// has several, and one that has nothing to say has none.
    fn monitors(&self) -> Vec<Arc<dyn SinkMonitor>> {
        Vec::new()
    }

    /// Takes emissions until the inbox ends, then finishes what it holds and returns.
    ///
    /// # Errors
    /// When the sink can do nothing more, such as a closed standard output. The flow stops receiving, what was not
    /// reported goes back to the broker, and the host says why.
    async fn run(self: Box<Self>, inbox: Inbox) -> Result<(), SinkError>;
}

/// Why a sink gave up.
#[derive(Debug, thiserror::Error)]
#[error("sink `{sink}` cannot go on: {detail}")]
pub struct SinkError {
    /// The sink's name in the configuration.
    pub sink: Box<str>,
    /// In one sentence.
    pub detail: Box<str>,
}

/// What a sink is told.
#[derive(Debug)]
pub enum News {
    /// Emissions, in order.
    Emissions(Vec<Emission>),
    /// What became of earlier ones. Only for a sink that wants to know.
    Notices(Vec<Notice>),
}

/// What became of one emission.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Notice {
    /// The broker answered to the settlement that its report led to.
    Settled {
        /// Whose.
        id: DeliveryId,
        /// What it said.
        result: Result<(), SettleError>,
    },
    /// Its report had no effect: the message comes again, or has come again already.
    Void {
        /// Whose.
        id: DeliveryId,
        /// Why.
        cause: VoidCause,
    },
    /// Its lease ended before it was reported. The message comes again; a report is still owed and has no effect.
    Expired {
        /// Whose.
        id: DeliveryId,
    },
    /// A renewal that the sink wanted took effect, or did not.
    Renewed {
        /// Whose.
        id: DeliveryId,
        /// When the lease ends now, or why it ends as before.
        result: Result<tidegate_model::Instant, RenewError>,
    },
    /// The flow is about to end: nothing more is emitted, what the sink holds should be finished soon.
    Draining,
}

/// Why a report had no effect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VoidCause {
    /// The lease had run out.
    LeaseExpired,
    /// An earlier message of its ordered key comes again, and with it this one.
    Overtaken,
    /// There is no such work: never emitted, or reported already.
    Unknown,
}

/// Why a lease was not renewed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RenewError {
    /// It had run out, or the work is done already.
    #[error("the lease is gone")]
    LeaseGone,
    /// Another renewal of it is under way.
    #[error("it is being renewed already")]
    Busy,
    /// The broker.
    #[error(transparent)]
    Settle(SettleError),
}

/// What a sink tells the flow.
#[derive(Debug, Default)]
pub struct Reports {
    /// Ends of emissions, one for each that was taken.
    pub ended: Vec<Report>,
    /// Leases that shall be kept for longer.
    pub renewals: Vec<RenewalWish>,
}

/// A worker needs more time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RenewalWish {
    /// For which emission.
    pub id: DeliveryId,
    /// From now.
    pub length: std::time::Duration,
}

/// A sink's end of its channels.
#[derive(Debug)]
pub struct Inbox {
    news: mpsc::Receiver<News>,
    reports: mpsc::Sender<Reports>,
    limit: Arc<AtomicUsize>,
}

/// The flow's end of a sink's channels.
#[derive(Debug)]
pub struct Outbox {
    /// None once nothing more is handed over.
    news: Option<mpsc::Sender<News>>,
    reports: mpsc::Receiver<Reports>,
    limit: Arc<AtomicUsize>,
    credits: usize,
}

/// A second way to report, for sinks whose work ends in other tasks.
#[derive(Clone, Debug)]
pub struct Reporter {
    reports: mpsc::Sender<Reports>,
    limit: Arc<AtomicUsize>,
}

/// Batches of notices on their way to one sink, beside its emissions. A flow makes a few hundred a second at most,
/// since each carries what one turn brought.
const NOTICE_PLACES: usize = 64;

/// Makes a sink's channels. With as many places as the sink has credits, neither side ever waits for the other for
/// emissions and their reports.
#[must_use]
pub fn inbox(credits: usize) -> (Outbox, Inbox) {
    let (news_sender, news) = mpsc::channel(credits + NOTICE_PLACES);
    let (reports, report_receiver) = mpsc::channel(credits);
    let limit = Arc::new(AtomicUsize::new(credits));
    let outbox =
        Outbox { news: Some(news_sender), reports: report_receiver, limit: Arc::clone(&limit), credits };
    (outbox, Inbox { news, reports, limit })
}

/// Makes the channels of a sink, with its credits and what it has room for at first.
#[must_use]
pub fn inbox_of(sink: &dyn Sink) -> (Outbox, Inbox) {
    let channels = inbox(sink.credits().max(1));
    channels.1.set_limit(sink.limit_at_start());
    channels
}

impl Outbox {
    /// Hands over emissions, of which no more than the credits may be unreported. False when the sink has ended.
    pub fn emit(&self, emissions: Vec<Emission>) -> bool {
        self.news.as_ref().is_some_and(|news| news.try_send(News::Emissions(emissions)).is_ok())
    }

    /// Hands over notices, unless the sink is far behind with reading: then they come back.
    ///
    /// # Errors
    /// The notices, to be tried again later.
    pub fn notify(&self, notices: Vec<Notice>) -> Result<(), Vec<Notice>> {
        // A sink that has ended needs none.
        let Some(news) = &self.news else { return Ok(()) };
        // The places for emissions stay free.
        if !news.is_closed() && news.capacity() <= self.credits {
            return Err(notices);
        }
        let _ = news.try_send(News::Notices(notices));
        Ok(())
    }

    /// What the sink says next; `None` when it has ended.
    pub async fn reports(&mut self) -> Option<Reports> {
        self.reports.recv().await
    }

    /// What the sink has said already.
    pub fn try_reports(&mut self) -> Option<Reports> {
        self.reports.try_recv().ok()
    }

    /// The most that may be unreported now, as the sink says; none once its inbox has ended.
    #[must_use]
    pub fn limit(&self) -> usize {
        if self.news.is_some() { self.limit.load(Ordering::Relaxed).min(self.credits) } else { 0 }
    }

    /// The most that may ever be unreported.
    #[must_use]
    pub const fn credits(&self) -> usize {
        self.credits
    }

    /// Ends the inbox once what is in it was taken; reports still come.
    pub fn end_inbox(&mut self) {
        self.news = None;
    }
}

impl Inbox {
    /// The next emissions, in order; `None` when the flow is drained. Passes over notices.
    pub async fn next(&mut self) -> Option<Vec<Emission>> {
        loop {
            if let News::Emissions(emissions) = self.news().await? {
                return Some(emissions);
            }
        }
    }

    /// What there is to know next; `None` when the flow is drained.
    pub async fn news(&mut self) -> Option<News> {
        self.news.recv().await
    }

    /// Tells the flow how emissions ended. Waits when the flow is behind.
    pub async fn report(&self, ended: Vec<Report>) {
        // The flow outlives its sinks; when it is gone nobody is left to tell.
        let _ = self.reports.send(Reports { ended, renewals: Vec::new() }).await;
    }

    /// From now on at most so many emissions are to be with the sink unreported, however many credits it has. What is
    /// with it already stays.
    pub fn set_limit(&self, limit: usize) {
        self.reporter().set_limit(limit);
    }

    /// A second way to report.
    #[must_use]
    pub fn reporter(&self) -> Reporter {
        Reporter { reports: self.reports.clone(), limit: Arc::clone(&self.limit) }
    }
}

impl Reporter {
    /// Tells the flow. Waits when the flow is behind; false when the flow is gone.
    pub async fn send(&self, reports: Reports) -> bool {
        self.reports.send(reports).await.is_ok()
    }

    /// As [`Inbox::set_limit`].
    pub fn set_limit(&self, limit: usize) {
        if self.limit.swap(limit, Ordering::Relaxed) < limit {
            // Wakes the flow; when the channel is full it is awake.
            let _ = self.reports.try_send(Reports::default());
        }
    }

    /// The most that may be unreported now.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }
}
