//! Properties of a whole store, against a model that knows only the measured rules.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;

const TOPIC: &str = "T";
const CLIENTS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    Send { lite_topic: u8 },
    Receive { client: usize, count_max: u32 },
    Ack { which: usize },
    AckWithoutLiteTopic { which: usize },
    Defer { which: usize, seconds: u64, suspend: bool },
    Wait { seconds: u64 },
    Leave { client: usize },
    Join { client: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_u8).prop_map(|lite_topic| Step::Send { lite_topic }),
        4 => (0..3_usize, 1..6_u32).prop_map(|(client, count_max)| Step::Receive { client, count_max }),
        4 => any::<usize>().prop_map(|which| Step::Ack { which }),
        1 => any::<usize>().prop_map(|which| Step::AckWithoutLiteTopic { which }),
        2 => (any::<usize>(), 0..15_u64, any::<bool>())
            .prop_map(|(which, seconds, suspend)| Step::Defer { which, seconds, suspend }),
        2 => (1..12_u64).prop_map(|seconds| Step::Wait { seconds }),
        1 => (0..3_usize).prop_map(|client| Step::Leave { client }),
        2 => (0..3_usize).prop_map(|client| Step::Join { client }),
    ];
    prop::collection::vec(step, 1..120)
}

/// What the rules allow in one lite topic.
#[derive(Debug, Default)]
struct Line {
    sent: u64,
    done: u64,
    first: u64,
    popped_ms: u64,
    /// For each message of the last delivery: when it is due and whether it is acked.
    out: Vec<(Duration, bool)>,
    /// What the last suspended change said, if no other came after it.
    suspended_until: Option<Duration>,
    seen: u64,
}

impl Line {
    fn deliver(
        &mut self,
        now: Moment,
        messages: &[&Delivered],
        invisible: Duration,
    ) -> Result<(), TestCaseError> {
        let open = self.out.iter().filter(|(_, acked)| !acked).map(|(due, _)| *due).max();
        if let Some(due) = open {
            let due = self.suspended_until.unwrap_or(due);
            prop_assert!(due <= now.since_start, "delivered while it was held");
        }
        for (at, message) in messages.iter().enumerate() {
            prop_assert_eq!(
                message.offset,
                self.done + at as u64,
                "restart at the first open message, in order"
            );
            prop_assert!(message.offset <= self.seen, "a first delivery out of order");
            self.seen = self.seen.max(message.offset + 1);
        }
        self.first = self.done;
        self.popped_ms = messages[0].handle.popped_ms;
        self.out = vec![(now.since_start + invisible, false); messages.len()];
        self.suspended_until = None;
        Ok(())
    }

    fn open(&mut self, handle: &Handle) -> Option<&mut (Duration, bool)> {
        if handle.popped_ms != self.popped_ms || handle.offset < self.done {
            return None;
        }
        let at = handle.offset.checked_sub(self.first)?;
        self.out.get_mut(usize::try_from(at).ok()?)
    }

    fn ack(&mut self, handle: &Handle) {
        if let Some(open) = self.open(handle) {
            open.1 = true;
        }
        while self.out.get(usize::try_from(self.done - self.first).unwrap()).is_some_and(|(_, acked)| *acked)
        {
            self.done += 1;
        }
    }
}

struct World {
    store: Store,
    group: Group,
    now: Moment,
    lines: HashMap<Arc<str>, Line>,
    handles: Vec<(Arc<str>, Handle)>,
}

impl World {
    fn new(group: Group, kind: TopicKind, seed: u64) -> Self {
        let mut store = Store::new(StoreOptions {
            broker: Arc::from("broker-a"),
            timing: Timing::brisk(),
            retention: Retention::default(),
            audited_messages_max: 10_000,
            seed,
        });
        store.create_topic(&Topic::new(TOPIC, kind));
        let now = Moment { since_start: Duration::ZERO, wall_ms: 1_000_000 };
        Self { store, group, now, lines: HashMap::new(), handles: Vec::new() }
    }

    fn wait(&mut self, wait: Duration) {
        self.now.since_start += wait;
        self.now.wall_ms += u64::try_from(wait.as_millis()).unwrap();
        self.store.handle_timeout(self.now);
    }

    fn send(&mut self, lite_topic: Option<Arc<str>>) {
        let id = self.store.sequence.to_string();
        let message = NewMessage { id: Arc::from(id), lite_topic, ..NewMessage::default() };
        self.store.send(self.now, TOPIC, vec![message]).unwrap();
    }

    fn receive(&mut self, client: &Arc<str>, count_max: u32, invisible: Duration) -> Vec<Delivered> {
        let group = self.group.clone();
        let ask = Ask { topic: TOPIC, group: &group, client, count_max, invisible, tags: None };
        self.store.receive(self.now, &ask)
    }

    fn join(&mut self, client: &str) {
        let group = self.group.clone();
        self.store.register(self.now, TOPIC, &group, &Arc::from(client), Interest::Everything);
    }

    fn subject<'a>(group: &'a Group, handle: &'a Handle, lite_topic: Option<&'a str>) -> Subject<'a> {
        Subject { topic: TOPIC, group: Some(group), handle, lite_topic }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let group = self.group.clone();
        match step {
            Step::Send { lite_topic } => {
                let lite_topic: Arc<str> = Arc::from(format!("L{lite_topic}"));
                self.lines.entry(Arc::clone(&lite_topic)).or_default().sent += 1;
                self.send(Some(lite_topic));
            }
            Step::Receive { client, count_max } => {
                let invisible = Duration::from_secs(10);
                let delivered = self.receive(&Arc::from(CLIENTS[*client]), *count_max, invisible);
                prop_assert!(delivered.len() <= *count_max as usize);
                let name = |message: &Delivered| message.stored.message.lite_topic.clone().unwrap();
                for chunk in delivered.chunk_by(|left, right| name(left) == name(right)) {
                    let line = self.lines.get_mut(&name(&chunk[0])).unwrap();
                    line.deliver(self.now, &chunk.iter().collect::<Vec<_>>(), invisible)?;
                }
                self.handles.extend(delivered.iter().map(|message| (name(message), message.handle.clone())));
            }
            Step::Ack { which } => {
                if let Some((name, handle)) = pick(&self.handles, *which) {
                    self.store.ack(self.now, Self::subject(&group, &handle, Some(&name)));
                    self.lines.get_mut(&name).unwrap().ack(&handle);
                }
            }
            Step::AckWithoutLiteTopic { which } => {
                if let Some((_, handle)) = pick(&self.handles, *which) {
                    prop_assert_eq!(
                        self.store.ack(self.now, Self::subject(&group, &handle, None)),
                        Acked::Ok
                    );
                }
            }
            Step::Defer { which, seconds, suspend } => {
                if let Some((name, handle)) = pick(&self.handles, *which) {
                    let wait = Duration::from_secs(*seconds);
                    let subject = Self::subject(&group, &handle, Some(&name));
                    self.store.change(self.now, subject, wait, *suspend).unwrap();
                    let due = self.now.since_start + wait;
                    let line = self.lines.get_mut(&name).unwrap();
                    if let Some(open) = line.open(&handle).filter(|open| !open.1) {
                        open.0 = due;
                        line.suspended_until = suspend.then_some(due);
                    }
                }
            }
            Step::Wait { seconds } => self.wait(Duration::from_secs(*seconds)),
            Step::Leave { client } => self.store.unregister(self.now, TOPIC, &group.name, CLIENTS[*client]),
            Step::Join { client } => self.join(CLIENTS[*client]),
        }
        Ok(())
    }
}

fn pick(handles: &[(Arc<str>, Handle)], which: usize) -> Option<(Arc<str>, Handle)> {
    // Mostly recent ones: the old are stale.
    let recent = &handles[handles.len().saturating_sub(12)..];
    (!recent.is_empty()).then(|| recent[which % recent.len()].clone())
}

proptest! {
    #[test]
    fn lite_topics_keep_their_order_block_restart_and_lose_nothing(steps in steps(), seed in any::<u64>()) {
        let mut world = World::new(Group::lite("G", TOPIC), TopicKind::Lite, seed);
        for step in &steps {
            world.step(step)?;
        }
        // Everything left comes out, in order, and can be acked.
        world.join("last");
        let client: Arc<str> = Arc::from("last");
        let group = world.group.clone();
        for _ in 0..200 {
            world.wait(Duration::from_secs(11));
            // As clients do: a registration that is not renewed ends, and those that never poll may have been chosen
            // until then.
            world.join("last");
            for message in world.receive(&client, 32, Duration::from_secs(10)) {
                let name = message.stored.message.lite_topic.clone();
                world.store.ack(world.now, World::subject(&group, &message.handle, name.as_deref()));
            }
        }
        let audit = world.store.audit();
        prop_assert_eq!(audit.unacked().count(), 0);
        prop_assert_eq!(audit.lost().count(), 0);
        for order in audit.first_deliveries().values() {
            let numbers: Vec<u64> = order.iter().map(|id| id.parse().unwrap()).collect();
            prop_assert!(numbers.is_sorted(), "first deliveries in the order of sending: {:?}", numbers);
        }
        let sent: u64 = world.lines.values().map(|line| line.sent).sum();
        prop_assert_eq!(audit.messages.len() as u64, sent);
    }

    #[test]
    fn a_pool_gives_each_message_to_one_receiver_at_a_time_and_loses_none(
        rounds in prop::collection::vec((0..4_usize, 1..8_u32, any::<u64>(), 0..14_u64), 1..40),
    ) {
        let mut world = World::new(Group::regular("G"), TopicKind::Normal, 7);
        let group = world.group.clone();
        let mut hidden_until: HashMap<u64, Duration> = HashMap::new();
        let mut acked: HashSet<u64> = HashSet::new();
        for (sends, count_max, ack_bits, seconds) in rounds {
            (0..sends).for_each(|_| world.send(None));
            let delivered = world.receive(&Arc::from("a"), count_max, Duration::from_secs(10));
            for (at, message) in delivered.iter().enumerate() {
                let sequence = message.stored.sequence;
                prop_assert!(!acked.contains(&sequence), "delivered after its ack");
                if let Some(until) = hidden_until.insert(sequence, world.now.since_start + Duration::from_secs(10)) {
                    prop_assert!(until <= world.now.since_start, "delivered while hidden");
                }
                if ack_bits >> at & 1 == 1 {
                    world.store.ack(world.now, World::subject(&group, &message.handle, None));
                    acked.insert(sequence);
                }
            }
            world.wait(Duration::from_secs(seconds));
        }
        for _ in 0..40 {
            for message in world.receive(&Arc::from("a"), 32, Duration::from_secs(10)) {
                world.store.ack(world.now, World::subject(&group, &message.handle, None));
            }
            world.wait(Duration::from_secs(13));
        }
        prop_assert_eq!(world.store.audit().unacked().count(), 0);
    }
}

#[test]
fn what_is_acked_frees_its_room_when_it_is_needed() {
    let mut world = World::new(Group::lite("G", TOPIC), TopicKind::Lite, 1);
    world.store.options.retention.messages_max = 10;
    world.join("a");
    let client: Arc<str> = Arc::from("a");
    let group = world.group.clone();
    for _ in 0..50 {
        world.send(Some(Arc::from("L")));
        for message in world.receive(&client, 32, Duration::from_secs(10)) {
            world.store.ack(world.now, World::subject(&group, &message.handle, Some("L")));
        }
    }
    assert_eq!(world.store.held().0, 10);
    for _ in 0..10 {
        world.send(Some(Arc::from("M")));
    }
    let more = vec![NewMessage { lite_topic: Some(Arc::from("M")), ..NewMessage::default() }];
    let full = world.store.send(world.now, TOPIC, more).unwrap_err();
    assert_eq!(full, SendError::Full { messages: 10, bytes: world.store.held().1 });
}

#[test]
fn the_agenda_holds_few_entries_however_many_deliveries_there_are() {
    let mut world = World::new(Group::lite("G", TOPIC), TopicKind::Lite, 1);
    world.join("a");
    let client: Arc<str> = Arc::from("a");
    let group = world.group.clone();
    for _ in 0..2_000 {
        world.send(Some(Arc::from("L")));
        for message in world.receive(&client, 32, Duration::from_secs(10)) {
            world.store.ack(world.now, World::subject(&group, &message.handle, Some("L")));
        }
        world.wait(Duration::from_millis(1));
    }
    assert!(world.store.agenda.len() < 10, "{}", world.store.agenda.len());
}
