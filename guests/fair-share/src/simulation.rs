//! A flood on one lite topic beside quiet tenants, in steps of ten milliseconds: do the workers stay busy, and do the
//! quiet ones notice?

use std::collections::VecDeque;

use tidegate_guest::Standing;
use tidegate_guest::pace::Pace;

use crate::delay_of;
use crate::share::{Limits, assess};

const STEP_MS: u64 = 10;
const WINDOW_MS: u64 = 10_000;
const QUIET_TENANTS: u64 = 20;

const LIMITS: Limits = Limits {
    share: 0.1,
    factor: 2.0,
    min_in_flight: 10.0,
    min_queued: 10.0,
    min_rate: 5.0,
    delay: 0.25 * 1.2,
};

/// What happened in the last ten seconds.
#[derive(Default)]
struct Recent(VecDeque<u64>);

impl Recent {
    fn add(&mut self, now: u64) {
        self.0.push_back(now);
    }

    fn per_second(&mut self, now: u64) -> f64 {
        while self.0.front().is_some_and(|&then| then + WINDOW_MS <= now) {
            self.0.pop_front();
        }
        self.0.len() as f64 * 1_000.0 / WINDOW_MS as f64
    }
}

/// As the host's: tokens that come back by time.
#[derive(Default)]
struct Bucket {
    tokens: f64,
    at: u64,
    used: bool,
}

impl Bucket {
    fn take(&mut self, now: u64, rate: f64, burst: f64) -> u64 {
        let back = (now - self.at) as f64 / 1_000.0 * rate;
        self.tokens = if self.used { (self.tokens + back).min(burst) } else { burst };
        (self.at, self.used) = (now, true);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return 0;
        }
        ((1.0 - self.tokens) / rate * 1_000.0).ceil() as u64
    }
}

/// What a run came to.
#[derive(Debug)]
struct Outcome {
    /// Part of the workers' time in which they had nothing to do.
    idle: f64,
    /// The longest that a quiet tenant's message waited, in milliseconds.
    quiet_wait: u64,
    /// The most places that the flood had.
    flood_most: u32,
}

/// One flow. Workers are `emitted_max` at a time and finish `capacity` a second; the flood is a lite topic that never
/// ends, of which the host gets 32 messages every step that it is not held back; the tenants send two a second each.
struct Flow {
    capacity: u64,
    emitted_max: u32,
    budget: u32,
    /// Whether the policy sees what the workers do.
    sees_workers: bool,
}

impl Flow {
    /// How long a worker has a message.
    fn work_ms(&self) -> u64 {
        u64::from(self.emitted_max) * 1_000 / self.capacity
    }

    fn run(&self) -> Outcome {
        let (mut flood_rate, mut all_rate, mut done) =
            (Recent::default(), Recent::default(), Recent::default());
        let mut bucket = Bucket::default();
        let (mut flood_queued, mut quiet_queued) = (0_u32, VecDeque::new());
        // When each that a worker has will be done, and whether it is the flood's.
        let mut emitted: VecDeque<(u64, bool)> = VecDeque::new();
        let work_ms = self.work_ms();
        let (mut held_until, mut random) = (0, 1_u64);
        let (mut idle, mut places, mut quiet_wait, mut flood_most) = (0_u64, 0_u64, 0, 0);
        for now in (0..60_000).step_by(STEP_MS as usize) {
            while emitted.front().is_some_and(|&(end, _)| end <= now) {
                emitted.pop_front();
                done.add(now);
            }
            let flood_emitted = emitted.iter().filter(|(_, flood)| *flood).count() as u32;
            if now % (1_000 / (2 * QUIET_TENANTS)) < STEP_MS {
                quiet_queued.push_back(now);
                all_rate.add(now);
            }
            for _ in 0..32 {
                let in_flight = flood_queued + quiet_queued.len() as u32 + emitted.len() as u32;
                if now < held_until || in_flight >= self.budget {
                    break;
                }
                flood_rate.add(now);
                all_rate.add(now);
                let standing = Standing {
                    key_in_flight: flood_queued + flood_emitted + 1,
                    flow_in_flight: in_flight + 1,
                    flow_budget: if self.sees_workers { self.budget } else { 0 },
                    flow_queued: flood_queued + quiet_queued.len() as u32,
                    flow_emitted: if self.sees_workers { emitted.len() as u32 } else { 0 },
                    active_keys: QUIET_TENANTS as u32 + 1,
                    key_rate: flood_rate.per_second(now),
                    flow_rate: all_rate.per_second(now),
                    flow_throughput: if self.sees_workers { done.per_second(now) } else { 0.0 },
                    key_share: 0.0,
                };
                if let Some(noise) = assess(&LIMITS, &standing) {
                    let delay = delay_of(&noise, 250, 5_000);
                    let rate_per_second = noise.rate_per_second;
                    let burst = rate_per_second * delay as f64 / 1_000.0;
                    let pace = Pace { rate_per_second, burst, delay, max_delay: 5_000, jitter: 0.2 };
                    let wait = bucket.take(now, rate_per_second, burst.max(1.0));
                    if wait > 0 {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        // A lite topic is handed out in order: all that is behind waits too, and a receive longer.
                        held_until = now + pace.delay_of(wait, 0, random) + 2 * STEP_MS;
                        break;
                    }
                }
                flood_queued += 1;
            }
            flood_most = flood_most.max(flood_queued + flood_emitted);
            // Each key has a turn, and the tenants are many.
            let mut turn = 0;
            while (emitted.len() as u32) < self.emitted_max && (flood_queued > 0 || !quiet_queued.is_empty())
            {
                let floods_turn = turn % (QUIET_TENANTS + 1) == QUIET_TENANTS;
                let quiet = !quiet_queued.is_empty() && (flood_queued == 0 || !floods_turn);
                if quiet {
                    let waited = now - quiet_queued.pop_front().unwrap_or(now);
                    quiet_wait = if now > 15_000 { quiet_wait.max(waited) } else { 0 };
                } else {
                    flood_queued -= 1;
                }
                turn += 1;
                emitted.push_back((now + work_ms, !quiet));
            }
            if now >= 15_000 {
                places += u64::from(self.emitted_max);
                idle += u64::from(self.emitted_max) - emitted.len() as u64;
            }
        }
        Outcome { idle: idle as f64 / places as f64, quiet_wait, flood_most }
    }
}

#[test]
fn workers_are_busy_while_one_topic_holds_the_whole_backlog() {
    for (capacity, emitted_max) in [(100, 4), (100, 50), (400, 8)] {
        let flow = Flow { capacity, emitted_max, budget: 1_000, sees_workers: true };
        let outcome = flow.run();
        assert!(outcome.idle < 0.01, "{capacity} a second by {emitted_max}: {outcome:?}");
        // What the sink works on comes first, then a turn.
        assert!(
            outcome.quiet_wait <= flow.work_ms() + 2 * STEP_MS,
            "{capacity} by {emitted_max}: {outcome:?}"
        );
        assert!(outcome.flood_most < 900, "the others have places: {outcome:?}");
        let blind = Flow { sees_workers: false, ..flow }.run();
        assert!(blind.idle > 0.3, "without the facts they were idle: {blind:?}");
    }
}

#[test]
fn with_too_few_places_for_the_workers_they_are_idle_less_than_before() {
    for (capacity, emitted_max, budget) in [(400, 8, 200), (2_000, 64, 1_000)] {
        let flow = Flow { capacity, emitted_max, budget, sees_workers: true };
        let (outcome, blind) = (flow.run(), Flow { sees_workers: false, ..flow }.run());
        assert!(outcome.idle < blind.idle / 2.0, "{capacity}: {outcome:?} and {blind:?} before");
    }
}

#[test]
fn slow_work_fills_no_more_places_than_its_workers_and_a_few_deferrals_need() {
    let flow = Flow { capacity: 50, emitted_max: 100, budget: 1_000, sees_workers: true };
    let outcome = flow.run();
    assert!(outcome.idle < 0.01 && outcome.flood_most < 300, "{outcome:?}");
}
