//! State that the host keeps for one policy: token buckets and counters.
//!
//! It outlives instances and reloads and is shared by all callers. Names and keys are kept as one keyed hash of 64
//! bits, so that a policy cannot fill the host's memory with long ones; two keys of a full table share an entry with
//! a probability below one in a billion.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_model::Instant;

use crate::lru::Lru;

/// The policy asked for something that no bucket can do.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub(crate) enum StateError {
    #[error("it took {0} tokens: the number must be finite and not negative")]
    Tokens(f64),
    #[error("it gave a bucket a rate of {0} a second: the number must be finite and not negative")]
    Rate(f64),
    #[error("it gave a bucket a burst of {0}: the number must be finite and above zero")]
    Burst(f64),
}

/// How a bucket fills.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// Tokens that come back in a second.
    pub(crate) rate_per_second: f64,
    /// Tokens when full.
    pub(crate) burst: f64,
}

/// The state of one policy.
#[derive(Debug)]
pub(crate) struct State<S = RandomState> {
    hasher: S,
    tables: Mutex<Tables>,
}

impl State {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { hasher: RandomState::new(), tables: Mutex::new(Tables::new(entries_max)) }
    }

    /// Takes tokens from a bucket: zero when taken, else the time until they could be.
    pub(crate) fn take(
        &self,
        now: Instant,
        bucket: &str,
        key: &str,
        tokens: f64,
        limit: Limit,
    ) -> Result<Duration, StateError> {
        let key = self.hasher.hash_one((bucket, key));
        self.tables.lock().take(now, key, tokens, limit)
    }

    /// Adds to a counter that forgets itself after `ttl` without a change.
    pub(crate) fn add(&self, now: Instant, counter: &str, key: &str, delta: i64, ttl: Duration) -> i64 {
        let key = self.hasher.hash_one((counter, key));
        self.tables.lock().add(now, key, delta, ttl)
    }

    /// The value of a counter.
    pub(crate) fn get(&self, now: Instant, counter: &str, key: &str) -> i64 {
        let key = self.hasher.hash_one((counter, key));
        self.tables.lock().get(now, key)
    }

    /// Entries held and entries that had to go for others since the beginning.
    pub(crate) fn sizes(&self) -> Sizes {
        let tables = self.tables.lock();
        Sizes { buckets: tables.buckets.len(), counters: tables.counters.len(), evicted: tables.evicted }
    }
}

/// How full the tables are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Sizes {
    /// Token buckets held.
    pub buckets: usize,
    /// Counters held.
    pub counters: usize,
    /// Entries that went to make room for others.
    pub evicted: u64,
}

#[derive(Debug)]
struct Tables {
    buckets: Lru<Bucket>,
    counters: Lru<Counter>,
    evicted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Below zero when in debt.
    level: f64,
    at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Counter {
    value: i64,
    until: Instant,
}

impl Tables {
    fn new(entries_max: usize) -> Self {
        Self { buckets: Lru::new(entries_max), counters: Lru::new(entries_max), evicted: 0 }
    }

    fn take(&mut self, now: Instant, key: u64, tokens: f64, limit: Limit) -> Result<Duration, StateError> {
        let Limit { rate_per_second: rate, burst } = limit;
        if !tokens.is_finite() || tokens < 0.0 {
            return Err(StateError::Tokens(tokens));
        }
        if !rate.is_finite() || rate < 0.0 {
            return Err(StateError::Rate(rate));
        }
        if !burst.is_finite() || burst <= 0.0 {
            return Err(StateError::Burst(burst));
        }
        let (bucket, evicted) = self.buckets.touch(key, || Bucket { level: burst, at: now });
        self.evicted += u64::from(evicted);
        // Callers read their clocks before they meet here: a reading from before the last one changes nothing.
        let passed = now.saturating_since(bucket.at);
        bucket.at = bucket.at.max(now);
        bucket.level = (bucket.level + passed.as_secs_f64() * rate).min(burst);
        // More than a bucket ever holds is given from a full one.
        let needed = tokens.min(burst);
        if bucket.level >= needed {
            bucket.level -= tokens;
            return Ok(Duration::ZERO);
        }
        let seconds = (needed - bucket.level) / rate;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).max(Duration::from_millis(1)))
    }

    fn add(&mut self, now: Instant, key: u64, delta: i64, ttl: Duration) -> i64 {
        let (counter, evicted) = self.counters.touch(key, || Counter { value: 0, until: now });
        self.evicted += u64::from(evicted);
        if counter.until <= now {
            counter.value = 0;
        }
        counter.value = counter.value.saturating_add(delta);
        counter.until = now + ttl;
        counter.value
    }

    fn get(&self, now: Instant, key: u64) -> i64 {
        self.counters.peek(key).filter(|counter| counter.until > now).map_or(0, |counter| counter.value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: Limit = Limit { rate_per_second: 10.0, burst: 5.0 };

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut tables = Tables::new(4);
        for _ in 0..5 {
            assert_eq!(tables.take(at(0), 1, 1.0, LIMIT), Ok(Duration::ZERO));
        }
        assert_eq!(tables.take(at(0), 1, 1.0, LIMIT), Ok(Duration::from_millis(100)));
        assert_eq!(tables.take(at(99), 1, 1.0, LIMIT), Ok(Duration::from_millis(1)));
        assert_eq!(tables.take(at(100), 1, 1.0, LIMIT), Ok(Duration::ZERO));
        assert_eq!(tables.take(at(0), 2, 1.0, LIMIT), Ok(Duration::ZERO), "another key has its own");
    }

    #[test]
    fn more_than_the_burst_leaves_a_debt() {
        let mut tables = Tables::new(4);
        assert_eq!(tables.take(at(0), 1, 15.0, LIMIT), Ok(Duration::ZERO));
        assert_eq!(tables.take(at(0), 1, 1.0, LIMIT), Ok(Duration::from_millis(1_100)));
    }

    #[test]
    fn a_bucket_without_a_rate_never_comes_back() {
        let limit = Limit { rate_per_second: 0.0, burst: 1.0 };
        let mut tables = Tables::new(4);
        assert_eq!(tables.take(at(0), 1, 1.0, limit), Ok(Duration::ZERO));
        assert_eq!(tables.take(at(1_000_000), 1, 1.0, limit), Ok(Duration::MAX));
    }

    #[test]
    fn nonsense_is_refused() {
        let mut tables = Tables::new(4);
        assert_eq!(tables.take(at(0), 1, -1.0, LIMIT), Err(StateError::Tokens(-1.0)));
        for rate_per_second in [-1.0, f64::INFINITY] {
            let limit = Limit { rate_per_second, ..LIMIT };
            assert_eq!(tables.take(at(0), 1, 1.0, limit), Err(StateError::Rate(rate_per_second)));
        }
        assert!(matches!(
            tables.take(at(0), 1, 1.0, Limit { burst: f64::NAN, ..LIMIT }),
            Err(StateError::Burst(_))
        ));
        assert!(tables.take(at(0), 1, 1.0, Limit { burst: 0.0, ..LIMIT }).is_err());
    }

    #[test]
    fn a_counter_forgets_itself() {
        let mut tables = Tables::new(4);
        let ttl = Duration::from_millis(10);
        assert_eq!(tables.add(at(0), 1, 3, ttl), 3);
        assert_eq!(tables.add(at(9), 1, 1, ttl), 4);
        assert_eq!(tables.get(at(18), 1), 4);
        assert_eq!(tables.get(at(19), 1), 0);
        assert_eq!(tables.add(at(20), 1, i64::MIN, ttl), i64::MIN);
        assert_eq!(tables.add(at(20), 1, -1, ttl), i64::MIN);
    }

    #[test]
    fn names_and_keys_do_not_run_together() {
        let state = State::new(4);
        let ttl = Duration::from_secs(1);
        assert_eq!(state.add(at(0), "ab", "c", 1, ttl), 1);
        assert_eq!(state.get(at(0), "a", "bc"), 0);
        assert_eq!(state.get(at(0), "ab", "c"), 1);
    }

    proptest! {
        /// Whatever is asked in whatever order, no more is given than burst + rate × time, and what is refused can
        /// be had at the time that was named.
        #[test]
        fn a_bucket_never_gives_more_than_it_promised(
            steps in prop::collection::vec((0_u64..500, 0_u8..4), 1..300),
            rate in 0.5_f64..1_000.0,
            burst in 3.0_f64..50.0,
        ) {
            let limit = Limit { rate_per_second: rate, burst };
            let (mut tables, mut now, mut given) = (Tables::new(1), 0_u64, 0.0_f64);
            for (wait, tokens) in steps {
                now += wait;
                let tokens = f64::from(tokens);
                let answer = tables.take(at(now), 1, tokens, limit).unwrap();
                if answer.is_zero() {
                    given += tokens;
                } else {
                    let then = at(now) + answer + Duration::from_micros(1);
                    let mut later = Tables { buckets: Lru::new(1), counters: Lru::new(1), evicted: 0 };
                    *later.buckets.touch(1, || *tables.buckets.peek(1).unwrap()).0 = *tables.buckets.peek(1).unwrap();
                    prop_assert_eq!(later.take(then, 1, tokens, limit).unwrap(), Duration::ZERO);
                }
                let promised = burst + rate * at(now).as_millis() as f64 / 1_000.0;
                prop_assert!(given <= promised + 1e-6, "{} given, {} promised", given, promised);
            }
        }
    }
}
