//! Asking a policy: the hot path that all worlds share.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant as StdInstant;

use parking_lot::Mutex;
use tidegate_model::{Instant, MessageId, Timestamp};
use tidegate_telemetry::events;

use crate::answer_kind::AnswerKind;
use crate::cause::{Cause, Failure};
use crate::generation::Generation;
use crate::guest::Moment;
use crate::instance::Instance;
use crate::policy::Policy;
use crate::random::SplitMix64;
use crate::spec::Limits;

/// One call in so many is timed; reading the clock twice costs a tenth of a call.
const TIMED_ONE_IN: u32 = 64;

/// Somebody's way to a policy. It owns an instance, which it uses again and again, and which it replaces when the
/// policy was reloaded or the instance failed.
///
/// A guest runs on the stack of the thread that asks, which must have 2 MiB (as tokio's threads and the standard
/// library's have).
pub(crate) struct Caller {
    policy: Arc<Policy>,
    slot: Arc<Slot>,
    /// For how long instances live; what policies see comes with each call.
    random: SplitMix64,
    until_timed: u32,
}

/// Where a caller keeps its instance. The policy knows the slot too, and empties it when its generation has gone and
/// nobody asks; locking it takes a few nanoseconds, because nobody else wants it while the caller does.
pub(crate) type Slot = Mutex<Option<Live>>;

/// An instance and what it was made from.
pub(crate) struct Live {
    pub(crate) generation: Arc<Generation>,
    instance: Instance,
    uses_left: u32,
}

impl Live {
    fn fits(&self, generation: &Generation) -> bool {
        self.generation.number == generation.number && self.uses_left > 0
    }
}

/// When a policy is asked, and about what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occasion<'a> {
    pub(crate) now: Instant,
    pub(crate) wall: Timestamp,
    /// Beginning of the random numbers that the policy sees.
    pub(crate) seed: u64,
    /// Counted by, so that a message that always traps harms itself alone.
    pub(crate) message: Option<&'a MessageId>,
}

impl Occasion<'_> {
    pub(crate) const fn moment(&self) -> Moment {
        Moment { wall: self.wall, now: self.now, random: SplitMix64::new(self.seed) }
    }
}

impl Caller {
    pub(crate) fn new(policy: &Arc<Policy>) -> Self {
        let slot = Arc::new(Slot::default());
        policy.register(&slot);
        let random = SplitMix64::new(policy.engine.next_seed());
        Self { policy: Arc::clone(policy), slot, random, until_timed: 0 }
    }

    pub(crate) const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Asks. An error says why there is no answer; it is counted already. Never panics.
    pub(crate) fn call<T>(
        &mut self,
        occasion: &Occasion<'_>,
        kind: impl FnOnce(&T) -> AnswerKind,
        entry: impl FnOnce(&mut Instance, &Limits, Moment) -> Result<T, Failure>,
    ) -> Result<T, Cause> {
        let loaded = self.policy.live.load();
        let Some(generation) = loaded.as_ref() else { return Err(self.not_asked(Cause::NotLoaded)) };
        if let Err(cause) = self.policy.admit(occasion.now, occasion.message) {
            if cause != Cause::Poison {
                // An instance that is not asked for a second or more need not take its place in the pool.
                *self.slot.lock() = None;
            }
            return Err(self.not_asked(cause));
        }
        let timer = timer(&mut self.until_timed);
        let mut slot = self.slot.lock();
        let answer = enter(&self.policy, &mut slot, &mut self.random, generation, occasion, entry);
        match answer {
            Ok(answer) => {
                if let Some((lines, dropped)) = slot.as_mut().and_then(|live| live.instance.take_log()) {
                    self.policy.log(occasion.now, lines, dropped);
                }
                drop(slot);
                self.policy.succeeded(occasion.now, generation, kind(&answer));
                if let Some(began) = timer {
                    let took = began.elapsed();
                    self.policy
                        .engine
                        .telemetry()
                        .emit(events::policy::CallTimed { policy: &self.policy.name, took });
                }
                Ok(answer)
            }
            Err(failure) => {
                // The Store is poisoned.
                *slot = None;
                drop(slot);
                let cause = failure.cause;
                self.policy.failed(occasion.now, generation, occasion.message, failure);
                Err(cause)
            }
        }
    }

    /// Bytes of memory that the instance has now; none without one.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slot.lock().as_ref().map_or(0, |live| live.instance.memory_bytes())
    }

    fn not_asked(&self, cause: Cause) -> Cause {
        self.policy.count_failure(cause);
        cause
    }
}

fn enter<T>(
    policy: &Arc<Policy>,
    slot: &mut Option<Live>,
    random: &mut SplitMix64,
    generation: &Arc<Generation>,
    occasion: &Occasion<'_>,
    entry: impl FnOnce(&mut Instance, &Limits, Moment) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if !slot.as_ref().is_some_and(|live| live.fits(generation)) {
        // The old one goes first: a pool that is full has no room for both.
        *slot = None;
        *slot = Some(start(policy, generation, random, occasion)?);
    }
    let Some(live) = slot else {
        return Err(Failure::new(Cause::Other, "there is no instance"));
    };
    live.uses_left -= 1;
    entry(&mut live.instance, &generation.limits, occasion.moment())
}

/// A fresh instance with its rules.
fn start(
    policy: &Arc<Policy>,
    generation: &Arc<Generation>,
    random: &mut SplitMix64,
    occasion: &Occasion<'_>,
) -> Result<Live, Failure> {
    let Generation { prepared, rules_json, limits, .. } = &**generation;
    policy.counts.instances_started.fetch_add(1, Ordering::Relaxed);
    let moment = occasion.moment();
    let mut instance = Instance::start(&policy.engine, &prepared.linked, limits, &policy.state, moment)?;
    // It took the very same rules when it was loaded.
    instance.configure(limits, rules_json)?.map_err(|refused| {
        Failure::new(Cause::Other, format!("it refused its rules: {}: {}", refused.key, refused.message))
    })?;
    if let Some((lines, dropped)) = instance.take_log() {
        policy.log(occasion.now, lines, dropped);
    }
    let uses_left = spread(limits.uses_max, random);
    Ok(Live { generation: Arc::clone(generation), instance, uses_left })
}

#[allow(clippy::disallowed_methods, reason = "measures a call for the histogram, decides nothing")]
fn timer(until_timed: &mut u32) -> Option<StdInstant> {
    if *until_timed == 0 {
        *until_timed = TIMED_ONE_IN;
        return Some(StdInstant::now());
    }
    *until_timed -= 1;
    None
}

/// `uses`, a quarter more or less, and at least one.
fn spread(uses: u32, random: &mut SplitMix64) -> u32 {
    let quarter = u64::from(uses / 4);
    let drawn = u64::from(uses) - quarter + random.next() % (2 * quarter + 1);
    u32::try_from(drawn).unwrap_or(u32::MAX).max(1)
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("policy", &self.policy.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_live_for_about_as_many_uses_as_allowed() {
        let mut random = SplitMix64::new(1);
        let drawn: Vec<_> = (0..1_000).map(|_| spread(1_000, &mut random)).collect();
        assert!(drawn.iter().all(|uses| (750..=1_250).contains(uses)));
        assert!(drawn.iter().any(|&uses| uses < 800) && drawn.iter().any(|&uses| uses > 1_200));
        assert_eq!(spread(0, &mut random), 1);
        assert_eq!(spread(1, &mut random), 1);
    }
}
