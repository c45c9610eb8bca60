//! What a resolver has answered, per endpoint and purpose, and when it is to be asked again. Without I/O.
//!
//! Life of an entry: *asked for* (somebody looked for it) → *asking* → *held*, until it is due to be asked again →
//! *asking* → … A failure keeps what is held for as long as it is valid, and asks again later and later. What is not
//! valid any more is not given out: calls fail closed then, and say why.
//!
//! Inputs are [`Table::look`] and `handle_*`; after each one [`Table::poll_ask`] says whom to ask for now, and
//! [`Table::poll_timeout`] when to look again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::Backoff;
use tidegate_connector::secret::{Purpose, Secret, SecretError};
use tidegate_model::Instant;

/// Entries; what was not looked for longest goes first.
const ENTRIES_MAX: usize = 1_024;

/// A secret that says nothing about its validity is asked for again after so long.
const REFRESH: Duration = Duration::from_secs(600);

/// A secret is asked for again so long before its end, or after four fifths of its life, whichever is earlier.
const AHEAD: Duration = Duration::from_secs(30);

/// However short a life a resolver gives, it is not asked sooner again than after this.
const REFRESH_MIN: Duration = Duration::from_millis(500);

/// Waits after a failure that may pass, and after one that somebody must mend: as long as a flow may stand still after
/// it was mended.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(15);
const DENIED_FIRST: Duration = Duration::from_secs(5);
const DENIED_MAX: Duration = Duration::from_secs(60);

/// Waits between two askings for an endpoint that goes on refusing what the resolver gives.
const REFUSED_FIRST: Duration = Duration::from_secs(2);

/// What nobody looked for within this time is not asked for again.
const IDLE_MAX: Duration = Duration::from_secs(900);

/// Whom to ask for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Key {
    pub(crate) endpoint: Arc<str>,
    pub(crate) purpose: Purpose,
}

/// A resolver's answer.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The secret.
    pub secret: Secret,
    /// For how long it may be used; for as long as there is no other when it says nothing.
    pub valid_for: Option<Duration>,
}

/// A resolver has no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{detail}")]
pub struct ResolveFailure {
    /// Whether and when asking again may help.
    pub kind: FailureKind,
    /// Why, without secrets.
    pub detail: String,
}

/// Whether asking again may help.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FailureKind {
    /// By itself.
    Unavailable,
    /// When somebody has changed something.
    Denied,
    /// Perhaps.
    Other,
}

impl FailureKind {
    /// The word for people, and the label of metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::Other => "other",
        }
    }
}

/// What came of an answer, to be told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Taken {
    /// It is held; it may be another than before.
    Held { is_new: bool },
    /// There was none; what is held may still be used.
    Failed { goes_on: bool, again_in: Duration },
    /// Nobody wants it any more.
    Forgotten,
}

/// What came of a refusal by the endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// Another secret is there already.
    Newer,
    /// It is asked for another, or will be in a moment.
    Asking,
    /// It was asked a moment ago, and gave the same.
    TooSoon,
}

/// The table of one resolver.
#[derive(Debug)]
pub(crate) struct Table {
    policy: Arc<str>,
    /// By purpose, so that an endpoint is found without being copied.
    entries: [HashMap<Arc<str>, Entry>; Purpose::ALL.len()],
    seed: u64,
}

#[derive(Debug)]
struct Entry {
    held: Option<Held>,
    /// When it is to be asked for; none while it is asked for.
    due: Option<Instant>,
    looked_at: Instant,
    retry: Backoff,
    denied: Backoff,
    refused: Backoff,
    /// The endpoint's refusals are heard again from then on.
    refusals_from: Instant,
    failure: Option<ResolveFailure>,
}

#[derive(Debug)]
struct Held {
    secret: Arc<Secret>,
    until: Option<Instant>,
}

impl Held {
    fn is_valid(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Table {
    pub(crate) fn new(policy: Arc<str>, seed: u64) -> Self {
        Self { policy, entries: Default::default(), seed }
    }

    /// What is held for an endpoint. What is not known yet is asked for from now on.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        endpoint: &str,
        purpose: Purpose,
    ) -> Result<Arc<Secret>, SecretError> {
        if !self.entries[purpose as usize].contains_key(endpoint) {
            self.insert(now, endpoint, purpose);
        }
        let policy = &self.policy;
        let Some(entry) = self.entries[purpose as usize].get_mut(endpoint) else {
            return Err(SecretError { detail: "there is no room for it".into() });
        };
        entry.looked_at = now;
        match &entry.held {
            Some(held) if held.is_valid(now) => Ok(Arc::clone(&held.secret)),
            held => Err(SecretError { detail: entry.sentence(policy, held.is_some()).into() }),
        }
    }

    /// Whether an answer for an endpoint is on its way, or is asked for in a moment.
    pub(crate) fn is_pending(&self, now: Instant, endpoint: &str, purpose: Purpose) -> bool {
        let entry = self.entries[purpose as usize].get(endpoint);
        entry.is_some_and(|entry| entry.due.is_none_or(|due| due <= now))
    }

    /// The endpoint refused this secret.
    pub(crate) fn handle_refused(
        &mut self,
        now: Instant,
        endpoint: &str,
        purpose: Purpose,
        refused: &Arc<Secret>,
    ) -> Refusal {
        match self.look(now, endpoint, purpose) {
            Ok(secret) if !Arc::ptr_eq(&secret, refused) => return Refusal::Newer,
            Ok(_) | Err(_) => {}
        }
        let Some(entry) = self.entries[purpose as usize].get_mut(endpoint) else { return Refusal::TooSoon };
        if entry.due.is_none_or(|due| due <= now) {
            return Refusal::Asking;
        }
        if now < entry.refusals_from {
            return Refusal::TooSoon;
        }
        // Until the resolver gives another one, it is asked less and less often.
        entry.refusals_from = now + entry.refused.next_wait();
        entry.due = Some(now);
        Refusal::Asking
    }

    /// Whoever answers has changed: all that it said may be said otherwise now.
    pub(crate) fn handle_change(&mut self, now: Instant) {
        for entry in self.entries.iter_mut().flat_map(HashMap::values_mut) {
            entry.retry.reset();
            entry.denied.reset();
            entry.refused.reset();
            entry.refusals_from = now;
            if entry.due.is_some() {
                entry.due = Some(now);
            }
        }
    }

    /// Whom to ask for now; it counts as asked for until [`handle_answer`](Self::handle_answer).
    pub(crate) fn poll_ask(&mut self, now: Instant) -> Option<Key> {
        self.forget_idle(now);
        let mut first: Option<(Instant, Key)> = None;
        for purpose in Purpose::ALL {
            for (endpoint, entry) in &self.entries[purpose as usize] {
                let Some(due) = entry.due.filter(|due| *due <= now) else { continue };
                if first.as_ref().is_none_or(|(earliest, _)| due < *earliest) {
                    first = Some((due, Key { endpoint: Arc::clone(endpoint), purpose }));
                }
            }
        }
        let (_, key) = first?;
        if let Some(entry) = self.entry(&key) {
            entry.due = None;
        }
        Some(key)
    }

    /// When [`poll_ask`](Self::poll_ask) has something next, if nothing else happens.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.entries.iter().flat_map(HashMap::values).filter_map(|entry| entry.due).min()
    }

    /// Takes an answer.
    pub(crate) fn handle_answer(
        &mut self,
        now: Instant,
        key: &Key,
        answer: Result<Resolved, ResolveFailure>,
    ) -> Taken {
        let jitter = self.jitter();
        let Some(entry) = self.entry(key) else { return Taken::Forgotten };
        let answer = answer.and_then(|resolved| match resolved.valid_for {
            Some(Duration::ZERO) => Err(ResolveFailure {
                kind: FailureKind::Other,
                detail: "it gave credentials that have expired already".to_owned(),
            }),
            _ => Ok(resolved),
        });
        match answer {
            Ok(Resolved { secret, valid_for }) => {
                let until = valid_for.map(|valid_for| now + valid_for);
                // The same secret stays the same object: whoever was refused with it sees that nothing is new.
                let kept = entry.held.take().map(|held| held.secret).filter(|held| held.is_same(&secret));
                let is_new = kept.is_none();
                let secret = kept.unwrap_or_else(|| Arc::new(secret));
                if is_new {
                    entry.refused.reset();
                    entry.refusals_from = now;
                }
                entry.held = Some(Held { secret, until });
                entry.failure = None;
                entry.retry.reset();
                entry.denied.reset();
                let wait = valid_for.map_or(REFRESH, refresh_after);
                entry.due = Some(now + wait - wait.mul_f64(jitter / 10.0));
                Taken::Held { is_new }
            }
            Err(failure) => {
                let wait = match failure.kind {
                    FailureKind::Denied => entry.denied.next_wait(),
                    FailureKind::Unavailable | FailureKind::Other => entry.retry.next_wait(),
                };
                entry.failure = Some(failure);
                entry.due = Some(now + wait);
                let goes_on = entry.held.as_ref().is_some_and(|held| held.is_valid(now));
                Taken::Failed { goes_on, again_in: wait }
            }
        }
    }

    /// Entries with a secret that may be used, and those without one.
    pub(crate) fn counts(&self, now: Instant) -> (usize, usize) {
        let entries = || self.entries.iter().flat_map(HashMap::values);
        let usable = entries().filter(|entry| entry.held.as_ref().is_some_and(|held| held.is_valid(now)));
        let usable = usable.count();
        (usable, entries().count() - usable)
    }

    /// What is missing, in one sentence; `None` when everything that was looked for is there.
    pub(crate) fn problem(&self, now: Instant) -> Option<String> {
        let mut found: Option<(&Arc<str>, Purpose, &Entry)> = None;
        for purpose in Purpose::ALL {
            for (endpoint, entry) in &self.entries[purpose as usize] {
                let is_bad =
                    entry.failure.is_some() || !entry.held.as_ref().is_some_and(|held| held.is_valid(now));
                if is_bad && found.is_none_or(|(other, ..)| endpoint < other) {
                    found = Some((endpoint, purpose, entry));
                }
            }
        }
        let (endpoint, purpose, entry) = found?;
        let purpose = purpose.name();
        let held = entry.held.as_ref();
        let sentence = match (&entry.failure, held.is_some_and(|held| held.is_valid(now))) {
            (Some(failure), true) => format!(
                "the credential resolver `{}` could not be asked again: {failure}; the present credentials stay in use",
                self.policy
            ),
            _ => entry.sentence(&self.policy, held.is_some()),
        };
        Some(format!("{endpoint} ({purpose}): {sentence}"))
    }

    fn entry(&mut self, key: &Key) -> Option<&mut Entry> {
        self.entries[key.purpose as usize].get_mut(&key.endpoint)
    }

    fn insert(&mut self, now: Instant, endpoint: &str, purpose: Purpose) {
        if self.entries.iter().map(HashMap::len).sum::<usize>() >= ENTRIES_MAX {
            self.forget_oldest();
        }
        let backoff = |table: &mut Self, first, max| {
            table.seed = table.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            Backoff::new(first, max, table.seed)
        };
        let entry = Entry {
            held: None,
            due: Some(now),
            looked_at: now,
            retry: backoff(self, RETRY_FIRST, RETRY_MAX),
            denied: backoff(self, DENIED_FIRST, DENIED_MAX),
            refused: backoff(self, REFUSED_FIRST, RETRY_MAX),
            refusals_from: now,
            failure: None,
        };
        self.entries[purpose as usize].insert(endpoint.into(), entry);
    }

    fn forget_oldest(&mut self) {
        let all = Purpose::ALL.into_iter().flat_map(|purpose| {
            let entries = &self.entries[purpose as usize];
            entries.iter().map(move |(endpoint, entry)| (entry.looked_at, purpose, endpoint))
        });
        let oldest = all.min_by_key(|(looked_at, ..)| *looked_at);
        if let Some((purpose, endpoint)) =
            oldest.map(|(_, purpose, endpoint)| (purpose, Arc::clone(endpoint)))
        {
            self.entries[purpose as usize].remove(&endpoint);
        }
    }

    /// What is due and was not looked for in a long time goes instead of being asked for.
    fn forget_idle(&mut self, now: Instant) {
        for entries in &mut self.entries {
            entries.retain(|_, entry| {
                let is_idle = now.saturating_since(entry.looked_at) >= IDLE_MAX;
                !(is_idle && entry.due.is_some_and(|due| due <= now))
            });
        }
    }

    /// From 0 to 1.
    fn jitter(&mut self) -> f64 {
        self.seed ^= self.seed << 13 | 1;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        f64::from(u32::try_from(self.seed >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
    }
}

impl Entry {
    /// Why there is no secret.
    fn sentence(&self, policy: &str, expired: bool) -> String {
        let state = if expired { "the credentials have expired" } else { "there are no credentials" };
        match &self.failure {
            Some(failure) => {
                let label = failure.kind.label();
                format!("{state}: the credential resolver `{policy}` answered `{label}`: {failure}")
            }
            None if expired => {
                format!("{state}, and the credential resolver `{policy}` has not answered again yet")
            }
            None => format!("{state} yet: the credential resolver `{policy}` has not answered"),
        }
    }
}

/// How long after an answer it is asked for again.
fn refresh_after(valid_for: Duration) -> Duration {
    let before_end = valid_for.saturating_sub(AHEAD);
    let most = valid_for.mul_f64(0.8);
    // Thirty seconds before the end is for lives of minutes; shorter ones are used for four fifths.
    let wait = if before_end.is_zero() { most } else { before_end.min(most) };
    wait.max(REFRESH_MIN)
}

#[cfg(test)]
mod tests;
