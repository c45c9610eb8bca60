//! Renewal: keeping the leases of deliveries that wait, as a renewal policy says.
//!
//! What the rules come from, measured on RocketMQ 5.5.0:
//!
//! * Every handle carries the end of its own lease. Past it the proxy refuses the handle, whatever was said about others
//!   of the same lite topic; so every delivery that shall be kept is renewed by itself, and the newest handle counts.
//! * A lite topic, or a queue of a FIFO topic, hands out again when the last of the leases held on it ends: renewing the
//!   tail alone keeps the head away as well, without making its handle good again.
//! * On a normal topic a renewal makes the handle before it powerless: it is answered with OK and does nothing.
//!
//! So an ordered key is asked about once, by the first of its deliveries that may be renewed; the answer speaks for all
//! of them, and each gets a renewal of its own. While renewals of a key are on their way nothing is given back of it: the
//! one that arrived last would decide when it comes again.

use std::time::Duration;

use tidegate_model::Instant;

use crate::book::Decide;

/// Questions that may be out and not answered, and renewals that the settler may have, each. A renewal takes a few
/// milliseconds and is asked for seconds ahead: so many keep thousands of deliveries.
pub(crate) const IN_FLIGHT_MAX: usize = 64;
/// Two questions about one delivery are at least so far apart, whatever the policy answers: no answer makes a hot loop.
pub(crate) const SPACING: Duration = Duration::from_secs(1);
/// Failed renewals of one lease after which it is left to run out: one may be bad luck.
pub(crate) const FAILURES_MAX: u8 = 2;

/// How a book renews.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RenewalOptions {
    /// How long before the end of a lease the policy is asked. At most half of a renewal's length counts, so that a
    /// short renewal is not asked about again at once.
    pub ahead: Duration,
    /// Whether the leases of deliveries that a sink is working on are renewed as well. Without it a delivery's handle
    /// is frozen once it is emitted.
    pub renew_emitted: bool,
    /// The longest that one renewal may last; longer ones are cut. What the broker allows, or less.
    ///
    /// How long one message may be kept by renewals in all is bounded by
    /// [`Valves::max_total_deferral`](crate::Valves::max_total_deferral), so no policy holds a message for ever.
    pub length_max: Duration,
}

/// A lease that ends soon: keep it, or not? Every question must be answered, by
/// [`handle_renewal`](crate::LeaseBook::handle_renewal).
#[derive(Clone, Debug)]
pub struct RenewalQuestion {
    /// What is leased, as at a decision. Its id comes back with the answer. For an ordered key this is the first delivery
    /// that may be renewed, and the answer speaks for all after it.
    pub about: Decide,
    /// Until the lease ends; of an ordered key, until the first of its leases ends.
    pub remaining: Duration,
    /// What the lease was taken for at first.
    pub length: Duration,
    /// How often it was renewed already.
    pub renewals: u32,
    /// Whether a sink has it.
    pub emitted: bool,
    /// About how many deliveries the sink gets before this one; 0 when it is next or emitted. An estimate by the rule of
    /// the round: exact when its key is alone, at most one turn of each key too high as long as bodies are small, off
    /// by what large bodies cost otherwise. One that is not decided yet counts as behind all that wait.
    pub queue_position: u32,
}

/// What becomes of a worker's wish to keep its lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wish {
    /// The broker is asked.
    Planned,
    /// The lease lasts until then, which is as long as wished or as long as a message may be kept.
    Enough(Instant),
    /// It is being renewed already, or its ordered key is being given back: try again soon.
    Busy,
    /// The lease ran out, or the work is not the worker's any more.
    LeaseGone,
}

/// What came of renewals, since the beginning.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Renewals {
    /// Questions asked; one for all of an ordered key.
    pub asked: u64,
    /// Answers by kind: to keep it,
    pub answered_renew: u64,
    /// to give it back,
    pub answered_release: u64,
    /// to let it run out.
    pub answered_lapse: u64,
    /// Answers that came too late: the delivery was gone, settled, or frozen by its emission.
    pub overtaken: u64,
    /// Renewals that the settler was given; one for each delivery.
    pub sent: u64,
    /// Those that kept the lease.
    pub done: u64,
    /// Those that failed, for whatever reason.
    pub failed: u64,
    /// Renewals cut, and those not sent, because a message may not be kept for so long.
    pub limited: u64,
}

/// How far a lease has come on its way to being renewed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Phase {
    /// It is asked about when its time comes.
    #[default]
    Quiet,
    /// Its time has come: in the list of what to ask about.
    Due,
    /// The policy is being asked about it, or about an earlier one of its ordered key.
    Asked,
    /// In the list of renewals for the settler, to be kept for so long from when it gets them.
    Planned(Duration),
    /// The settler has the renewal: whether the lease goes on, and which handle counts, is not known.
    Sent,
    /// Never asked about again: it runs out.
    Lapsed,
}

/// What is known of one delivery's renewals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewing {
    pub(crate) phase: Phase,
    /// When to ask next.
    pub(crate) ask_at: Instant,
    /// Not before this, however often leases and options change.
    pub(crate) not_before: Instant,
    /// The question comes at most so long before the end of the lease that counts now.
    pub(crate) lead_max: Duration,
    /// What the lease was taken for at first.
    pub(crate) length: Duration,
    pub(crate) renewals: u32,
    /// Failed ones since the last that kept it.
    pub(crate) failures: u8,
    /// By how much renewals have kept the message from running out, in sum.
    pub(crate) kept: Duration,
    /// Its turn to be emitted came while it was being renewed.
    pub(crate) turn_missed: bool,
}

impl Renewing {
    /// Whether its handle may change any moment: it is not emitted, and not settled, before that is over.
    pub(crate) const fn is_under_way(&self) -> bool {
        matches!(self.phase, Phase::Planned(_) | Phase::Sent)
    }
}

/// A renewal that the settler has. The delivery may be gone before its result comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// The run that it belonged to, which is kept until the result is there.
    pub(crate) run: Option<u32>,
    /// Tells the lease that it renews from one that came later.
    pub(crate) batch: u64,
    pub(crate) sent_at: Instant,
    pub(crate) length: Duration,
}
