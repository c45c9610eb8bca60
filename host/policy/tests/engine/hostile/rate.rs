//! A policy that is asked at a fixed rate keeps it, whatever another one does meanwhile.
//!
//! No bound here is one of time: the same policy is measured alone before and after, in the same run, and what it does
//! beside its neighbour is compared with that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as StdInstant};

use parking_lot::{Mutex, MutexGuard};
use tidegate_model::Renewal;
use tidegate_policy::{
    Cause, Engine, Limits, PolicyHost, PolicySpec, Rung, RungOutcome, ThrottleCaller, check,
};
use tidegate_test_guests::{Guest, with_core_instances};

use super::{quick, renew};
use crate::support::{Bench, ask_about, ask_at, caller, message, rejected, status};

/// Between two calls of the healthy policy: 2,000 a second.
const PERIOD: Duration = Duration::from_micros(500);
/// Calls of one measurement, alone and beside a neighbour.
const CALLS_ALONE: u32 = 400;
const CALLS_BESIDE: u32 = 800;
/// How much longer than alone half of the calls may take. One that waits for another's deadline takes a hundred times
/// as long.
const SLOWER_MAX: f64 = 5.0;
/// The part of the rate alone that is left at least, and of the calls that begin before the next one is due.
const RATE_MIN: f64 = 0.8;
const IN_TIME_MIN: f64 = 0.5;
/// Whatever else this machine does shows in a measurement; what the neighbour does shows in each of them.
const ROUNDS_MAX: u32 = 5;

/// What a neighbour does all the time.
enum Pursuit {
    /// It decides; each third message is a bad one, so that fewer than half fail. What becomes of that one.
    Decides(Option<Cause>),
    /// It is asked about leases, of which each third is a bad one.
    Renews,
    /// It is loaded, and refused by this check, or not at all.
    IsLoaded(Option<Rung>),
}

/// Calls that were made at their times.
#[derive(Debug)]
struct Measured {
    /// Calls a second.
    rate: f64,
    /// Part of the calls that began before the next one was due.
    in_time: f64,
    /// How long half of the calls took at most, and all but one in a hundred.
    p50: Duration,
    p99: Duration,
    /// How late half of the calls began at most, and all but one in a hundred.
    late_p50: Duration,
    late_p99: Duration,
}

/// A thread that does the same again and again.
struct Neighbour {
    stop: Arc<AtomicBool>,
    times: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Neighbour {
    fn start(mut act: impl FnMut(u64) + Send + 'static) -> Self {
        let (stop, times) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = thread::spawn({
            let (stop, times) = (Arc::clone(&stop), Arc::clone(&times));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    act(times.load(Ordering::Relaxed));
                    times.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { stop, times, thread }
    }

    /// Ends it; answers how often it did it.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.times.load(Ordering::Relaxed)
    }
}

/// Calls at their times, and catches up after a delay.
fn measure(calls: u32, mut call: impl FnMut()) -> Measured {
    let began = StdInstant::now();
    let (mut took, mut late) = (Vec::new(), Vec::new());
    for number in 0..calls {
        let due = began + PERIOD * number;
        thread::sleep(due.saturating_duration_since(StdInstant::now()));
        let called = StdInstant::now();
        call();
        took.push(called.elapsed());
        late.push(called.saturating_duration_since(due));
    }
    let rate = f64::from(calls) / began.elapsed().as_secs_f64();
    let in_time = late.iter().filter(|late| **late < PERIOD).count();
    let percentile = |times: &mut Vec<Duration>, percent: usize| {
        times.sort_unstable();
        times[(times.len() - 1) * percent / 100]
    };
    Measured {
        rate,
        in_time: in_time as f64 / f64::from(calls),
        p50: percentile(&mut took, 50),
        p99: percentile(&mut took, 99),
        late_p50: percentile(&mut late, 50),
        late_p99: percentile(&mut late, 99),
    }
}

/// A call of the healthy policy, which must answer.
fn asking(mut good: ThrottleCaller) -> impl FnMut() {
    let (message, wanted) = (message("tenant"), rejected("good"));
    move || assert_eq!(ask_about(&mut good, &message, 1), wanted)
}

/// What a neighbour makes of the healthy policy.
#[derive(Debug)]
struct Compared {
    /// How many times longer half of the calls take.
    slower: f64,
    /// The part of the rate that is left, and of the calls in time.
    rate: f64,
    in_time: f64,
}

impl Compared {
    /// With the worse of two measurements alone: in that one the machine had more else to do.
    fn new(beside: &Measured, alone: [&Measured; 2]) -> Self {
        let [before, after] = alone;
        Self {
            slower: beside.p50.as_secs_f64() / before.p50.max(after.p50).as_secs_f64(),
            rate: beside.rate / before.rate.min(after.rate),
            in_time: beside.in_time / before.in_time.min(after.in_time).max(0.01),
        }
    }

    fn is_kept(&self) -> bool {
        self.slower <= SLOWER_MAX && self.rate >= RATE_MIN && self.in_time >= IN_TIME_MIN
    }
}

/// Measures the healthy policy alone, beside the neighbour, and alone again, until it is as good beside it as alone.
#[allow(clippy::print_stdout, reason = "what was measured is worth reading when all is well, too")]
fn keeps_its_rate(name: &str, component: impl AsRef<[u8]>, pursuit: &Pursuit) {
    let bench = Bench::new();
    let mut bad = bench.policy("bad", component);
    if matches!(pursuit, Pursuit::Decides(Some(Cause::Timeout))) {
        bad = quick(bad);
    }
    bad.limits.start_deadline = Duration::from_millis(50);
    bad.last_good = false;
    // The deadline of every policy that nobody has given another one: a call that waited for its neighbour within the
    // engine would not be over by then.
    let good = PolicySpec {
        limits: Limits { deadline: Limits::default().deadline, ..bench.spec("good").limits },
        ..bench.policy("good", Guest::rejecting("good").component())
    };
    let specs = if matches!(pursuit, Pursuit::IsLoaded(_)) { vec![good] } else { vec![good, bad.clone()] };
    let host = bench.host(specs);
    let mut ask = asking(caller(&host, "good"));
    // The first calls make the instance.
    measure(50, &mut ask);
    let mut seen = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let before = measure(CALLS_ALONE, &mut ask);
        let neighbour = start(&host, &bench.engine, bad.clone(), pursuit);
        let beside = measure(CALLS_BESIDE, &mut ask);
        let times = neighbour.end();
        let after = measure(CALLS_ALONE, &mut ask);
        assert!(times > 0, "{name} did nothing");

        let compared = Compared::new(&beside, [&before, &after]);
        println!(
            "{name:25} {times:5} times; {CALLS_BESIDE} calls at x{:.2} of the rate, in time x{:.2}, p50 x{:.2}: {:?}, \
             p99 {:?} (alone {:?}), begun late p50 {:?} ({:?}), p99 {:?} ({:?})",
            compared.rate,
            compared.in_time,
            compared.slower,
            beside.p50,
            beside.p99,
            before.p99.max(after.p99),
            beside.late_p50,
            before.late_p50.max(after.late_p50),
            beside.late_p99,
            before.late_p99.max(after.late_p99),
        );
        if compared.is_kept() {
            if let Pursuit::Decides(Some(cause)) = pursuit {
                let failures = &status(&host, "bad").counts.failures;
                assert!(failures[cause.label()] > 0, "{name}: {failures:?}");
                assert_eq!(failures.values().sum::<u64>(), failures[cause.label()], "{name}: {failures:?}");
            }
            let failures = status(&host, "good").counts.failures;
            assert_eq!(failures.values().sum::<u64>(), 0, "{failures:?}");
            return;
        }
        seen.push((before, beside, after));
    }
    panic!("{name} slows the healthy policy down, each time: {seen:#?}");
}

fn start(host: &PolicyHost, engine: &Engine, bad: PolicySpec, pursuit: &Pursuit) -> Neighbour {
    match *pursuit {
        Pursuit::Decides(_) => {
            let mut caller = caller(host, "bad");
            Neighbour::start(move |times| {
                // By its flow's clock failures take so little of the time that the breaker stays closed.
                let millis = times * 100;
                for key in ["tenant", "self-test", "self-test"] {
                    let _ = ask_at(&mut caller, key, millis);
                }
            })
        }
        Pursuit::Renews => {
            let mut caller = host.renewing("bad").unwrap().caller();
            Neighbour::start(move |_| {
                assert_eq!(renew(&mut caller, 1), Renewal::Lapse);
                for _ in 0..2 {
                    assert_eq!(renew(&mut caller, 0), Renewal::Renew(Duration::from_secs(1)));
                }
            })
        }
        Pursuit::IsLoaded(refusing) => {
            let engine = engine.clone();
            Neighbour::start(move |_| {
                let report = check(&engine, &bad);
                let failed = |outcome: &RungOutcome| matches!(outcome, RungOutcome::Failed(_));
                let refused = report.rungs.iter().find(|rung| failed(&rung.outcome)).map(|rung| rung.rung);
                assert_eq!(refused, refusing, "{:?}", report.failure());
            })
        }
    }
}

#[test]
fn loops() {
    let refused = |rung| Pursuit::IsLoaded(Some(rung));
    keeps_its_rate("loop in start", Guest::looping_in_start().component(), &refused(Rung::Instantiate));
    keeps_its_rate("loop in describe", Guest::looping_in_describe().component(), &refused(Rung::Describe));
    keeps_its_rate("loop in configure", Guest::looping_in_configure().component(), &refused(Rung::Configure));
    let timeout = Pursuit::Decides(Some(Cause::Timeout));
    keeps_its_rate("loop on call 1,000", Guest::looping_every(1_000).component(), &timeout);
    keeps_its_rate("loop on each third call", Guest::looping_on_messages().component(), &timeout);
    keeps_its_rate("loop in realloc", Guest::looping_when_asked_for_memory().component(), &timeout);
    keeps_its_rate("loop after its answer", Guest::looping_after_its_answer().component(), &timeout);
}

#[test]
fn memories() {
    let memory = Pursuit::Decides(Some(Cause::Memory));
    keeps_its_rate("memory growth", Guest::growing_on_messages().component(), &memory);
    keeps_its_rate("memory that is written to", Guest::filling_its_memory_on_messages().component(), &memory);
    keeps_its_rate("table growth", Guest::growing_a_table_on_messages().component(), &memory);
    let good = Guest::default().component();
    let refused = |rung| Pursuit::IsLoaded(Some(rung));
    let many = with_core_instances(&good, "(module (memory 1))", 30);
    keeps_its_rate("too many memories", many, &refused(Rung::Compile));
    let two = with_core_instances(&good, "(module (memory 1000))", 1);
    keeps_its_rate("two memories, both large", two, &Pursuit::IsLoaded(None));
    keeps_its_rate(
        "huge initial memory",
        Guest::beginning_with_pages(65_536).component(),
        &refused(Rung::Compile),
    );
    let largest = Guest::beginning_with_pages(1_024).component();
    keeps_its_rate("largest initial memory", largest, &Pursuit::IsLoaded(None));
}

#[test]
fn floods() {
    let host_error = Pursuit::Decides(Some(Cause::HostError));
    keeps_its_rate(
        "handle flood",
        Guest::piling_up_handles_on_renewed_leases().component(),
        &Pursuit::Renews,
    );
    keeps_its_rate("handle that is kept", Guest::keeping_its_handle_on_messages().component(), &host_error);
    keeps_its_rate("log flood", Guest::logging(1_000, 30).component(), &Pursuit::Decides(None));
    keeps_its_rate("huge strings", Guest::deferring_for_a_reason_of(10 << 20).component(), &host_error);
    keeps_its_rate("state flood", Guest::filling_buckets(1_000).component(), &Pursuit::Decides(None));
}

#[test]
fn traps_and_garbage() {
    let decides = |cause| Pursuit::Decides(Some(cause));
    keeps_its_rate("deep recursion", Guest::recursing_on_messages().component(), &decides(Cause::Stack));
    keeps_its_rate("trap every third", Guest::trapping_every(3).component(), &decides(Cause::Panic));
    let garbage = Guest::rejecting_for_a_reason_elsewhere().component();
    keeps_its_rate("garbage", garbage, &decides(Cause::Other));
    let refused = Pursuit::IsLoaded(Some(Rung::Imports));
    keeps_its_rate("sleep through WASI", Guest::sleeping_through_wasi().component(), &refused);
}

/// The measurement sees what it is for: calls that wait for another's deadline.
#[test]
fn a_rate_that_is_not_kept_is_seen() {
    let bench = Bench::new();
    let host = bench.host(vec![bench.policy("good", Guest::rejecting("good").component())]);
    let mut ask = asking(caller(&host, "good"));
    measure(50, &mut ask);
    let before = measure(CALLS_ALONE, &mut ask);
    let shared = Arc::new(Mutex::new(()));
    let theirs = Arc::clone(&shared);
    let neighbour = Neighbour::start(move |_| {
        let held = theirs.lock();
        thread::sleep(Duration::from_millis(5));
        MutexGuard::unlock_fair(held);
    });
    let beside = measure(100, || {
        let _held = shared.lock();
        ask();
    });
    assert!(neighbour.end() > 0);
    let after = measure(CALLS_ALONE, &mut ask);
    let compared = Compared::new(&beside, [&before, &after]);
    assert!(!compared.is_kept(), "{compared:?} of {before:?}, {beside:?}, {after:?}");
}
