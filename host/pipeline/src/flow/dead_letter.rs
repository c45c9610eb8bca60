//! Rejected deliveries on their way to the flow's dead-letter sink, and from there back to be settled.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tidegate_connector::{Backoff, Notice, Sink};
use tidegate_model::{DeliveryId, Emission, MessageId, Outcome, Report, Settlement, Verb};

use super::settle::{Meaning, Told};
use super::sink::{SinkNews, SinkPort};

/// How long a message stays away that the sink did not take, first and at most. As long as the sink is out of order
/// everything rejected comes back at this pace, through the policy again.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The longest that the sink itself may put one off: nobody but the broker remembers it meanwhile.
const PUT_OFF_MAX: Duration = Duration::from_secs(30 * 60);

const NOT_TAKEN: &str = "the dead-letter sink did not take it";
const SINK_GONE: &str = "the dead-letter sink has ended";

/// The dead-letter sink of a flow and what is under way to it. Everything here is still held by the lease book, so
/// its budget bounds it.
#[derive(Debug)]
pub(super) struct DeadLetters {
    sink: SinkPort,
    waiting: VecDeque<(Settlement, Emission)>,
    with_sink: HashMap<DeliveryId, Settlement>,
    /// Ready for the broker.
    ended: VecDeque<Told>,
    backoff: Backoff,
}

/// What the sink said about a dead letter.
#[derive(Debug)]
pub(super) enum Heard {
    /// It has it.
    Taken,
    /// It has not taken it.
    Refused(Refused),
}

/// A dead letter that the sink has not taken.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) message_id: MessageId,
    /// What it said.
    pub(super) said: Box<str>,
    /// How long the message stays away.
    pub(super) wait: Duration,
    /// How many in a row, this one included.
    pub(super) in_a_row: u32,
}

impl DeadLetters {
    pub(super) fn start(sink: Box<dyn Sink>, seed: u64) -> Self {
        Self {
            sink: SinkPort::start(sink),
            waiting: VecDeque::new(),
            with_sink: HashMap::new(),
            ended: VecDeque::new(),
            backoff: Backoff::new(WAIT_FIRST, WAIT_MAX, seed),
        }
    }

    /// Queues a rejected delivery, with what the sink is to get.
    pub(super) fn push(&mut self, settlement: Settlement, emission: Emission) {
        if self.sink.has_ended() {
            self.ended.push_back(given_back(settlement, Verb::Release, SINK_GONE));
        } else {
            self.waiting.push_back((settlement, emission));
        }
    }

    /// Gives the sink what it has room for.
    pub(super) fn emit(&mut self) {
        let room = self.sink.room().min(self.waiting.len());
        if room == 0 {
            return;
        }
        let mut batch = Vec::with_capacity(room);
        for (settlement, emission) in self.waiting.drain(..room) {
            self.with_sink.insert(settlement.id, settlement);
            batch.push(emission);
        }
        self.sink.send(batch);
    }

    /// What the sink says next.
    pub(super) async fn next(&mut self) -> SinkNews {
        self.sink.next().await
    }

    /// Takes the sink's reports. What it has not taken goes back to the broker for a while: a sink that is out of order
    /// loses nothing, and the message does not come back at once.
    pub(super) fn handle_reports(&mut self, reports: Vec<Report>) -> Vec<Heard> {
        let mut heard = Vec::with_capacity(reports.len());
        for Report { id, outcome, .. } in reports {
            let Some(settlement) = self.with_sink.remove(&id) else { continue };
            let (wait, said) = match outcome {
                Outcome::Accepted | Outcome::Elsewhere => {
                    self.backoff.reset();
                    self.ended.push_back(Told::burial(settlement));
                    heard.push(Heard::Taken);
                    continue;
                }
                Outcome::Released => (self.backoff.next_wait(), "not now".into()),
                Outcome::Deferred { delay } => {
                    (self.backoff.next_wait().max(delay.min(PUT_OFF_MAX)), "not before a while".into())
                }
                // Nothing better can be done with it than to try again, for somebody may change the sink.
                Outcome::Rejected { reason } => (self.backoff.next_wait().max(WAIT_MAX), reason),
            };
            heard.push(Heard::Refused(Refused {
                message_id: settlement.message.id.clone(),
                said,
                wait,
                in_a_row: self.backoff.failures(),
            }));
            self.ended.push_back(given_back(settlement, Verb::Defer(wait), NOT_TAKEN));
        }
        heard
    }

    /// The sink has ended: gives back what it had and what waited for it.
    pub(super) fn handle_ended(&mut self) {
        let waiting = self.waiting.drain(..).map(|(settlement, _)| settlement);
        let left = waiting.chain(self.with_sink.drain().map(|(_, settlement)| settlement));
        self.ended.extend(left.map(|settlement| given_back(settlement, Verb::Release, SINK_GONE)));
    }

    /// The next delivery that the broker must be told of.
    pub(super) fn poll_settle(&mut self) -> Option<Told> {
        self.ended.pop_front()
    }

    /// Remembers something to tell the sink, when it wants to know.
    pub(super) fn note(&mut self, notice: impl FnOnce() -> Notice) {
        self.sink.note(notice);
    }

    /// Tells the sink what it is to know. False when something is left.
    pub(super) fn notify(&mut self) -> bool {
        self.sink.notify()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.with_sink.is_empty() && self.ended.is_empty()
    }

    pub(super) async fn close(&mut self) {
        self.sink.close().await;
    }
}

/// A rejection that has no effect.
fn given_back(settlement: Settlement, verb: Verb, why: &'static str) -> Told {
    Told { settlement: Settlement { verb, ..settlement }, meaning: Meaning::GivenBack { why, by_sink: true } }
}
