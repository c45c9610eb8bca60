//! What members say about what they acquired. All of a request's batches for a partition are applied, or none.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{InFlight, RecordRun, RecordState, Rules, SharePartition};
use crate::error_code::{INVALID_RECORD_STATE, INVALID_REQUEST};

/// The protocol's acknowledge types.
const GAP: i8 = 0;
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;
const RENEW: i8 = 4;

/// A range and one type for it, or one for each offset.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledgement {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) types: Vec<i8>,
}

/// Why a partition's acknowledgements were refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) code: i16,
    pub(crate) text: &'static str,
}

const fn state(text: &'static str) -> Refusal {
    Refusal { code: INVALID_RECORD_STATE, text }
}

const fn request(text: &'static str) -> Refusal {
    Refusal { code: INVALID_REQUEST, text }
}

impl SharePartition {
    /// Applies what a member says. `renewing` is the request's flag for renewals.
    pub(crate) fn acknowledge(
        &mut self,
        member: &str,
        batches: &[Acknowledgement],
        renewing: bool,
        (now, rules): (Duration, &Rules),
    ) -> Result<(), Refusal> {
        check(batches, renewing)?;
        let renews = batches.iter().any(|batch| batch.types.contains(&RENEW));
        if renews && !rules.renew {
            return Err(state("Renewing acquisition locks is not enabled for the group."));
        }
        let mut before = BTreeMap::new();
        let tally = self.tally;
        for batch in batches {
            if let Err(refusal) = self.apply(member, batch, now, rules, &mut before) {
                self.in_flight.append(&mut before);
                self.tally = tally;
                return Err(refusal);
            }
        }
        self.tally.acknowledgement_batches += batches.len() as u64;
        if renews {
            self.lock_until(now + rules.lock);
        }
        for at in before.keys() {
            if let Some(batch) = self.in_flight.get_mut(at) {
                batch.join();
            }
        }
        self.stored = self.start;
        self.advance();
        Ok(())
    }

    /// Applies one batch; what it changes is put aside first.
    fn apply(
        &mut self,
        member: &str,
        said: &Acknowledgement,
        now: Duration,
        rules: &Rules,
        before: &mut BTreeMap<i64, InFlight>,
    ) -> Result<(), Refusal> {
        if said.last < self.start {
            return Ok(());
        }
        let first = said.first.max(self.start);
        let Some((&from, _)) = self.in_flight.range(..=first).next_back() else {
            return Err(state("Batch record not found"));
        };
        let touched: Vec<(i64, i64)> =
            self.in_flight.range(from..=said.last).map(|(at, batch)| (*at, batch.last)).collect();
        let past = touched.last().is_none_or(|(_, last)| *last < said.last);
        if past {
            return Err(request("Batch record not found: the request is past the acquired records"));
        }
        for (at, _) in touched {
            let Some(batch) = self.in_flight.get_mut(&at) else { continue };
            if batch.last < first {
                continue;
            }
            before.entry(at).or_insert_with(|| batch.clone());
            let start = self.start;
            for run in batch.part(said.first.max(start), said.last) {
                if run.state != RecordState::Acquired {
                    return Err(state("The offset is not acquired"));
                }
                if run.member.as_deref() != Some(member) {
                    return Err(state("Member is not the owner of offset"));
                }
            }
            if let [single] = said.types[..] {
                for run in batch.part(said.first.max(start), said.last) {
                    settle(run, single, now, rules, &mut self.tally);
                }
                continue;
            }
            for (offset, kind) in (said.first..).zip(&said.types) {
                if offset >= start && offset >= at && offset <= batch.last {
                    for run in batch.part(offset, offset) {
                        settle(run, *kind, now, rules, &mut self.tally);
                    }
                }
            }
        }
        Ok(())
    }
}

/// What is wrong with the request itself.
fn check(batches: &[Acknowledgement], renewing: bool) -> Result<(), Refusal> {
    let mut previous = i64::MIN;
    for batch in batches {
        if batch.first > batch.last || batch.first < previous {
            return Err(request("The acknowledgement batches are out of order"));
        }
        previous = batch.last;
        let offsets = usize::try_from(batch.last - batch.first + 1).unwrap_or(usize::MAX);
        if batch.types.len() != 1 && batch.types.len() != offsets {
            return Err(request("The number of acknowledge types is not that of the offsets"));
        }
        if batch.types.iter().any(|kind| !(GAP..=RENEW).contains(kind)) {
            return Err(request("Invalid acknowledge type"));
        }
        if batch.types.contains(&RENEW) && !renewing {
            return Err(request("Renewals need a request that says it renews"));
        }
    }
    Ok(())
}

fn settle(run: &mut RecordRun, kind: i8, now: Duration, rules: &Rules, tally: &mut super::Tally) {
    let length = run.length();
    match kind {
        ACCEPT => {
            tally.accepted += length;
            run.become_(RecordState::Acknowledged);
        }
        RELEASE => {
            tally.released += length;
            run.release(rules);
            if run.state == RecordState::Archived {
                tally.exhausted += length;
            }
        }
        RENEW => {
            tally.renewed += length;
            run.until = Some(now + rules.lock);
        }
        REJECT => {
            tally.rejected += length;
            run.become_(RecordState::Archived);
        }
        _ => {
            tally.gaps += length;
            run.become_(RecordState::Archived);
        }
    }
}
