//! Ordered keys: one run of deliveries each.
//!
//! What the rules come from, measured on RocketMQ 5.5.0 lite topics: a redelivery restarts at the first message that
//! is not acked and takes everything after it, acked or held; an ack does not stick while an earlier one is open; an
//! ack with a stale handle answers OK and does nothing. So:
//!
//! * A run holds a key's deliveries in order, from their arrival until the settler has them.
//! * They are emitted in order. An outcome waits for its predecessors; accepted ones then go out together.
//! * While something of a key is on its way to the broker nothing else of it is sent, so that a deferral, too, is told
//!   only when its predecessors are settled.
//! * Nothing that will come again is sent while renewals of the key are on their way, nor the other way round: what
//!   arrives last decides.
//! * What will come again (a deferral, a release, a lease that ran out, a failed settlement) ends the run there:
//!   everything after it comes again as well.
//! * A delivery of a message that is already held means that the broker has begun the key anew, and so does the run.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use slab::Slab;

use crate::entry::{Entries, InRun, State};
use crate::list::List;

/// One ordered key's deliveries.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: Arc<str>,
    /// All that the settler does not have yet, in order.
    pub(crate) deliveries: List<InRun>,
    /// The first of them that is neither emitted nor settling: the next to emit.
    pub(crate) next: Option<u32>,
    /// How many the settler has.
    pub(crate) on_way: u32,
    /// Whether what the settler has will come again: then it is one alone, and speaks for the whole key.
    pub(crate) gives_back: bool,
    /// Renewals that the settler has, those of deliveries that are gone included.
    pub(crate) renewing: u32,
    /// Told from earlier lives: goes up whenever everything not yet sent was given up.
    pub(crate) epoch: u32,
}

impl Run {
    pub(crate) fn push_back(&mut self, entries: &mut Entries, at: u32) {
        self.deliveries.push_back(entries, at);
        if self.next.is_none() {
            self.next = Some(at);
            self.skip(entries);
        }
    }

    pub(crate) fn remove(&mut self, entries: &mut Entries, at: u32) {
        if self.next == Some(at) {
            self.next = List::<InRun>::next(entries, at);
            self.skip(entries);
        }
        self.deliveries.remove(entries, at);
    }

    /// Moves `next` past what has been emitted or is settling.
    pub(crate) fn skip(&mut self, entries: &Entries) {
        while let Some(at) = self.next
            && matches!(entries[at].state, State::Emitted(_) | State::Settling(_) | State::Sent { .. })
        {
            self.next = List::<InRun>::next(entries, at);
        }
    }
}

/// The runs of all ordered keys that have something in flight.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    // Never iterated over, so that its unseeded hasher cannot influence what the book does.
    index: HashMap<Arc<str>, u32>,
    slots: Slab<Run>,
}

impl Runs {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The run of the ordered key `name`, made when there is none.
    pub(crate) fn of(&mut self, name: &Arc<str>) -> u32 {
        if let Some(run) = self.index.get(name) {
            return *run;
        }
        let run = self.slots.insert(Run {
            name: Arc::clone(name),
            deliveries: List::default(),
            next: None,
            on_way: 0,
            gives_back: false,
            renewing: 0,
            epoch: 0,
        }) as u32;
        self.index.insert(Arc::clone(name), run);
        run
    }

    /// The run of the ordered key `name`, if anything of it is in flight.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.index.get(name).copied()
    }

    /// Forgets the run when nothing of it is left.
    pub(crate) fn tidy(&mut self, run: u32) {
        let empty = self
            .slots
            .get(run as usize)
            .is_some_and(|run| run.deliveries.is_empty() && run.on_way == 0 && run.renewing == 0);
        if empty {
            let run = self.slots.remove(run as usize);
            self.index.remove(&run.name);
        }
    }

    /// Slots in use, in no particular order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(|(run, _)| run as u32)
    }
}

impl Index<u32> for Runs {
    type Output = Run;
    fn index(&self, run: u32) -> &Run {
        &self.slots[run as usize]
    }
}

impl IndexMut<u32> for Runs {
    fn index_mut(&mut self, run: u32) -> &mut Run {
        &mut self.slots[run as usize]
    }
}
