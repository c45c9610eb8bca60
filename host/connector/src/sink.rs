//! The emitting side: where accepted deliveries go.
//!
//! A sink is one task. It takes [`Emission`]s from its [`Inbox`] and reports each one's outcome through it, in
//! any order and as late as the work takes. The host never has more unreported emissions with a sink than its
//! [`Sink::credits`], so a sink that stops reporting stops the flow, and the flow stops receiving.

use async_trait::async_trait;
use tidegate_model::{Emission, Report};
use tokio::sync::mpsc;

/// Where accepted deliveries go.
#[async_trait]
pub trait Sink: Send + 'static {
    /// The most emissions that may be with the sink and not reported yet. What a sink cannot work on soon is better
    /// left in the lease book, where keys take turns and leases are watched.
    fn credits(&self) -> usize;

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

/// A sink's end of its channels.
#[derive(Debug)]
pub struct Inbox {
    emissions: mpsc::Receiver<Vec<Emission>>,
    reports: mpsc::Sender<Vec<Report>>,
}

/// Makes a sink's channels: the sender of emissions, the inbox, the receiver of reports. With as many batches as the
/// sink has credits, neither side ever waits for the other.
#[must_use]
pub fn inbox(batches: usize) -> (mpsc::Sender<Vec<Emission>>, Inbox, mpsc::Receiver<Vec<Report>>) {
    let (emission_sender, emissions) = mpsc::channel(batches);
    let (reports, report_receiver) = mpsc::channel(batches);
    (emission_sender, Inbox { emissions, reports }, report_receiver)
}

impl Inbox {
    /// The next emissions, in order; `None` when the flow is drained.
    pub async fn next(&mut self) -> Option<Vec<Emission>> {
        self.emissions.recv().await
    }

    /// Tells the flow how emissions ended. Waits when the flow is behind.
    pub async fn report(&self, reports: Vec<Report>) {
        // The flow outlives its sinks; when it is gone nobody is left to tell.
        let _ = self.reports.send(reports).await;
    }

    /// A second way to report, for sinks whose work ends in other tasks.
    #[must_use]
    pub fn reporter(&self) -> mpsc::Sender<Vec<Report>> {
        self.reports.clone()
    }
}
