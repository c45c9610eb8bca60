//! Members and a cluster in memory, in a time of their own: what takes hours there takes moments here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use tidegate_share_broker::{
    Answer as BrokerAnswer, Cluster, ConnectionId, Options, Record, Request as BrokerRequest, ResponseBody,
};

use super::*;
use crate::{AcknowledgeError, ErrorCode};

/// How long a call may take beyond what it waits for on purpose.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rounds at one moment after which something turns in circles.
const ROUNDS_MAX: usize = 10_000;

/// What a test's consumer does with a record.
pub(super) type Behaviour = Box<dyn FnMut(&Lease, i16) -> (AcknowledgeType, Duration)>;

pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) players: Vec<Player>,
    pub(super) now: Duration,
    /// Records that somebody got though their acceptance had been confirmed.
    pub(super) came_after_acceptance: Vec<(TopicPartition, i64)>,
    confirmed: HashSet<(TopicPartition, i64)>,
}

pub(super) struct Player {
    pub(super) member: Member,
    pub(super) events: Vec<Event>,
    connections: HashMap<(u8, i32), ConnectionId>,
    calls: HashMap<ConnectionId, (Duration, Call)>,
    behaviour: Behaviour,
    /// What is to be said, when.
    planned: BTreeMap<(Duration, u64), (Lease, AcknowledgeType)>,
    next_token: u64,
    /// Tokens without a result yet.
    open: HashSet<u64>,
    /// Deliveries seen, and acceptances that took effect.
    pub(super) delivered: HashMap<(TopicPartition, i64), u32>,
    pub(super) accepted: HashSet<(TopicPartition, i64)>,
    pub(super) failed: Vec<AcknowledgeError>,
    /// How much may be fetched at a time.
    pub(super) appetite: usize,
    pub(super) is_alive: bool,
}

pub(super) fn at_once() -> Behaviour {
    Box::new(|_, _| (AcknowledgeType::Accept, Duration::ZERO))
}

pub(super) fn settings(member_id: &str, topics: &[&str]) -> MemberSettings {
    MemberSettings::new("g", member_id, Subscription::topics(topics.iter().copied()), 7)
}

impl World {
    pub(super) fn new(nodes: i32) -> Self {
        Self::with(Options { nodes, ..Options::quick() })
    }

    pub(super) fn with(options: Options) -> Self {
        Self {
            cluster: Cluster::new(options),
            players: Vec::new(),
            now: Duration::ZERO,
            came_after_acceptance: Vec::new(),
            confirmed: HashSet::new(),
        }
    }

    /// A topic whose partitions are led by the nodes in turn.
    pub(super) fn topic(&mut self, name: &str, partitions: i32) {
        self.cluster.create_topic(name, partitions);
        let nodes: Vec<i32> = self.cluster.nodes().collect();
        for (partition, node) in (0..partitions).zip(nodes.iter().cycle()) {
            self.cluster.move_leader(name, partition, *node);
        }
    }

    /// Writes records in batches of ten.
    pub(super) fn append(&mut self, topic: &str, partition: i32, count: usize) {
        for _ in 0..count / 10 {
            let records = (0..10).map(|_| Record::new(vec![b'x'; 100]));
            self.cluster.append(topic, partition, records).unwrap();
        }
    }

    pub(super) fn join(&mut self, settings: MemberSettings, behaviour: Behaviour) -> usize {
        let mut member = Member::new(Arc::new(settings));
        member.start(self.instant());
        self.players.push(Player {
            member,
            events: Vec::new(),
            connections: HashMap::new(),
            calls: HashMap::new(),
            behaviour,
            planned: BTreeMap::new(),
            next_token: 0,
            open: HashSet::new(),
            delivered: HashMap::new(),
            accepted: HashSet::new(),
            failed: Vec::new(),
            appetite: 1_000,
            is_alive: true,
        });
        self.players.len() - 1
    }

    /// Ends a member without a word.
    pub(super) fn kill(&mut self, index: usize) {
        let player = &mut self.players[index];
        player.is_alive = false;
        for (_, connection) in player.connections.drain() {
            self.cluster.disconnect(self.now, connection);
        }
    }

    pub(super) fn instant(&self) -> Instant {
        Instant::ZERO + self.now
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, span: Duration) {
        let until = self.now + span;
        self.run_until(until, |_| false);
    }

    /// Lets time pass until something holds. Whether it came to hold.
    pub(super) fn run_until(&mut self, until: Duration, mut holds: impl FnMut(&Self) -> bool) -> bool {
        loop {
            self.settle();
            if holds(self) {
                return true;
            }
            if self.now >= until {
                return false;
            }
            // Never less than a little: answers take time.
            let next = self.next_moment().unwrap_or(until).max(self.now + Duration::from_micros(500));
            self.now = next.min(until);
        }
    }

    /// Until the group has accepted so many records.
    pub(super) fn run_until_accepted(&mut self, count: usize, within: Duration) -> bool {
        self.run_until(self.now + within, |world| world.accepted().len() >= count)
    }

    pub(super) fn accepted(&self) -> HashSet<(TopicPartition, i64)> {
        self.players.iter().flat_map(|player| player.accepted.iter().copied()).collect()
    }

    pub(super) fn deliveries(&self) -> u32 {
        self.players.iter().flat_map(|player| player.delivered.values()).sum()
    }

    fn next_moment(&self) -> Option<Duration> {
        let now = self.instant();
        let members = self.players.iter().filter(|player| player.is_alive).filter_map(|player| {
            let timeout = player.member.poll_timeout(now).map(|at| Duration::from_nanos(at.as_nanos()));
            let planned = player.planned.keys().next().map(|(at, _)| *at);
            let call = player.calls.values().map(|(deadline, _)| *deadline).min();
            [timeout, planned, call].into_iter().flatten().min()
        });
        members.chain(self.cluster.poll_timeout()).min()
    }

    /// Does all that is to be done at this moment.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "turns in circles at {:?}", self.now);
            let mut has_moved = false;
            for index in 0..self.players.len() {
                if self.players[index].is_alive {
                    has_moved |= self.turn(index);
                }
            }
            for (connection, answer) in self.cluster.poll_answers(self.now) {
                has_moved = true;
                self.route(connection, answer);
            }
            if !has_moved {
                return;
            }
        }
    }

    fn turn(&mut self, index: usize) -> bool {
        let now = self.instant();
        let mut has_moved = false;
        let player = &mut self.players[index];
        while player.planned.first_key_value().is_some_and(|((at, _), _)| *at <= self.now) {
            let ((_, token), (lease, kind)) = player.planned.pop_first().unwrap();
            player.member.acknowledge(lease, lease.offset, kind, token);
            has_moved = true;
        }
        let late: Vec<ConnectionId> = player
            .calls
            .iter()
            .filter(|(_, (deadline, _))| *deadline <= self.now)
            .map(|(connection, _)| *connection)
            .collect();
        for connection in late {
            self.cluster.disconnect(self.now, connection);
            self.players[index].lost(now, connection, "no answer in time");
        }
        loop {
            let player = &mut self.players[index];
            let left = player.appetite.saturating_sub(player.member.held());
            player.member.allow(left, usize::MAX);
            let Some(call) = player.member.poll_call(now) else { break };
            has_moved = true;
            self.make(index, call);
        }
        let Self { players, confirmed, came_after_acceptance, .. } = self;
        players[index].take_events(self.now, confirmed, came_after_acceptance) || has_moved
    }

    fn make(&mut self, index: usize, call: Call) {
        let now = self.instant();
        let (key, node) = match &call.target {
            Target::Any => ((0, 0), self.cluster.nodes().find(|node| self.cluster.is_up(*node)).unwrap_or(1)),
            Target::Coordinator(node) => ((1, node.broker.0), node.broker.0),
            Target::Session(node) => ((2, node.broker.0), node.broker.0),
        };
        let player = &mut self.players[index];
        let known = player.connections.get(&key).copied();
        let Some(connection) = known.or_else(|| self.cluster.connect(node)) else {
            player.member.handle_failure(now, &call.target, &call.request, "connection refused");
            return;
        };
        if known.is_none() {
            player.connections.insert(key, connection);
            if let Target::Session(node) = &call.target {
                player.member.handle_connected(node.broker, true);
            }
        }
        let request = BrokerRequest::new(match &call.request {
            Request::Metadata(request) => tidegate_share_broker::RequestBody::from(request.clone()),
            Request::FindCoordinator(request) => request.clone().into(),
            Request::Heartbeat(request) => request.clone().into(),
            Request::Fetch(request) => request.clone().into(),
            Request::Acknowledge(request) => request.clone().into(),
        });
        let deadline = self.now + call.wait + PATIENCE;
        assert!(player.calls.insert(connection, (deadline, call)).is_none(), "two calls on one connection");
        for answer in self.cluster.handle_request(self.now, connection, request) {
            self.route(connection, answer);
        }
    }

    fn route(&mut self, connection: ConnectionId, answer: BrokerAnswer) {
        let now = self.instant();
        let Some(player) = self
            .players
            .iter_mut()
            .find(|player| player.connections.values().any(|known| *known == connection))
        else {
            return;
        };
        let BrokerAnswer::Response(response) = answer else {
            self.cluster.disconnect(self.now, connection);
            return player.lost(now, connection, "the connection was closed");
        };
        let answer = match response.body {
            ResponseBody::Metadata(body) => Answer::Metadata(body),
            ResponseBody::FindCoordinator(body) => Answer::FindCoordinator(body),
            ResponseBody::ShareGroupHeartbeat(body) => Answer::Heartbeat(body),
            ResponseBody::ShareFetch(body) => Answer::Fetch(body),
            ResponseBody::ShareAcknowledge(body) => Answer::Acknowledge(body),
            other => panic!("{other:?}"),
        };
        match player.calls.remove(&connection) {
            Some((_, call)) => player.member.handle_answer(now, &call.target, answer),
            // An answer that nobody waits for: a shell matches by order, and ends the connection.
            None => {
                self.cluster.disconnect(self.now, connection);
                player.lost(now, connection, "an answer to nothing");
            }
        }
    }
}

impl Player {
    fn lost(&mut self, now: Instant, connection: ConnectionId, reason: &str) {
        self.connections.retain(|_, known| *known != connection);
        if let Some((_, call)) = self.calls.remove(&connection) {
            self.member.handle_failure(now, &call.target, &call.request, reason);
        }
    }

    fn take_events(
        &mut self,
        now: Duration,
        confirmed: &mut HashSet<(TopicPartition, i64)>,
        came_after: &mut Vec<(TopicPartition, i64)>,
    ) -> bool {
        let mut has_moved = false;
        while let Some(event) = self.member.poll_event() {
            has_moved = true;
            match &event {
                Event::Delivered(batch) => {
                    for delivered in &batch.records {
                        let lease = batch.lease(delivered.record.offset);
                        *self.delivered.entry((batch.partition, lease.offset)).or_default() += 1;
                        if confirmed.contains(&(batch.partition, lease.offset)) {
                            came_after.push((batch.partition, lease.offset));
                        }
                        let (kind, delay) = (self.behaviour)(&lease, delivered.delivery_count);
                        self.plan(now + delay, lease, kind);
                    }
                }
                Event::Acknowledged(done) => {
                    assert!(self.open.remove(&done.token), "a second result: {done:?}");
                    match &done.result {
                        Ok(()) if done.kind == AcknowledgeType::Accept => {
                            self.accepted
                                .extend((done.offsets.0..=done.offsets.1).map(|o| (done.partition, o)));
                        }
                        Ok(()) => {}
                        Err(error) => self.failed.push(error.clone()),
                    }
                }
                _ => {}
            }
            self.events.push(event);
        }
        has_moved
    }

    pub(super) fn plan(&mut self, at: Duration, lease: Lease, kind: AcknowledgeType) {
        self.next_token += 1;
        self.open.insert(self.next_token);
        self.planned.insert((at, self.next_token), (lease, kind));
    }

    /// Things that were said and have no result yet.
    pub(super) fn unanswered(&self) -> usize {
        self.open.len() - self.planned.len()
    }

    pub(super) fn troubles_begun(&self, part: &str) -> usize {
        let begun = |event: &&Event| matches!(event, Event::TroubleBegan(trouble) if trouble.to_string().contains(part));
        self.events.iter().filter(begun).count()
    }

    pub(super) fn is_put_out(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::PutOut(ErrorCode::UNKNOWN_MEMBER_ID)))
    }
}
