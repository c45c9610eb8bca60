//! The sink: sends accepted deliveries to a topic.
//!
//! Messages of one lite topic or message group go one after the other, different ones side by side; normal messages go in
//! batches. What cannot be sent after all attempts is held for a while that grows, and then given back; meanwhile the
//! sink keeps its credits, so that the flow fills its budget and stops receiving.

mod condition;
mod dead_letter;
mod fate;
mod gate;
mod lanes;
mod letter;
mod runs;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use condition::Condition;
use fate::Fate;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use lanes::{Change, Lanes, Shipment};
use letter::Writer;
use tidegate_connector::{Clock, Inbox, News, Notice, Sink, SinkError, SinkMonitor};
use tidegate_model::{Emission, Instant, Outcome, Report};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::rocketmq as events;
use tokio::time;

use crate::core::SetupError;
use crate::options::SinkOptions;
use crate::producer::Producer;

/// Between two warnings about failures with one code: a broker that is away fails messages by the hundred.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Sends to one topic.
pub struct GrpcSink {
    name: Arc<str>,
    producer: Producer,
    writer: Writer,
    condition: Arc<Condition>,
    clock: Clock,
    telemetry: Telemetry,
}

/// A sink at work.
struct Work {
    name: Arc<str>,
    producer: Producer,
    writer: Writer,
    clock: Clock,
    telemetry: Telemetry,
    lanes: Lanes,
    condition: Arc<Condition>,
    /// What the last failure was.
    last_failure: String,
    /// When a warning about a code was last given. Codes are a closed set.
    warned: HashMap<&'static str, Instant>,
}

impl GrpcSink {
    /// A sink for the cluster behind the options' access point. It connects when the first message is sent.
    ///
    /// # Errors
    /// When something on this side of the network is wrong, such as a certificate file.
    pub async fn connect(
        options: SinkOptions,
        clock: Clock,
        telemetry: Telemetry,
        name: Arc<str>,
    ) -> Result<Self, SetupError> {
        let writer = Writer::new(&options);
        let producer = Producer::connect(options.client, clock, telemetry.clone(), Arc::clone(&name)).await?;
        let producer = producer.with_attempts(options.attempts_max);
        let condition = Arc::new(Condition::new(Arc::clone(&name)));
        Ok(Self { name, producer, writer, condition, clock, telemetry })
    }
}

#[async_trait]
impl Sink for GrpcSink {
    fn credits(&self) -> usize {
        if self.writer.is_ordered() { lanes::CREDITS_ORDERED } else { lanes::CREDITS_UNORDERED }
    }

    /// It wants to know when the flow has heard of what was given back, since until then it emits what follows, and when
    /// the flow ends: then it waits for nothing any more.
    fn wants_notices(&self) -> bool {
        true
    }

    fn monitors(&self) -> Vec<Arc<dyn SinkMonitor>> {
        vec![Arc::clone(&self.condition) as Arc<dyn SinkMonitor>]
    }

    async fn run(self: Box<Self>, inbox: Inbox) -> Result<(), SinkError> {
        let Self { name, producer, writer, condition, clock, telemetry } = *self;
        let lanes = Lanes::new(producer.seed());
        let warned = HashMap::new();
        let last_failure = String::new();
        let mut work =
            Work { name, producer, writer, clock, telemetry, lanes, condition, last_failure, warned };
        work.run(inbox).await;
        work.producer.close().await;
        Ok(())
    }
}

impl Work {
    async fn run(&mut self, mut inbox: Inbox) {
        let mut sending = FuturesUnordered::new();
        let mut is_open = true;
        loop {
            let now = self.clock.now();
            self.lanes.handle_timeout(now);
            while let Some(shipment) = self.lanes.poll_send(now) {
                sending.push(send(self.producer.clone(), shipment));
            }
            self.tell_changes();
            let reports = self.lanes.take_reports();
            if !reports.is_empty() {
                inbox.report(reports).await;
            }
            if !is_open && self.lanes.is_empty() {
                return;
            }
            let wake = self.lanes.poll_timeout(now).map(|at| self.clock.deadline(at));
            tokio::select! {
                news = inbox.news(), if is_open => match news {
                    Some(News::Emissions(emissions)) => self.take(&emissions),
                    Some(News::Notices(notices)) => notices.iter().for_each(|notice| self.notice(notice)),
                    None => {
                        is_open = false;
                        self.lanes.handle_drain(self.clock.now());
                    }
                },
                Some((shipment, fates)) = sending.next(), if !sending.is_empty() => self.handle_sent(&shipment, fates),
                () = sleep_until(wake) => {}
            }
        }
    }

    fn take(&mut self, emissions: &[Emission]) {
        let now = self.clock.now();
        let mut refused = Vec::new();
        for emission in emissions {
            match self.writer.write(emission) {
                Ok(letter) => self.lanes.push(now, letter),
                Err(reason) => {
                    let outcome = Outcome::Rejected { reason: reason.as_str().into() };
                    self.lanes.report(Report { id: emission.id, outcome, cost: None });
                    refused.push(reason);
                }
            }
        }
        if let Some(reason) = refused.first() {
            let detail = reason.clone();
            self.tell_failed(fate::INVALID, detail, refused.len());
        }
    }

    fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Settled { id, .. } | Notice::Void { id, .. } => self.lanes.handle_heard(*id),
            Notice::Draining => self.lanes.handle_drain(self.clock.now()),
            // Whether a lease is over shows by the clock, and this sink keeps none for longer.
            Notice::Expired { .. } | Notice::Renewed { .. } => {}
        }
    }

    fn handle_sent(&mut self, shipment: &Shipment, fates: Vec<Fate>) {
        let now = self.clock.now();
        let mut failures: Vec<(&'static str, String, usize)> = Vec::new();
        for fate in &fates {
            let (Fate::Refused { code, detail } | Fate::Failed { code, detail, .. }) = fate else { continue };
            match failures.iter_mut().find(|(known, ..)| known == code) {
                Some((_, _, count)) => *count += 1,
                None => failures.push((code, detail.clone(), 1)),
            }
        }
        for (code, detail, count) in failures {
            self.tell_failed(code, detail, count);
        }
        self.lanes.handle_sent(now, shipment, fates);
    }

    fn tell_failed(&mut self, code: &'static str, detail: String, count: usize) {
        let now = self.clock.now();
        let warned = self.warned.get(code).copied();
        let repeated = warned.is_some_and(|at| now.saturating_since(at) < WARNING_INTERVAL);
        if !repeated {
            self.warned.insert(code, now);
        }
        self.last_failure.clone_from(&detail);
        self.telemetry.emit(events::SendFailed {
            name: Arc::clone(&self.name),
            code,
            detail,
            messages: u64::try_from(count).unwrap_or(u64::MAX),
            repeated,
        });
    }

    fn tell_changes(&mut self) {
        while let Some(change) = self.lanes.poll_change() {
            let name = Arc::clone(&self.name);
            match change {
                Change::Held { wait, failures } => {
                    self.condition.fails(self.clock.now(), &self.last_failure);
                    self.telemetry.emit(events::SinkHeld { name, wait, failures });
                }
                Change::Resumed { held } => {
                    self.condition.works();
                    self.telemetry.emit(events::SinkResumed { name, held });
                }
            }
        }
    }
}

/// Sends what a lane gives. A server that finds fault with one message refuses the whole request: then each goes alone,
/// so that the others are not blamed.
async fn send(producer: Producer, shipment: Shipment) -> (Shipment, Vec<Fate>) {
    let results = producer.send_all(&shipment.messages).await;
    let mut fates: Vec<Fate> = results.iter().map(Fate::of).collect();
    if shipment.messages.len() > 1 {
        for (fate, message) in fates.iter_mut().zip(&shipment.messages) {
            if fate.is_by_server() {
                *fate = Fate::of(&producer.send(message.clone()).await);
            }
        }
    }
    (shipment, fates)
}

async fn sleep_until(wake: Option<time::Instant>) {
    match wake {
        Some(wake) => time::sleep_until(wake).await,
        None => std::future::pending().await,
    }
}

impl fmt::Debug for GrpcSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcSink")
            .field("name", &self.name)
            .field("writer", &self.writer)
            .finish_non_exhaustive()
    }
}
