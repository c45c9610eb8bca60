//! Settlements and renewals by receipt: checked, and sent to the flow that gave the message out, or past it to the broker;
//! or to the host that gave it out, where only that one can settle.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tidegate_connector::{Clock, ReceiptSettler, SettleByReceipt, SettledByReceipt};
use tidegate_model::{Handle, Outcome, Receipt, ReceiptKey, Routing, SettleError, SettleFault, Verb};
use tidegate_proto::handoff as proto;
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::handoff as events;

use crate::collect::Collector;
use crate::dispatch::{Answer, Claim, RenewalAnswer};
use crate::flow::{Command, FlowHandle, Renew, Settle};
use crate::forward::{Errand, Forwarder};
use crate::rights::Caller;
use crate::server::Registry;

/// Settlements or renewals in one request. At 8 KiB for the longest receipt they fit what a request may have.
pub(crate) const BATCH_MAX: usize = 1000;
/// The longest that a request waits for the broker's answers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The longest deferral or renewal that is asked for. Brokers and valves allow less.
const LENGTH_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// What is kept of a worker's reason for a rejection, in bytes: it reaches logs and dead letters.
const REASON_BYTES_MAX: usize = 1024;

/// Sends settlements where they belong.
#[derive(Clone)]
pub(crate) struct SettleRouter {
    pub(crate) key: ReceiptKey,
    pub(crate) host_id: Arc<str>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) others: Option<Arc<dyn ReceiptSettler>>,
    /// Who passes on what only the host that gave it out can settle, if there are peers.
    pub(crate) forwarder: Arc<Forwarder>,
    /// Whether only the host that gave a message out can settle it.
    pub(crate) owner_settles: fn(&Routing) -> bool,
    pub(crate) clock: Clock,
    pub(crate) telemetry: Telemetry,
}

/// How a request is to be treated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Terms {
    /// How long its caller waits.
    pub(crate) patience: Duration,
    /// Whether another host has passed it on: then it goes no further.
    pub(crate) passed_on: bool,
}

/// Where a receipt goes.
enum Way {
    /// To the flow of this host that gave the message out.
    Flow(FlowHandle),
    /// Past all flows, to the broker.
    Broker,
    /// To the host that gave it out.
    Owner,
    /// Nowhere, for this reason.
    Nowhere(Told),
}

/// One settlement's result, without the receipt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Told {
    pub(crate) status: proto::Status,
    pub(crate) detail: String,
    own: bool,
}

/// One renewal's result, without the receipt that was given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Kept {
    pub(crate) told: Told,
    pub(crate) next_receipt: String,
    pub(crate) lease: Duration,
}

/// A settlement that was understood.
struct Wish {
    outcome: Outcome,
    cost: Option<f64>,
}

/// What a flow of this host is asked, with the places in the batch.
type Asked<T> = (FlowHandle, Vec<(usize, (Receipt, T))>);

/// A batch, by where each goes, with its place in the batch.
struct Sorted<T> {
    /// To flows of this host.
    own: HashMap<Arc<str>, Asked<T>>,
    /// To brokers.
    others: Vec<(usize, Receipt, Verb)>,
    /// To the hosts that gave the messages out.
    owners: Vec<(usize, Arc<str>, Errand)>,
}

impl SettleRouter {
    /// Settles a batch; one result for each, in the same order.
    pub(crate) async fn settle(
        &self,
        caller: &Caller,
        batch: Vec<proto::Settlement>,
        terms: Terms,
    ) -> Vec<Told> {
        let told: Mutex<Vec<Option<Told>>> = Mutex::new(vec![None; batch.len()]);
        self.settle_each(caller, batch, terms, &|at, one| told.lock()[at] = Some(one)).await;
        told.into_inner().into_iter().map(|told| told.unwrap_or_else(Told::late)).collect()
    }

    /// Settles a batch, and tells each result by its place when it is there: some come at once, and some only when earlier
    /// messages of their key are settled.
    pub(crate) async fn settle_each(
        &self,
        caller: &Caller,
        batch: Vec<proto::Settlement>,
        terms: Terms,
        tell: &(dyn Fn(usize, Told) + Send + Sync),
    ) {
        let tell = |at: usize, told: Told| {
            let (result, own) = (status_word(told.status), told.own);
            self.telemetry.emit(events::Answered { renewals: false, result, own, count: 1 });
            tell(at, told);
        };
        let read = batch.into_iter().map(|settlement| {
            let receipt = self.open(caller, &settlement.receipt)?;
            let wish = Wish::read(&settlement).map_err(|detail| self.refuse("request", caller, detail))?;
            Ok((receipt, wish, Errand::Settle(settlement)))
        });
        let Sorted { own, others, owners } = self.sort(read, terms, |wish: Wish| verb(wish.outcome), &tell);
        let by_broker = |at: usize, _: SettleByReceipt, result: SettledByReceipt| {
            tell(at, Told::by_broker(result.map(|_| ())));
        };
        let by_owner = |at: usize, kept: Kept| tell(at, kept.told);
        let asking = own.into_values().map(|(flow, asked)| ask_flow(flow, asked, terms.patience, &tell));
        // None waits for another.
        let (unknown, (), ()) = tokio::join!(
            join_all(asking),
            self.ask_brokers(others, &by_broker),
            self.forwarder.pass_on(owners, terms.patience, &by_owner)
        );
        let unknown = self.without_lost(unknown.into_iter().flatten(), &tell);
        self.ask_brokers(unknown, &by_broker).await;
    }

    /// Renews a batch; one result for each, in the same order.
    pub(crate) async fn renew(&self, caller: &Caller, batch: Vec<proto::Renewal>, terms: Terms) -> Vec<Kept> {
        let kept: Mutex<Vec<Option<Kept>>> = Mutex::new(vec![None; batch.len()]);
        let read = batch.into_iter().map(|renewal| {
            let length = Duration::from_millis(renewal.length_ms).min(LENGTH_MAX);
            if length.is_zero() {
                return Err(self.refuse("request", caller, "a renewal needs a length above zero".to_owned()));
            }
            Ok((self.open(caller, &renewal.receipt)?, length, Errand::Renew(renewal)))
        });
        let tell = |at: usize, told: Told| kept.lock()[at] = Some(Kept::not(told));
        let Sorted { own, others, owners } = self.sort(read, terms, Verb::Renew, &tell);
        let by_broker = |at: usize, asked: SettleByReceipt, result: SettledByReceipt| {
            kept.lock()[at] = Some(self.kept_by_broker(asked, result));
        };
        let by_owner = |at: usize, one: Kept| kept.lock()[at] = Some(one);
        let asking = own.into_values().map(|(flow, asked)| ask_flow_to_renew(flow, asked, terms.patience));
        let (answers, (), ()) = tokio::join!(
            join_all(asking),
            self.ask_brokers(others, &by_broker),
            self.forwarder.pass_on(owners, terms.patience, &by_owner)
        );
        let mut unknown = Vec::new();
        for (at, answer) in answers.into_iter().flatten() {
            match answer {
                Ok(RenewalAnswer::Until(until)) => {
                    let lease = until.saturating_since(self.clock.now());
                    kept.lock()[at] =
                        Some(Kept { told: Told::done(true), next_receipt: String::new(), lease });
                }
                Ok(RenewalAnswer::Failed(answer)) => kept.lock()[at] = Some(Kept::not(Told::of(answer))),
                Err((receipt, length)) => unknown.push((at, receipt, Verb::Renew(length))),
            }
        }
        let unknown = self.without_lost(unknown, &tell);
        self.ask_brokers(unknown, &by_broker).await;
        let kept = kept.into_inner();
        let kept: Vec<Kept> =
            kept.into_iter().map(|kept| kept.unwrap_or_else(|| Kept::not(Told::late()))).collect();
        for Kept { told, .. } in &kept {
            let (result, own) = (status_word(told.status), told.own);
            self.telemetry.emit(events::Answered { renewals: true, result, own, count: 1 });
        }
        kept
    }

    /// The deliveries of a flow of this host that receipts name; others are passed over.
    pub(crate) fn claims(&self, caller: &Caller, flow: &str, receipts: &[String]) -> Vec<Claim> {
        let is_own = |receipt: &Receipt| receipt.owner == self.host_id && *receipt.flow == *flow;
        let read = receipts.iter().filter_map(|text| self.open(caller, text).ok());
        read.filter(is_own).map(|receipt| claim(&receipt)).collect()
    }

    /// Lets go of deliveries of this host that another one is asked to accept; one result for each receipt, in the same order.
    pub(crate) async fn leave(&self, caller: &Caller, receipts: &[String]) -> Vec<Told> {
        let mut own: BTreeMap<Arc<str>, Vec<Claim>> = BTreeMap::new();
        let told = receipts.iter().map(|text| {
            let receipt = match self.open(caller, text) {
                Ok(receipt) => receipt,
                Err(refusal) => return refusal,
            };
            if receipt.owner != self.host_id {
                let detail = format!("host `{}` gave it out: say it there", receipt.owner);
                return Told { status: proto::Status::Unknown, detail, own: false };
            }
            own.entry(Arc::clone(&receipt.flow)).or_default().push(claim(&receipt));
            Told::done(true)
        });
        let told = told.collect();
        for (flow, claims) in own {
            // A flow that has ended holds nothing.
            if let Some(flow) = self.registry.find(&flow) {
                let _ = flow.send(Command::Elsewhere(claims)).await;
            }
        }
        told
    }

    /// Reads a receipt, and checks that the caller may use it.
    fn open(&self, caller: &Caller, text: &str) -> Result<Receipt, Told> {
        let receipt = Receipt::decode(text, &self.key)
            .map_err(|error| self.refuse("receipt", caller, error.to_string()))?;
        if !caller.may(&receipt.flow) {
            let detail = format!("`{}` has no right to flow `{}`", caller.name, receipt.flow);
            return Err(self.refuse("rights", caller, detail));
        }
        Ok(receipt)
    }

    /// Where a receipt goes.
    fn way(&self, receipt: &Receipt, terms: Terms) -> Way {
        let is_own = receipt.owner == self.host_id;
        if is_own && let Some(flow) = self.registry.find(&receipt.flow) {
            return Way::Flow(flow);
        }
        if !(self.owner_settles)(&receipt.routing) {
            return Way::Broker;
        }
        if is_own {
            return Way::Nowhere(self.lost(receipt));
        }
        if terms.passed_on {
            let detail = format!(
                "host `{}` did not give it out: host `{}` did, and what was passed on goes no further",
                self.host_id, receipt.owner
            );
            return Way::Nowhere(Told::elsewhere(proto::Status::Refused, detail));
        }
        Way::Owner
    }

    /// Puts each of a batch where it goes, and tells what is refused or goes nowhere. `verb` is what a broker would be told.
    fn sort<T>(
        &self,
        read: impl Iterator<Item = Result<(Receipt, T, Errand), Told>>,
        terms: Terms,
        verb: impl Fn(T) -> Verb,
        tell: &dyn Fn(usize, Told),
    ) -> Sorted<T> {
        let mut sorted = Sorted { own: HashMap::new(), others: Vec::new(), owners: Vec::new() };
        for (at, read) in read.enumerate() {
            let (receipt, wish, errand) = match read {
                Ok(read) => read,
                Err(refusal) => {
                    tell(at, refusal);
                    continue;
                }
            };
            match self.way(&receipt, terms) {
                Way::Flow(flow) => {
                    let own = sorted.own.entry(Arc::clone(&receipt.flow));
                    own.or_insert_with(|| (flow, Vec::new())).1.push((at, (receipt, wish)));
                }
                Way::Broker => sorted.others.push((at, receipt, verb(wish))),
                Way::Owner => sorted.owners.push((at, receipt.owner, errand)),
                Way::Nowhere(told) => tell(at, told),
            }
        }
        sorted
    }

    /// Of what the flows of this host do not know, what the broker is asked about; the rest only they could have settled, and that is
    /// told.
    fn without_lost(
        &self,
        unknown: impl IntoIterator<Item = (usize, Receipt, Verb)>,
        tell: &dyn Fn(usize, Told),
    ) -> Vec<(usize, Receipt, Verb)> {
        let (lost, unknown): (Vec<_>, Vec<_>) =
            unknown.into_iter().partition(|(_, receipt, _)| (self.owner_settles)(&receipt.routing));
        for (at, receipt, _) in lost {
            tell(at, self.lost(&receipt));
        }
        unknown
    }

    /// What this host gave out, and alone could settle, and does not have any more.
    fn lost(&self, receipt: &Receipt) -> Told {
        let detail = format!(
            "host `{}`, which gave it out, does not hold it any more: it was settled or let go of, its lock has ended, or the \
             host was started anew; if nobody has settled it, it comes again",
            receipt.owner
        );
        Told { status: proto::Status::Unknown, detail, own: true }
    }

    /// Settles past this host's flows, and tells each result when it is there. What has none in time is to be tried again.
    async fn ask_brokers(
        &self,
        asked: Vec<(usize, Receipt, Verb)>,
        tell: &(dyn Fn(usize, SettleByReceipt, SettledByReceipt) + Send + Sync),
    ) {
        let mut served = Vec::new();
        for (at, receipt, verb) in asked {
            if self.others.as_ref().is_some_and(|others| others.serves(&receipt)) {
                served.push((at, SettleByReceipt { receipt, verb }));
            } else {
                let error = unserved(&receipt, &verb);
                tell(at, SettleByReceipt { receipt, verb }, Err(error));
            }
        }
        let Some(others) = self.others.as_ref().filter(|_| !served.is_empty()) else { return };
        let batch = served.iter().map(|(_, asked)| asked.clone()).collect();
        let open: Mutex<Vec<_>> = Mutex::new(served.into_iter().map(Some).collect());
        let take = |place: usize| open.lock().get_mut(place).and_then(Option::take);
        let tell_some = |some: Vec<(usize, SettledByReceipt)>| {
            for (place, result) in some {
                if let Some((at, asked)) = take(place) {
                    tell(at, asked, result);
                }
            }
        };
        // Its calls have deadlines of their own; this bounds them all together. What it has told until then stays told.
        let _ = tokio::time::timeout(PATIENCE, others.settle_each(batch, &tell_some)).await;
        for (at, asked) in open.into_inner().into_iter().flatten() {
            let detail = "the broker did not answer in time".into();
            let late = SettleError { verb: asked.verb.name(), detail, fault: SettleFault::Broker };
            tell(at, asked, Err(late));
        }
    }

    /// A renewal past this host's flows gives a handle, and so a receipt, of its own.
    fn kept_by_broker(&self, asked: SettleByReceipt, result: Result<Option<Handle>, SettleError>) -> Kept {
        let SettleByReceipt { mut receipt, verb } = asked;
        let Verb::Renew(lease) = verb else { return Kept::not(Told::late()) };
        match result {
            Ok(handle) => {
                if let Some(handle) = handle {
                    receipt.handle = handle.text;
                }
                receipt.expires_at = self.clock.wall_at(self.clock.now() + lease);
                Kept { told: Told::done(false), next_receipt: receipt.encode(&self.key), lease }
            }
            Err(error) => Kept::not(Told::by_broker(Err(error))),
        }
    }

    fn refuse(&self, cause: &'static str, caller: &Caller, detail: String) -> Told {
        self.telemetry.emit(events::Refused { cause, detail: &detail, caller: &caller.name });
        Told { status: proto::Status::Refused, detail, own: false }
    }
}

/// Asks a flow of this host. What it does not know comes back: the host may have had it in an earlier life.
async fn ask_flow(
    flow: FlowHandle,
    asked: Vec<(usize, (Receipt, Wish))>,
    patience: Duration,
    tell: &(dyn Fn(usize, Told) + Send + Sync),
) -> Vec<(usize, Receipt, Verb)> {
    let places: Vec<usize> = (0..asked.len()).collect();
    let (collector, replies) = Collector::new(&places);
    let settle = asked.iter().zip(replies).map(|((_, (receipt, wish)), reply)| Settle {
        claim: claim(receipt),
        outcome: wish.outcome.clone(),
        cost: wish.cost,
        reply,
    });
    // A flow that has ended drops the replies, and what it held is the broker's.
    let _ = flow.send(Command::Settle(settle.collect())).await;
    let mut open: Vec<Option<(usize, (Receipt, Wish))>> = asked.into_iter().map(Some).collect();
    let mut elsewhere = Vec::new();
    let answering = async {
        loop {
            let answers = collector.next().await;
            if answers.is_empty() {
                return;
            }
            for (place, answer) in answers {
                let Some((at, (receipt, wish))) = open[place].take() else { continue };
                match answer.unwrap_or(Answer::NotHere) {
                    Answer::NotHere => elsewhere.push((at, receipt, verb(wish.outcome))),
                    answer => tell(at, Told::of(answer)),
                }
            }
        }
    };
    // What is late is told so below.
    let _ = tokio::time::timeout(patience, answering).await;
    for (at, _) in open.into_iter().flatten() {
        let why = "it waits for earlier messages of its key, or for the broker; settle again";
        tell(at, Told::of(Answer::RetryLater(why.into())));
    }
    elsewhere
}

async fn ask_flow_to_renew(
    flow: FlowHandle,
    asked: Vec<(usize, (Receipt, Duration))>,
    patience: Duration,
) -> Vec<(usize, Result<RenewalAnswer, (Receipt, Duration)>)> {
    let places: Vec<usize> = (0..asked.len()).collect();
    let (collector, replies) = Collector::new(&places);
    let renew = asked.iter().zip(replies).map(|((_, (receipt, length)), reply)| Renew {
        claim: claim(receipt),
        length: *length,
        reply,
    });
    let _ = flow.send(Command::Renew(renew.collect())).await;
    let mut answers: Vec<Option<RenewalAnswer>> = vec![None; asked.len()];
    for (at, answer) in collector.all(patience).await {
        answers[at] = Some(answer.unwrap_or(RenewalAnswer::Failed(Answer::NotHere)));
    }
    let late = || RenewalAnswer::Failed(Answer::RetryLater("the broker has not answered".into()));
    let pairs = asked.into_iter().zip(answers);
    pairs
        .map(|((at, wish), answer)| match answer.unwrap_or_else(late) {
            RenewalAnswer::Failed(Answer::NotHere) => (at, Err(wish)),
            answer => (at, Ok(answer)),
        })
        .collect()
}

fn unserved(receipt: &Receipt, verb: &Verb) -> SettleError {
    let Receipt { routing, owner, .. } = receipt;
    let detail = format!(
        "this host has no `[settlers.NAME]` for group `{}` at {}: settle at host `{owner}`, which gave the message out",
        routing.group, routing.endpoint
    );
    SettleError { verb: verb.name(), detail: detail.into(), fault: SettleFault::Refused }
}

fn claim(receipt: &Receipt) -> Claim {
    Claim { delivery: receipt.delivery, message: receipt.message_id.clone(), handle: receipt.handle.clone() }
}

fn verb(outcome: Outcome) -> Verb {
    match outcome {
        // Nobody wishes for the latter: it is what a worker says instead of a settlement.
        Outcome::Accepted | Outcome::Elsewhere => Verb::Accept,
        Outcome::Deferred { delay } => Verb::Defer(delay),
        Outcome::Released => Verb::Release,
        Outcome::Rejected { reason } => Verb::Reject { reason },
    }
}

impl Wish {
    fn read(settlement: &proto::Settlement) -> Result<Self, String> {
        use proto::settlement::Verdict;
        let outcome = match &settlement.verdict {
            Some(Verdict::Accept(_)) => Outcome::Accepted,
            Some(Verdict::Defer(proto::Defer { delay_ms })) => {
                let delay = Duration::from_millis(*delay_ms);
                if delay > LENGTH_MAX {
                    return Err(format!(
                        "a delay is at most 30 days, which are {} ms, and not {delay_ms} ms; one that is longer than the \
                         flow's `max-invisible-duration` is cut to that",
                        LENGTH_MAX.as_millis()
                    ));
                }
                Outcome::Deferred { delay }
            }
            Some(Verdict::Release(_)) => Outcome::Released,
            Some(Verdict::Reject(proto::Reject { reason })) => {
                Outcome::Rejected { reason: told_reason(reason) }
            }
            None => return Err("a settlement needs a verdict: accept, defer, release or reject".to_owned()),
        };
        match settlement.cost {
            Some(cost) if !cost.is_finite() || cost < 0.0 => {
                Err(format!("a cost is a number from zero on, not {cost}"))
            }
            cost => Ok(Self { outcome, cost }),
        }
    }
}

/// A worker's words as they may reach logs.
fn told_reason(reason: &str) -> Box<str> {
    let reason = reason.trim();
    if reason.is_empty() {
        return "a worker rejected it".into();
    }
    let end = reason.floor_char_boundary(REASON_BYTES_MAX.min(reason.len()));
    let shown: String = reason[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    shown.into()
}

impl Told {
    const fn done(own: bool) -> Self {
        Self { status: proto::Status::Done, detail: String::new(), own }
    }

    fn of(answer: Answer) -> Self {
        let (status, detail) = match answer {
            Answer::Done => return Self::done(true),
            Answer::Expired(why) => (proto::Status::Expired, format!("{why}: the message comes again")),
            Answer::Otherwise(kind) => (proto::Status::Unknown, format!("it was {kind} before")),
            Answer::Refused(why) => (proto::Status::Refused, why.into()),
            Answer::RetryLater(why) => (proto::Status::RetryLater, why.into()),
            Answer::NotHere => (proto::Status::Unknown, "this host does not hold it".to_owned()),
        };
        Self { status, detail, own: true }
    }

    fn by_broker(result: Result<(), SettleError>) -> Self {
        let Err(error) = result else { return Self::done(false) };
        let status = match error.fault {
            SettleFault::LeaseGone => proto::Status::Expired,
            SettleFault::Broker => proto::Status::RetryLater,
            SettleFault::Refused => proto::Status::Refused,
        };
        Self { status, detail: error.detail.into(), own: false }
    }

    /// What is known of a message that another host gave out.
    pub(crate) const fn elsewhere(status: proto::Status, detail: String) -> Self {
        Self { status, detail, own: false }
    }

    pub(crate) fn late() -> Self {
        Self::elsewhere(proto::Status::RetryLater, "no answer came in time; settle again".to_owned())
    }
}

impl Terms {
    /// Those of somebody who waits as long as may be.
    pub(crate) const OWN: Self = Self { patience: PATIENCE, passed_on: false };
}

impl Kept {
    pub(crate) const fn not(told: Told) -> Self {
        Self { told, next_receipt: String::new(), lease: Duration::ZERO }
    }
}

/// A status as metrics and JSON have it.
pub(crate) const fn status_word(status: proto::Status) -> &'static str {
    match status {
        proto::Status::Unspecified => "unspecified",
        proto::Status::Done => "done",
        proto::Status::Expired => "expired",
        proto::Status::Unknown => "unknown",
        proto::Status::Refused => "refused",
        proto::Status::RetryLater => "retry-later",
    }
}

#[cfg(test)]
mod tests;
