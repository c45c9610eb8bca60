//! Faults to order: what goes wrong, in which call, how often.

use std::time::Duration;

use parking_lot::Mutex;

/// A call of the service.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Method {
    /// `QueryRoute`.
    QueryRoute,
    /// `Heartbeat`.
    Heartbeat,
    /// `SendMessage`.
    SendMessage,
    /// `QueryAssignment`.
    QueryAssignment,
    /// `ReceiveMessage`.
    ReceiveMessage,
    /// `AckMessage`.
    AckMessage,
    /// `ForwardMessageToDeadLetterQueue`.
    ForwardMessageToDeadLetterQueue,
    /// `Telemetry`.
    Telemetry,
    /// `NotifyClientTermination`.
    NotifyClientTermination,
    /// `ChangeInvisibleDuration`.
    ChangeInvisibleDuration,
    /// `RecallMessage`.
    RecallMessage,
    /// `SyncLiteSubscription`.
    SyncLiteSubscription,
}

/// A fault: `effect` for the next `times` calls of `method`.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The call it befalls.
    pub method: Method,
    /// Only calls of this client id.
    pub client: Option<String>,
    /// What goes wrong.
    pub effect: Effect,
    /// How many calls it befalls.
    pub times: u32,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The work is done after this wait.
    Delay(Duration),
    /// The work is done, the answer never comes.
    DropReply,
    /// The call ends without an answer: a telemetry stream cleanly after its first answer, a receive without an item,
    /// a unary call with gRPC UNAVAILABLE.
    CloseStream,
    /// Nothing is done; the answer carries this status and, where there is one, an empty handle.
    Code {
        /// The protocol's code, such as 42900.
        code: i32,
        /// The status text.
        message: String,
    },
    /// Nothing is done; the call fails with this gRPC status.
    Grpc {
        /// The gRPC status code's number, such as 14 for UNAVAILABLE.
        code: i32,
        /// The status text.
        message: String,
    },
    /// Receive and change hand out handles of an earlier delivery: acks with them are answered OK and do nothing.
    StaleHandle,
    /// Receive and change hand out handles that have run out: acks with them are answered 40013.
    ExpiredHandle,
    /// Receive and change hand out empty handles.
    EmptyHandle,
    /// A receive's items come in the reverse order: delivery time, messages, status.
    ReverseItems,
    /// A receive ends without its status item.
    OmitStatus,
    /// A route says of no queue what it takes, as a proxy does for a moment after a broker's restart.
    UnknownKinds,
    /// A receive's stream breaks with gRPC UNAVAILABLE after so many messages.
    CutAfter(usize),
}

impl Fault {
    /// A fault that befalls the next `times` calls of `method` of any client.
    #[must_use]
    pub fn new(method: Method, effect: Effect, times: u32) -> Self {
        Self { method, client: None, effect, times }
    }

    /// The same fault for one client only.
    #[must_use]
    pub fn of_client(self, client: &str) -> Self {
        Self { client: Some(client.to_owned()), ..self }
    }
}

/// The faults still to come.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pending: Mutex<Vec<Fault>>,
}

impl Faults {
    pub(crate) fn add(&self, fault: Fault) {
        if fault.times > 0 {
            self.pending.lock().push(fault);
        }
    }

    pub(crate) fn clear(&self) {
        self.pending.lock().clear();
    }

    /// The fault that befalls this call, the oldest first.
    pub(crate) fn take(&self, method: Method, client: &str) -> Option<Effect> {
        let mut pending = self.pending.lock();
        let at = pending.iter().position(|fault| {
            fault.method == method && fault.client.as_deref().is_none_or(|wanted| wanted == client)
        })?;
        pending[at].times -= 1;
        let effect = pending[at].effect.clone();
        if pending[at].times == 0 {
            pending.remove(at);
        }
        Some(effect)
    }
}
