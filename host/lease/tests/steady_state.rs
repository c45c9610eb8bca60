//! Memory does not grow with the messages that have passed, only with those that are held.

// All of it is test code, which the lints cannot know of a file under `tests/`.
#[cfg(test)]
mod memory {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use bytes::Bytes;
    use tidegate_lease::{LeaseBook, Options};
    use tidegate_model::{
        BodyState, Deferral, Delivery, Emission, Handle, Instant, Message, Outcome, Report, Routing,
        Settlement, Verdict,
    };

    /// The system's allocator, counted. This file holds one test, so that no other one is counted along.
    struct Counting;

    static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
    static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

    // SAFETY: every call is passed on to the system's allocator unchanged.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            LIVE_BYTES.fetch_add(layout.size(), Relaxed);
            ALLOCATIONS.fetch_add(1, Relaxed);
            // SAFETY: the caller keeps the contract of `alloc`.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
            // SAFETY: the caller keeps the contract of `dealloc`, and `pointer` came from `System` above.
            unsafe { System.dealloc(pointer, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    const KEYS: usize = 10_000;
    const RECEIVE: usize = 32;
    /// Enough that each key has had a turn several times.
    const MESSAGES_PER_PHASE: usize = 50_000;
    /// Phases that are looked at, after a first one in which everything finds its size.
    const PHASES: usize = 3;

    #[test]
    fn memory_is_bounded_by_what_is_held() {
        let options = Options {
            budget_messages: 1024,
            receive_batch_max: RECEIVE,
            keys_max: KEYS / 2,
            tracked_messages_max: 1000,
            may_be_given_back: false,
            keeps_deferred: false,
            ..Options::default()
        };
        let mut road = Road {
            book: LeaseBook::new(options, Instant::ZERO),
            now: Instant::ZERO,
            keys: (0..KEYS).map(|key| format!("tenant-{key:05}").into()).collect(),
            routing: Arc::new(Routing::default()),
            made: 0,
            emissions: Vec::with_capacity(RECEIVE),
            settlements: Vec::with_capacity(RECEIVE),
        };
        road.phase();
        let allocations_before = ALLOCATIONS.load(Relaxed);
        let phases: Vec<_> = (0..PHASES)
            .map(|_| {
                let live_before = LIVE_BYTES.load(Relaxed);
                let book_allocations = road.phase();
                (LIVE_BYTES.load(Relaxed).saturating_sub(live_before), book_allocations)
            })
            .collect();
        // A hash table may be rebuilt once at twice its size; what leaks grows in every phase.
        let grown = phases.iter().map(|(grown, _)| *grown).min().unwrap_or(usize::MAX);
        assert!(grown < 4096, "{grown} bytes more after {MESSAGES_PER_PHASE} more messages");
        assert!(ALLOCATIONS.load(Relaxed) > allocations_before, "nothing is counted");
        // The emission's copy of the handle is the only one on the regular road. A tenth is deferred once, which puts
        // its id into the table of attempts and into a hash table that may be rebuilt.
        let most = MESSAGES_PER_PHASE + MESSAGES_PER_PHASE / 100;
        let book_allocations = phases[0].1;
        assert!(book_allocations <= most, "{book_allocations} allocations for {MESSAGES_PER_PHASE} messages");
        let counts = road.book.counts();
        assert_eq!(
            (counts.in_flight, counts.tracked_messages, counts.keys),
            (0, 1000, KEYS / 2),
            "{counts:?}"
        );
    }

    struct Road {
        book: LeaseBook,
        now: Instant,
        keys: Vec<Arc<str>>,
        routing: Arc<Routing>,
        made: usize,
        emissions: Vec<Emission>,
        settlements: Vec<Settlement>,
    }

    impl Road {
        /// Sends a phase's messages through the book; gives the allocations that the book made.
        fn phase(&mut self) -> usize {
            let mut allocations = 0;
            for _ in 0..MESSAGES_PER_PHASE / RECEIVE {
                let deliveries = (0..RECEIVE).map(|_| self.delivery()).collect();
                let before = ALLOCATIONS.load(Relaxed);
                self.live(deliveries);
                allocations += ALLOCATIONS.load(Relaxed) - before;
                self.emissions.clear();
                self.settlements.clear();
            }
            allocations
        }

        /// Of ten messages one is deferred, and comes again as a message of its own.
        fn live(&mut self, deliveries: Vec<(Delivery, Arc<str>)>) {
            self.now += Duration::from_millis(1);
            let granted = self.book.poll_receive(self.now).expect("room");
            self.book.handle_received(self.now, granted, deliveries);
            let mut number = 0;
            while let Some(decide) = self.book.poll_decide(self.now) {
                number += 1;
                let verdict = if number % 10 == 0 {
                    Verdict::Defer(Deferral { delay: Duration::from_secs(1), reason: Box::default() })
                } else {
                    Verdict::Deliver
                };
                self.book.handle_verdict(self.now, decide.id, verdict);
            }
            while let Some(emission) = self.book.poll_emit(self.now) {
                let report = Report { id: emission.id, outcome: Outcome::Accepted, cost: None };
                self.emissions.push(emission);
                self.book.handle_report(self.now, report);
            }
            loop {
                let first = self.settlements.len();
                self.book.poll_settle_batch(self.now, RECEIVE, &mut self.settlements);
                if self.settlements.len() == first {
                    break;
                }
                for settlement in &self.settlements[first..] {
                    self.book.handle_settled(self.now, settlement.id, Ok(None));
                }
            }
            self.book.handle_timeout(self.now);
        }

        fn delivery(&mut self) -> (Delivery, Arc<str>) {
            self.made += 1;
            let key = Arc::clone(&self.keys[self.made.wrapping_mul(7919) % KEYS]);
            let message = Message {
                topic: Arc::clone(&key),
                lite_topic: None,
                group: None,
                id: format!("{:032}", self.made).into(),
                tag: None,
                keys: Vec::new(),
                properties: Vec::new(),
                body: Bytes::from_static(&[0; 1024]),
                body_state: BodyState::Intact,
                born_at: None,
                stored_at: None,
            };
            let delivery = Delivery {
                message: Arc::new(message),
                order: self.made.is_multiple_of(2).then(|| Arc::clone(&key)),
                attempt: 1,
                received_at: self.now,
                lease: Duration::from_secs(60),
                expires_at: self.now + Duration::from_secs(60),
                handle: Handle {
                    routing: Arc::clone(&self.routing),
                    text: format!("{:0128}", self.made).into(),
                },
            };
            (delivery, key)
        }
    }
}
