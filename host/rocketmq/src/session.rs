//! One client's session with one proxy, without I/O.
//!
//! A proxy answers a client only while it holds the client's Settings, in memory: they are sent first on the
//! telemetry stream, again every five minutes, and at once when an answer shows that they are gone, as after the
//! proxy's restart. A stream that ends is opened again, for ever, with capped waits. Beside the stream run heartbeats
//! and, for lite consumers, the renewal of the wildcard subscription.
//!
//! Life of a session: *waiting* (for its time to open) → *exchanging* (Settings sent, answer awaited) → *ready* → and from
//! there back to *waiting* when the stream ends, or by way of *stale* to *exchanging* when the proxy has forgotten us.
//!
//! Inputs are `handle_*`; after each one, actions and notices are drained with `poll_*` until `None`, and
//! [`Session::poll_timeout`] says when [`Session::handle_timeout`] is due.

mod kind;
mod timers;

use std::collections::VecDeque;
use std::time::Duration;

pub(crate) use kind::{ClientKind, Role};
use tidegate_connector::Backoff;
use tidegate_model::Instant;

use crate::fault::{CallError, Method, Reason, Subject};
pub(crate) use timers::SyncKind;
use timers::{Heartbeats, Subscription};

/// First and longest wait before a stream is opened again. The longest is short: a proxy that is back should not
/// stand idle (measured: a backoff of 7 s was most of the outage).
const REOPEN_WAIT_FIRST: Duration = Duration::from_millis(200);
const REOPEN_WAIT_MAX: Duration = Duration::from_secs(5);
/// A stream that was ready for so long has earned a quick return when it ends.
const READY_MIN: Duration = Duration::from_secs(1);
/// Settings are sent again at least so often.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(300);
/// Between two exchanges that answers asked for: a proxy that never remembers is not flooded.
const RESEND_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// An unexplained failure right after an exchange cannot come from lost Settings.
const SUSPICION_INTERVAL: Duration = Duration::from_secs(3);
/// So many times forgotten right after an exchange that worked: the server does not know this kind of client.
const FORGOTTEN_MAX: u32 = 3;
/// Between two rebuilds of a connection that were our own idea.
const REBUILD_INTERVAL_MIN: Duration = Duration::from_secs(30);
/// Heartbeats in a row without an answer that make a connection suspect.
const HEARTBEAT_TIMEOUTS_MAX: u32 = 2;

/// The state machine of one session.
#[derive(Debug)]
pub(crate) struct Session {
    subject: Subject,
    kind: ClientKind,
    settings_wait: Duration,
    state: State,
    backoff: Backoff,
    exchanged_at: Option<Instant>,
    settings_due: Instant,
    rebuilt_at: Option<Instant>,
    forgotten: u32,
    heartbeats: Heartbeats,
    subscription: Option<Subscription>,
    problem: Option<CallError>,
    actions: VecDeque<Action>,
    notices: VecDeque<Notice>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// No stream; one is opened at this time.
    Waiting { open_at: Instant },
    /// Settings are written; their answer must be there by this time.
    Exchanging { deadline: Instant },
    /// The proxy knows us.
    Ready { since: Instant },
    /// The proxy has forgotten us; Settings are written again at this time.
    Stale { resend_at: Instant },
}

/// What the shell has to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Action {
    /// Open a stream whose first message is the Settings of this kind of client.
    Open(ClientKind),
    /// Write the Settings into the open stream.
    WriteSettings(ClientKind),
    /// Write an answer into the open stream.
    Reply(Reply),
    /// Drop the stream.
    Close,
    /// Drop the connection; the next call makes a new one.
    Rebuild,
    /// Send a heartbeat and bring its result back.
    Heartbeat(ClientKind),
    /// Say this about the wildcard subscription and bring the result back.
    Sync(SyncKind),
}

/// An answer to a command of the server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Reply {
    /// There are no threads to show.
    StackTrace { nonce: String },
    /// Messages are not verified by this kind of client.
    NotVerified { nonce: String },
}

/// A command of the server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Command {
    PrintThreadStackTrace {
        nonce: String,
    },
    VerifyMessage {
        nonce: String,
    },
    ReconnectEndpoints,
    /// One lite topic was taken from us. A wildcard subscription has none of its own, so nothing changes.
    NotifyUnsubscribeLite,
    /// Not for this kind of client.
    Unknown,
}

/// What is worth telling.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Notice {
    Ready(ClientKind),
    Lost { error: CallError, repeated: bool },
    FellBack,
    Resent,
    Synced(Option<CallError>),
    Rebuilding(&'static str),
}

impl Session {
    /// A session that opens its stream at once. `settings_wait` bounds the wait for the server's Settings.
    pub(crate) fn new(
        role: Role,
        subject: Subject,
        settings_wait: Duration,
        now: Instant,
        seed: u64,
    ) -> Self {
        let mut session = Self {
            subject,
            kind: role.first_kind(),
            settings_wait,
            state: State::Waiting { open_at: now },
            backoff: Backoff::new(REOPEN_WAIT_FIRST, REOPEN_WAIT_MAX, seed),
            exchanged_at: None,
            settings_due: now + SETTINGS_INTERVAL,
            rebuilt_at: None,
            forgotten: 0,
            heartbeats: Heartbeats::new(now),
            subscription: role.subscribes().then(|| Subscription::new(now)),
            problem: None,
            actions: VecDeque::new(),
            notices: VecDeque::new(),
        };
        session.open(now);
        session
    }

    /// Whether calls that need the server's Settings make sense.
    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. })
    }

    pub(crate) const fn kind(&self) -> ClientKind {
        self.kind
    }

    /// Why the session is not ready or its subscription not in force, if that is known.
    pub(crate) fn problem(&self) -> Option<&CallError> {
        let subscription = self.subscription.as_ref().and_then(Subscription::problem);
        self.problem.as_ref().or(subscription)
    }

    /// Whether the wildcard subscription has been taken since the stream was opened.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscription.as_ref().is_some_and(Subscription::is_taken)
    }

    // === inputs ===

    /// The server's Settings came, or a status in their place.
    pub(crate) fn handle_settings(&mut self, now: Instant, result: Result<(), CallError>) {
        if let Err(error) = result {
            self.actions.push_back(Action::Close);
            self.lose(now, error);
            return;
        }
        self.exchanged_at = Some(now);
        self.settings_due = now + SETTINGS_INTERVAL;
        if !matches!(self.state, State::Exchanging { .. }) {
            return;
        }
        self.state = State::Ready { since: now };
        self.problem = None;
        self.heartbeats.hasten(now);
        if let Some(subscription) = &mut self.subscription {
            subscription.hasten(now);
        }
        self.notices.push_back(Notice::Ready(self.kind));
        self.run_timers(now);
    }

    /// The server commands something over the stream.
    pub(crate) fn handle_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::PrintThreadStackTrace { nonce } => {
                self.actions.push_back(Action::Reply(Reply::StackTrace { nonce }));
            }
            Command::VerifyMessage { nonce } => {
                self.actions.push_back(Action::Reply(Reply::NotVerified { nonce }));
            }
            Command::ReconnectEndpoints => self.rebuild(now, "the server asked for it"),
            Command::NotifyUnsubscribeLite | Command::Unknown => {}
        }
    }

    /// The stream could not be opened, failed, or ended.
    pub(crate) fn handle_stream_end(&mut self, now: Instant, error: CallError) {
        if matches!(self.state, State::Waiting { .. }) {
            return;
        }
        if error.reason() == Reason::ClientTypeRefused && self.fall_back(now) {
            return;
        }
        self.lose(now, error);
    }

    /// A heartbeat ended.
    pub(crate) fn handle_heartbeat(&mut self, now: Instant, result: Result<(), CallError>) {
        self.heartbeats.end(now);
        match result {
            Ok(()) => {
                self.heartbeats.timeouts = 0;
                self.forgotten = 0;
            }
            Err(error) if error.reason() == Reason::TimedOut => {
                self.heartbeats.timeouts += 1;
                let rested =
                    self.rebuilt_at.is_none_or(|at| now.saturating_since(at) >= REBUILD_INTERVAL_MIN);
                if self.heartbeats.timeouts >= HEARTBEAT_TIMEOUTS_MAX && rested {
                    self.rebuild(now, "heartbeats are not answered");
                }
            }
            Err(error) => self.handle_call_failure(now, &error),
        }
    }

    /// A renewal of the subscription ended.
    pub(crate) fn handle_sync(&mut self, now: Instant, result: Result<(), CallError>) {
        let Some(subscription) = &mut self.subscription else { return };
        let unknown = result.as_ref().is_err_and(|error| error.reason() == Reason::SettingsUnknown);
        if let Some(notice) = subscription.end(now, result) {
            self.notices.push_back(Notice::Synced(notice));
        }
        if unknown {
            self.forget(now);
        }
    }

    /// Another call through this proxy failed: it may show that Settings or subscription are lost.
    pub(crate) fn handle_call_failure(&mut self, now: Instant, error: &CallError) {
        let reason = error.reason();
        if reason.is_broker_trouble()
            && let Some(subscription) = &mut self.subscription
        {
            subscription.trouble(now);
        }
        let exchanged_lately =
            self.exchanged_at.is_some_and(|at| now.saturating_since(at) < SUSPICION_INTERVAL);
        match reason {
            Reason::SettingsUnknown => self.forget(now),
            // Some servers show lost Settings as a null pointer without a text that would tell.
            Reason::ServerTrouble if self.is_ready() && !exchanged_lately => {
                self.notices.push_back(Notice::Resent);
                self.write_settings(now);
            }
            _ => {}
        }
    }

    /// Brokers came or went: the subscription goes to them too.
    pub(crate) fn handle_route_change(&mut self, now: Instant) {
        if let Some(subscription) = &mut self.subscription {
            subscription.hasten(now);
        }
        self.run_timers(now);
    }

    /// Whether this client receives from now on. One that does not takes its subscription back, and is known all the same.
    pub(crate) fn handle_receiving(&mut self, now: Instant, receiving: bool) {
        if let Some(subscription) = &mut self.subscription {
            subscription.want(now, receiving);
        }
        self.run_timers(now);
    }

    /// Nothing has come for a while: the subscription is taken back and made anew, so that the broker looks through all
    /// lite topics again. It loses the news of a lite topic now and then (rocketmq 11191; seen on 5.5.0: five messages
    /// stood for a minute beside a polling client, and came at once to a new one).
    pub(crate) fn handle_idle(&mut self, now: Instant) {
        if let Some(subscription) = &mut self.subscription {
            subscription.refresh(now);
        }
        self.run_timers(now);
    }

    /// The time that [`poll_timeout`](Self::poll_timeout) told has come. Early calls do nothing.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        match self.state {
            State::Waiting { open_at } if open_at <= now => self.open(now),
            State::Exchanging { deadline } if deadline <= now => {
                let said = format!("the server's Settings did not come within {:?}", self.settings_wait);
                let error = CallError::other(&self.subject, Method::Telemetry, Reason::TimedOut, said);
                self.actions.push_back(Action::Close);
                self.lose(now, error);
            }
            State::Stale { resend_at } if resend_at <= now => self.write_settings(now),
            _ => {}
        }
        self.run_timers(now);
    }

    // === outputs ===

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(crate) fn poll_timeout(&self) -> Instant {
        match self.state {
            State::Waiting { open_at } => open_at,
            State::Exchanging { deadline } => deadline,
            State::Stale { resend_at } => resend_at,
            State::Ready { .. } => {
                let subscription = self.subscription.as_ref().and_then(Subscription::due);
                let beat = self.heartbeats.due();
                [beat, subscription].into_iter().flatten().fold(self.settings_due, Instant::min)
            }
        }
    }

    // === transitions ===

    fn open(&mut self, now: Instant) {
        self.state = State::Exchanging { deadline: now + self.settings_wait };
        self.actions.push_back(Action::Open(self.kind));
    }

    fn write_settings(&mut self, now: Instant) {
        self.state = State::Exchanging { deadline: now + self.settings_wait };
        self.actions.push_back(Action::WriteSettings(self.kind));
    }

    fn lose(&mut self, now: Instant, error: CallError) {
        if let State::Ready { since } = self.state
            && now.saturating_since(since) >= READY_MIN
        {
            self.backoff.reset();
        }
        self.state = State::Waiting { open_at: now + self.backoff.next_wait() };
        if let Some(subscription) = &mut self.subscription {
            subscription.lose();
        }
        let repeated = self.problem.as_ref() == Some(&error);
        self.problem = Some(error.clone());
        self.notices.push_back(Notice::Lost { error, repeated });
    }

    /// An answer showed that the proxy does not know us.
    fn forget(&mut self, now: Instant) {
        if !self.is_ready() {
            return;
        }
        self.forgotten += 1;
        if self.forgotten >= FORGOTTEN_MAX {
            self.forgotten = 0;
            self.actions.push_back(Action::Close);
            if self.fall_back(now) {
                return;
            }
            let said = format!(
                "the server takes the Settings of a {} and then does not know it, so it is too old",
                self.kind.name()
            );
            let error = CallError::other(&self.subject, Method::Telemetry, Reason::ServerTooOld, said);
            self.lose(now, error);
            return;
        }
        self.notices.push_back(Notice::Resent);
        let resend_at = self.exchanged_at.map_or(now, |at| at + RESEND_INTERVAL_MIN);
        if resend_at <= now {
            self.write_settings(now);
        } else {
            self.state = State::Stale { resend_at };
        }
    }

    /// Goes on as the older kind of client, if there is one; for as long as this session lives.
    fn fall_back(&mut self, now: Instant) -> bool {
        let Some(older) = self.kind.older() else {
            return false;
        };
        self.kind = older;
        self.notices.push_back(Notice::FellBack);
        self.open(now);
        true
    }

    fn rebuild(&mut self, now: Instant, cause: &'static str) {
        self.rebuilt_at = Some(now);
        self.heartbeats.timeouts = 0;
        self.notices.push_back(Notice::Rebuilding(cause));
        self.actions.extend([Action::Close, Action::Rebuild]);
        self.open(now);
    }

    fn run_timers(&mut self, now: Instant) {
        if !self.is_ready() {
            return;
        }
        if self.settings_due <= now {
            // The proxy still knows us: nothing waits for the answer.
            self.settings_due = now + SETTINGS_INTERVAL;
            self.actions.push_back(Action::WriteSettings(self.kind));
        }
        if self.heartbeats.begin(now) {
            self.actions.push_back(Action::Heartbeat(self.kind));
        }
        if let Some(sync) = self.subscription.as_mut().and_then(|subscription| subscription.begin(now)) {
            self.actions.push_back(Action::Sync(sync));
        }
    }
}

#[cfg(test)]
mod tests;
