//! The flow's loop.

mod control;
mod rejecting;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_connector::{
    Clock, Notice, RenewError, RenewalWish, Reports, Settler, SinkError, SinkTrouble, Source, VoidCause,
};
use tidegate_lease::{BookEvent, Decide, LeaseBook, RerunKind, Stage, Taken, Undecided, Wish};
use tidegate_model::{
    Capacity, Delivery, DeliveryId, Emission, Instant, SettleError, SettleFault, Settlement, Verb, Verdict,
};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::flow::{
    BookBug, Irregularity, JoinState, Joined, Origin, Progress, ReceiveFailed, ReceivesAgain, SettleFailed,
    SettleResult, Turned, UndecidedEnd, VerdictKind,
};
use tokio::sync::mpsc;

use super::breaker::Breaker;
use super::dead_letter::DeadLetters;
use super::decider::{Decided, Decider};
use super::endings::Endings;
use super::intake::Intake;
use super::presence::{Change, Presence};
use super::receive::{Arrival, Workers};
use super::renewer::Renewer;
use super::settle::{Meaning, REJECT, Settled, Settling, Told};
use super::shadow::Shadows;
use super::sink::{SinkNews, SinkPort};
use super::tap::Taps;
use super::{Command, Drain, FlowOptions, FlowParts, FlowState, FlowStatus, Pause, Totals};

/// Decisions in one turn. A policy that takes its whole deadline for each then holds the loop for about a second at
/// worst, and leases, reports and results are looked at in between.
const DECISIONS_PER_TURN: usize = 128;
/// And no more once this long has been spent on them.
const DECIDING_PER_TURN: Duration = Duration::from_millis(20);
/// Ready events that are taken in one go before the book is asked what to do.
const EVENTS_PER_TURN: usize = 16;
/// How often in one turn the book is asked for what to emit and to settle. Twice as a rule: what is asked first can be
/// freed by what is asked last. More only while leases end in between, which the next turn takes as well.
const ROUNDS_PER_TURN: usize = 8;
/// Emissions in one batch to a sink.
const EMISSIONS_PER_BATCH: usize = 128;
/// How often the source is asked whether the broker serves it. A look costs a lock and no I/O.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// How soon a sink that is far behind with reading is offered its notices again.
const NOTICES_RETRY: Duration = Duration::from_millis(50);

/// The task that owns a flow's book.
pub(super) struct Turner {
    options: FlowOptions,
    book: LeaseBook,
    clock: Clock,
    telemetry: Telemetry,
    status: Arc<Mutex<FlowStatus>>,
    source: Arc<dyn Source>,
    presence: Presence,
    look_due: Instant,
    /// When the sink is to be told what it had no room for.
    notices_due: Option<Instant>,
    settler: Arc<dyn Settler>,
    decider: Decider,
    taps: Taps,
    endings: Endings,
    renewer: Option<Renewer>,
    workers: Workers,
    settling: Settling,
    sink: SinkPort,
    intake: Intake,
    dead_letters: Option<DeadLetters>,
    breaker: Breaker,
    state: FlowState,
    pause: Option<Pause>,
    failure: Option<String>,
    /// What the dead-letter sink has not taken lately, until it takes something.
    dead_letter_trouble: Option<SinkTrouble>,
    /// Since an operator's drain, or the host's, began.
    drain: Option<Drain>,
    totals: Totals,
    progress: Progress,
    /// Receives that failed since the last one that did not, over all workers.
    receive_failures: u32,
}

/// What woke the loop.
enum Event {
    Command(Option<Command>),
    Arrival(Option<Arrival>),
    Reports(Reports),
    DeadLetterReports(Reports),
    SinkEnded(Result<(), SinkError>),
    DeadLetterSinkEnded(Result<(), SinkError>),
    Settled(Vec<Settled>),
    Timeout,
    More,
}

impl Turner {
    pub(super) fn new(
        options: FlowOptions,
        parts: FlowParts,
        clock: Clock,
        telemetry: Telemetry,
        status: Arc<Mutex<FlowStatus>>,
        shadows: Shadows,
        taps: Taps,
    ) -> Self {
        let workers = Workers::start(&parts.source, options.receive_workers, options.book.seed);
        let mut book = LeaseBook::new(options.book.clone(), clock.now());
        let renewer = parts.renewing.map(|policy| {
            book.handle_renewal_options(clock.now(), Some(options.renewal));
            Renewer::new(Arc::clone(&options.source_name), policy, options.book.seed)
        });
        let sink = SinkPort::start(parts.sink);
        Self {
            book,
            workers,
            settling: Settling::new(Arc::clone(&parts.settler)),
            intake: Intake::new(options.book.budget_messages, sink.credits()),
            sink,
            dead_letters: parts.dead_letter.map(|sink| DeadLetters::start(sink, options.book.seed)),
            breaker: Breaker::new(options.dead_letter_burst, options.dead_letter_window),
            endings: Endings::new(options.book.budget_messages),
            renewer,
            decider: Decider::new(
                Arc::clone(&options.source_name),
                parts.throttle,
                parts.shadow,
                shadows,
                taps.clone(),
                options.book.seed,
            ),
            taps,
            source: parts.source,
            presence: Presence::default(),
            look_due: clock.now(),
            notices_due: None,
            settler: parts.settler,
            state: FlowState::Running,
            pause: None,
            failure: None,
            dead_letter_trouble: None,
            drain: None,
            totals: Totals::default(),
            progress: Progress::default(),
            receive_failures: 0,
            options,
            clock,
            telemetry,
            status,
        }
    }

    /// Runs until the flow has ended. Whoever drops this before calls [`break_off`](Self::break_off).
    pub(super) async fn run(&mut self, commands: mpsc::Receiver<Command>) {
        let mut commands = Some(commands);
        self.say_state(None);
        self.telemetry.emit(Joined { flow: &self.options.name, state: JoinState::Joining });
        loop {
            let more = self.act();
            if self.failure.is_some() {
                self.start_draining().await;
            }
            self.look_at_source();
            self.publish();
            if self.is_finished() {
                break;
            }
            let event = if more {
                // Others get their turn between two long stretches of deciding.
                tokio::task::yield_now().await;
                Event::More
            } else {
                self.wait(&mut commands).await
            };
            self.handle(event).await;
            self.take_what_is_ready();
        }
        self.finish().await;
    }

    async fn wait(&mut self, commands: &mut Option<mpsc::Receiver<Command>>) -> Event {
        let look_due = self.state.is_live().then_some(self.look_due);
        let wake_at = [self.book.poll_timeout(), look_due, self.endings.poll_timeout(), self.notices_due]
            .into_iter()
            .flatten()
            .min();
        let wake_at = wake_at.map(|at| self.clock.deadline(at));
        let timeout = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let command = async {
            match commands {
                Some(open) => open.recv().await,
                None => std::future::pending().await,
            }
        };
        let dead_letter = async {
            match &mut self.dead_letters {
                Some(sink) => sink.next().await,
                None => std::future::pending().await,
            }
        };
        // Biased: what frees room and settles work comes before new work.
        let event = tokio::select! {
            biased;
            command = command => Event::Command(command),
            settled = self.settling.next() => Event::Settled(settled),
            news = self.sink.next() => match news {
                SinkNews::Reports(reports) => Event::Reports(reports),
                SinkNews::Ended(ended) => Event::SinkEnded(ended),
            },
            news = dead_letter => match news {
                SinkNews::Reports(reports) => Event::DeadLetterReports(reports),
                SinkNews::Ended(ended) => Event::DeadLetterSinkEnded(ended),
            },
            arrival = self.workers.next(), if self.state.is_live() => Event::Arrival(arrival),
            () = timeout => Event::Timeout,
        };
        if let Event::Command(None) = event {
            *commands = None;
        }
        event
    }

    async fn handle(&mut self, event: Event) {
        match event {
            Event::Command(Some(Command::Valves(valves))) => self.handle_valves(valves),
            Event::Command(Some(Command::SetPaused(paused, answer))) => {
                // Whoever asked may have gone.
                let _ = answer.send(self.set_paused(paused));
            }
            // A dropped handle asks for the same.
            Event::Command(Some(Command::Drain) | None) => self.start_draining().await,
            Event::Arrival(Some(arrival)) => self.handle_arrival(arrival),
            Event::Arrival(None) => self.fail("its receive workers have all died".to_owned()).await,
            Event::Reports(reports) => self.handle_reports(reports),
            Event::DeadLetterReports(reports) => self.handle_dead_letter_reports(reports),
            Event::SinkEnded(ended) => self.fail(sentence(ended, "its sink ended")).await,
            Event::DeadLetterSinkEnded(ended) => {
                if let Some(dead_letters) = &mut self.dead_letters {
                    dead_letters.handle_ended();
                }
                self.fail(sentence(ended, "its dead-letter sink ended")).await;
            }
            Event::Settled(settled) => self.handle_settled(settled),
            Event::Timeout => self.book.handle_timeout(self.clock.now()),
            Event::More => {}
        }
    }

    fn take_what_is_ready(&mut self) {
        for _ in 0..EVENTS_PER_TURN {
            let mut idle = true;
            if let Some(settled) = self.settling.try_next() {
                self.handle_settled(settled);
                idle = false;
            }
            if let Some(reports) = self.sink.try_next() {
                self.handle_reports(reports);
                idle = false;
            }
            if self.state.is_live()
                && let Some(arrival) = self.workers.try_next()
            {
                self.handle_arrival(arrival);
                idle = false;
            }
            if idle {
                break;
            }
        }
    }

    // === inputs ===

    fn handle_arrival(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Received { worker, granted, deliveries } => {
                self.workers.set_idle(worker);
                let failures = std::mem::take(&mut self.receive_failures);
                if failures > 0 {
                    self.telemetry.emit(ReceivesAgain { flow: &self.options.name, failures });
                }
                self.handle_received(granted, deliveries);
            }
            Arrival::Failed { worker, granted, error, wait } => {
                self.workers.set_waiting(worker);
                self.totals.receive_errors += 1;
                self.receive_failures = self.receive_failures.saturating_add(1);
                let in_a_row = self.receive_failures;
                self.telemetry.emit(ReceiveFailed {
                    flow: &self.options.name,
                    detail: &error.detail,
                    in_a_row,
                    wait,
                });
                self.handle_received(granted, Vec::new());
            }
            Arrival::Idle { worker } => self.workers.set_idle(worker),
        }
    }

    fn handle_received(&mut self, granted: Capacity, deliveries: Vec<Delivery>) {
        let count = deliveries.len() as u64;
        self.totals.received += count;
        self.progress.received += count;
        let rule = &self.options.key_rule;
        let keyed = deliveries
            .into_iter()
            .map(|d| {
                let key = rule.key_of(&d.message);
                (d, key)
            })
            .collect();
        self.book.handle_received(self.clock.now(), granted, keyed);
    }

    fn handle_reports(&mut self, reports: Reports) {
        let now = self.clock.now();
        for report in reports.ended {
            let taken = self.book.handle_report(now, report.clone());
            self.endings.handle_report(now, &report, taken);
            let cause = match taken {
                // What the broker says is the answer.
                Taken::Yes => continue,
                Taken::LeaseExpired => VoidCause::LeaseExpired,
                Taken::Overtaken => VoidCause::Overtaken,
                Taken::Unknown => VoidCause::Unknown,
            };
            self.sink.note(|| Notice::Void { id: report.id, cause });
        }
        for RenewalWish { id, length } in reports.renewals {
            let result = match self.book.handle_renewal_wish(now, id, length) {
                Wish::Planned => continue,
                Wish::Enough(until) => Ok(until),
                Wish::Busy => Err(RenewError::Busy),
                Wish::LeaseGone => Err(RenewError::LeaseGone),
            };
            self.sink.note(|| Notice::Renewed { id, result });
        }
    }

    fn handle_settled(&mut self, settled: Vec<Settled>) {
        let now = self.clock.now();
        for Settled { id, message_id, verb, meaning, result } in settled {
            let label = match &result {
                Ok(_) => SettleResult::Done,
                Err(error) => match error.fault {
                    SettleFault::LeaseGone => SettleResult::LeaseGone,
                    SettleFault::Broker => SettleResult::Broker,
                    SettleFault::Refused => SettleResult::Refused,
                },
            };
            self.progress.settlement(verb, label);
            if let Some(drain) = &mut self.drain {
                drain.count(verb, result.is_ok());
            }
            match &result {
                Ok(_) if verb == Verb::Accept.name() => self.totals.accepted += 1,
                Ok(_) => {}
                Err(error) => {
                    self.totals.settle_failures += 1;
                    self.telemetry.emit(SettleFailed {
                        flow: &self.options.name,
                        message_id: message_id.as_str(),
                        detail: &error.to_string(),
                        lease_gone: error.fault == SettleFault::LeaseGone,
                    });
                }
            }
            self.note_buried(id, meaning, &result);
            let result = match meaning {
                Meaning::Itself | Meaning::Burial => result,
                // For the book and for whoever rejected it the rejection has failed, even though the broker did as told.
                Meaning::GivenBack { why, .. } => {
                    Err(SettleError { verb: REJECT, detail: why.into(), fault: SettleFault::Broker })
                }
            };
            let told = result.as_ref().map(|_| ()).map_err(Clone::clone);
            self.book.handle_settled(now, id, result);
            self.note_settled(id, verb, told);
        }
    }

    /// Tells a sink that wants to know what the broker said.
    fn note_settled(&mut self, id: DeliveryId, verb: &'static str, result: Result<(), SettleError>) {
        let book = &self.book;
        self.sink.note(|| {
            if verb != Verb::Renew(Duration::ZERO).name() {
                return Notice::Settled { id, result };
            }
            let result = result.map_err(RenewError::Settle);
            let result = result.and_then(|()| book.lease_end(id).ok_or(RenewError::LeaseGone));
            Notice::Renewed { id, result }
        });
    }

    /// Looks whether the broker serves the flow, when it is time to.
    fn look_at_source(&mut self) {
        let now = self.clock.now();
        if !self.state.is_live() || now < self.look_due {
            return;
        }
        self.look_due = now + LOOK_INTERVAL;
        let change = self.presence.handle_look(now, self.source.is_joined());
        let Some(change) = change else { return };
        let remark = if change == Change::Away { self.source.status() } else { None };
        let state = match change {
            Change::Joined => JoinState::Joined,
            Change::Away => JoinState::Away { remark: remark.as_deref() },
            Change::Back => JoinState::Back,
        };
        self.telemetry.emit(Joined { flow: &self.options.name, state });
    }

    // === outputs ===

    /// Does what the book asks. True when it has more to decide than fits one turn.
    fn act(&mut self) -> bool {
        // First, so that the endings of what is decided now are told to whoever has just begun to look on.
        self.endings.set_on(self.is_observed() || self.taps.want_endings());
        let mut more = self.decide();
        for round in 1.. {
            self.renew();
            let mut moved = self.emit();
            moved |= self.settle();
            moved |= self.note_events();
            if !moved && round > 1 {
                break;
            }
            if round >= ROUNDS_PER_TURN {
                more = true;
                break;
            }
        }
        self.receive();
        self.tell_endings();
        let mut told = self.sink.notify();
        if let Some(dead_letters) = &mut self.dead_letters {
            told &= dead_letters.notify();
        }
        self.notices_due = (!told).then(|| self.clock.now() + NOTICES_RETRY);
        more
    }

    fn decide(&mut self) -> bool {
        let began = self.clock.now();
        let mut now = began;
        for turn in 0..DECISIONS_PER_TURN {
            if now.saturating_since(began) > DECIDING_PER_TURN {
                return true;
            }
            let Some(decide) = self.book.poll_decide(now) else { return false };
            let id = decide.id;
            let verdict = self.ask(&decide, now);
            let after = self.clock.now();
            if turn == 0 && self.decider.has_policy() {
                self.progress.decision_times.push(after.saturating_since(now));
            }
            now = after;
            self.endings.handle_verdict(&decide, &verdict);
            self.book.handle_verdict(now, id, verdict);
        }
        true
    }

    fn ask(&mut self, decide: &Decide, now: Instant) -> Verdict {
        let Decided { verdict, origin, stop } =
            self.decider.decide(decide, now, &self.clock, &mut self.progress);
        if let Some(cause) = stop
            && self.failure.is_none()
        {
            self.failure = Some(format!("its policy failed ({cause}) and `on-error` is `stop`"));
        }
        let kind = match &verdict {
            Verdict::Deliver => VerdictKind::Deliver,
            Verdict::Defer(_) => VerdictKind::Defer,
            Verdict::Reject { .. } => VerdictKind::Reject,
            Verdict::Discard { .. } => VerdictKind::Discard,
        };
        let total = match kind {
            VerdictKind::Deliver => &mut self.totals.delivered,
            VerdictKind::Defer => &mut self.totals.deferred,
            VerdictKind::Reject => &mut self.totals.rejected,
            VerdictKind::Discard => &mut self.totals.discarded,
        };
        *total += 1;
        self.totals.on_error += u64::from(origin == Origin::OnError);
        self.progress.verdict(kind, origin);
        verdict
    }

    /// Asks about leases that end soon. The book lets no more than a few tens through at a time, and the same one once a
    /// second.
    fn renew(&mut self) {
        let Some(renewer) = &mut self.renewer else { return };
        let now = self.clock.now();
        while let Some(question) = self.book.poll_renew(now) {
            let answer = renewer.decide(&question, now, &self.clock);
            self.book.handle_renewal(now, question.about.id, answer);
        }
    }

    /// Gives the sink what it has room for; true when that was anything.
    fn emit(&mut self) -> bool {
        let now = self.clock.now();
        let mut emitted = false;
        loop {
            let room = self.sink.room().min(EMISSIONS_PER_BATCH);
            let batch: Vec<Emission> = std::iter::from_fn(|| self.book.poll_emit(now)).take(room).collect();
            if batch.is_empty() {
                return emitted;
            }
            emitted = true;
            let count = batch.len() as u64;
            self.totals.emitted += count;
            for emission in &batch {
                self.endings.handle_emitted(emission.id, now);
            }
            // One of a batch stands for all: they leave together.
            if let Some(first) = batch.first() {
                self.progress.hold_times.push(now.saturating_since(first.received_at));
            }
            self.progress.emitted += count;
            self.sink.send(batch);
        }
    }

    /// Sends what is to be settled; true when that was anything.
    fn settle(&mut self) -> bool {
        let now = self.clock.now();
        let mut polled = false;
        loop {
            let room = self.settling.room();
            let mut batch: Vec<Told> = Vec::new();
            if let Some(dead_letters) = &mut self.dead_letters {
                batch.extend(std::iter::from_fn(|| dead_letters.poll_settle()).take(room));
            }
            let mut settlements: Vec<Settlement> = Vec::new();
            self.book.poll_settle_batch(now, room - batch.len(), &mut settlements);
            let is_last = batch.is_empty() && settlements.is_empty();
            for settlement in settlements {
                batch.extend(self.route(now, settlement));
            }
            if let Some(dead_letters) = &mut self.dead_letters {
                dead_letters.emit();
            }
            if is_last {
                return polled;
            }
            polled = true;
            if !batch.is_empty() {
                self.settling.send(batch);
            }
        }
    }

    fn receive(&mut self) {
        if self.state != FlowState::Running {
            return;
        }
        let now = self.clock.now();
        let open_max = self.intake.open_max(self.sink.limit(), self.book.throughput(now));
        self.book.handle_demand(open_max);
        while self.workers.has_idle() {
            let Some(capacity) = self.book.poll_receive(now) else { return };
            self.workers.grant(capacity);
        }
    }

    /// Counts what happened beside the regular road; true when a lease ended, which may free others.
    fn note_events(&mut self) -> bool {
        let mut freed = false;
        while let Some(event) = self.book.poll_event() {
            freed |= matches!(event, BookEvent::Expired { .. });
            if let BookEvent::Bug { what, id } = &event {
                self.telemetry.emit(BookBug { flow: &self.options.name, what, id: *id });
            }
            if let BookEvent::Expired { id, message, stage, .. } = &event {
                self.endings.handle_expired(self.clock.now(), message);
                if *stage == Stage::Emitted {
                    self.sink.note(|| Notice::Expired { id: *id });
                }
            }
            if let BookEvent::Undone { id, .. } = &event {
                self.sink.note(|| Notice::Void { id: *id, cause: VoidCause::Overtaken });
            }
            let Some((cause, count)) = irregularity(&event) else { continue };
            match cause {
                Irregularity::ExpiredQueued | Irregularity::ExpiredEmitted => {
                    self.totals.expired += count;
                    if let Some(drain) = &mut self.drain {
                        drain.failed += count;
                    }
                }
                Irregularity::Redelivered => self.totals.redelivered += count,
                _ => {}
            }
            self.progress.irregularity(cause, count);
        }
        freed
    }

    /// Whether a policy wants to know how deliveries ended.
    fn is_observed(&self) -> bool {
        self.decider.observes() || self.renewer.as_ref().is_some_and(Renewer::observes)
    }

    /// Tells policies and onlookers that want to know how deliveries ended.
    fn tell_endings(&mut self) {
        let now = self.clock.now();
        while let Some(batch) = self.endings.poll_batch(now) {
            self.decider.observe(now, &self.clock, &batch);
            if let Some(renewer) = &mut self.renewer {
                renewer.observe(now, &self.clock, &batch);
            }
            self.taps.show_endings(&batch);
        }
        let dropped = self.endings.take_dropped();
        if dropped > 0 && self.is_observed() {
            self.progress.irregularity(Irregularity::Unobserved, dropped);
        }
    }

    fn publish(&mut self) {
        let counts = self.book.counts();
        self.count_undecided(counts.undecided);
        self.telemetry.emit(Turned {
            flow: &self.options.name,
            progress: &mut self.progress,
            in_flight: counts.in_flight,
            in_flight_bytes: counts.in_flight_bytes,
            undecided: counts.received,
            queued: counts.queued,
            keys: counts.active_keys,
        });
        let mut status = self.status.lock();
        status.state = self.state;
        status.pause = self.pause;
        status.drain = self.drain;
        if let Some(dead_letter) = &mut status.dead_letter {
            dead_letter.trouble.clone_from(&self.dead_letter_trouble);
        }
        status.joined = self.presence.is_served();
        status.in_flight = counts.in_flight;
        status.in_flight_bytes = counts.in_flight_bytes;
        status.undecided = counts.received;
        status.queued = counts.queued;
        status.emitted = counts.emitted;
        status.settling = counts.settling + counts.sent;
        status.active_keys = counts.active_keys;
        status.totals = self.totals;
    }

    /// Takes over what the book counts since its beginning.
    fn count_undecided(&mut self, now: Undecided) {
        let before = std::mem::replace(&mut self.totals.undecided_endings, now);
        for (cause, before, now) in [
            (UndecidedEnd::Dropped, before.dropped, now.dropped),
            (UndecidedEnd::Expired, before.expired, now.expired),
            (UndecidedEnd::Merged, before.merged, now.merged),
            (UndecidedEnd::Released, before.released, now.released),
        ] {
            if now > before {
                self.progress.undecided_endings.push((cause, now - before));
            }
        }
    }
}

/// How a sink ended that should not have.
fn sentence(ended: Result<(), SinkError>, plainly: &str) -> String {
    ended.map_or_else(|error| error.to_string(), |()| plainly.to_owned())
}

/// The metric that a book's event counts in, and by how much; none for what is counted where it happens.
const fn irregularity(event: &BookEvent) -> Option<(Irregularity, u64)> {
    Some(match event {
        BookEvent::Expired { stage: Stage::Emitted, .. } => (Irregularity::ExpiredEmitted, 1),
        BookEvent::Expired { .. } => (Irregularity::ExpiredQueued, 1),
        BookEvent::Valve { .. } => (Irregularity::Valve, 1),
        BookEvent::RunEnded { dropped, overtaken, .. } => {
            (Irregularity::Dropped, (*dropped + *overtaken) as u64)
        }
        BookEvent::Redelivered { .. } => (Irregularity::Redelivered, 1),
        BookEvent::Rerun { kind: RerunKind::Duplicate, .. } => (Irregularity::Duplicate, 1),
        BookEvent::Rerun { .. } => (Irregularity::Rerun, 1),
        BookEvent::SettleFailed { .. } | BookEvent::Undone { .. } => return None,
        BookEvent::Bug { .. } => (Irregularity::Bug, 1),
    })
}
