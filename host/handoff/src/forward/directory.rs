//! Which peer is which host, without I/O.
//!
//! A peer says which host it is when it is asked; until then it may be any. It is asked again when somebody looks for a host
//! that no peer is known to be, and after it was out of reach, each time at the earliest when a while has passed.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::Instant;

/// How long a peer's word is good when a host is looked for that none is known to be.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How long a peer that cannot be asked is left alone, at first and at most; each failure doubles it.
const BACKOFF_FIRST: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Peers that a sentence names at most.
const NAMED_MAX: usize = 5;

/// What is known of all peers.
#[derive(Debug)]
pub(super) struct Directory {
    peers: Vec<Known>,
}

/// What is known of one peer.
#[derive(Debug)]
struct Known {
    name: Arc<str>,
    endpoint: Arc<str>,
    /// As it said last.
    host: Option<Arc<str>>,
    state: State,
    /// When it may be asked again.
    next_ask: Instant,
    failures: u32,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum State {
    /// Not asked yet, or what it said is not good any more.
    Unasked,
    Up,
    Failed(Failure),
}

/// Why a peer cannot be asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    /// In a few words.
    pub(super) problem: String,
}

/// Whose affair it is that a peer cannot be asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fault {
    /// It is away, or the road to it is.
    Away,
    /// It answers, and does not take this host's calls.
    Refuses,
}

/// Where a receipt goes.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Find {
    /// To this peer.
    Peer(usize),
    /// These are to be asked first which hosts they are.
    Ask(Vec<usize>),
    /// To none, for now.
    Nobody(Nobody),
}

/// Why a receipt goes nowhere.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Nobody {
    /// Whether that may be otherwise in a while, without anybody's doing.
    pub(super) may_come: bool,
    /// When it makes sense to look again.
    pub(super) look_again: Instant,
    /// In a sentence.
    pub(super) detail: String,
}

impl Directory {
    /// Peers by name and endpoint, none of them asked yet.
    pub(super) fn new(peers: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Self {
        let known = |(name, endpoint)| Known {
            name,
            endpoint,
            host: None,
            state: State::Unasked,
            next_ask: Instant::ZERO,
            failures: 0,
        };
        Self { peers: peers.into_iter().map(known).collect() }
    }

    /// Looks for the peer that is a host.
    pub(super) fn find(&self, now: Instant, owner: &str) -> Find {
        let is_owner = |peer: &Known| peer.host.as_deref() == Some(owner);
        if let Some(at) = self.peers.iter().position(|peer| is_owner(peer) && peer.state == State::Up) {
            return Find::Peer(at);
        }
        // One that was the owner and is away is most likely the owner still.
        for asks_owner in [true, false] {
            let ask = self.places(|peer| is_owner(peer) == asks_owner && peer.next_ask <= now);
            if !ask.is_empty() {
                return Find::Ask(ask);
            }
        }
        Find::Nobody(self.nobody(now, owner))
    }

    /// Whether a peer is to be asked now: somebody else may have asked it meanwhile.
    pub(super) fn may_ask(&self, now: Instant, at: usize) -> bool {
        self.peers[at].next_ask <= now
    }

    /// A peer has said which host it is. True when it was away before, or another.
    pub(super) fn handle_described(&mut self, now: Instant, at: usize, host: &str) -> bool {
        let peer = &mut self.peers[at];
        let is_news = peer.state != State::Up || peer.host.as_deref() != Some(host);
        peer.host = Some(host.into());
        peer.state = State::Up;
        peer.failures = 0;
        peer.next_ask = now + ASK_AGAIN;
        is_news
    }

    /// A peer could not be asked. True when it was not so before.
    pub(super) fn handle_failed(&mut self, now: Instant, at: usize, failure: Failure) -> bool {
        let peer = &mut self.peers[at];
        let is_news = !matches!(&peer.state, State::Failed(before) if before.fault == failure.fault);
        let backoff = BACKOFF_FIRST.saturating_mul(1 << peer.failures.min(8)).min(BACKOFF_MAX);
        peer.failures = peer.failures.saturating_add(1);
        peer.next_ask = now + backoff;
        peer.state = State::Failed(failure);
        is_news
    }

    /// A peer turned out not to be the host that it was. It may be asked at once, as that is news.
    pub(super) fn handle_stranger(&mut self, now: Instant, at: usize) {
        let peer = &mut self.peers[at];
        peer.host = None;
        peer.state = State::Unasked;
        peer.next_ask = now;
    }

    fn places(&self, is_meant: impl Fn(&Known) -> bool) -> Vec<usize> {
        self.peers.iter().enumerate().filter(|(_, peer)| is_meant(peer)).map(|(at, _)| at).collect()
    }

    /// Why no peer is the owner. All there are have been asked.
    fn nobody(&self, now: Instant, owner: &str) -> Nobody {
        let Some(again) = self.peers.iter().map(|peer| peer.next_ask).min() else {
            let detail = format!(
                "only host `{owner}`, which gave it out, can settle it, and this host has no peers: give that host a `[peers.NAME]` \
                 with its `endpoint` and a `token` in the configuration, or settle there"
            );
            return Nobody { may_come: false, look_again: now, detail };
        };
        let is_owner = |peer: &&Known| peer.host.as_deref() == Some(owner);
        if let Some(peer) = self.peers.iter().find(is_owner)
            && let State::Failed(failure) = &peer.state
        {
            let (name, endpoint, problem) = (&peer.name, &peer.endpoint, &failure.problem);
            let detail = match failure.fault {
                Fault::Away => format!(
                    "host `{owner}`, which gave it out and alone can settle it, is the peer `{name}` at {endpoint}, which does \
                     not answer ({problem}): settle again; if it stays away, its locks end by themselves, and the message comes \
                     again"
                ),
                Fault::Refuses => format!(
                    "host `{owner}`, which gave it out and alone can settle it, is the peer `{name}` at {endpoint}, which does \
                     not take this host's calls ({problem}); see `token` and the TLS keys in `[peers.{name}]`"
                ),
            };
            let may_come = failure.fault == Fault::Away;
            return Nobody { may_come, look_again: peer.next_ask, detail };
        }
        let failed = |fault: Fault| move |peer: &&Known| matches!(&peer.state, State::Failed(failure) if failure.fault == fault);
        let away: Vec<&Known> = self.peers.iter().filter(failed(Fault::Away)).collect();
        let refusing: Vec<&Known> = self.peers.iter().filter(failed(Fault::Refuses)).collect();
        let mut detail = format!("only host `{owner}`, which gave it out, can settle it, and ");
        if !away.is_empty() {
            let _ = write!(
                detail,
                "no peer that answers is it; it may be one that is away, {}: settle again; if it stays away, its locks end by themselves, \
                 and the message comes again",
                list(&away)
            );
            return Nobody { may_come: true, look_again: again, detail };
        }
        if refusing.is_empty() {
            let _ = write!(
                detail,
                "it is none of the peers {}: give it a `[peers.NAME]` with its `endpoint` and a `token` in this host's \
                 configuration, or settle there",
                list(&self.peers.iter().collect::<Vec<_>>())
            );
        } else {
            let _ = write!(
                detail,
                "no peer that takes this host's calls is it; it may be one that does not, {}: see `token` and the TLS keys in \
                 its `[peers.NAME]`",
                list(&refusing)
            );
        }
        Nobody { may_come: false, look_again: again, detail }
    }
}

/// Peers for a sentence, with why they cannot be asked.
fn list(peers: &[&Known]) -> String {
    let shown = peers.iter().take(NAMED_MAX).map(|peer| match &peer.state {
        State::Failed(failure) => format!("`{}` at {} ({})", peer.name, peer.endpoint, failure.problem),
        State::Up | State::Unasked => format!("`{}`", peer.name),
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if peers.len() > NAMED_MAX {
        let _ = write!(text, " and {} more", peers.len() - NAMED_MAX);
    }
    text
}

#[cfg(test)]
mod tests;
