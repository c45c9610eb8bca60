//! The task behind one session: carries out its actions, brings it what happens.

use std::pin::Pin;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::FuturesUnordered;
use tidegate_model::Instant;
use tidegate_proto::rocketmq::{self as proto, telemetry_command::Command as Wire};
use tidegate_telemetry::events::rocketmq as events;
use tokio::sync::{mpsc, watch};
use tokio::time;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{Note, Seat, View};
use crate::core::Core;
use crate::fault::{CallError, Method, Reason};
use crate::profile::Profile;
use crate::session::{Action, ClientKind, Command, Notice, Reply, Session, SyncKind};

/// Commands of ours that may wait in a stream: Settings and answers, a few bytes each.
const COMMANDS_MAX: usize = 16;

type Opening = BoxFuture<'static, Result<Streaming<proto::TelemetryCommand>, CallError>>;

/// Runs one session until its seat is closed, then takes leave.
pub(super) async fn run(
    core: Arc<Core>,
    profile: Arc<Profile>,
    seat: Arc<Seat>,
    notes: mpsc::Receiver<Note>,
    receiving: watch::Receiver<bool>,
    changes: watch::Sender<u64>,
) {
    let now = core.clock.now();
    let mut session =
        Session::new(profile.role(), seat.peer.subject.clone(), core.settings_wait(), now, core.seed());
    session.handle_receiving(now, *receiving.borrow());
    let task = Task {
        session,
        commands: None,
        inbound: Inbound::None,
        calls: FuturesUnordered::new(),
        view: View::before_the_first_step(),
        core,
        profile,
        seat,
        changes,
    };
    task.run(notes, receiving).await;
}

struct Task {
    core: Arc<Core>,
    profile: Arc<Profile>,
    seat: Arc<Seat>,
    changes: watch::Sender<u64>,
    session: Session,
    commands: Option<mpsc::Sender<proto::TelemetryCommand>>,
    inbound: Inbound,
    calls: FuturesUnordered<BoxFuture<'static, Done>>,
    view: View,
}

/// The server's side of the telemetry stream.
enum Inbound {
    None,
    Opening(Opening),
    Open(Box<Streaming<proto::TelemetryCommand>>),
}

/// A call of the session's own that ended.
enum Done {
    Heartbeat(Result<(), CallError>),
    Sync(Result<(), CallError>),
    /// Other keys were asked for; the next stream is opened with what there is.
    Renewed,
}

enum Heard {
    Opened(Box<Streaming<proto::TelemetryCommand>>),
    Said(Box<proto::TelemetryCommand>),
    Ended(CallError),
}

impl Task {
    async fn run(mut self, mut notes: mpsc::Receiver<Note>, mut receiving: watch::Receiver<bool>) {
        let closing = self.seat.closing.clone();
        loop {
            self.settle_down();
            let wake = self.core.clock.deadline(self.session.poll_timeout());
            tokio::select! {
                () = closing.cancelled() => break,
                heard = self.inbound.next(&self.seat) => self.handle_heard(heard),
                Some(done) = self.calls.next(), if !self.calls.is_empty() => self.handle_done(done),
                Some(note) = notes.recv() => self.handle_note(note),
                // An error is the end of all sessions, which is told by other means.
                Ok(()) = receiving.changed() => {
                    let is_receiving = *receiving.borrow_and_update();
                    let now = self.core.clock.now();
                    self.session.handle_receiving(now, is_receiving);
                }
                () = time::sleep_until(wake) => {
                    let now = self.core.clock.now();
                    self.session.handle_timeout(now);
                }
            }
        }
        self.take_leave().await;
    }

    fn handle_heard(&mut self, heard: Heard) {
        let now = self.core.clock.now();
        match heard {
            Heard::Opened(stream) => self.inbound = Inbound::Open(stream),
            Heard::Ended(error) => {
                self.inbound = Inbound::None;
                self.commands = None;
                self.session.handle_stream_end(now, error);
            }
            Heard::Said(said) => self.handle_said(now, *said),
        }
    }

    fn handle_said(&mut self, now: Instant, said: proto::TelemetryCommand) {
        let status = said.status.filter(|status| status.code() != proto::Code::Ok);
        match said.command {
            Some(Wire::Settings(settings)) if status.is_none() => {
                self.learn(&settings);
                self.session.handle_settings(now, Ok(()));
            }
            Some(Wire::Settings(_)) | None => {
                if let Some(status) = status {
                    let (peer, method) = (&self.seat.peer, Method::Telemetry);
                    let error = CallError::answered(&peer.subject, method, status.code, &status.message);
                    if error.reason() == Reason::Access {
                        let (peer, error) = (Arc::clone(peer), error.clone());
                        let renewing = async move {
                            peer.noted(error).await;
                            Done::Renewed
                        };
                        self.calls.push(renewing.boxed());
                    }
                    self.session.handle_settings(now, Err(error));
                }
            }
            Some(command) => self.session.handle_command(now, command_of(command)),
        }
    }

    fn handle_done(&mut self, done: Done) {
        let now = self.core.clock.now();
        match done {
            Done::Heartbeat(result) => {
                if result.is_ok() {
                    self.view.heard_at = Some(now);
                }
                self.session.handle_heartbeat(now, result);
            }
            Done::Sync(result) => self.session.handle_sync(now, result),
            Done::Renewed => {}
        }
    }

    fn handle_note(&mut self, note: Note) {
        let now = self.core.clock.now();
        match note {
            Note::CallFailed(error) => self.session.handle_call_failure(now, &error),
            Note::RouteChanged => self.session.handle_route_change(now),
            Note::Idle => self.session.handle_idle(now),
            Note::PublishesMore if self.session.is_ready() => self.write_settings(self.session.kind()),
            // The next Settings will name the new topic.
            Note::PublishesMore => {}
        }
    }

    /// Drains the session's outputs and shows its state to others.
    fn settle_down(&mut self) {
        while let Some(action) = self.session.poll_action() {
            self.act(action);
        }
        while let Some(notice) = self.session.poll_notice() {
            self.tell(notice);
        }
        let view = View {
            ready: self.session.is_ready(),
            subscribed: self.session.is_subscribed(),
            problem: self.session.problem().cloned(),
            ..self.view.clone()
        };
        let shown = self.seat.view.load();
        let changed = view.ready != shown.ready
            || view.subscribed != shown.subscribed
            || view.problem != shown.problem
            || view.heard_at != shown.heard_at;
        if changed {
            self.view = view.clone();
            self.seat.view.store(Arc::new(view));
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    fn act(&mut self, action: Action) {
        let peer = Arc::clone(&self.seat.peer);
        match action {
            Action::Open(kind) => self.open(kind),
            Action::WriteSettings(kind) => self.write_settings(kind),
            Action::Reply(reply) => self.write(reply_of(reply)),
            Action::Close => {
                self.commands = None;
                self.inbound = Inbound::None;
            }
            Action::Rebuild => peer.link.rebuild(),
            Action::Heartbeat(kind) => {
                let request = self.profile.heartbeat(&self.core, kind);
                self.calls.push(async move { Done::Heartbeat(peer.heartbeat(request).await) }.boxed());
            }
            Action::Sync(sync) => {
                let request = |action| self.profile.sync(&self.core, action, Vec::new());
                let add = request(proto::LiteSubscriptionAction::CompleteAdd);
                let remove = request(proto::LiteSubscriptionAction::CompleteRemove);
                let syncing = async move {
                    let result = match sync {
                        SyncKind::Add => peer.sync(add).await,
                        SyncKind::Remove => peer.sync(remove).await,
                        SyncKind::Fresh => {
                            // Whether or not it was taken back: adding it is right.
                            let _ = peer.sync(remove).await;
                            peer.sync(add).await
                        }
                    };
                    Done::Sync(result)
                };
                self.calls.push(syncing.boxed());
            }
        }
    }

    /// Settings stand in the request stream before the call is made: the server says nothing until it has read them.
    fn open(&mut self, kind: ClientKind) {
        let (commands, outbound) = mpsc::channel(COMMANDS_MAX);
        // A new channel has room.
        let _ = commands.try_send(self.profile.settings(&self.core, kind));
        self.commands = Some(commands);
        let peer = Arc::clone(&self.seat.peer);
        let opening = async move { peer.telemetry(ReceiverStream::new(outbound)).await };
        self.inbound = Inbound::Opening(opening.boxed());
    }

    fn write_settings(&mut self, kind: ClientKind) {
        self.write(self.profile.settings(&self.core, kind));
    }

    /// A stream that takes nothing any more has ended or is stuck: the session's timers find out.
    fn write(&mut self, command: proto::TelemetryCommand) {
        if let Some(commands) = &self.commands {
            let _ = commands.try_send(command);
        }
    }

    fn learn(&mut self, settings: &proto::Settings) {
        self.view.attempts_max = settings.backoff_policy.as_ref().map(|policy| policy.max_attempts);
        if let Some(proto::settings::PubSub::Publishing(publishing)) = &settings.pub_sub {
            let bytes_max = usize::try_from(publishing.max_body_size).ok();
            self.view.body_bytes_max = bytes_max.filter(|bytes| *bytes > 0);
        }
    }

    fn tell(&self, notice: Notice) {
        let name = Arc::clone(&self.core.name);
        let endpoint = Arc::clone(self.seat.peer.endpoints.text());
        let telemetry = &self.core.telemetry;
        match notice {
            Notice::Ready(kind) => {
                telemetry.emit(events::SessionReady { name, endpoint, client_type: kind.name() });
            }
            Notice::Lost { error, repeated } => {
                telemetry.emit(events::SessionLost { name, endpoint, detail: error.to_string(), repeated });
            }
            Notice::FellBack => telemetry.emit(events::FellBack { name, endpoint }),
            Notice::Resent => telemetry.emit(events::SettingsResent { name, endpoint }),
            Notice::Synced(problem) => {
                let problem = problem.map(|error| error.to_string());
                telemetry.emit(events::SubscriptionSynced { name, endpoint, problem });
            }
            Notice::Rebuilding(cause) => telemetry.emit(events::Reconnecting { name, endpoint, cause }),
        }
    }

    /// Tells the proxy that we go, so that others take over at once. Bounded by the call's own deadline.
    async fn take_leave(mut self) {
        if self.session.is_ready() {
            let request = self.profile.termination(&self.core);
            // Gone or not, we go: the stream's end tells the proxy as well.
            let _ = self.seat.peer.terminate(request).await;
        }
        self.commands = None;
    }
}

impl Inbound {
    async fn next(&mut self, seat: &Seat) -> Heard {
        match self {
            Self::None => std::future::pending().await,
            Self::Opening(opening) => match Pin::new(opening).await {
                Ok(stream) => Heard::Opened(Box::new(stream)),
                Err(error) => Heard::Ended(error),
            },
            Self::Open(stream) => match stream.message().await {
                Ok(Some(said)) => Heard::Said(Box::new(said)),
                Ok(None) => Heard::Ended(CallError::other(
                    &seat.peer.subject,
                    Method::Telemetry,
                    Reason::ServerTrouble,
                    "the server ended the session",
                )),
                Err(status) => Heard::Ended(seat.peer.broken(Method::Telemetry, &status)),
            },
        }
    }
}

fn command_of(wire: Wire) -> Command {
    match wire {
        Wire::PrintThreadStackTraceCommand(command) => {
            Command::PrintThreadStackTrace { nonce: command.nonce }
        }
        Wire::VerifyMessageCommand(command) => Command::VerifyMessage { nonce: command.nonce },
        Wire::ReconnectEndpointsCommand(_) => Command::ReconnectEndpoints,
        Wire::NotifyUnsubscribeLiteCommand(_) => Command::NotifyUnsubscribeLite,
        Wire::RecoverOrphanedTransactionCommand(_)
        | Wire::Settings(_)
        | Wire::ThreadStackTrace(_)
        | Wire::VerifyMessageResult(_) => Command::Unknown,
    }
}

fn reply_of(reply: Reply) -> proto::TelemetryCommand {
    let status = |code: proto::Code, message: &str| {
        Some(proto::Status { code: code.into(), message: message.to_owned() })
    };
    match reply {
        Reply::StackTrace { nonce } => proto::TelemetryCommand {
            status: status(proto::Code::Ok, ""),
            command: Some(Wire::ThreadStackTrace(proto::ThreadStackTrace {
                nonce,
                thread_stack_trace: Some("this client runs tasks, not threads".to_owned()),
            })),
        },
        Reply::NotVerified { nonce } => proto::TelemetryCommand {
            status: status(proto::Code::NotImplemented, "this client does not verify messages"),
            command: Some(Wire::VerifyMessageResult(proto::VerifyMessageResult { nonce })),
        },
    }
}
