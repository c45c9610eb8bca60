//! Reloads under load for as long as somebody wants to watch, in a process of their own:
//!
//!     TIDEGATE_SOAK_SECONDS=600 cargo test --release -p tidegate-policy --test engine -- --ignored --nocapture soak

use std::time::{Duration, Instant as StdInstant};

use tidegate_model::Verdict;
use tidegate_policy::Answer;
use tidegate_test_guests::Guest;

use crate::support::{Bench, Traffic, resident_bytes, status, when_drained};

/// By then every table, pool and arena has its size.
const WARMED_UP: Duration = Duration::from_secs(60);

/// What the process may grow after that, however long it goes on.
const GROWTH_MAX: u64 = 5 << 20;

#[test]
#[ignore = "runs for as long as TIDEGATE_SOAK_SECONDS says, ten seconds without it"]
fn reload_soak() {
    let seconds = std::env::var("TIDEGATE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(10));
    let bench = Bench::new();
    let generations: Vec<_> =
        (0..2).map(|n| Guest::rejecting(&format!("generation {n}")).component()).collect();
    let bad = Guest::trapping_every(1).component();
    let host = bench.host(vec![bench.policy("fair", &generations[0])]);
    let decides = |answer: &Answer| matches!(answer, Answer::Verdict(Verdict::Reject { .. }));
    let threads = [(); 2].map(|()| Traffic::start(&host, "fair", decides));
    let began = StdInstant::now();
    let (mut warmed_up, mut reloads) = (None, 0_usize);
    let tell = |what: &str, reloads: usize| {
        let (status, calls) = (status(&host, "fair"), threads.iter().map(Traffic::calls).sum::<u64>());
        println!(
            "{what}: {:.0} s, {calls} calls, {reloads} reloads, {} generations, {} instances, {:.1} MB resident",
            began.elapsed().as_secs_f64(),
            status.generations,
            bench.engine.instances(),
            resident_bytes() as f64 / 1e6
        );
        resident_bytes()
    };
    while began.elapsed() < length {
        std::thread::sleep(Duration::from_secs(1));
        reloads += 1;
        // A good one, and after each ten a bad one.
        let is_bad = reloads.is_multiple_of(10);
        bench.write("fair.wasm", if is_bad { &bad } else { &generations[reloads % 2] });
        if is_bad {
            assert!(host.reload("fair").is_err());
        } else {
            when_drained(|| host.reload("fair"));
        }
        if warmed_up.is_none() && began.elapsed() > WARMED_UP.min(length / 2) {
            warmed_up = Some(tell("warmed up", reloads));
        }
    }
    let resident = tell("at the end", reloads);
    let before = warmed_up.unwrap();
    assert!(resident.saturating_sub(before) < GROWTH_MAX, "{before} bytes became {resident}");
    let calls: u64 = threads.into_iter().map(Traffic::end).sum();
    let status = status(&host, "fair");
    assert_eq!(status.counts.verdicts["reject"], calls);
    assert!(status.generations <= 2, "{}", status.generations);
    assert_eq!(bench.engine.instances(), 0);
}
