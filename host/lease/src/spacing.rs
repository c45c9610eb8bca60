//! When the deferred deliveries of one key come back.
//!
//! A blocked key must not be polled in a hot loop, and many keys that were blocked at one moment must not all come
//! back at another. So time is ruled into ticks, about a tenth of the delay wide, and the grid of each key is shifted
//! by a phase of its own, taken from the book's seed. A deferral ends at the first tick at or after its delay: those
//! of one key end together (one receive brings them all), those of different keys do not. It only ever gets longer,
//! by less than a tenth.
//!
//! Tick widths are powers of two, so that the coarse grid of a key's long deferrals is part of the fine grid of its
//! short ones, and both still meet.

use std::time::Duration;

use tidegate_model::Instant;

/// A tick is at most this part of the delay.
const TICKS_PER_DELAY_MIN: u64 = 10;

/// The first tick of the grid with `phase` at or after `now + delay`.
pub(crate) fn due(now: Instant, delay: Duration, phase: u64) -> Instant {
    let at = now + delay;
    let widest = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX) / TICKS_PER_DELAY_MIN;
    let Some(exponent) = widest.checked_ilog2() else { return at };
    let mask = (1_u64 << exponent) - 1;
    let past_tick = at.as_nanos().wrapping_sub(phase) & mask;
    at + Duration::from_nanos(past_tick.wrapping_neg() & mask)
}

/// A key's phase: its name hashed with the seed (FNV-1a, then the finalizer of SplitMix64 to spread it over all
/// bits). Not meant to withstand an attacker: who knows another's phase can only come back at the same time.
pub(crate) fn phase(seed: u64, key: &str) -> u64 {
    const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash =
        key.bytes().fold(FNV_OFFSET ^ seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn only_longer_and_by_less_than_a_tenth(now in 0..1_u64 << 60, delay in 0..1_u64 << 50, phase: u64) {
            let now = Instant::from_nanos(now);
            let delay = Duration::from_nanos(delay);
            let due = due(now, delay, phase);
            let extra = due.saturating_since(now).checked_sub(delay);
            prop_assert!(extra.is_some_and(|extra| extra * 10 <= delay));
        }

        #[test]
        fn one_key_comes_back_at_few_moments(start in 0..1_u64 << 60, phase: u64) {
            // 100 deferrals of 10 s within half a second: ticks are 0.5 s or wider.
            let delay = Duration::from_secs(10);
            let moments: std::collections::BTreeSet<Instant> = (0..100)
                .map(|i| due(Instant::from_nanos(start + i * 5_000_000), delay, phase))
                .collect();
            prop_assert!(moments.len() <= 2);
        }
    }

    #[test]
    fn keys_are_spread() {
        let delay = Duration::from_secs(10);
        let moments: std::collections::BTreeSet<Instant> =
            (0..100).map(|i| due(Instant::from_millis(5), delay, phase(7, &format!("tenant-{i}")))).collect();
        assert!(moments.len() > 90, "{} moments for 100 keys", moments.len());
        assert_ne!(phase(1, "a"), phase(2, "a"));
    }
}
