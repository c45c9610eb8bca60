//! The acquired offsets of one partition: by which acquisition, until when, and whether something is being said about them.

use std::collections::BTreeMap;

use tidegate_model::Instant;

use super::Acquisition;
use crate::{AcknowledgeError, AcknowledgeType};

/// Offsets in ranges that never overlap. A broker lets a group hold a few thousand offsets of a partition at a time
/// (`share.partition.max.record.locks`), which bounds it.
#[derive(Debug, Default)]
pub(super) struct Held {
    ranges: BTreeMap<i64, Range>,
    count: usize,
    /// No lock ends before; the first one may end later. Locks are asked about in every turn of a member and end seldom.
    ends_from: Option<Instant>,
}

#[derive(Debug)]
struct Range {
    acquisition: Acquisition,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    /// When the lock is certainly over.
    deadline: Instant,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Held,
    /// A renewal is to be told, or was told.
    Renewing,
    /// Something final is to be told, or was told.
    Ending,
    /// Not held any more; others of the range are.
    Gone,
}

/// A part of what was asked about, alike in all its offsets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Piece {
    pub(super) first: i64,
    pub(super) last: i64,
    /// Why nothing can be said about them; `None` when it can.
    pub(super) refused: Option<AcknowledgeError>,
}

impl Held {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) const fn next_deadline(&self) -> Option<Instant> {
        self.ends_from
    }

    /// Looks for the first end among all: after renewals, and when the time that was known has come.
    pub(super) fn find_deadline(&mut self) {
        let slots = self.ranges.values().flat_map(|range| &range.slots);
        self.ends_from = slots.filter(|slot| slot.state != State::Gone).map(|slot| slot.deadline).min();
    }

    /// Adds a range. Of what an earlier acquisition held there, the newer one is right; what the same acquisition held
    /// already is left as it is and not returned.
    pub(super) fn insert(
        &mut self,
        first: i64,
        last: i64,
        acquisition: Acquisition,
        deadline: Instant,
    ) -> Vec<(i64, i64)> {
        let mut fresh = vec![(first, last)];
        for start in self.starts(first, last) {
            let Some(range) = self.ranges.get(&start) else { continue };
            let end = start + offset_count(range.slots.len()) - 1;
            if range.acquisition == acquisition {
                fresh = without(&fresh, start, end);
            } else {
                self.cut(start, first, last);
            }
        }
        for (first, last) in &fresh {
            let length = usize::try_from(last - first + 1).unwrap_or(0);
            let slot = Slot { state: State::Held, deadline };
            self.ranges.insert(*first, Range { acquisition, slots: vec![slot; length] });
            self.count += length;
            self.ends_from = Some(self.ends_from.map_or(deadline, |ends_from| ends_from.min(deadline)));
        }
        fresh
    }

    /// Marks offsets as being told about; refuses those that are not held by `acquisition`, or are being told about.
    pub(super) fn claim(
        &mut self,
        first: i64,
        last: i64,
        acquisition: Acquisition,
        kind: AcknowledgeType,
    ) -> Vec<Piece> {
        let renews = kind == AcknowledgeType::Renew;
        self.pieces(first, last, acquisition, |slot| match slot.state {
            State::Held | State::Renewing if !renews => {
                slot.state = State::Ending;
                None
            }
            State::Held => {
                slot.state = State::Renewing;
                None
            }
            State::Renewing => Some(AcknowledgeError::RenewalUnderWay),
            State::Ending | State::Gone => Some(AcknowledgeError::LeaseEnded),
        })
    }

    /// Looks again just before it is told: what was acquired anew, is certainly over, or is ended meanwhile, is refused.
    pub(super) fn confirm(
        &mut self,
        first: i64,
        last: i64,
        acquisition: Acquisition,
        kind: AcknowledgeType,
        now: Instant,
    ) -> Vec<Piece> {
        let wanted = if kind == AcknowledgeType::Renew { State::Renewing } else { State::Ending };
        self.pieces(first, last, acquisition, |slot| {
            (slot.state != wanted || slot.deadline <= now).then_some(AcknowledgeError::LeaseEnded)
        })
    }

    /// A renewal has its answer: held until `until` now, or as before.
    pub(super) fn renewed(
        &mut self,
        first: i64,
        last: i64,
        acquisition: Acquisition,
        until: Option<Instant>,
    ) {
        self.pieces(first, last, acquisition, |slot| {
            if slot.state == State::Renewing {
                slot.state = State::Held;
            }
            if let Some(until) = until {
                slot.deadline = slot.deadline.max(until);
            }
            None
        });
    }

    /// Lets go of offsets.
    pub(super) fn remove(&mut self, first: i64, last: i64, acquisition: Acquisition) {
        let mut gone = 0;
        self.pieces(first, last, acquisition, |slot| {
            if slot.state != State::Gone {
                slot.state = State::Gone;
                gone += 1;
            }
            None
        });
        self.count -= gone;
        self.sweep(first, last);
    }

    /// Lets go of what is over and not being told about. Returns how many.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        if self.ends_from.is_none_or(|ends_from| ends_from > now) {
            return 0;
        }
        let mut gone = 0;
        self.ranges.retain(|_, range| {
            for slot in &mut range.slots {
                if slot.state == State::Held && slot.deadline <= now {
                    slot.state = State::Gone;
                    gone += 1;
                }
            }
            range.is_alive()
        });
        self.count -= gone;
        self.find_deadline();
        gone
    }

    /// First offsets of the ranges that touch `first..=last`.
    fn starts(&self, first: i64, last: i64) -> Vec<i64> {
        let before = self.ranges.range(..first).next_back();
        let before = before.filter(|(start, range)| **start + offset_count(range.slots.len()) > first);
        let inside = self.ranges.range(first..=last);
        before.into_iter().chain(inside).map(|(start, _)| *start).collect()
    }

    /// Takes `first..=last` out of a range, leaving what is on either side.
    fn cut(&mut self, start: i64, first: i64, last: i64) {
        let Some(range) = self.ranges.remove(&start) else { return };
        let mut left = range.slots;
        let mut middle = left.split_off(slot_index(first - start).min(left.len()));
        let right =
            middle.split_off(slot_index(last.max(start - 1) - start.max(first) + 1).min(middle.len()));
        self.count -= middle.iter().filter(|slot| slot.state != State::Gone).count();
        let right_start = start + offset_count(left.len() + middle.len());
        for (start, slots) in [(start, left), (right_start, right)] {
            let range = Range { acquisition: range.acquisition, slots };
            if range.is_alive() {
                self.ranges.insert(start, range);
            }
        }
    }

    /// Drops ranges of which nothing is left.
    fn sweep(&mut self, first: i64, last: i64) {
        for start in self.starts(first, last) {
            if self.ranges.get(&start).is_some_and(|range| !range.is_alive()) {
                self.ranges.remove(&start);
            }
        }
    }

    /// Asks about each offset of `first..=last` and gathers equal answers. What is not there is refused.
    fn pieces(
        &mut self,
        first: i64,
        last: i64,
        acquisition: Acquisition,
        mut ask: impl FnMut(&mut Slot) -> Option<AcknowledgeError>,
    ) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut add = |first: i64, last: i64, refused: Option<AcknowledgeError>| match pieces.last_mut() {
            Some(piece) if piece.refused == refused => piece.last = last,
            _ => pieces.push(Piece { first, last, refused }),
        };
        let mut next = first;
        for start in self.starts(first, last) {
            let Some(range) = self.ranges.get_mut(&start) else { continue };
            let from = start.max(first);
            let to = (start + offset_count(range.slots.len()) - 1).min(last);
            if next < from {
                add(next, from - 1, Some(AcknowledgeError::LeaseEnded));
            }
            if range.acquisition == acquisition {
                let slots = &mut range.slots[slot_index(from - start)..=slot_index(to - start)];
                for (offset, slot) in (from..).zip(slots) {
                    let refused = ask(slot);
                    add(offset, offset, refused);
                }
            } else {
                add(from, to, Some(AcknowledgeError::LeaseEnded));
            }
            next = to + 1;
        }
        if next <= last {
            add(next, last, Some(AcknowledgeError::LeaseEnded));
        }
        pieces
    }
}

impl Range {
    fn is_alive(&self) -> bool {
        self.slots.iter().any(|slot| slot.state != State::Gone)
    }
}

/// `ranges` without `first..=last`.
fn without(ranges: &[(i64, i64)], first: i64, last: i64) -> Vec<(i64, i64)> {
    ranges
        .iter()
        .flat_map(|(a, b)| [(*a, (*b).min(first - 1)), ((*a).max(last + 1), *b)])
        .filter(|(a, b)| a <= b)
        .collect()
}

fn offset_count(slots: usize) -> i64 {
    i64::try_from(slots).unwrap_or(i64::MAX)
}

fn slot_index(offset: i64) -> usize {
    usize::try_from(offset).unwrap_or(0)
}
