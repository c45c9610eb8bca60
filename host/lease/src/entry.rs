//! One delivery in the book.

use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tidegate_model::{DeliveryId, Handle, Instant, Message};

use crate::list::{Link, Linked};
use crate::renewal::Renewing;
use crate::wheel::{InWheel, Timed, Timing};

/// Bits of a delivery id that name the slot: 16 million deliveries at one time. The rest is a sequence number, so that
/// an id is not used again before 2^40 further deliveries.
const SLOT_BITS: u32 = 24;
/// Deliveries that a book can hold.
pub(crate) const ENTRIES_MAX: usize = 1 << SLOT_BITS;

/// One delivery in the book.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: DeliveryId,
    pub(crate) state: State,
    pub(crate) message: Arc<Message>,
    /// The newest handle of the lease.
    pub(crate) handle: Handle,
    /// When the newest lease began.
    pub(crate) received_at: Instant,
    /// When the message's first delivery was received, as far as that is remembered.
    pub(crate) first_received_at: Instant,
    /// When the newest lease ends.
    pub(crate) expires_at: Instant,
    /// The attempt as the host counts it: the larger of the broker's count and the book's.
    pub(crate) attempt: u32,
    /// By how much the message was deferred before this delivery, in sum.
    pub(crate) deferred: Duration,
    pub(crate) size_bytes: usize,
    /// Slot of its fairness key.
    pub(crate) key: u32,
    /// The ordered key, if order matters.
    pub(crate) order: Option<Arc<str>>,
    /// Slot of the ordered key's run that it belongs to. `None` without order and once overtaken.
    pub(crate) run: Option<u32>,
    /// The life of the run that it belongs to; a run that was ended from its first delivery on has a new one.
    pub(crate) epoch: u32,
    /// Which call of `handle_received` brought it.
    pub(crate) batch: u64,
    /// Whether the index by message id points here.
    pub(crate) indexed: bool,
    /// Whether a sink has seen it.
    pub(crate) was_emitted: bool,
    /// Whether the policy's verdict was to reject it.
    pub(crate) rejected_by_policy: bool,
    /// Which queue it waits in.
    pub(crate) place: Place,
    /// Its number in its key's queue, see [`Rounds`](crate::rounds::Rounds).
    pub(crate) ticket: u64,
    pub(crate) renewing: Renewing,
    pub(crate) timing: Timing,
    pub(crate) links: Links,
}

/// The story of a delivery so far, for whoever has to tell why it was given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Story {
    /// When the message's first delivery was received; what the book has forgotten does not count.
    pub first_received_at: Instant,
    /// When this delivery was received.
    pub received_at: Instant,
    /// When its lease ends.
    pub expires_at: Instant,
    /// Whether the policy's verdict was to reject it. False when a sink or a worker rejected it, or a safety valve did.
    pub rejected_by_policy: bool,
}

/// The life of a delivery.
///
/// `Received` → `Deciding` when the policy is asked → `Queued` when it may be delivered → `Emitted` when a sink has it
/// → `Settling` when its outcome is known → `Sent` when the settler has it → gone when the settler answered.
///
/// A policy that defers, rejects or discards takes `Deciding` straight to `Settling`; a drain, or a renewal policy that
/// releases, takes everything up to `Queued` there. Beside it [`Phase`](crate::renewal::Phase) tells how far a lease is on its way to a
/// renewal. Up to `Emitted` the lease may run out, or an earlier delivery of the ordered key may end the run:
/// then it is gone at once. Only an emitted one stays, as *overtaken*, until its report or the end of its lease.
#[derive(Debug)]
pub(crate) enum State {
    Received,
    Deciding,
    Queued,
    Emitted(Work),
    Settling(Plan),
    /// True: accepted or rejected. False: deferred or released.
    Sent {
        last: bool,
    },
}

/// What is known of the work on an emission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) began_at: Instant,
    /// The end of the lease that the sink was told of. From then on a worker that never reports counts as lost, and
    /// the message is emitted again when it comes again.
    pub(crate) until: Instant,
    /// An earlier delivery of the ordered key ended the run: the outcome is not settled, the message comes again.
    pub(crate) overtaken: bool,
    /// The broker has begun the ordered key anew with a delivery that a sink was working on: it was given back, or one
    /// after it was, this one perhaps.
    pub(crate) given_back: bool,
    /// The lease was replaced since: what the sink has names an older one, with which the broker does nothing any more.
    pub(crate) replaced: bool,
}

/// What to tell the broker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Plan {
    Accept,
    Reject {
        reason: Box<str>,
    },
    /// Due at a moment, so that a wait for predecessors does not lengthen it.
    Defer {
        due: Instant,
    },
    Release,
    /// Nothing: another host tells it. It still waits for its predecessors, so that what comes after it does. When its lease is
    /// replaced meanwhile, the other host cannot tell it any more, and it is accepted here.
    Elsewhere,
    /// Dropped behind a delivery whose lease is gone, while its own goes on: told as a release, so that the broker does
    /// not wait for the end of the longer lease. Not an attempt.
    Unblock,
}

impl Plan {
    /// Whether the broker will hand the message out again, and in an ordered key all that come after it.
    pub(crate) const fn comes_again(&self) -> bool {
        matches!(self, Self::Defer { .. } | Self::Release | Self::Unblock)
    }
}

/// The queue that an entry waits in; at most one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    Nowhere,
    /// For its decision.
    Received,
    /// Its key's queue, for its emission.
    Key,
    /// For the settler.
    Ready,
}

/// An entry's neighbours in the lists it can be in.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) queue: Link,
    pub(crate) run: Link,
    pub(crate) renewal: Link,
    pub(crate) wheel: Link,
}

impl Links {
    pub(crate) const UNLINKED: Self =
        Self { queue: Link::UNLINKED, run: Link::UNLINKED, renewal: Link::UNLINKED, wheel: Link::UNLINKED };
}

/// The kind of list that [`Place`] names.
#[derive(Debug)]
pub(crate) enum InQueue {}

/// The kind of list that a run is.
#[derive(Debug)]
pub(crate) enum InRun {}

/// The kind of list that waits to be asked about, or to be renewed.
#[derive(Debug)]
pub(crate) enum InRenewal {}

/// All deliveries in the book.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    slots: Slab<Entry>,
    issued: u64,
}

impl Entries {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Puts in the entry that `make` makes for its id.
    pub(crate) fn insert(&mut self, make: impl FnOnce(DeliveryId) -> Entry) -> u32 {
        let slot = self.slots.vacant_entry();
        let at = slot.key() as u32;
        self.issued += 1;
        slot.insert(make(DeliveryId(self.issued << SLOT_BITS | u64::from(at))));
        at
    }

    pub(crate) fn remove(&mut self, at: u32) -> Entry {
        self.slots.remove(at as usize)
    }

    /// The slot of the delivery; `None` when it is gone, its slot reused or not.
    pub(crate) fn find(&self, id: DeliveryId) -> Option<u32> {
        let at = id.0 & (ENTRIES_MAX as u64 - 1);
        let entry = self.slots.get(at as usize)?;
        (entry.id == id).then_some(at as u32)
    }

    /// Whether the book ever gave this id out.
    pub(crate) const fn was_issued(&self, id: DeliveryId) -> bool {
        let sequence = id.0 >> SLOT_BITS;
        sequence != 0 && sequence <= self.issued
    }

    /// Slots in use, in no particular order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(|(at, _)| at as u32)
    }
}

impl Index<u32> for Entries {
    type Output = Entry;
    fn index(&self, at: u32) -> &Entry {
        &self.slots[at as usize]
    }
}

impl IndexMut<u32> for Entries {
    fn index_mut(&mut self, at: u32) -> &mut Entry {
        &mut self.slots[at as usize]
    }
}

impl Linked<InQueue> for Entries {
    fn link(&self, at: u32) -> Link {
        self[at].links.queue
    }
    fn link_mut(&mut self, at: u32) -> &mut Link {
        &mut self[at].links.queue
    }
}

impl Linked<InRun> for Entries {
    fn link(&self, at: u32) -> Link {
        self[at].links.run
    }
    fn link_mut(&mut self, at: u32) -> &mut Link {
        &mut self[at].links.run
    }
}

impl Linked<InRenewal> for Entries {
    fn link(&self, at: u32) -> Link {
        self[at].links.renewal
    }
    fn link_mut(&mut self, at: u32) -> &mut Link {
        &mut self[at].links.renewal
    }
}

impl Linked<InWheel> for Entries {
    fn link(&self, at: u32) -> Link {
        self[at].links.wheel
    }
    fn link_mut(&mut self, at: u32) -> &mut Link {
        &mut self[at].links.wheel
    }
}

impl Timed for Entries {
    fn timing_mut(&mut self, at: u32) -> &mut Timing {
        &mut self[at].timing
    }
}
