//! The worker's task: between the streams, the handlers and the book.

use std::any::Any;
use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tidegate_proto::handoff as proto;
use tidegate_proto::handoff::subscribe_response::Kind as Said;
use tokio::sync::mpsc;
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::{Options, RunError};
use crate::access::Trouble;
use crate::backoff::Jitter;
use crate::book::{Answers, Batch, Book, Call, LinkId, Number, Source};
use crate::link::{Heard, News, Outbox};
use crate::roster::Roster;
use crate::{Delivery, Event, Verdict, client, link, wire};

/// What streams have said and the worker has not looked at. Streams wait when it is full, and so do hosts.
const NEWS_MAX: usize = 64;
/// Calls past the streams at one time; what is to be said waits for them, and goes out in larger batches.
const CALLS_MAX: usize = 4;
/// How long a host may take to say goodbye.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Engine<H> {
    options: Options,
    handler: Arc<H>,
    book: Book,
    roster: Roster,
    links: HashMap<LinkId, Line>,
    link_numbers: u64,
    /// The stream that messages come from, or that is being opened.
    taking: Option<LinkId>,
    streams: JoinSet<()>,
    news: (mpsc::Sender<News>, mpsc::Receiver<News>),
    handlers: JoinSet<Verdict>,
    handled: HashMap<task::Id, Number>,
    calls: JoinSet<(Call, Result<Answers, Trouble>)>,
    /// When to stop waiting for what is open. Set when the worker ends.
    finish_by: Option<Instant>,
    refusal: Option<RunError>,
}

/// A stream, on this side.
struct Line {
    address: usize,
    outbox: Arc<Outbox>,
    task: task::AbortHandle,
    is_open: bool,
    is_draining: bool,
}

/// What woke the worker.
enum Turn {
    News(News),
    Handled(Result<(task::Id, Verdict), JoinError>),
    Called(Result<(Call, Result<Answers, Trouble>), JoinError>),
    Time,
    Stop,
}

impl<H, F> Engine<H>
where
    H: Fn(Delivery) -> F + Send + Sync + 'static,
    F: Future<Output = Verdict> + Send + 'static,
{
    pub(super) fn new(options: Options, handler: H) -> Self {
        let addresses = options.peers.len();
        Self {
            book: Book::new(options.credits, options.keep_leases, addresses, Jitter::new()),
            roster: Roster::new(addresses, Instant::now(), Jitter::new()),
            options,
            handler: Arc::new(handler),
            links: HashMap::new(),
            link_numbers: 0,
            taking: None,
            streams: JoinSet::new(),
            news: mpsc::channel(NEWS_MAX),
            handlers: JoinSet::new(),
            handled: HashMap::new(),
            calls: JoinSet::new(),
            finish_by: None,
            refusal: None,
        }
    }

    pub(super) async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), RunError> {
        let mut stop = pin!(stop);
        loop {
            self.flush(Instant::now());
            if self.finish_by.is_some() && self.book.is_empty() {
                break;
            }
            let turn = self.turn(stop.as_mut()).await;
            let now = Instant::now();
            match turn {
                Turn::News(news) => self.handle_news(now, news),
                Turn::Handled(ended) => self.handle_ended(now, ended),
                Turn::Called(Ok((call, answers))) => {
                    if answers.is_err() {
                        self.roster.handle_uncalled(call.address, now);
                    }
                    self.book.handle_answers(now, call, answers);
                }
                // A call never panics; were it to, the book asks again.
                Turn::Called(Err(_)) => {}
                Turn::Time => self.book.handle_time(now),
                Turn::Stop => self.end(now),
            }
            if self.finish_by.is_some_and(|finish_by| now >= finish_by) {
                self.handlers.abort_all();
                self.book.handle_end();
            }
        }
        self.leave().await;
        self.refusal.map_or(Ok(()), Err)
    }

    async fn turn(&mut self, stop: Pin<&mut impl Future<Output = ()>>) -> Turn {
        let next_try = self.next_try(Instant::now());
        let due = [self.book.due(), next_try, self.finish_by].into_iter().flatten().min();
        tokio::select! {
            biased;
            () = stop, if self.finish_by.is_none() => Turn::Stop,
            // The worker has a sender itself.
            Some(news) = self.news.1.recv() => Turn::News(news),
            Some(ended) = self.handlers.join_next_with_id() => Turn::Handled(ended),
            Some(called) = self.calls.join_next() => Turn::Called(called),
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Turn::Time,
        }
    }

    /// When to open the next stream.
    fn next_try(&self, now: Instant) -> Option<Instant> {
        (self.taking.is_none() && self.finish_by.is_none()).then(|| self.roster.next(now).1)
    }

    /// Does what the book and the roster say.
    fn flush(&mut self, now: Instant) {
        if self.next_try(now).is_some_and(|at| at <= now) {
            self.subscribe(now);
        }
        while let Some((link, ask)) = self.book.poll_ask() {
            if let Some(line) = self.links.get(&link) {
                line.outbox.ask(&ask);
            }
        }
        while let Some((link, credits)) = self.book.poll_credits() {
            if let Some(line) = self.links.get(&link) {
                line.outbox.credits(credits);
            }
        }
        while self.calls.len() < CALLS_MAX
            && let Some(call) = self.book.poll_call(now, &self.roster)
        {
            self.call(call);
        }
        for (id, line) in &self.links {
            if line.is_draining && self.book.is_done_with(*id) {
                line.outbox.close();
            }
        }
        self.tell();
    }

    fn tell(&mut self) {
        while let Some(event) = self.book.poll_event() {
            (self.options.observer.0)(&event);
        }
    }

    fn observe(&self, event: &Event) {
        (self.options.observer.0)(event);
    }

    fn subscribe(&mut self, now: Instant) {
        let (address, _) = self.roster.next(now);
        self.link_numbers += 1;
        let id = LinkId(self.link_numbers);
        let open = proto::Open {
            flow: self.options.flow.clone(),
            worker: self.options.name.clone(),
            credits: Some(wire::credits(self.book.handle_link(id, address))),
        };
        let outbox = Arc::<Outbox>::default();
        let peer = Arc::clone(&self.options.peers[address]);
        let task = self.streams.spawn(link::run(peer, open, Arc::clone(&outbox), id, self.news.0.clone()));
        self.links.insert(id, Line { address, outbox, task, is_open: false, is_draining: false });
        self.taking = Some(id);
    }

    fn call(&mut self, call: Call) {
        let peer = Arc::clone(&self.options.peers[call.address]);
        self.calls.spawn(async move {
            let answers = match &call.batch {
                Batch::Settle(batch) => client::settle(&peer, batch).await.map(Answers::Settle),
                Batch::Renew(batch) => client::renew(&peer, batch).await.map(Answers::Renew),
            };
            (call, answers)
        });
    }

    // === streams ===

    fn handle_news(&mut self, now: Instant, News { link: id, said }: News) {
        let Some(line) = self.links.get_mut(&id) else { return };
        let address = line.address;
        match said {
            Heard::Opened(opened) => {
                line.is_open = true;
                self.roster.handle_opened(address, now);
                self.book.handle_opened(id, opened.ack() == proto::AckMode::OnDelivery);
                self.observe(&Event::Subscribed { address: self.address(address), host: opened.host });
            }
            Heard::Said(Said::Deliveries(deliveries)) => {
                for delivery in deliveries.deliveries {
                    self.begin(now, id, wire::delivery(delivery));
                }
            }
            Heard::Said(Said::Settled(results)) => {
                for result in results.results {
                    self.book.handle_settled(now, Source::Link(id), wire::settlement_result(result));
                }
            }
            Heard::Said(Said::Renewed(results)) => {
                for result in results.results {
                    self.book.handle_renewed(now, wire::renewal_result(result));
                }
            }
            Heard::Said(Said::Expired(expired)) => {
                expired.receipts.iter().for_each(|receipt| self.book.handle_expired(receipt));
            }
            Heard::Said(Said::Draining(_)) => {
                line.is_draining = true;
                self.book.handle_draining(id);
                if self.taking == Some(id) {
                    self.taking = None;
                    self.roster.handle_draining(address, now);
                }
                self.observe(&Event::Draining { address: self.address(address) });
            }
            Heard::Said(Said::Opened(_) | Said::Alive(_)) => {}
            Heard::Ended(trouble) => self.handle_ended_link(now, id, trouble),
        }
    }

    fn handle_ended_link(&mut self, now: Instant, id: LinkId, trouble: Option<Trouble>) {
        let Some(line) = self.links.remove(&id) else { return };
        while self.streams.try_join_next().is_some() {}
        self.book.handle_link_lost(now, id);
        let detail = trouble
            .as_ref()
            .map_or_else(|| "the host ended the stream".to_owned(), |trouble| trouble.detail.clone());
        if self.taking == Some(id) {
            self.taking = None;
            match trouble {
                Some(Trouble { is_refusal: true, detail }) => {
                    self.roster.handle_refused(line.address, now, detail);
                }
                _ => self.roster.handle_failed(line.address, now),
            }
        }
        self.tell();
        self.observe(&Event::Unsubscribed { address: self.address(line.address), detail });
        if let Some((address, detail)) = self.roster.refusal()
            && self.finish_by.is_none()
        {
            let (address, detail) = (self.address(address).to_string(), detail.to_owned());
            self.refusal = Some(RunError::Refused { address, detail });
            self.end(now);
        }
    }

    fn address(&self, address: usize) -> Arc<str> {
        Arc::clone(&self.options.peers[address].address)
    }

    // === handlers ===

    fn begin(&mut self, now: Instant, link: LinkId, delivery: Delivery) {
        let Some(number) = self.book.handle_delivery(now, link, &delivery) else { return };
        let handler = Arc::clone(&self.handler);
        // A handler that panics before its first wait panics in here as well.
        let task = self.handlers.spawn(async move { handler(delivery).await });
        self.handled.insert(task.id(), number);
    }

    fn handle_ended(&mut self, now: Instant, ended: Result<(task::Id, Verdict), JoinError>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(number) = self.handled.remove(&id) else { return };
        match ended {
            Ok((_, verdict)) => self.book.handle_verdict(now, number, verdict),
            Err(error) => {
                // One that was dropped is not open any more.
                let detail =
                    error.try_into_panic().map_or_else(|_| "dropped".to_owned(), |panic| told(&*panic));
                self.book.handle_panic(now, number, detail);
            }
        }
    }

    // === the end ===

    /// Nothing more is taken; what is open has a while.
    fn end(&mut self, now: Instant) {
        self.finish_by = Some(now + self.options.stop_within);
        self.book.handle_stop();
        if let Some(id) = self.taking
            && let Some(line) = self.links.get(&id).filter(|line| !line.is_open)
        {
            line.task.abort();
            self.links.remove(&id);
            self.book.handle_link_lost(now, id);
            self.taking = None;
        }
    }

    /// Takes leave of the hosts.
    async fn leave(&mut self) {
        self.links.values().for_each(|line| line.outbox.close());
        let goodbye = async {
            while !self.links.is_empty()
                && let Some(News { link, said }) = self.news.1.recv().await
            {
                if matches!(said, Heard::Ended(_)) {
                    self.links.remove(&link);
                }
            }
        };
        // A host that does not answer notices by itself.
        let _ = timeout(LEAVE_TIMEOUT, goodbye).await;
        self.streams.shutdown().await;
        self.calls.shutdown().await;
        self.handlers.shutdown().await;
    }
}

/// What a panic said.
fn told(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the handler panicked".to_owned())
}
