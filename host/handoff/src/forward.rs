//! To the host that gave a message out, where only that one can settle it.
//!
//! A lock of a Kafka share group belongs to one member, so a receipt that arrives at another host is passed on to its owner:
//! [`Forwarder`] finds the peer that the owner is, and has it settle, as its own workers would. What is passed on carries a
//! mark with the owner's id; whoever gets it and is another host says so, and nobody passes it on again. Each receipt gets
//! exactly one answer within the caller's patience, and nothing here takes part in consumption.
//!
//! What is decided is decided without I/O: who is who in `directory`, what goes together and what answers mean in `parcel`.

mod directory;
mod line;
mod parcel;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tidegate_connector::Clock;
use tidegate_model::{Instant, Receipt, Verb};
use tidegate_proto::handoff as proto;
use tidegate_telemetry::Telemetry;
use tidegate_telemetry::events::peer as events;
use tokio::sync::Semaphore;

use self::directory::{Directory, Failure, Fault, Find, Nobody};
pub(crate) use self::line::FORWARDED_TO;
use self::line::{CallError, Line};
pub use self::line::{Description, PeerError, PeerOptions};
pub(crate) use self::parcel::Errand;
use self::parcel::Parcel;
use crate::settle::{Kept, PATIENCE, Told, status_word};

/// Calls under way to one peer, so that all of their parcels fit into what a connection may have.
const CALLS_MAX: usize = 16;
/// How often one parcel is sent at most. Doing the same twice has one effect.
const TRIES_MAX: usize = 3;
/// How often a receipt's owner is looked for at most, within its caller's patience.
const LOOKS_MAX: usize = 8;
/// How long a peer may take to say which host it is.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(3);
/// The same for `tidegate check`, where somebody waits for a verdict on a peer that may be slow.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// What is left of a caller's patience when the last try begins; less is not worth a call.
const CALL_TIME_MIN: Duration = Duration::from_millis(50);

/// Passes receipts on to the hosts that gave their messages out.
pub struct Forwarder {
    peers: Vec<Peer>,
    directory: Mutex<Directory>,
    clock: Clock,
    telemetry: Telemetry,
}

struct Peer {
    name: Arc<str>,
    endpoint: Arc<str>,
    line: Line,
    calls: Semaphore,
    /// Held by whoever asks it which host it is.
    asking: tokio::sync::Mutex<()>,
}

/// What came of a receipt that was passed on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Forwarded {
    /// The broker took it.
    Done,
    /// The lease had ended: the message comes again.
    Expired(String),
    /// It was settled otherwise before, or its host knows nothing of it any more.
    Unknown(String),
    /// The same again will be refused again.
    Refused(String),
    /// To be settled again.
    RetryLater(String),
}

impl Forwarder {
    /// Looks at the peers' options, and connects to nobody until there is something to pass on. Needs a runtime.
    ///
    /// # Errors
    /// With the name of the first peer that cannot be used as configured.
    pub fn start(
        peers: impl IntoIterator<Item = PeerOptions>,
        clock: Clock,
        telemetry: Telemetry,
    ) -> Result<Self, (Arc<str>, PeerError)> {
        let peer = |options: PeerOptions| {
            let line = Line::new(&options).map_err(|error| (Arc::clone(&options.name), error))?;
            let PeerOptions { name, endpoint, .. } = options;
            let (calls, asking) = (Semaphore::new(CALLS_MAX), tokio::sync::Mutex::default());
            Ok(Peer { name, endpoint, line, calls, asking })
        };
        let peers: Vec<Peer> = peers.into_iter().map(peer).collect::<Result<_, _>>()?;
        let known = peers.iter().map(|peer| (Arc::clone(&peer.name), Arc::clone(&peer.endpoint)));
        let directory = Mutex::new(Directory::new(known));
        Ok(Self { peers, directory, clock, telemetry })
    }

    /// Asks every peer which host it is and what it serves: for `tidegate check`. In words when one cannot be asked.
    pub async fn describe_all(&self) -> Vec<(Arc<str>, Result<Description, String>)> {
        let asking = self.peers.iter().map(|peer| async {
            let described = peer.line.describe(CHECK_TIMEOUT).await;
            let described = described.map_err(|error| Failure::from(error).problem);
            (Arc::clone(&peer.name), described)
        });
        join_all(asking).await
    }

    /// Settles by receipt at the hosts that gave the messages out: one result for each, in the same order. Receipts come with
    /// their texts, which are what the other hosts are told.
    pub async fn settle(&self, batch: Vec<(Receipt, String, Verb)>) -> Vec<Forwarded> {
        let results: Mutex<Vec<Option<Forwarded>>> = Mutex::new(vec![None; batch.len()]);
        let errand = |(at, (receipt, text, verb)): (usize, (Receipt, String, Verb))| {
            (at, receipt.owner, errand(text, verb))
        };
        let errands = batch.into_iter().enumerate().map(errand).collect();
        let tell = |at: usize, kept: Kept| results.lock()[at] = Some(Forwarded::of(kept.told));
        self.pass_on(errands, PATIENCE, &tell).await;
        let results = results.into_inner();
        results.into_iter().map(|result| result.unwrap_or_else(|| Forwarded::of(Told::late()))).collect()
    }

    /// Passes on errands to the hosts that they are for, and tells each result once, by the errand's place.
    pub(crate) async fn pass_on(
        &self,
        errands: Vec<(usize, Arc<str>, Errand)>,
        patience: Duration,
        tell: &(dyn Fn(usize, Kept) + Send + Sync),
    ) {
        let until = self.clock.now() + patience.min(PATIENCE);
        let mut by_owner: BTreeMap<Arc<str>, Vec<(usize, Errand)>> = BTreeMap::new();
        for (at, owner, errand) in errands {
            by_owner.entry(owner).or_default().push((at, errand));
        }
        let parcels = by_owner.into_iter().flat_map(|(owner, errands)| {
            parcel::pack(errands).into_iter().map(move |parcel| (Arc::clone(&owner), parcel))
        });
        let carrying = parcels.map(|(owner, parcel)| async move {
            let renewals = parcel.load.is_renewals();
            let (peer, results) = self.carry(&owner, &parcel, until).await;
            if let Some(peer) = peer {
                self.count(&self.peers[peer].name, renewals, &results);
            }
            parcel.places.into_iter().zip(results).for_each(|(at, kept)| tell(at, kept));
        });
        join_all(carrying).await;
    }

    /// Has one parcel done: one result for each of it, and which peer was asked.
    async fn carry(&self, owner: &str, parcel: &Parcel, until: Instant) -> (Option<usize>, Vec<Kept>) {
        let (mut tries, mut asked) = (0, None);
        let all = |told: Told| parcel.places.iter().map(|_| Kept::not(told.clone())).collect::<Vec<_>>();
        for _ in 0..LOOKS_MAX {
            let left = until.saturating_since(self.clock.now());
            if left < CALL_TIME_MIN || tries == TRIES_MAX {
                break;
            }
            let found = self.directory.lock().find(self.clock.now(), owner);
            match found {
                Find::Ask(peers) => {
                    join_all(peers.into_iter().map(|at| self.ask(at, left))).await;
                }
                Find::Peer(at) => {
                    tries += 1;
                    asked = Some(at);
                    match self.call(at, owner, parcel, until).await {
                        Ok(results) => return (asked, results),
                        Err(CallError::Failed(failure)) => self.failed(at, failure),
                        Err(CallError::Stranger) => {
                            self.directory.lock().handle_stranger(self.clock.now(), at);
                        }
                        Err(CallError::Busy(problem)) => {
                            let name = &self.peers[at].name;
                            let detail = format!(
                                "peer `{name}`, which gave it out, cannot now: {problem}; settle again"
                            );
                            return (asked, all(Told::elsewhere(proto::Status::RetryLater, detail)));
                        }
                    }
                }
                // A call that failed is tried once more, in case only its connection was old.
                Find::Nobody(nobody) if nobody.may_come && tries == 1 && nobody.look_again < until => {
                    tries += 1;
                    tokio::time::sleep_until(self.clock.deadline(nobody.look_again)).await;
                }
                Find::Nobody(nobody) => return (asked, all(nobody.into())),
            }
        }
        let found = self.directory.lock().find(self.clock.now(), owner);
        let told = match found {
            Find::Nobody(nobody) => nobody.into(),
            Find::Peer(_) | Find::Ask(_) => Told::late(),
        };
        (asked, all(told))
    }

    async fn call(
        &self,
        at: usize,
        owner: &str,
        parcel: &Parcel,
        until: Instant,
    ) -> Result<Vec<Kept>, CallError> {
        let peer = &self.peers[at];
        let deadline = self.clock.deadline(until);
        let busy = || CallError::Busy("it has as much under way as it may".to_owned());
        // Never closed.
        let permit = tokio::time::timeout_at(deadline, peer.calls.acquire()).await.map_err(|_| busy())?;
        let _permit = permit.map_err(|_| busy())?;
        let left = until.saturating_since(self.clock.now());
        if left < CALL_TIME_MIN {
            return Err(busy());
        }
        peer.line.pass_on(owner, &parcel.load, left).await
    }

    /// Asks a peer which host it is, unless somebody else just has.
    async fn ask(&self, at: usize, left: Duration) {
        let peer = &self.peers[at];
        let _asking = peer.asking.lock().await;
        if !self.directory.lock().may_ask(self.clock.now(), at) {
            return;
        }
        match peer.line.describe(DESCRIBE_TIMEOUT.min(left)).await {
            Ok(described) => {
                let is_news = self.directory.lock().handle_described(self.clock.now(), at, &described.host);
                let (endpoint, host) = (&*peer.endpoint, &*described.host);
                self.telemetry.emit(events::Up { peer: &peer.name, endpoint, host, is_news });
            }
            Err(error) => self.failed(at, error.into()),
        }
    }

    fn failed(&self, at: usize, failure: Failure) {
        let peer = &self.peers[at];
        let problem = failure.problem.clone();
        let is_news = self.directory.lock().handle_failed(self.clock.now(), at, failure);
        let (endpoint, problem) = (&*peer.endpoint, &*problem);
        self.telemetry.emit(events::Down { peer: &peer.name, endpoint, problem, is_news });
    }

    fn count(&self, peer: &Arc<str>, renewals: bool, results: &[Kept]) {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        for kept in results {
            *counts.entry(status_word(kept.told.status)).or_default() += 1;
        }
        for (result, count) in counts {
            self.telemetry.emit(events::Forwarded { peer, renewals, result, count });
        }
    }
}

fn errand(receipt: String, verb: Verb) -> Errand {
    use proto::settlement::Verdict;
    let millis = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    let verdict = match verb {
        Verb::Renew(length) => return Errand::Renew(proto::Renewal { receipt, length_ms: millis(length) }),
        Verb::Accept => Verdict::Accept(proto::Accept {}),
        Verb::Defer(delay) => Verdict::Defer(proto::Defer { delay_ms: millis(delay) }),
        Verb::Release => Verdict::Release(proto::Release {}),
        Verb::Reject { reason } => Verdict::Reject(proto::Reject { reason: reason.into() }),
    };
    Errand::Settle(proto::Settlement { receipt, verdict: Some(verdict), cost: None })
}

/// Why a peer could not be asked which host it is.
impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let problem = match error {
            CallError::Failed(failure) => return failure,
            CallError::Stranger => "it does not say which host it is".to_owned(),
            CallError::Busy(problem) => problem,
        };
        Self { fault: Fault::Away, problem }
    }
}

impl From<Nobody> for Told {
    fn from(nobody: Nobody) -> Self {
        let status = if nobody.may_come { proto::Status::RetryLater } else { proto::Status::Refused };
        Self::elsewhere(status, nobody.detail)
    }
}

impl Forwarded {
    fn of(told: Told) -> Self {
        match told.status {
            proto::Status::Done => Self::Done,
            proto::Status::Expired => Self::Expired(told.detail),
            proto::Status::Unknown => Self::Unknown(told.detail),
            proto::Status::Refused => Self::Refused(told.detail),
            proto::Status::RetryLater | proto::Status::Unspecified => Self::RetryLater(told.detail),
        }
    }
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers: Vec<_> = self.peers.iter().map(|peer| &*peer.name).collect();
        f.debug_struct("Forwarder").field("peers", &peers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
