//! What a member holds of one partition at one broker, and what it is still to say about it.
//!
//! A broker applies the acknowledgements that one request has for a partition all or none (KIP-932), so one that came too
//! late would undo its neighbours. Late ones are therefore dropped here, and when a broker refuses a set all the same, it
//! is told again in halves until the late ones are found.

mod batches;
mod held;

use std::collections::VecDeque;

use tidegate_model::Instant;

pub(crate) use self::batches::{Batch, batches};
use self::held::Held;
use crate::{AcknowledgeError, AcknowledgeType, ErrorCode};

/// How often one acknowledgement is told when the broker cannot take it at the moment.
const TELLINGS_MAX: u8 = 4;
/// How many requests the search for late acknowledgements in one refused set may take. A search of two among two thousand
/// takes about forty.
const SEARCH_REQUESTS_MAX: u32 = 48;

/// Which acquisition of a record is meant: the same member may acquire a record again while an earlier acknowledgement of it
/// is still under way, and brokers tell members apart, not acquisitions.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Acquisition(pub(crate) u64);

/// What is to be said about some neighbouring records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Acknowledgement {
    pub(crate) first: i64,
    /// Inclusive.
    pub(crate) last: i64,
    pub(crate) acquisition: Acquisition,
    pub(crate) kind: AcknowledgeType,
    /// Comes back with the result.
    pub(crate) token: u64,
}

/// What became of an acknowledgement, or of a part of it. Each offset has exactly one result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Told {
    pub(crate) token: u64,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) kind: AcknowledgeType,
    pub(crate) result: Result<(), AcknowledgeError>,
}

/// One partition's acquired records at one broker.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    held: Held,
    /// To be told, in the order they came.
    waiting: Vec<Unit>,
    /// Told, without an answer yet.
    sent: Vec<Unit>,
    /// Sets of which some are late, each to be told alone.
    suspects: VecDeque<Vec<Unit>>,
    /// Requests left for the search in the suspects.
    searches_left: u32,
}

#[derive(Clone, Copy, Debug)]
struct Unit {
    ack: Acknowledgement,
    tellings: u8,
}

impl Acks {
    /// Offsets that are with the member now. Returns those that it really has from this: one that came twice in one answer
    /// counts once (KAFKA-19789).
    pub(crate) fn acquire(
        &mut self,
        first: i64,
        last: i64,
        acquisition: Acquisition,
        deadline: Instant,
    ) -> Vec<(i64, i64)> {
        self.held.insert(first, last, acquisition, deadline)
    }

    /// Takes in what is to be said; what cannot be said any more has its result at once.
    pub(crate) fn acknowledge(&mut self, ack: Acknowledgement, results: &mut Vec<Told>) {
        for piece in self.held.claim(ack.first, ack.last, ack.acquisition, ack.kind) {
            let part = Acknowledgement { first: piece.first, last: piece.last, ..ack };
            match piece.refused {
                None => self.waiting.push(Unit { ack: part, tellings: 0 }),
                Some(error) => results.push(told(&part, Err(error))),
            }
        }
    }

    /// Whether there is something to say.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.suspects.is_empty()
    }

    /// Whether a renewal is among what there is to say: it cannot travel with a fetch.
    pub(crate) fn has_renewal(&self) -> bool {
        let renews = |unit: &Unit| unit.ack.kind == AcknowledgeType::Renew;
        self.waiting.iter().any(renews) || self.suspects.front().is_some_and(|set| set.iter().any(renews))
    }

    /// Whether there is nothing held and nothing to say.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.sent.is_empty() && !self.is_waiting()
    }

    /// Records held, those included that something was said about without an answer yet.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// When the next of what is held is certainly over, or earlier.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.held.next_deadline()
    }

    /// What the next request says about this partition, ascending and without overlaps. An answer is owed:
    /// [`Self::handle_answer`] or [`Self::handle_lost`].
    pub(crate) fn take(&mut self, now: Instant, results: &mut Vec<Told>) -> Vec<Batch> {
        debug_assert!(self.sent.is_empty(), "one request at a time");
        let units = match self.suspects.pop_front() {
            Some(set) => {
                self.searches_left = self.searches_left.saturating_sub(1);
                set
            }
            None => std::mem::take(&mut self.waiting),
        };
        for unit in units {
            let ack = unit.ack;
            for piece in self.held.confirm(ack.first, ack.last, ack.acquisition, ack.kind, now) {
                let part = Acknowledgement { first: piece.first, last: piece.last, ..ack };
                match piece.refused {
                    None => self.sent.push(Unit { ack: part, tellings: unit.tellings + 1 }),
                    Some(error) => {
                        self.let_go(&part);
                        results.push(told(&part, Err(error)));
                    }
                }
            }
        }
        self.sent.sort_unstable_by_key(|unit| unit.ack.first);
        batches(self.sent.iter().map(|unit| (unit.ack.first, unit.ack.last, unit.ack.kind)))
    }

    /// The broker's answer for this partition. Renewed records are held until `renewed_until`.
    pub(crate) fn handle_answer(
        &mut self,
        code: ErrorCode,
        message: Option<&str>,
        renewed_until: Instant,
        results: &mut Vec<Told>,
    ) {
        let sent = std::mem::take(&mut self.sent);
        if code.is_ok() {
            for unit in sent {
                self.succeed(&unit.ack, renewed_until);
                results.push(told(&unit.ack, Ok(())));
            }
            self.held.find_deadline();
            return;
        }
        match code {
            ErrorCode::INVALID_RECORD_STATE | ErrorCode::INVALID_REQUEST => {
                self.search(sent, code, message, results);
            }
            ErrorCode::COORDINATOR_NOT_AVAILABLE
            | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode::REQUEST_TIMED_OUT
            | ErrorCode::KAFKA_STORAGE_ERROR
            | ErrorCode::UNKNOWN_SERVER_ERROR => self.tell_again(sent, code, message, results),
            _ => {
                let error = AcknowledgeError::of(code, message);
                for unit in sent {
                    self.fail(&unit.ack, error.clone(), results);
                }
            }
        }
    }

    /// The request was not looked at, since the share session was gone: the records may still be held.
    pub(crate) fn handle_unheard(&mut self, code: ErrorCode, results: &mut Vec<Told>) {
        let sent = std::mem::take(&mut self.sent);
        self.tell_again(sent, code, None, results);
    }

    /// Everything held is gone: the connection that it was held by broke, and the broker releases what it was not told.
    pub(crate) fn handle_lost(&mut self, error: &AcknowledgeError, results: &mut Vec<Told>) {
        let suspects = std::mem::take(&mut self.suspects).into_iter().flatten();
        let units = std::mem::take(&mut self.sent)
            .into_iter()
            .chain(suspects)
            .chain(std::mem::take(&mut self.waiting));
        results.extend(units.map(|unit| told(&unit.ack, Err(error.clone()))));
        self.held = Held::default();
    }

    /// Forgets what is certainly over by now. Returns how many records that were.
    pub(crate) fn expire(&mut self, now: Instant) -> usize {
        self.held.expire(now)
    }

    fn succeed(&mut self, ack: &Acknowledgement, renewed_until: Instant) {
        if ack.kind == AcknowledgeType::Renew {
            self.held.renewed(ack.first, ack.last, ack.acquisition, Some(renewed_until));
        } else {
            self.held.remove(ack.first, ack.last, ack.acquisition);
        }
    }

    fn fail(&mut self, ack: &Acknowledgement, error: AcknowledgeError, results: &mut Vec<Told>) {
        self.let_go(ack);
        results.push(told(ack, Err(error)));
    }

    /// A renewal that came to nothing leaves the record held until its deadline; anything else means that the record is not
    /// ours any more, or comes again.
    fn let_go(&mut self, ack: &Acknowledgement) {
        if ack.kind == AcknowledgeType::Renew {
            self.held.renewed(ack.first, ack.last, ack.acquisition, None);
        } else {
            self.held.remove(ack.first, ack.last, ack.acquisition);
        }
    }

    fn tell_again(
        &mut self,
        sent: Vec<Unit>,
        code: ErrorCode,
        message: Option<&str>,
        results: &mut Vec<Told>,
    ) {
        for unit in sent {
            if unit.tellings < TELLINGS_MAX {
                self.waiting.push(unit);
            } else {
                self.fail(&unit.ack, AcknowledgeError::of(code, message), results);
            }
        }
    }

    /// Halves a refused set, or gives up on what is alone.
    fn search(&mut self, sent: Vec<Unit>, code: ErrorCode, message: Option<&str>, results: &mut Vec<Told>) {
        let is_alone = matches!(sent.as_slice(), [unit] if unit.ack.first == unit.ack.last);
        if self.suspects.is_empty() && !is_alone && self.searches_left == 0 {
            self.searches_left = SEARCH_REQUESTS_MAX;
        }
        if is_alone || self.searches_left == 0 {
            let error = AcknowledgeError::of(code, message);
            for unit in sent {
                self.fail(&unit.ack, error.clone(), results);
            }
            if self.suspects.is_empty() {
                self.searches_left = 0;
            }
            return;
        }
        let (left, right) = halves(sent);
        self.suspects.push_front(right);
        self.suspects.push_front(left);
    }
}

/// Renewals apart from the rest first, since a group may refuse them all; then by count; then by offsets.
fn halves(mut set: Vec<Unit>) -> (Vec<Unit>, Vec<Unit>) {
    let renews = |unit: &Unit| unit.ack.kind == AcknowledgeType::Renew;
    if set.iter().any(renews) && !set.iter().all(renews) {
        return set.into_iter().partition(|unit| !renews(unit));
    }
    if let [unit] = set.as_slice() {
        let middle = unit.ack.first + (unit.ack.last - unit.ack.first) / 2;
        let mut left = *unit;
        let mut right = *unit;
        left.ack.last = middle;
        right.ack.first = middle + 1;
        return (vec![left], vec![right]);
    }
    let right = set.split_off(set.len() / 2);
    (set, right)
}

fn told(ack: &Acknowledgement, result: Result<(), AcknowledgeError>) -> Told {
    Told { token: ack.token, first: ack.first, last: ack.last, kind: ack.kind, result }
}

#[cfg(test)]
mod tests;
