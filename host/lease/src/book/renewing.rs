//! From a lease that ends soon to its renewal: the question, the answer, the settlement, its result.

use std::sync::Arc;
use std::time::Duration;

use tidegate_model::{DeliveryId, Handle, Instant, Renewal, SettleError, SettleFault, Settlement, Verb};

use super::LeaseBook;
use crate::entry::{Entry, InRun, Place, Plan, State};
use crate::event::BookEvent;
use crate::list::List;
use crate::renewal::{
    FAILURES_MAX, Flight, IN_FLIGHT_MAX, Phase, RenewalOptions, RenewalQuestion, Renewing, SPACING, Wish,
};
use crate::valves::Valve;

impl LeaseBook {
    /// Turns renewal on, off, or into another one, from the next question on. Off is how a book begins.
    ///
    /// What was decided before and is not on its way yet is dropped when it is turned off; what is on its way ends as
    /// ever.
    pub fn handle_renewal_options(&mut self, now: Instant, renewal: Option<RenewalOptions>) {
        self.renewal = renewal;
        for at in self.entries.slots().collect::<Vec<_>>() {
            if renewal.is_none() || self.entries[at].renewing.phase == Phase::Due {
                self.cancel_renewal(at);
            }
            if matches!(self.entries[at].state, State::Settling(_) | State::Sent { .. }) {
                continue;
            }
            self.entries[at].renewing.ask_at = self.next_question(at, now);
            // When a renewal is on its way, its result sets the timer.
            if self.entries[at].renewing.phase != Phase::Sent {
                self.set_timer(at);
            }
        }
    }

    /// Takes the policy's answer to a question from [`poll_renew`](Self::poll_renew). If the delivery was emitted,
    /// settled or lost meanwhile, the answer still counts for those behind it in its ordered key.
    ///
    /// * `Renew`: it is kept, within the limits of [`RenewalOptions`] and of the valves; the settlement comes out of
    ///   [`poll_settle`](Self::poll_settle). A renewal that would not lengthen the lease is not sent.
    /// * `Release`: it goes back to the broker at once. One that a sink has cannot be taken from it: for such it means
    ///   `Lapse`.
    /// * `Lapse`: it runs out, and is not asked about again.
    pub fn handle_renewal(&mut self, now: Instant, id: DeliveryId, answer: Renewal) {
        if !self.asked.remove(&id) {
            self.bug("an answer to a question about a lease that was not asked", Some(id));
            return;
        }
        match answer {
            Renewal::Renew(_) => self.renewals.answered_renew += 1,
            Renewal::Release => self.renewals.answered_release += 1,
            Renewal::Lapse => self.renewals.answered_lapse += 1,
        }
        let Some(at) = self.entries.find(id) else {
            self.renewals.overtaken += 1;
            return;
        };
        if self.entries[at].renewing.phase == Phase::Asked {
            self.entries[at].renewing.phase = Phase::Quiet;
        }
        let concerned: Vec<u32> = self.spoken_for(at).collect();
        if concerned.is_empty() {
            self.renewals.overtaken += 1;
        }
        for at in concerned {
            match answer {
                Renewal::Renew(length) => self.plan_renewal(now, at, length),
                Renewal::Release => match self.entries[at].state {
                    State::Received | State::Queued if self.has_ended(now, at) => {
                        self.expire(now, at);
                        return;
                    }
                    State::Received | State::Queued => {
                        self.settle(now, at, Plan::Release);
                        // Those behind it come again with it, and are gone.
                        return;
                    }
                    // Its verdict comes first; whoever is asked again can say so again.
                    State::Deciding => {
                        self.look_again(at, now + SPACING);
                        return;
                    }
                    _ => self.lapse(at),
                },
                Renewal::Lapse => self.lapse(at),
            }
        }
    }

    /// Takes a worker's wish to keep what it has for `length` from now. Needs no renewal policy and no
    /// [`RenewalOptions`]; the valves bound it as they bound policies. The renewal comes out of
    /// [`poll_settle`](Self::poll_settle), its result shows in [`lease_end`](Self::lease_end).
    pub fn handle_renewal_wish(&mut self, now: Instant, id: DeliveryId, length: Duration) -> Wish {
        let Some(at) = self.entries.find(id) else { return Wish::LeaseGone };
        let State::Emitted(work) = self.entries[at].state else { return Wish::LeaseGone };
        if work.overtaken {
            return Wish::LeaseGone;
        }
        if self.has_ended(now, at) {
            self.expire(now, at);
            return Wish::LeaseGone;
        }
        let gives_back = self.entries[at].run.is_some_and(|run| self.runs[run].gives_back);
        if gives_back || self.entries[at].renewing.is_under_way() {
            return Wish::Busy;
        }
        self.leave_renewal(at);
        let length = length.min(self.options.valves.max_invisible_duration);
        match self.worthwhile(now, at, length) {
            Some(length) => {
                self.entries[at].renewing.phase = Phase::Planned(length);
                self.renewals_planned.push_back(&mut self.entries, at);
                Wish::Planned
            }
            None => Wish::Enough(self.entries[at].expires_at),
        }
    }

    /// When the lease of a delivery that a sink has ends; `None` when the sink has no such delivery.
    #[must_use]
    pub fn lease_end(&self, id: DeliveryId) -> Option<Instant> {
        let entry = &self.entries[self.entries.find(id)?];
        matches!(entry.state, State::Emitted(_)).then_some(entry.expires_at)
    }

    /// The next lease that ends soon and that the policy is to be asked about.
    ///
    /// Ask this after each input, as with the other outputs. At most 64 questions are out at a time, so each must get
    /// its [`handle_renewal`](Self::handle_renewal); what the policy's answer is when it cannot be asked is the
    /// caller's choice, and `Lapse` is the one that holds on to nothing.
    pub fn poll_renew(&mut self, now: Instant) -> Option<RenewalQuestion> {
        while self.asked.len() < IN_FLIGHT_MAX {
            let at = self.renewals_due.front()?;
            self.leave_renewal(at);
            if self.entries[at].expires_at <= now {
                self.expire(now, at);
                continue;
            }
            if !self.is_renewable(at) {
                continue;
            }
            let leader = self.leader(at);
            match self.entries[leader].renewing.phase {
                // What is behind a lapsed one comes again with it, unless that is settled in time.
                Phase::Asked | Phase::Planned(_) | Phase::Sent | Phase::Lapsed => {
                    self.look_again(at, now + SPACING);
                }
                // An answer about another one renewed it before the one about itself came.
                _ if self.asked.contains(&self.entries[leader].id) => self.look_again(at, now + SPACING),
                Phase::Quiet | Phase::Due if self.entries[leader].renewing.not_before > now => {
                    self.look_again(at, self.entries[leader].renewing.not_before);
                }
                Phase::Quiet | Phase::Due => {
                    if leader != at {
                        // The answer will speak for it.
                        self.look_again(at, now + SPACING);
                        self.leave_renewal(leader);
                    }
                    if self.may_be_kept(leader) {
                        return Some(self.question(now, leader));
                    }
                    self.lapse(leader);
                }
            }
        }
        None
    }

    /// The next renewal for the settler.
    pub(super) fn next_renewal(&mut self, now: Instant) -> Option<Settlement> {
        while self.flights.len() < IN_FLIGHT_MAX {
            let at = self.renewals_planned.front()?;
            let Phase::Planned(wish) = self.entries[at].renewing.phase else { return None };
            self.leave_renewal(at);
            if self.entries[at].expires_at <= now {
                self.expire(now, at);
                continue;
            }
            let Some(length) = self.worthwhile(now, at, wish) else {
                self.renewing_over(now, at);
                continue;
            };
            self.note_cut(at, wish, length);
            self.wheel.remove(&mut self.entries, at);
            let entry = &mut self.entries[at];
            entry.renewing.phase = Phase::Sent;
            let flight = Flight { run: entry.run, batch: entry.batch, sent_at: now, length };
            let settlement = Settlement {
                id: entry.id,
                verb: Verb::Renew(length),
                message: Arc::clone(&entry.message),
                handle: entry.handle.clone(),
                attempt: entry.attempt,
            };
            if let Some(run) = entry.run {
                self.runs[run].renewing += 1;
            }
            self.flights.insert(settlement.id, flight);
            self.renewals.sent += 1;
            return Some(settlement);
        }
        None
    }

    /// Takes the result of a renewal. The new lease counts from the moment in which the settler was given it, so it
    /// never ends later here than at the broker.
    pub(super) fn land(
        &mut self,
        now: Instant,
        id: DeliveryId,
        flight: Flight,
        result: Result<Option<Handle>, SettleError>,
    ) {
        match result {
            Ok(_) => self.renewals.done += 1,
            Err(_) => self.renewals.failed += 1,
        }
        if let Some(at) = self.entries.find(id)
            && self.entries[at].renewing.phase == Phase::Sent
        {
            self.entries[at].renewing.phase = Phase::Quiet;
            // A lease that came meanwhile has its own handle and end.
            if self.entries[at].batch == flight.batch {
                match result {
                    Ok(handle) => self.keep(now, at, flight, handle),
                    Err(error) => self.keep_not(now, at, error),
                }
            }
            self.renewing_over(now, at);
        }
        // Last, since the run lives until then.
        if let Some(run) = flight.run {
            self.runs[run].renewing -= 1;
            self.advance(run);
        }
    }

    /// Whether the lease ran out. While its renewal is on its way nobody knows.
    pub(super) fn has_ended(&self, now: Instant, at: u32) -> bool {
        let entry = &self.entries[at];
        entry.expires_at <= now
            && self.flights.get(&entry.id).is_none_or(|flight| flight.batch != entry.batch)
    }

    /// What is known of the renewals of a delivery that just came.
    pub(super) fn renewing(&self, expires_at: Instant, length: Duration, kept: Duration) -> Renewing {
        let ahead = self.renewal.map_or(Duration::ZERO, |options| options.ahead);
        Renewing {
            phase: Phase::Quiet,
            ask_at: expires_at - ahead,
            not_before: Instant::ZERO,
            lead_max: Duration::MAX,
            length,
            renewals: 0,
            failures: 0,
            kept,
            turn_missed: false,
        }
    }

    /// Lets a delivery go on with a lease that a redelivery brought.
    pub(super) fn begin_anew(&mut self, at: u32, length: Duration) {
        self.cancel_renewal(at);
        let fresh = self.renewing(self.entries[at].expires_at, length, self.entries[at].renewing.kept);
        let renewing = &mut self.entries[at].renewing;
        let phase = match renewing.phase {
            phase @ (Phase::Sent | Phase::Asked) => phase,
            _ => Phase::Quiet,
        };
        let (not_before, turn_missed) = (renewing.not_before, renewing.turn_missed);
        let ask_at = fresh.ask_at.max(not_before);
        *renewing = Renewing { phase, ask_at, not_before, turn_missed, ..fresh };
    }

    /// Times the delivery: for its question, or for the end of its lease.
    pub(super) fn set_timer(&mut self, at: u32) {
        self.wheel.remove(&mut self.entries, at);
        let entry = &self.entries[at];
        let mut due = entry.expires_at;
        if entry.renewing.phase == Phase::Quiet && self.is_renewable(at) {
            due = due.min(entry.renewing.ask_at);
        }
        self.wheel.insert(&mut self.entries, at, due);
    }

    /// Its timer fired before its lease ended.
    pub(super) fn handle_early(&mut self, now: Instant, at: u32) {
        let renewing = &self.entries[at].renewing;
        if renewing.phase == Phase::Quiet && renewing.ask_at <= now && self.is_renewable(at) {
            self.entries[at].renewing.phase = Phase::Due;
            self.renewals_due.push_back(&mut self.entries, at);
        }
        self.set_timer(at);
    }

    /// Takes the delivery out of what waits to be asked about or renewed.
    pub(super) fn leave_renewal(&mut self, at: u32) {
        match self.entries[at].renewing.phase {
            Phase::Due => self.renewals_due.remove(&mut self.entries, at),
            Phase::Planned(_) => self.renewals_planned.remove(&mut self.entries, at),
            Phase::Quiet | Phase::Asked | Phase::Sent | Phase::Lapsed => return,
        }
        self.entries[at].renewing.phase = Phase::Quiet;
    }

    // === the parts ===

    /// Takes back what is not on its way, and lets the delivery go on.
    fn cancel_renewal(&mut self, at: u32) {
        self.leave_renewal(at);
        if !self.entries[at].renewing.is_under_way() {
            self.give_turn(at);
        }
    }

    /// Whether its lease is one that may be renewed.
    fn is_renewable(&self, at: u32) -> bool {
        let Some(options) = &self.renewal else { return false };
        match &self.entries[at].state {
            State::Received | State::Deciding | State::Queued => true,
            State::Emitted(work) => options.renew_emitted && !work.overtaken,
            State::Settling(_) | State::Sent { .. } => false,
        }
    }

    /// The first of its ordered key that may be renewed; without order itself.
    fn leader(&self, at: u32) -> u32 {
        let Some(run) = self.entries[at].run else { return at };
        let emitted_too = self.renewal.is_some_and(|options| options.renew_emitted);
        let first = if emitted_too { self.runs[run].deliveries.front() } else { self.runs[run].next };
        let mut behind = std::iter::successors(first, |at| List::<InRun>::next(&self.entries, *at));
        behind.find(|at| self.is_renewable(*at)).unwrap_or(at)
    }

    /// All whose renewal an answer about `at` speaks for, in order.
    fn spoken_for(&self, at: u32) -> impl Iterator<Item = u32> {
        let entry = &self.entries[at];
        let current = entry.run.filter(|run| self.runs[*run].epoch == entry.epoch);
        let alone = entry.run.is_none().then_some(at);
        let first = current.and_then(|run| self.runs[run].deliveries.front());
        let in_run = std::iter::successors(first, |at| List::<InRun>::next(&self.entries, *at));
        alone.into_iter().chain(in_run).filter(|at| {
            let phase = self.entries[*at].renewing.phase;
            self.is_renewable(*at) && !matches!(phase, Phase::Sent | Phase::Planned(_) | Phase::Lapsed)
        })
    }

    fn question(&mut self, now: Instant, at: u32) -> RenewalQuestion {
        self.keys.age(now);
        self.renewals.asked += 1;
        self.entries[at].renewing.phase = Phase::Asked;
        self.entries[at].renewing.not_before = now + SPACING;
        let first_end = self.spoken_for(at).map(|at| self.entries[at].expires_at).min();
        let entry = &self.entries[at];
        self.asked.insert(entry.id);
        RenewalQuestion {
            about: self.decide(now, at),
            remaining: first_end.unwrap_or(entry.expires_at).saturating_since(now),
            length: entry.renewing.length,
            renewals: entry.renewing.renewals,
            emitted: matches!(entry.state, State::Emitted(_)),
            queue_position: u32::try_from(self.queue_position(at)).unwrap_or(u32::MAX),
        }
    }

    fn queue_position(&self, at: u32) -> usize {
        let entry = &self.entries[at];
        match (&entry.state, entry.place) {
            (State::Emitted(_), _) => 0,
            (_, Place::Key) => self.rounds.ahead_of(&self.keys, &self.entries, at).min(self.tally.queued - 1),
            (State::Queued, _) if entry.renewing.turn_missed => 0,
            (State::Queued, _) => self.tally.queued - 1,
            _ => self.tally.queued,
        }
    }

    fn plan_renewal(&mut self, now: Instant, at: u32, length: Duration) {
        self.leave_renewal(at);
        if self.entries[at].expires_at <= now {
            // Whoever pops its timer next finds it, and with it those behind it.
            return;
        }
        // Looked at here as well, since what is planned misses its turn to be emitted.
        if self.worthwhile(now, at, length).is_none() {
            return;
        }
        self.entries[at].renewing.phase = Phase::Planned(length);
        self.renewals_planned.push_back(&mut self.entries, at);
    }

    /// Never asked about again.
    fn lapse(&mut self, at: u32) {
        self.leave_renewal(at);
        self.entries[at].renewing.phase = Phase::Lapsed;
        self.set_timer(at);
    }

    /// Asks about it when its time comes, but not before `earliest`.
    fn look_again(&mut self, at: u32, earliest: Instant) {
        if self.entries[at].renewing.phase == Phase::Lapsed {
            return;
        }
        self.entries[at].renewing.ask_at = self.next_question(at, earliest);
        self.set_timer(at);
    }

    /// When the time comes to ask about it, if that is not before `earliest`.
    fn next_question(&self, at: u32, earliest: Instant) -> Instant {
        let ahead = self.renewal.map_or(Duration::ZERO, |options| options.ahead);
        let Entry { expires_at, renewing, .. } = &self.entries[at];
        (*expires_at - ahead.min(renewing.lead_max)).max(earliest).max(renewing.not_before)
    }

    /// Whether the valve leaves a message more time to be kept. Says so when it does not.
    fn may_be_kept(&mut self, at: u32) -> bool {
        let spent = self.entries[at].renewing.kept >= self.options.valves.max_total_deferral;
        if spent {
            self.note_limit(at, Valve::TotalDeferral);
        }
        !spent
    }

    /// For how long to renew it when `wish` is asked for, within the limits; when it is not worth it, asks again later.
    fn worthwhile(&mut self, now: Instant, at: u32, wish: Duration) -> Option<Duration> {
        let entry = &self.entries[at];
        if entry.run.is_some_and(|run| self.runs[run].gives_back) {
            self.look_again(at, now + SPACING);
            return None;
        }
        let left = self.options.valves.max_total_deferral.saturating_sub(entry.renewing.kept);
        let longest = entry.expires_at.saturating_since(now).saturating_add(left);
        let longest = longest.min(self.renewal.map_or(wish, |options| options.length_max));
        let length = wish.min(longest);
        if now + length > entry.expires_at {
            return Some(length);
        }
        self.note_cut(at, wish, length);
        self.entries[at].renewing.lead_max = length / 2;
        self.look_again(at, now + SPACING);
        None
    }

    fn note_cut(&mut self, at: u32, wish: Duration, length: Duration) {
        if length < wish {
            self.note_limit(at, Valve::Length);
        }
    }

    fn note_limit(&mut self, at: u32, valve: Valve) {
        self.renewals.limited += 1;
        let message = self.entries[at].message.id.clone();
        let key = Arc::clone(&self.keys[self.entries[at].key].name);
        self.events.push(BookEvent::Valve { message, key, valve });
    }

    /// The broker keeps it for us.
    fn keep(&mut self, now: Instant, at: u32, flight: Flight, handle: Option<Handle>) {
        let entry = &mut self.entries[at];
        // A broker under pressure may answer without a handle: then the old one stays good.
        if let Some(handle) = handle.filter(|handle| !handle.text.is_empty()) {
            entry.handle = handle;
            if let State::Emitted(work) = &mut entry.state {
                work.replaced = true;
            }
        }
        let end = flight.sent_at + flight.length;
        let renewing = &mut entry.renewing;
        renewing.kept = renewing.kept.saturating_add(end.saturating_since(entry.expires_at));
        renewing.renewals = renewing.renewals.saturating_add(1);
        renewing.failures = 0;
        entry.expires_at = end;
        if let State::Emitted(work) = &mut entry.state {
            work.until = end;
        }
        let kept = renewing.kept;
        self.attempts.change(&entry.message.id, entry.first_received_at, |record| record.kept = kept);
        self.entries[at].renewing.lead_max = flight.length / 2;
        self.entries[at].renewing.ask_at = self.next_question(at, now + SPACING);
    }

    /// The renewal failed: the lease is as it was, or gone.
    fn keep_not(&mut self, now: Instant, at: u32, error: SettleError) {
        let ask_at = self.next_question(at, now + SPACING);
        let entry = &mut self.entries[at];
        match error.fault {
            SettleFault::LeaseGone => entry.expires_at = entry.expires_at.min(now),
            SettleFault::Broker => {
                entry.renewing.failures += 1;
                entry.renewing.ask_at = ask_at;
                if entry.renewing.failures >= FAILURES_MAX {
                    entry.renewing.phase = Phase::Lapsed;
                }
            }
            SettleFault::Refused => entry.renewing.phase = Phase::Lapsed,
        }
        let message = entry.message.id.clone();
        let key = Arc::clone(&self.keys[entry.key].name);
        self.events.push(BookEvent::SettleFailed { message, key, error });
    }

    /// No renewal of it is on its way any more: it goes on.
    fn renewing_over(&mut self, now: Instant, at: u32) {
        match self.entries[at].state {
            State::Settling(_) => {
                if self.entries[at].run.is_none() && self.entries[at].place == Place::Nowhere {
                    self.entries[at].place = Place::Ready;
                    self.ready.push_back(&mut self.entries, at);
                }
            }
            State::Sent { .. } => {}
            _ if self.entries[at].expires_at <= now => self.expire(now, at),
            _ => {
                self.set_timer(at);
                self.give_turn(at);
            }
        }
    }

    /// Gives it the turn that it missed, before all others of its key.
    fn give_turn(&mut self, at: u32) {
        if std::mem::take(&mut self.entries[at].renewing.turn_missed)
            && matches!(self.entries[at].state, State::Queued)
        {
            self.rounds.push_front(&mut self.keys, &mut self.entries, at);
        }
    }
}
