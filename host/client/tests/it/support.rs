//! Hosts that hand out what a broker in memory has, and what workers told.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidegate_client::{Event, RunError, Status, Verdict, Worker, WorkerBuilder};
use tidegate_connector::{
    Clock, Notice, Outbox, ReceiptSettler, RenewError, RenewalWish, Reports, SettleByReceipt, TellSettled,
    VoidCause, inbox,
};
use tidegate_handoff::{Forwarder, Handoff, Parts, ServiceOptions};
use tidegate_model::{
    DeliveryId, Emission, Handle, Instant, Message, Outcome, Receipt, ReceiptKey, Report, Routing,
    SettleError, SettleFault, Verb,
};
use tidegate_telemetry::Telemetry;
use tokio::runtime::{self, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const FLOW: &str = "jobs";
/// How long a condition may take to come true. Generous: it is only waited for when something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a flow looks at what time has brought.
const TICK: Duration = Duration::from_millis(10);

/// Waits until `condition` gives something, and panics with `what` when it does not in time.
pub(crate) async fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(tokio::time::Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Messages under leases, for any number of hosts.
#[derive(Clone, Debug)]
pub(crate) struct Broker {
    state: Arc<Mutex<State>>,
    clock: Clock,
    lease: Duration,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Stored>,
    later: Vec<(Instant, Stored)>,
    leased: HashMap<String, Leased>,
    handles: u64,
    ends: BTreeMap<String, Vec<String>>,
    renewals: u64,
}

#[derive(Clone, Debug)]
struct Stored {
    message: Arc<Message>,
    attempt: u32,
}

#[derive(Debug)]
struct Leased {
    stored: Stored,
    ends_at: Instant,
}

impl Broker {
    pub(crate) fn start(lease: Duration) -> Self {
        Self { state: Arc::default(), clock: Clock::start(), lease }
    }

    /// Sends messages whose bodies are their names.
    pub(crate) fn send(&self, names: impl IntoIterator<Item = impl Into<String>>) {
        let mut state = self.state.lock();
        for name in names {
            let name: String = name.into();
            let mut message = Message::new("Jobs", name.as_str());
            message.lite_topic = Some("tenant-1".into());
            message.properties = vec![("kind".into(), "test".into())];
            message.body = name.into_bytes().into();
            state.ready.push_back(Stored { message: Arc::new(message), attempt: 1 });
        }
    }

    /// How a message was settled, at each attempt: `accept`, `defer`, `release`, `reject REASON`, `expired`.
    pub(crate) fn ends(&self, name: &str) -> Vec<String> {
        self.state.lock().ends.get(name).cloned().unwrap_or_default()
    }

    /// How all messages were.
    pub(crate) fn all_ends(&self) -> BTreeMap<String, Vec<String>> {
        self.state.lock().ends.clone()
    }

    /// Messages that ended with `accept` or `reject`.
    pub(crate) fn done(&self) -> usize {
        let is_done =
            |ends: &&Vec<String>| ends.last().is_some_and(|end| end == "accept" || end.starts_with("reject"));
        self.state.lock().ends.values().filter(is_done).count()
    }

    pub(crate) async fn wait_for_done(&self, count: usize) {
        eventually("messages that are done", || (self.done() == count).then_some(())).await;
    }

    /// Leases that were kept for longer.
    pub(crate) fn renewals(&self) -> u64 {
        self.state.lock().renewals
    }

    fn take(&self) -> Option<(Stored, String, Instant)> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let due =
            state.later.extract_if(.., |(at, _)| *at <= now).map(|(_, stored)| stored).collect::<Vec<_>>();
        state.ready.extend(due);
        let expired: Vec<String> = state
            .leased
            .iter()
            .filter(|(_, leased)| leased.ends_at <= now)
            .map(|(handle, _)| handle.clone())
            .collect();
        for handle in expired {
            state.end(&handle, "expired".to_owned(), now);
        }
        let stored = state.ready.pop_front()?;
        state.handles += 1;
        let (handle, ends_at) = (format!("handle-{}", state.handles), now + self.lease);
        state.leased.insert(handle.clone(), Leased { stored: stored.clone(), ends_at });
        Some((stored, handle, ends_at))
    }

    fn settle(&self, handle: &str, verb: &Verb) -> Result<Option<Instant>, SettleError> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let gone = || SettleError {
            verb: verb.name(),
            detail: "the lease is gone".into(),
            fault: SettleFault::LeaseGone,
        };
        let leased = state.leased.get_mut(handle).filter(|leased| leased.ends_at > now).ok_or_else(gone)?;
        let end = match verb {
            Verb::Renew(length) => {
                leased.ends_at = now + *length;
                state.renewals += 1;
                return Ok(Some(now + *length));
            }
            Verb::Reject { reason } => format!("reject {reason}"),
            Verb::Defer(delay) => {
                state.end(handle, "defer".to_owned(), now + *delay);
                return Ok(None);
            }
            verb => verb.name().to_owned(),
        };
        state.end(handle, end, now);
        Ok(None)
    }

    fn holds(&self, handle: &str) -> bool {
        let now = self.clock.now();
        self.state.lock().leased.get(handle).is_some_and(|leased| leased.ends_at > now)
    }
}

impl State {
    fn end(&mut self, handle: &str, end: String, again_at: Instant) {
        let Some(Leased { stored, .. }) = self.leased.remove(handle) else { return };
        if end != "accept" && !end.starts_with("reject") {
            self.later.push((again_at, Stored { attempt: stored.attempt + 1, ..stored.clone() }));
        }
        self.ends.entry(stored.message.id.to_string()).or_default().push(end);
    }
}

/// Settles by receipt what other hosts gave out.
#[async_trait]
impl ReceiptSettler for Broker {
    fn serves(&self, _: &Receipt) -> bool {
        true
    }

    async fn settle_each(&self, batch: Vec<SettleByReceipt>, tell: &TellSettled<'_>) {
        let settle = |(at, SettleByReceipt { receipt, verb }): (usize, SettleByReceipt)| {
            (at, Self::settle(self, &receipt.handle, &verb).map(|_| None))
        };
        tell(batch.into_iter().enumerate().map(settle).collect());
    }

    async fn close(&self) {}
}

/// What a host is started with.
#[derive(Clone, Debug)]
pub(crate) struct HostOptions {
    pub(crate) service: ServiceOptions,
    pub(crate) name: &'static str,
    pub(crate) accepts_on_delivery: bool,
    /// Whether it settles what other hosts gave out.
    pub(crate) settles_for_others: bool,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            service: ServiceOptions {
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                tls: None,
                tokens_file: None,
                held_max: 1000,
                key_affinity: false,
            },
            name: "host-a",
            accepts_on_delivery: false,
            settles_for_others: true,
        }
    }
}

/// A hand-off service with one flow, in a runtime of its own: it can end as a process does that is killed.
pub(crate) struct Host {
    /// Keeps the service.
    _handoff: Handoff,
    address: SocketAddr,
    drain: Option<oneshot::Sender<()>>,
    runtime: Option<Runtime>,
}

impl Host {
    pub(crate) async fn start(broker: &Broker, options: HostOptions) -> Self {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (drain, draining) = oneshot::channel();
        let handoff =
            runtime.spawn(serve(broker.clone(), options, draining)).await.expect("the service starts");
        Self { address: handoff.address(), _handoff: handoff, drain: Some(drain), runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn url_of(&self, scheme: &str, machine: &str) -> String {
        format!("{scheme}://{machine}:{}", self.address.port())
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells workers that it is about to end, and gives out nothing more.
    pub(crate) fn drain(&mut self) {
        self.drain.take().expect("once").send(()).expect("the flow runs");
    }

    /// Ends it without a word to anybody: leases go on.
    pub(crate) async fn kill(mut self) {
        self.runtime.take().expect("once").shutdown_background();
        let address = self.address;
        eventually("a free address", || std::net::TcpStream::connect(address).err()).await;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

async fn serve(broker: Broker, options: HostOptions, draining: oneshot::Receiver<()>) -> Handoff {
    let HostOptions { service, name, accepts_on_delivery, settles_for_others } = options;
    let handoff = Handoff::start(Parts {
        forwarder: Arc::new(Forwarder::start([], broker.clock, Telemetry::default()).expect("no peers")),
        owner_settles: |_| false,
        name: "workers".into(),
        options: service,
        key: ReceiptKey::new([7; 32]),
        host_id: name.into(),
        others: settles_for_others.then(|| Arc::new(broker.clone()) as Arc<dyn ReceiptSettler>),
        clock: broker.clock,
        telemetry: Telemetry::default(),
    });
    let handoff = handoff.await.expect("the service starts");
    let sink = handoff.sink(&FLOW.into(), accepts_on_delivery);
    let credits = sink.credits();
    let (outbox, inbox) = inbox(credits);
    let flow = Flow { broker, outbox, credits, out: HashMap::new(), owed: 0, ids: 0 };
    tokio::spawn(flow.run(draining));
    tokio::spawn(sink.run(inbox));
    handoff
}

/// The flow's end of a sink: a lease book without opinions.
struct Flow {
    broker: Broker,
    outbox: Outbox,
    credits: usize,
    out: HashMap<DeliveryId, String>,
    owed: usize,
    ids: u64,
}

impl Flow {
    async fn run(mut self, mut draining: oneshot::Receiver<()>) {
        // What a sink gets before it has begun it releases: it has no workers then.
        while self.outbox.limit() == self.credits {
            tokio::task::yield_now().await;
        }
        let mut is_draining = false;
        let mut tick = tokio::time::interval(TICK);
        loop {
            while !is_draining && self.owed < self.outbox.limit() && self.emit() {}
            tokio::select! {
                reports = self.outbox.reports() => match reports {
                    Some(reports) => self.handle(reports),
                    None => return,
                },
                _ = tick.tick() => self.expire(),
                told = &mut draining, if !is_draining => match told {
                    Ok(()) => {
                        is_draining = true;
                        self.notify(vec![Notice::Draining]);
                    }
                    // The test has ended.
                    Err(_) => return,
                },
            }
        }
    }

    fn emit(&mut self) -> bool {
        let Some((stored, handle, expires_at)) = self.broker.take() else { return false };
        self.ids += 1;
        let id = DeliveryId(self.ids);
        self.out.insert(id, handle.clone());
        self.owed += 1;
        self.outbox.emit(vec![Emission {
            id,
            key: "tenant-1".into(),
            order: None,
            attempt: stored.attempt,
            handle: Handle { routing: Arc::new(Routing::default()), text: handle.into() },
            received_at: self.broker.clock.now(),
            expires_at,
            dead_letter: None,
            message: stored.message,
        }])
    }

    fn handle(&mut self, reports: Reports) {
        let mut notices = Vec::new();
        for Report { id, outcome, .. } in reports.ended {
            self.owed -= 1;
            let verb = match outcome {
                Outcome::Accepted => Verb::Accept,
                Outcome::Deferred { delay } => Verb::Defer(delay),
                Outcome::Released => Verb::Release,
                Outcome::Rejected { reason } => Verb::Reject { reason },
                Outcome::Elsewhere => panic!("nobody settles elsewhere here"),
            };
            notices.push(match self.out.remove(&id) {
                Some(handle) => {
                    Notice::Settled { id, result: self.broker.settle(&handle, &verb).map(|_| ()) }
                }
                None => Notice::Void { id, cause: VoidCause::LeaseExpired },
            });
        }
        for RenewalWish { id, length } in reports.renewals {
            let result = match self.out.get(&id) {
                Some(handle) => self.broker.settle(handle, &Verb::Renew(length)).map_err(RenewError::Settle),
                None => Err(RenewError::LeaseGone),
            };
            notices.push(Notice::Renewed { id, result: result.map(|until| until.expect("a renewal")) });
        }
        self.notify(notices);
    }

    fn expire(&mut self) {
        let broker = self.broker.clone();
        let expired: BTreeSet<DeliveryId> =
            self.out.extract_if(|_, handle| !broker.holds(handle)).map(|(id, _)| id).collect();
        if !expired.is_empty() {
            self.notify(expired.into_iter().map(|id| Notice::Expired { id }).collect());
        }
    }

    fn notify(&self, notices: Vec<Notice>) {
        self.outbox.notify(notices).expect("the sink reads its news");
    }
}

/// What a worker told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Event>>>);

impl Seen {
    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.lock().clone()
    }

    pub(crate) async fn wait_for(&self, what: &str, is_it: impl Fn(&Event) -> bool) -> Event {
        eventually(what, || self.0.lock().iter().find(|event| is_it(event)).cloned()).await
    }

    pub(crate) fn count(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        self.0.lock().iter().filter(|event| is_it(event)).count()
    }

    pub(crate) async fn subscribed(&self, times: usize) {
        let subscribed = |event: &Event| matches!(event, Event::Subscribed { .. });
        eventually("a subscription", || (self.count(subscribed) >= times).then_some(())).await;
    }

    /// What the last settlement of a message came to.
    pub(crate) fn settled(&self, name: &str) -> Option<(Verdict, Status)> {
        self.0.lock().iter().rev().find_map(|event| match event {
            Event::Settled { message_id, verdict, status, .. } if &**message_id == name => {
                Some((verdict.clone(), *status))
            }
            _ => None,
        })
    }
}

/// A worker that runs.
pub(crate) struct Running {
    pub(crate) seen: Seen,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Running {
    pub(crate) fn start<F>(
        builder: WorkerBuilder,
        handler: impl Fn(tidegate_client::Delivery) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Verdict> + Send + 'static,
    {
        let seen = Seen::default();
        let events = seen.clone();
        let worker: Worker =
            builder.observer(move |event| events.0.lock().push(event.clone())).build().expect("a worker");
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(worker.run_until(handler, async { stopped.await.unwrap_or_default() }));
        Self { seen, stop: Some(stop), task }
    }

    /// Tells it to stop.
    pub(crate) fn tell_to_stop(&mut self) {
        // It may have ended already.
        let _ = self.stop.take().expect("once").send(());
    }

    /// Tells it to stop, and waits for its end.
    pub(crate) async fn stop(mut self) -> Result<(), RunError> {
        self.tell_to_stop();
        self.end().await
    }

    /// Waits for its end.
    pub(crate) async fn end(self) -> Result<(), RunError> {
        let keep = self.stop;
        let ended =
            tokio::time::timeout(PATIENCE, self.task).await.expect("an end in time").expect("no panic");
        drop(keep);
        ended
    }
}
