//! Deliveries, and the flow's end of a sink, for tests.

use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::{Clock, Notice, Outbox, Reports, Sink, SinkError, inbox};
use tidegate_model::{
    DeadLetter, DeliveryId, Emission, Handle, Instant, Message, Outcome, ReceiptIssuer, ReceiptKey, Report,
    Routing, Timestamp,
};
use tidegate_telemetry::Telemetry;
use tokio::task::JoinHandle;

use crate::SinkParts;

/// Longer than anything here takes on the slowest machine: only what hangs takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An emission whose lease ends an hour after the process began.
pub(crate) fn emission(id: u64, message: Message) -> Emission {
    let routing = Routing { endpoint: "b:1".into(), namespace: "".into(), group: "G".into() };
    Emission {
        id: DeliveryId(id),
        key: message.lite_topic.clone().unwrap_or_else(|| "k".into()),
        message: Arc::new(message),
        order: None,
        attempt: 1,
        handle: Handle { routing: Arc::new(routing), text: "handle".into() },
        received_at: Instant::ZERO,
        expires_at: Instant::ZERO + Duration::from_secs(3_600),
        dead_letter: None,
    }
}

/// One with a body and a message id that has its number.
pub(crate) fn numbered(id: u64, body: impl Into<bytes::Bytes>) -> Emission {
    emission(id, Message { body: body.into(), ..Message::new("topic", format!("m{id}")) })
}

pub(crate) fn dead_letter() -> DeadLetter {
    DeadLetter {
        flow: "tenants".into(),
        source: "orders".into(),
        policy: Some("blocklist".into()),
        reason: "tenant is blocked".into(),
        first_received_at: Timestamp::from_unix_millis(1_000),
        last_received_at: Timestamp::from_unix_millis(2_000),
    }
}

pub(crate) fn parts(name: &str) -> SinkParts {
    SinkParts {
        name: name.into(),
        source: "source".into(),
        issuer: ReceiptIssuer {
            key: ReceiptKey::new([7; 32]),
            owner: "host-1".into(),
            flow: "tenants".into(),
        },
        clock: Clock::start(),
        telemetry: Telemetry::default(),
    }
}

/// The flow's end of a running sink.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) outbox: Outbox,
    task: JoinHandle<Result<(), SinkError>>,
}

impl Flow {
    pub(crate) fn start(sink: impl Sink) -> Self {
        let (outbox, inbox) = inbox(sink.credits());
        Self { outbox, task: tokio::spawn(Box::new(sink).run(inbox)) }
    }

    pub(crate) fn emit(&self, emissions: Vec<Emission>) {
        assert!(self.outbox.emit(emissions), "the sink has ended");
    }

    /// What the sink says next.
    pub(crate) async fn says(&mut self) -> Reports {
        let said = tokio::time::timeout(PATIENCE, self.outbox.reports());
        said.await.expect("the sink says nothing").expect("the sink has ended")
    }

    /// The next reports, so many.
    pub(crate) async fn reports(&mut self, count: usize) -> Vec<Report> {
        let mut reports = Vec::new();
        while reports.len() < count {
            reports.extend(self.says().await.ended);
        }
        assert_eq!(reports.len(), count, "{reports:?}");
        reports
    }

    /// The outcomes of the next reports, in the order of the emissions' numbers.
    pub(crate) async fn outcomes(&mut self, count: usize) -> Vec<Outcome> {
        let mut reports = self.reports(count).await;
        reports.sort_by_key(|report| report.id);
        reports.into_iter().map(|report| report.outcome).collect()
    }

    /// That nothing is reported for a while. Only a wrong sink makes this fail, a slow one does not.
    pub(crate) async fn is_silent_for(&mut self, length: Duration) {
        let said = tokio::time::timeout(length, self.outbox.reports()).await;
        assert!(said.is_err(), "{said:?}");
    }

    pub(crate) fn drain(&self) {
        self.outbox.notify(vec![Notice::Draining]).expect("room for a notice");
    }

    /// Ends the inbox and waits for the sink.
    pub(crate) async fn end(mut self) -> Result<(), SinkError> {
        self.outbox.end_inbox();
        let ended = tokio::time::timeout(PATIENCE, &mut self.task).await;
        ended.expect("the sink does not end").expect("the sink panicked")
    }

    pub(crate) fn abort(&self) {
        self.task.abort();
    }

    /// How the sink ended by itself.
    pub(crate) async fn ended(mut self) -> Result<(), SinkError> {
        while self.outbox.reports().await.is_some() {}
        let ended = tokio::time::timeout(PATIENCE, &mut self.task).await;
        ended.expect("the sink does not end").expect("the sink panicked")
    }
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < until, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The value of a metric with labels, as the text of all metrics has it.
pub(crate) fn metric(telemetry: &Telemetry, sample: &str) -> u64 {
    let text = telemetry.encode();
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().expect("a number"))
}
