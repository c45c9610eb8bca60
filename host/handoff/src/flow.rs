//! One flow's hand-off: the sink, and the task behind it that owns the dispatcher.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_connector::{Clock, Inbox, News, Notice, Reporter, Sink, SinkError, SinkMonitor, SinkStatus};
use tidegate_model::{DeliveryId, Outcome, ReceiptIssuer};
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::handoff as events;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::collect::Reply;
use crate::dispatch::{
    Answer, Claim, Credits, Dispatcher, Options, RenewalAnswer, Ticket, WorkerId, WorkerView,
};
use crate::mailbox::Mailbox;
use crate::server::Registry;

/// Commands of workers that wait for a flow's task. Whoever sends more waits.
const COMMANDS_MAX: usize = 1024;
/// Commands that are taken in one go before the flow is told.
const COMMANDS_PER_TURN: usize = 64;
/// Workers of one flow.
const WORKERS_MAX: usize = 1000;

/// What a flow's task is told by workers.
#[derive(Debug)]
pub(crate) enum Command {
    Join {
        name: Arc<str>,
        credits: Credits,
        mailbox: Arc<Mailbox>,
        joined: oneshot::Sender<Option<WorkerId>>,
    },
    Credits(WorkerId, Credits),
    /// A pull has what it gets; says when nothing more comes.
    Detach(WorkerId, oneshot::Sender<()>),
    Settle(Vec<Settle>),
    Renew(Vec<Renew>),
    /// These are settled at another host.
    Elsewhere(Vec<Claim>),
    /// These were written to their worker.
    Written(Vec<DeliveryId>),
}

/// One settlement of a delivery that this host should have.
#[derive(Debug)]
pub(crate) struct Settle {
    pub(crate) claim: Claim,
    pub(crate) outcome: Outcome,
    pub(crate) cost: Option<f64>,
    pub(crate) reply: Reply<Answer>,
}

/// One renewal of a delivery that this host should have.
#[derive(Debug)]
pub(crate) struct Renew {
    pub(crate) claim: Claim,
    pub(crate) length: Duration,
    pub(crate) reply: Reply<RenewalAnswer>,
}

/// How others reach a flow's task.
#[derive(Clone, Debug)]
pub(crate) struct FlowHandle {
    pub(crate) options: Options,
    pub(crate) issuer: ReceiptIssuer,
    commands: mpsc::Sender<Command>,
    leaves: Arc<Leaves>,
    view: Arc<Mutex<FlowView>>,
}

/// How a flow's workers are doing, for people.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowView {
    pub(crate) held: usize,
    pub(crate) workers: Vec<WorkerView>,
}

/// Workers that left. Beside the commands, so that a leave is never lost and never waits; bounded by the workers.
#[derive(Debug, Default)]
struct Leaves {
    workers: Mutex<Vec<WorkerId>>,
    came: Notify,
}

/// A worker that leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) worker: WorkerId,
    leaves: Option<Arc<Leaves>>,
}

/// Tells people how many workers one flow has.
#[derive(Debug)]
struct Monitor {
    name: Arc<str>,
    view: Arc<Mutex<FlowView>>,
}

/// The sink of one flow.
#[derive(Debug)]
pub(crate) struct HandoffSink {
    name: Arc<str>,
    flow: Arc<str>,
    options: Options,
    commands: mpsc::Receiver<Command>,
    leaves: Arc<Leaves>,
    view: Arc<Mutex<FlowView>>,
    registry: Arc<Registry>,
    clock: Clock,
    telemetry: Telemetry,
}

impl FlowHandle {
    /// A flow's sink and how to reach it.
    pub(crate) fn new(
        name: Arc<str>,
        options: Options,
        issuer: ReceiptIssuer,
        registry: Arc<Registry>,
        clock: Clock,
        telemetry: Telemetry,
    ) -> (Self, HandoffSink) {
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (leaves, view) = (Arc::<Leaves>::default(), Arc::<Mutex<FlowView>>::default());
        let flow = Arc::clone(&issuer.flow);
        let handle =
            Self { options, issuer, commands: sender, leaves: Arc::clone(&leaves), view: Arc::clone(&view) };
        let sink = HandoffSink { name, flow, options, commands, leaves, view, registry, clock, telemetry };
        (handle, sink)
    }

    /// Tells the flow's task; false when the flow has ended.
    pub(crate) async fn send(&self, command: Command) -> bool {
        self.commands.send(command).await.is_ok()
    }

    /// A worker comes; `None` when there are too many, or the flow has ended.
    pub(crate) async fn join(
        &self,
        name: Arc<str>,
        credits: Credits,
        mailbox: Arc<Mailbox>,
    ) -> Option<Membership> {
        let (joined, answer) = oneshot::channel();
        if !self.send(Command::Join { name, credits, mailbox, joined }).await {
            return None;
        }
        let worker = answer.await.ok().flatten()?;
        Some(Membership { worker, leaves: Some(Arc::clone(&self.leaves)) })
    }

    /// Ends a pull: when this returns, its mailbox has all that it gets, and nobody's leaving releases it.
    pub(crate) async fn detach(&self, mut membership: Membership) {
        let (done, detached) = oneshot::channel();
        if self.send(Command::Detach(membership.worker, done)).await {
            // The flow's end says so as well.
            let _ = detached.await;
        }
        membership.leaves = None;
    }

    pub(crate) fn view(&self) -> FlowView {
        self.view.lock().clone()
    }
}

impl SinkMonitor for Monitor {
    fn status(&self) -> SinkStatus {
        let workers = Some(self.view.lock().workers.len());
        SinkStatus { workers, ..SinkStatus::silent(Arc::clone(&self.name)) }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(leaves) = &self.leaves {
            leaves.workers.lock().push(self.worker);
            leaves.came.notify_one();
        }
    }
}

#[async_trait]
impl Sink for HandoffSink {
    fn credits(&self) -> usize {
        self.options.held_max
    }

    /// There are no workers yet.
    fn limit_at_start(&self) -> usize {
        0
    }

    fn hands_out_receipts(&self) -> bool {
        !self.options.accepts_on_delivery
    }

    fn wants_notices(&self) -> bool {
        true
    }

    fn monitors(&self) -> Vec<Arc<dyn SinkMonitor>> {
        vec![Arc::new(Monitor { name: Arc::clone(&self.name), view: Arc::clone(&self.view) })]
    }

    async fn run(mut self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        let reporter = inbox.reporter();
        // However this ends, nobody is sent here any more.
        let _registered = Registered { flow: Arc::clone(&self.flow), registry: Arc::clone(&self.registry) };
        let mut desk = Desk::new(&self);
        loop {
            desk.flush(&reporter).await;
            tokio::select! {
                biased;
                news = inbox.news() => match news {
                    Some(news) => desk.handle_news(news),
                    None => break,
                },
                () = self.leaves.came.notified() => {}
                command = self.commands.recv() => match command {
                    Some(command) => desk.handle_command(command),
                    // The registry holds a sender as long as this runs.
                    None => break,
                },
            }
            for _ in 0..COMMANDS_PER_TURN {
                let Ok(command) = self.commands.try_recv() else { break };
                desk.handle_command(command);
            }
            let left = std::mem::take(&mut *self.leaves.workers.lock());
            left.into_iter().for_each(|worker| desk.handle_leave(worker));
        }
        desk.flush(&reporter).await;
        desk.close();
        Ok(())
    }
}

struct Registered {
    flow: Arc<str>,
    registry: Arc<Registry>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.remove(&self.flow);
    }
}

/// The dispatcher with what it is connected to.
struct Desk {
    name: Arc<str>,
    flow: Arc<str>,
    dispatcher: Dispatcher,
    mailboxes: HashMap<WorkerId, (Arc<str>, Arc<Mailbox>)>,
    settlements: HashMap<Ticket, Reply<Answer>>,
    renewals: HashMap<Ticket, Reply<RenewalAnswer>>,
    tickets: u64,
    view: Arc<Mutex<FlowView>>,
    clock: Clock,
    telemetry: Telemetry,
}

impl Desk {
    fn new(sink: &HandoffSink) -> Self {
        Self {
            name: Arc::clone(&sink.name),
            flow: Arc::clone(&sink.flow),
            dispatcher: Dispatcher::new(sink.options),
            mailboxes: HashMap::new(),
            settlements: HashMap::new(),
            renewals: HashMap::new(),
            tickets: 0,
            view: Arc::clone(&sink.view),
            clock: sink.clock,
            telemetry: sink.telemetry.clone(),
        }
    }

    fn handle_news(&mut self, news: News) {
        match news {
            News::Emissions(emissions) => self.dispatcher.handle_emissions(emissions),
            News::Notices(notices) => {
                for notice in notices {
                    if notice == Notice::Draining {
                        let now = self.clock.now();
                        self.mailboxes.values().for_each(|(_, mailbox)| mailbox.drain(now));
                    }
                    self.dispatcher.handle_notice(notice);
                }
            }
        }
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Join { name, credits, mailbox, joined } => {
                // Whoever asked may be gone: then its membership was dropped, or never made.
                let worker = self.join(&name, credits, mailbox);
                if joined.send(worker).is_err()
                    && let Some(worker) = worker
                {
                    self.handle_leave(worker);
                }
            }
            Command::Credits(worker, credits) => self.dispatcher.handle_credits(worker, credits),
            Command::Detach(worker, done) => {
                self.deliver();
                self.dispatcher.handle_detach(worker);
                self.mailboxes.remove(&worker);
                // A pull that is gone meanwhile leaves its messages to the end of their leases.
                let _ = done.send(());
            }
            Command::Settle(settlements) => {
                for Settle { claim, outcome, cost, reply } in settlements {
                    let ticket = self.ticket();
                    self.settlements.insert(ticket, reply);
                    self.dispatcher.handle_settlement(ticket, &claim, outcome, cost);
                }
            }
            Command::Renew(renewals) => {
                for Renew { claim, length, reply } in renewals {
                    let ticket = self.ticket();
                    self.renewals.insert(ticket, reply);
                    self.dispatcher.handle_renewal(ticket, &claim, length);
                }
            }
            Command::Elsewhere(claims) => {
                claims.iter().for_each(|claim| self.dispatcher.handle_elsewhere(claim));
            }
            Command::Written(deliveries) => {
                deliveries.into_iter().for_each(|delivery| self.dispatcher.handle_written(delivery));
            }
        }
    }

    fn join(&mut self, name: &Arc<str>, credits: Credits, mailbox: Arc<Mailbox>) -> Option<WorkerId> {
        if self.mailboxes.len() >= WORKERS_MAX || self.dispatcher.is_draining() {
            return None;
        }
        let worker = self.dispatcher.handle_join(Arc::clone(name), credits);
        self.mailboxes.insert(worker, (Arc::clone(name), mailbox));
        self.telemetry.emit(events::WorkerJoined { flow: &self.flow, worker: name });
        Some(worker)
    }

    fn handle_leave(&mut self, worker: WorkerId) {
        let Some((name, mailbox)) = self.mailboxes.remove(&worker) else { return };
        mailbox.close();
        let before = self.dispatcher.held();
        self.dispatcher.handle_leave(worker);
        let released = before.saturating_sub(self.dispatcher.held());
        self.telemetry.emit(events::WorkerLeft { flow: &self.flow, worker: &name, released });
    }

    /// Does what the dispatcher says.
    async fn flush(&mut self, reporter: &Reporter) {
        self.deliver();
        let now = self.clock.now();
        while let Some((worker, lost)) = self.dispatcher.poll_lost() {
            if let Some((_, mailbox)) = self.mailboxes.get(&worker)
                && mailbox.lose(now, &lost)
            {
                self.dispatcher.handle_unwritten(lost.id);
            }
        }
        // That may have made room.
        self.deliver();
        while let Some((ticket, answer)) = self.dispatcher.poll_answer() {
            if let Some(reply) = self.settlements.remove(&ticket) {
                reply.give(answer);
            }
        }
        while let Some((ticket, answer)) = self.dispatcher.poll_renewed() {
            if let Some(reply) = self.renewals.remove(&ticket) {
                reply.give(answer);
            }
        }
        while let Some(reports) = self.dispatcher.poll_reports() {
            // When the flow is gone nobody is left to tell.
            let _ = reporter.send(reports).await;
        }
        reporter.set_limit(self.dispatcher.limit());
        self.publish();
    }

    fn deliver(&mut self) {
        let now = self.clock.now();
        let mut delivered = 0;
        while let Some((worker, emission)) = self.dispatcher.poll_delivery() {
            if let Some((_, mailbox)) = self.mailboxes.get(&worker) {
                delivered += 1;
                mailbox.deliver(now, emission);
            }
        }
        if delivered > 0 {
            self.telemetry.emit(events::Delivered { flow: &self.flow, messages: delivered });
        }
    }

    fn publish(&self) {
        let held = self.dispatcher.held();
        self.telemetry.emit(events::Standing { flow: &self.flow, held, workers: self.mailboxes.len() });
        let mut view = self.view.lock();
        view.held = held;
        view.workers.clear();
        view.workers.extend(self.dispatcher.workers());
    }

    fn close(&mut self) {
        self.mailboxes.values().for_each(|(_, mailbox)| mailbox.close());
        self.telemetry.emit(events::FlowEnded { flow: &self.flow, sink: &self.name });
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}
