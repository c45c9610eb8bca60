use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use tidegate_connector::{RenewalWish, VoidCause};
use tidegate_model::{DeliveryId, Outcome};
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::Discard;
use crate::testing::{Flow, eventually, numbered};

// === the tally ===

fn names(count: usize) -> Vec<Arc<str>> {
    (0..count).map(|at| Arc::from(format!("s{at}"))).collect()
}

fn report(id: u64, outcome: Outcome, cost: Option<f64>) -> Report {
    Report { id: DeliveryId(id), outcome, cost }
}

fn rejected(reason: &str) -> Outcome {
    Outcome::Rejected { reason: reason.into() }
}

fn deferred(seconds: u64) -> Outcome {
    Outcome::Deferred { delay: Duration::from_secs(seconds) }
}

#[test]
fn the_worst_outcome_counts_once_all_have_reported() {
    for (outcomes, expected) in [
        (vec![Outcome::Accepted, Outcome::Accepted], Outcome::Accepted),
        (vec![Outcome::Released, Outcome::Accepted], Outcome::Released),
        (vec![deferred(1), Outcome::Released, deferred(5), deferred(2)], deferred(5)),
        (vec![deferred(0), Outcome::Accepted], deferred(0)),
        (vec![rejected("no"), deferred(9), Outcome::Released], rejected("`s0`: no")),
        (vec![Outcome::Accepted, rejected("a"), rejected("b")], rejected("`s1`: a; `s2`: b")),
    ] {
        for backwards in [false, true] {
            let mut tally = Tally::new(names(outcomes.len()));
            assert_eq!(tally.handle_emission(DeliveryId(1)), None);
            let mut turns: Vec<_> = outcomes.iter().cloned().enumerate().collect();
            if backwards {
                turns.reverse();
            }
            let last = turns.pop().unwrap();
            for (of, outcome) in turns {
                assert_eq!(tally.handle_report(of, report(1, outcome, None)), None);
            }
            let whole = tally.handle_report(last.0, report(1, last.1, None));
            assert_eq!(whole, Some(report(1, expected.clone(), None)));
            assert!(tally.is_empty());
        }
    }
}

#[test]
fn the_largest_cost_counts() {
    for (costs, expected) in [
        ([None, None], None),
        ([Some(1.0), None], Some(1.0)),
        ([Some(1.0), Some(3.0)], Some(3.0)),
        ([Some(f64::NAN), Some(2.0)], Some(2.0)),
        ([Some(-1.0), None], Some(-1.0)),
    ] {
        let mut tally = Tally::new(names(2));
        tally.handle_emission(DeliveryId(1));
        assert_eq!(tally.handle_report(0, report(1, Outcome::Accepted, costs[0])), None);
        assert_eq!(tally.handle_report(1, report(1, Outcome::Accepted, costs[1])).unwrap().cost, expected);
    }
}

#[test]
fn a_report_that_is_not_owed_has_no_effect() {
    let mut tally = Tally::new(names(2));
    tally.handle_emission(DeliveryId(1));
    assert_eq!(tally.handle_report(0, report(2, Outcome::Accepted, None)), None);
    assert_eq!(tally.handle_report(7, report(1, rejected("x"), None)), None);
    assert_eq!(tally.handle_report(0, report(1, Outcome::Accepted, None)), None);
    assert_eq!(tally.handle_report(0, report(1, rejected("x"), None)), None);
    assert_eq!(
        tally.handle_report(1, report(1, Outcome::Accepted, None)),
        Some(report(1, Outcome::Accepted, None))
    );
    assert_eq!(tally.handle_report(1, report(1, Outcome::Accepted, None)), None);
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(Outcome::Accepted),
        1 => Just(Outcome::Released),
        1 => (0..100_u64).prop_map(deferred),
        1 => "[a-z]{1,5}".prop_map(|reason| rejected(&reason)),
    ]
}

proptest! {
    /// Any interleaving of emissions and reports, with reports that are not owed among them.
    #[test]
    fn each_emission_is_reported_once(
        sinks in 1..5_usize,
        outcomes in prop::collection::vec(prop::collection::vec(outcome(), 5), 1..8),
        order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..200),
    ) {
        let mut tally = Tally::new(names(sinks));
        // What can still happen: an emission, or, once it was made, the reports of it.
        let mut emissions: Vec<usize> = (0..outcomes.len()).rev().collect();
        let mut owed: Vec<(usize, usize)> = Vec::new();
        let mut done: Vec<(usize, usize)> = Vec::new();
        let mut whole: HashMap<u64, Outcome> = HashMap::new();
        let mut missing: HashMap<usize, usize> = HashMap::new();
        let all = order.into_iter().map(Some).chain(std::iter::repeat(None));
        for choice in all {
            let places = usize::from(!emissions.is_empty()) + owed.len();
            if places == 0 {
                break;
            }
            let (at, twice) = choice.map_or((0, false), |(index, twice)| (index.index(places), twice));
            if twice && !done.is_empty() {
                let (id, of) = done[at % done.len()];
                let again = tally.handle_report(of, report(id as u64, rejected("again"), None));
                prop_assert_eq!(again, None);
            }
            if at == owed.len() {
                let id = emissions.pop().expect("a place for it");
                prop_assert_eq!(tally.handle_emission(DeliveryId(id as u64)), None);
                owed.extend((0..sinks).map(|of| (id, of)));
                missing.insert(id, sinks);
                continue;
            }
            let (id, of) = owed.swap_remove(at);
            done.push((id, of));
            let said = tally.handle_report(of, report(id as u64, outcomes[id][of].clone(), None));
            let left = missing.get_mut(&id).expect("emitted");
            *left -= 1;
            prop_assert_eq!(said.is_some(), *left == 0);
            if let Some(said) = said {
                prop_assert_eq!(whole.insert(said.id.0, said.outcome), None);
            }
        }
        prop_assert!(tally.is_empty());
        for (id, of) in outcomes.iter().enumerate() {
            let of = &of[..sinks];
            let has = |kind: fn(&Outcome) -> bool| of.iter().any(kind);
            let said = &whole[&(id as u64)];
            if has(|outcome| matches!(outcome, Outcome::Rejected { .. })) {
                prop_assert!(matches!(said, Outcome::Rejected { .. }), "{said:?}");
            } else if has(|outcome| matches!(outcome, Outcome::Deferred { .. })) {
                let longest = of.iter().filter_map(|outcome| match outcome {
                    Outcome::Deferred { delay } => Some(*delay),
                    _ => None,
                }).max().expect("one");
                prop_assert_eq!(said, &Outcome::Deferred { delay: longest });
            } else if has(|outcome| *outcome == Outcome::Released) {
                prop_assert_eq!(said, &Outcome::Released);
            } else {
                prop_assert_eq!(said, &Outcome::Accepted);
            }
        }
    }
}

// === the sink ===

/// A sink that a test plays.
struct Played {
    credits: usize,
    wants_notices: bool,
    inbox: oneshot::Sender<(Inbox, oneshot::Sender<Result<(), SinkError>>)>,
    ended: Arc<AtomicUsize>,
}

/// The test's end of it.
struct Part {
    inbox: Inbox,
    end: oneshot::Sender<Result<(), SinkError>>,
}

struct CountsItsEnd(Arc<AtomicUsize>);

impl Drop for CountsItsEnd {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Sink for Played {
    fn credits(&self) -> usize {
        self.credits
    }

    fn wants_notices(&self) -> bool {
        self.wants_notices
    }

    async fn run(self: Box<Self>, inbox: Inbox) -> Result<(), SinkError> {
        let _counts = CountsItsEnd(self.ended);
        let (end, ended) = oneshot::channel();
        self.inbox.send((inbox, end)).map_err(|_| "nobody plays").unwrap();
        ended.await.unwrap_or(Ok(()))
    }
}

struct Stage {
    flow: Flow,
    parts: Vec<Part>,
    /// Tasks of sinks that have ended.
    ended: Arc<AtomicUsize>,
}

impl Part {
    async fn news(&mut self) -> Vec<u64> {
        match tokio::time::timeout(crate::testing::PATIENCE, self.inbox.news()).await.expect("news") {
            Some(News::Emissions(emissions)) => emissions.iter().map(|emission| emission.id.0).collect(),
            other => panic!("{other:?}"),
        }
    }

    async fn notices(&mut self) -> Vec<Notice> {
        match tokio::time::timeout(crate::testing::PATIENCE, self.inbox.news()).await.expect("news") {
            Some(News::Notices(notices)) => notices,
            other => panic!("{other:?}"),
        }
    }

    async fn report(&self, id: u64, outcome: Outcome) {
        self.inbox.report(vec![report(id, outcome, None)]).await;
    }
}

async fn stage(sinks: &[(usize, bool)]) -> Stage {
    let (mut played, mut waiting) = (Vec::<(Arc<str>, Box<dyn Sink>)>::new(), Vec::new());
    let ended = Arc::new(AtomicUsize::new(0));
    for (at, (credits, wants_notices)) in sinks.iter().enumerate() {
        let (inbox, part) = oneshot::channel();
        let ended = Arc::clone(&ended);
        let sink = Played { credits: *credits, wants_notices: *wants_notices, inbox, ended };
        played.push((format!("s{at}").into(), Box::new(sink)));
        waiting.push(part);
    }
    let fan_out = FanOut::new("all".into(), played);
    assert_eq!(fan_out.credits(), sinks.iter().map(|(credits, _)| *credits).min().unwrap());
    assert_eq!(fan_out.wants_notices(), sinks.iter().any(|(_, wants)| *wants));
    let flow = Flow::start(fan_out);
    let mut parts = Vec::new();
    for part in waiting {
        let (inbox, end) = part.await.expect("it runs");
        parts.push(Part { inbox, end });
    }
    Stage { flow, parts, ended }
}

#[tokio::test]
async fn all_get_it_and_the_last_report_ends_it() {
    let Stage { mut flow, mut parts, ended } = stage(&[(8, false), (4, false)]).await;
    flow.emit(vec![numbered(1, ""), numbered(2, "")]);
    for part in &mut parts {
        assert_eq!(part.news().await, [1, 2]);
    }
    parts[0].report(1, Outcome::Accepted).await;
    parts[0].report(2, Outcome::Accepted).await;
    flow.is_silent_for(Duration::from_millis(100)).await;
    parts[1].report(2, rejected("no")).await;
    parts[1].report(1, Outcome::Accepted).await;
    assert_eq!(flow.outcomes(2).await, [Outcome::Accepted, rejected("`s1`: no")]);
    // The end of the inbox goes through, and the whole ends when all have.
    flow.outbox.end_inbox();
    for part in parts {
        let mut inbox = part.inbox;
        assert!(inbox.news().await.is_none());
        let _ = part.end.send(Ok(()));
    }
    flow.end().await.unwrap();
    assert_eq!(ended.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_least_limit_is_the_limit_of_all() {
    let Stage { mut flow, mut parts, .. } = stage(&[(8, false), (4, false)]).await;
    eventually("the credits count at first", || flow.outbox.limit() == 4).await;
    parts[1].inbox.set_limit(1);
    // A lower limit wakes nobody: it is known with the next thing that happens, and kept even before.
    flow.emit(vec![numbered(1, ""), numbered(2, ""), numbered(3, "")]);
    assert_eq!(parts[0].news().await, [1, 2, 3]);
    assert_eq!(parts[1].news().await, [1]);
    eventually("the lower limit is passed on", || flow.outbox.limit() == 1).await;
    parts[1].report(1, Outcome::Accepted).await;
    assert_eq!(parts[1].news().await, [2]);
    parts[1].inbox.set_limit(3);
    assert_eq!(parts[1].news().await, [3]);
    eventually("the higher limit is passed on", || flow.outbox.limit() == 3).await;
    parts[0].inbox.set_limit(0);
    parts[0].report(1, Outcome::Accepted).await;
    assert_eq!(flow.outcomes(1).await, [Outcome::Accepted]);
    eventually("no room is passed on", || flow.outbox.limit() == 0).await;
    parts[0].inbox.set_limit(2);
    // The flow is woken, as it would be by a single sink.
    assert!(flow.says().await.ended.is_empty());
    assert_eq!(flow.outbox.limit(), 2);
}

#[tokio::test]
async fn notices_go_to_those_that_want_them_and_wishes_go_up() {
    let Stage { mut flow, mut parts, .. } = stage(&[(4, true), (4, false), (4, true)]).await;
    flow.emit(vec![numbered(1, "")]);
    for part in &mut parts {
        assert_eq!(part.news().await, [1]);
    }
    let wish = RenewalWish { id: DeliveryId(1), length: Duration::from_secs(30) };
    let wishes = Reports { ended: Vec::new(), renewals: vec![wish] };
    assert!(parts[1].inbox.reporter().send(wishes).await);
    assert_eq!(flow.says().await.renewals, [wish]);
    let notices = vec![
        Notice::Expired { id: DeliveryId(1) },
        Notice::Void { id: DeliveryId(1), cause: VoidCause::LeaseExpired },
        Notice::Draining,
    ];
    flow.outbox.notify(notices.clone()).unwrap();
    assert_eq!(parts[0].notices().await, notices);
    assert_eq!(parts[2].notices().await, notices);
    flow.emit(vec![numbered(2, "")]);
    assert_eq!(parts[1].news().await, [2]);
}

/// A sink that does not read gets every notice once it does, in order, and emissions need not wait behind them.
#[tokio::test]
async fn notices_wait_for_a_sink_that_does_not_read() {
    // More than its channel has places for, fewer than what waits with the flow and the fan-out together.
    const COUNT: u64 = 120;
    let Stage { mut flow, mut parts, .. } = stage(&[(4, true), (4, true)]).await;
    let notices: Vec<_> = (0..COUNT).map(|id| Notice::Expired { id: DeliveryId(id) }).collect();
    for notice in &notices {
        let until = tokio::time::Instant::now() + crate::testing::PATIENCE;
        while flow.outbox.notify(vec![notice.clone()]).is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(tokio::time::Instant::now() < until, "no room for {notice:?}");
        }
    }
    flow.emit(vec![numbered(1, "")]);
    for part in &mut parts {
        let (mut got, mut emissions) = (Vec::new(), 0);
        while got.len() < notices.len() || emissions == 0 {
            match tokio::time::timeout(crate::testing::PATIENCE, part.inbox.news()).await.expect("news") {
                Some(News::Notices(batch)) => got.extend(batch),
                Some(News::Emissions(batch)) => emissions += batch.len(),
                None => panic!("the end"),
            }
        }
        assert_eq!((&got, emissions), (&notices, 1));
        part.report(1, Outcome::Accepted).await;
    }
    assert_eq!(flow.outcomes(1).await, [Outcome::Accepted]);
}

#[tokio::test]
async fn one_that_ends_ends_all() {
    let error = || SinkError { sink: "s1".into(), detail: "it is closed".into() };
    for (result, expected) in [
        (Err(error()), "sink `all` cannot go on: its sink `s1` cannot go on: it is closed"),
        (Ok(()), "sink `all` cannot go on: its sink `s1` ended"),
    ] {
        let Stage { flow, mut parts, ended } = stage(&[(4, false), (4, false), (4, false)]).await;
        flow.emit(vec![numbered(1, "")]);
        let last = parts.remove(1);
        drop(last.inbox);
        let _ = last.end.send(result);
        let said = flow.ended().await.unwrap_err().to_string();
        assert_eq!(said, expected);
        // Also those that would have gone on.
        assert_eq!(ended.load(Ordering::SeqCst), 3);
    }
}

struct Panics;

#[async_trait]
impl Sink for Panics {
    fn credits(&self) -> usize {
        1
    }

    async fn run(self: Box<Self>, _inbox: Inbox) -> Result<(), SinkError> {
        panic!("on purpose")
    }
}

#[tokio::test]
async fn one_that_panics_ends_all() {
    let sinks: Vec<(Arc<str>, Box<dyn Sink>)> =
        vec![("ok".into(), Box::new(Discard)), ("odd".into(), Box::new(Panics))];
    let said = Flow::start(FanOut::new("all".into(), sinks)).ended().await.unwrap_err().to_string();
    assert!(said.contains("its sink `odd` cannot go on: it panicked"), "{said}");
}

#[tokio::test]
async fn aborting_it_aborts_its_sinks() {
    let Stage { flow, parts, ended } = stage(&[(4, false), (4, false)]).await;
    flow.abort();
    eventually("all are gone", || ended.load(Ordering::SeqCst) == 2).await;
    drop(parts);
}

/// A sink that reports after a while, in any order and in any way.
struct Slow {
    credits: usize,
    seed: u64,
    taken: Arc<Mutex<HashSet<u64>>>,
}

#[async_trait]
impl Sink for Slow {
    fn credits(&self) -> usize {
        self.credits
    }

    async fn run(self: Box<Self>, mut inbox: Inbox) -> Result<(), SinkError> {
        let (sender, mut done) = mpsc::channel::<Report>(self.credits);
        let mut random = self.seed;
        let mut open = true;
        let mut holds = 0_usize;
        while open || holds > 0 {
            tokio::select! {
                emissions = inbox.next(), if open => {
                    let Some(emissions) = emissions else { open = false; continue };
                    holds += emissions.len();
                    assert!(holds <= self.credits, "more than there are credits");
                    for emission in emissions {
                        assert!(self.taken.lock().insert(emission.id.0), "twice");
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let wait = Duration::from_micros(random >> 54);
                        let outcome = if random >> 60 == 0 { deferred(1) } else { Outcome::Accepted };
                        let sender = sender.clone();
                        tokio::spawn(async move {
                            tokio::time::sleep(wait).await;
                            let _ = sender.send(Report { id: emission.id, outcome, cost: None }).await;
                        });
                    }
                }
                Some(report) = done.recv() => {
                    holds -= 1;
                    inbox.report(vec![report]).await;
                }
            }
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_go_through_sinks_of_different_speed() {
    const COUNT: u64 = 3_000;
    let taken: Vec<Arc<Mutex<HashSet<u64>>>> = (0..3).map(|_| Arc::default()).collect();
    let sinks = taken.iter().zip([16, 64, 7]).enumerate().map(|(at, (taken, credits))| {
        let sink = Slow { credits, seed: at as u64 + 1, taken: Arc::clone(taken) };
        let name: Arc<str> = format!("s{at}").into();
        (name, Box::new(sink) as Box<dyn Sink>)
    });
    let mut flow = Flow::start(FanOut::new("all".into(), sinks.collect()));
    let (mut sent, mut unreported, mut seen) = (0, 0, HashSet::new());
    while seen.len() < COUNT as usize {
        let room = (flow.outbox.limit() - unreported).min((COUNT - sent) as usize);
        if room > 0 {
            flow.emit((sent..sent + room as u64).map(|id| numbered(id, "")).collect());
            sent += room as u64;
            unreported += room;
        }
        for report in flow.says().await.ended {
            unreported -= 1;
            assert!(seen.insert(report.id), "reported twice");
        }
    }
    flow.end().await.unwrap();
    assert!(taken.iter().all(|taken| taken.lock().len() == COUNT as usize));
}

#[tokio::test]
async fn without_sinks_everything_is_accepted() {
    let mut flow = Flow::start(FanOut::new("none".into(), Vec::new()));
    flow.emit(vec![numbered(1, ""), numbered(2, "")]);
    assert_eq!(flow.outcomes(2).await, vec![Outcome::Accepted; 2]);
    flow.end().await.unwrap();
}
