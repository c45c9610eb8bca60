//! What is asked past the streams: where the streams are gone, and where one host has refused.

use tokio::time::Instant;

use super::entries::State;
use super::{Ask, Book, Number, Source};
use crate::access::Trouble;
use crate::client::BATCH_MAX;
use crate::roster::Roster;
use crate::{Renewal, RenewalResult, Settlement, SettlementResult, Status};

/// What a host is asked past the streams.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Where.
    pub(crate) address: usize,
    pub(crate) numbers: Vec<Number>,
    pub(crate) batch: Batch,
}

#[derive(Clone, Debug)]
pub(crate) enum Batch {
    Settle(Vec<Settlement>),
    Renew(Vec<Renewal>),
}

/// What a [`Call`] brought.
#[derive(Clone, Debug)]
pub(crate) enum Answers {
    Settle(Vec<SettlementResult>),
    Renew(Vec<RenewalResult>),
}

impl Book {
    /// The next call to make.
    pub(crate) fn poll_call(&mut self, now: Instant, roster: &Roster) -> Option<Call> {
        let mut call: Option<Call> = None;
        let mut taken = Vec::new();
        for number in &self.calls {
            let Some((address, ask)) = self.call_about(now, *number, roster) else {
                taken.push(*number);
                continue;
            };
            let call = call.get_or_insert_with(|| {
                let batch = match &ask {
                    Ask::Settle(_) => Batch::Settle(Vec::new()),
                    Ask::Renew(_) => Batch::Renew(Vec::new()),
                };
                Call { address, numbers: Vec::new(), batch }
            });
            match (&mut call.batch, ask) {
                _ if call.address != address => continue,
                (Batch::Settle(batch), Ask::Settle(settlement)) => batch.push(settlement),
                (Batch::Renew(batch), Ask::Renew(renewal)) => batch.push(renewal),
                _ => continue,
            }
            call.numbers.push(*number);
            taken.push(*number);
            if call.numbers.len() == BATCH_MAX {
                break;
            }
        }
        taken.iter().for_each(|number| {
            self.calls.remove(number);
        });
        call
    }

    /// What a call brought.
    pub(crate) fn handle_answers(&mut self, now: Instant, call: Call, answers: Result<Answers, Trouble>) {
        let Call { address, numbers, batch } = call;
        match answers {
            Ok(Answers::Settle(results)) => {
                for result in results {
                    self.handle_settled(now, Source::Address(address), result);
                }
            }
            Ok(Answers::Renew(results)) => {
                for result in results {
                    self.handle_renewed(now, result);
                }
            }
            Err(trouble) => {
                let settles = matches!(batch, Batch::Settle(_));
                for number in numbers {
                    self.handle_unanswered(now, address, number, settles, &trouble);
                }
            }
        }
    }

    fn handle_unanswered(
        &mut self,
        now: Instant,
        address: usize,
        number: Number,
        settles: bool,
        trouble: &Trouble,
    ) {
        let Some(open) = self.open.get_mut(&number) else { return };
        let Trouble { is_refusal, detail } = trouble;
        match &mut open.state {
            State::Running { .. } => self.renew_later(now, number),
            State::Settling(settling) if settles => {
                let receipt = open.receipt.to_string();
                if *is_refusal {
                    let refused =
                        SettlementResult { receipt, status: Status::Refused, detail: detail.clone() };
                    self.handle_settled(now, Source::Address(address), refused);
                } else {
                    settling.asked = None;
                    settling.detail.clone_from(detail);
                    self.retry(now, number);
                }
            }
            // It was settled while its renewal was under way.
            State::Settling(_) => {}
        }
    }

    /// What to ask about a message past the streams, and where. `None` when it is over.
    fn call_about(&self, now: Instant, number: Number, roster: &Roster) -> Option<(usize, Ask)> {
        let open = self.open.get(&number)?;
        let origin = self.links.get(&open.link)?.address;
        let receipt = open.receipt.to_string();
        match &open.state {
            State::Running { .. } => {
                let ask = Ask::Renew(Renewal { receipt, length: open.lease });
                Some((roster.for_settling(now, origin, &[])?, ask))
            }
            State::Settling(settling) => {
                let ask = Ask::Settle(Settlement { receipt, verdict: settling.verdict.clone() });
                Some((roster.for_settling(now, origin, &settling.refused)?, ask))
            }
        }
    }
}
