//! One member of a share group, whole: its place in the group, the map of the cluster, a session with each leader.
//!
//! Sans-io. It is told the time, answers and failures, and gives calls and events; a shell makes the calls, each kind of
//! target on a connection of its own. The same member runs on a network, against a broker in memory, and in a simulation.

mod answers;
mod event;
mod trouble;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kafka_wire::{
    FindCoordinatorRequest, MetadataRequest, ShareAcknowledgeRequest, ShareFetchRequest,
    ShareGroupHeartbeatRequest,
};
use tidegate_connector::Backoff;
use tidegate_model::Instant;

pub(crate) use self::answers::Answer;
pub use self::event::{Acknowledged, Delivered, DeliveredBatch, Event, Lease};
use self::trouble::Troubles;
pub use self::trouble::{Subject, Trouble};
use crate::acks::{Acknowledgement, Acquisition, Told};
use crate::membership::Membership;
use crate::metadata::{Metadata, Wanted};
use crate::records::Decompressor;
use crate::session::{Allowance, Identity, NodeAddress, Session, SessionRequest};
use crate::{AcknowledgeType, AcquireMode, BrokerId, FetchSettings, Subscription, TopicPartition};

/// The first and the longest wait between two searches for the coordinator.
const COORDINATOR_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The most bytes of one decompressed batch unless somebody says otherwise. Brokers take batches of 1 MiB unless somebody raised
/// that.
const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;
/// Key type of a group's coordinator. That of a share coordinator (2) is for brokers.
const GROUP_COORDINATOR: i8 = 0;

/// What a member is made of.
#[derive(Clone, Debug)]
pub struct MemberSettings {
    /// The group's id; any characters.
    pub group: Arc<str>,
    /// The member's own name, the same for its whole life: 1 to 36 characters, and nobody else's.
    pub member_id: Arc<str>,
    /// Where the member is, for assignors that care.
    pub rack: Option<Arc<str>>,
    /// What it fetches from.
    pub subscription: Subscription,
    /// How it fetches.
    pub fetch: FetchSettings,
    /// How old the map of the cluster may become.
    pub metadata_max_age: Duration,
    /// The most bytes that one batch of records may have when it is decompressed.
    pub decompressed_bytes_max: usize,
    /// Of the only randomness: how long waits are.
    pub seed: u64,
}

impl MemberSettings {
    /// With the defaults: no rack, [`FetchSettings::default`], metadata of five minutes, batches of 128 MiB. `seed` should
    /// differ between members, so that those that failed together do not come back together.
    #[must_use]
    pub fn new(
        group: impl Into<Arc<str>>,
        member_id: impl Into<Arc<str>>,
        subscription: Subscription,
        seed: u64,
    ) -> Self {
        Self {
            group: group.into(),
            member_id: member_id.into(),
            rack: None,
            subscription,
            fetch: FetchSettings::default(),
            metadata_max_age: Duration::from_secs(300),
            decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
            seed,
        }
    }
}

/// One member of a share group.
#[derive(Debug)]
pub(crate) struct Member {
    settings: Arc<MemberSettings>,
    fetch: Arc<FetchSettings>,
    membership: Membership,
    metadata: Metadata,
    coordinator: Coordinator,
    sessions: BTreeMap<BrokerId, Session>,
    /// Brokers whose locks can be renewed, as far as they have been connected to.
    renewing: BTreeMap<BrokerId, bool>,
    /// What may be fetched and has not come yet.
    allowance: Allowance,
    /// Whether a call to any broker is under way: one at a time.
    is_any_busy: bool,
    /// In record-limit mode one broker is asked at a time: the next one.
    turn: Option<BrokerId>,
    acquisitions: u64,
    decompressor: Decompressor,
    troubles: Troubles,
    /// Topics that a fetch complained about and none has been served since.
    fetch_complaints: BTreeSet<Arc<str>>,
    events: VecDeque<Event>,
    life: Life,
    /// Whether it stays out of the group for a while.
    is_resting: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Life {
    Running,
    /// Sessions are closed first, so that what is to be said is said by a member.
    ClosingSessions,
    Leaving,
    Over,
}

/// Who is the group's coordinator.
#[derive(Debug)]
enum Coordinator {
    Unknown { not_before: Instant, backoff: Backoff, is_in_flight: bool },
    Known { node: NodeAddress, backoff: Backoff },
}

/// Whom a call goes to. Each target has a connection of its own: a broker answers one request of a connection after the other,
/// and a fetch waits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    /// Any broker.
    Any,
    /// The group's coordinator.
    Coordinator(NodeAddress),
    /// A leader, for its session.
    Session(NodeAddress),
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Metadata(MetadataRequest),
    FindCoordinator(FindCoordinatorRequest),
    Heartbeat(ShareGroupHeartbeatRequest),
    Fetch(ShareFetchRequest),
    Acknowledge(ShareAcknowledgeRequest),
}

/// A call to make. It is owed [`Member::handle_answer`] or [`Member::handle_failure`].
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) target: Target,
    pub(crate) request: Request,
    /// How long the broker may wait on purpose before it answers.
    pub(crate) wait: Duration,
}

impl Member {
    pub(crate) fn new(settings: Arc<MemberSettings>) -> Self {
        let seed = settings.seed;
        let membership = Membership::new(
            Arc::clone(&settings.group),
            Arc::clone(&settings.member_id),
            settings.rack.clone(),
            seed,
        );
        let mut metadata = Metadata::new(settings.metadata_max_age, seed.rotate_left(8));
        metadata.want(match &settings.subscription {
            Subscription::Topics(names) => Wanted::Names(names.clone()),
            Subscription::Pattern(_) => Wanted::All,
        });
        Self {
            fetch: Arc::new(settings.fetch.clone()),
            membership,
            metadata,
            coordinator: Coordinator::unknown(Instant::ZERO, seed.rotate_left(16)),
            sessions: BTreeMap::new(),
            renewing: BTreeMap::new(),
            allowance: Allowance::default(),
            is_any_busy: false,
            turn: None,
            acquisitions: 0,
            decompressor: Decompressor::new(settings.decompressed_bytes_max),
            troubles: Troubles::default(),
            fetch_complaints: BTreeSet::new(),
            events: VecDeque::new(),
            life: Life::Running,
            is_resting: false,
            settings,
        }
    }

    /// Joins the group.
    pub(crate) fn start(&mut self, now: Instant) {
        if let Subscription::Topics(names) = &self.settings.subscription {
            self.membership.subscribe(now, names.clone());
        }
    }

    /// Leaves the group for a while, so that others have its partitions. What it holds stays its own, and can be renewed and
    /// settled.
    pub(crate) fn rest(&mut self, now: Instant) {
        if self.life == Life::Running && !self.is_resting {
            self.is_resting = true;
            self.membership.leave(now);
            self.events.push_back(Event::Assigned { partitions: 0 });
            self.reassign();
        }
    }

    /// Joins the group again after [`Self::rest`].
    pub(crate) fn resume(&mut self, now: Instant) {
        if self.life == Life::Running && self.is_resting {
            self.is_resting = false;
            let names = self.topics();
            self.membership.subscribe(now, names);
        }
    }

    /// The topics that are meant, as far as they are known.
    fn topics(&self) -> BTreeSet<Arc<str>> {
        match &self.settings.subscription {
            Subscription::Topics(names) => names.clone(),
            Subscription::Pattern(pattern) => {
                self.metadata.names().filter(|name| pattern.matches(name)).cloned().collect()
            }
        }
    }

    /// How much may be fetched from now on, what is under way included.
    pub(crate) const fn allow(&mut self, records: usize, bytes: usize) {
        self.allowance = Allowance { records, bytes };
    }

    /// Says something about held records; each of them has its result in an [`Event::Acknowledged`] with the token.
    pub(crate) fn acknowledge(&mut self, lease: Lease, last: i64, kind: AcknowledgeType, token: u64) {
        let ack = Acknowledgement {
            first: lease.offset,
            last,
            acquisition: Acquisition(lease.acquisition),
            kind,
            token,
        };
        let refused = |error| Told { token, first: ack.first, last, kind, result: Err(error) };
        let mut told = Vec::new();
        if kind == AcknowledgeType::Renew && self.renewing.get(&lease.broker) == Some(&false) {
            told.push(refused(crate::AcknowledgeError::NotRenewable));
        } else if let Some(session) = self.sessions.get_mut(&lease.broker) {
            session.acknowledge(lease.partition, ack, &mut told);
        } else if self.life == Life::Running {
            told.push(refused(crate::AcknowledgeError::LeaseEnded));
        } else {
            told.push(refused(crate::AcknowledgeError::Closed));
        }
        self.tell(told.into_iter().map(|told| (lease.partition, told)));
    }

    /// Says what is to be said, gives back what is held, leaves the group. Over when [`Self::is_over`].
    pub(crate) fn close(&mut self, now: Instant) {
        if self.life == Life::Running {
            self.life = Life::ClosingSessions;
            self.allowance = Allowance::default();
            for session in self.sessions.values_mut() {
                session.close();
            }
            self.advance_closing(now);
        }
    }

    /// Whether the member has left, or has nobody to take leave of.
    pub(crate) fn is_over(&self) -> bool {
        self.life == Life::Over
    }

    /// The next call to make.
    pub(crate) fn poll_call(&mut self, now: Instant) -> Option<Call> {
        self.advance_closing(now);
        if self.life == Life::Running
            && !self.is_any_busy
            && let Some(request) = self.metadata.poll(now)
        {
            self.is_any_busy = true;
            return Some(Call::new(Target::Any, Request::Metadata(request)));
        }
        if let Some(call) = self.poll_coordinator(now) {
            return Some(call);
        }
        self.poll_sessions(now)
    }

    /// What there is to know next.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to poll again though nothing happened.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let coordinator = match &self.coordinator {
            _ if self.membership.is_outside() => None,
            Coordinator::Unknown { not_before, is_in_flight: false, .. } if !self.is_any_busy => {
                Some(*not_before)
            }
            Coordinator::Unknown { .. } => None,
            Coordinator::Known { .. } => self.membership.due_at(),
        };
        let metadata = self.metadata.due_at().filter(|_| self.life == Life::Running && !self.is_any_busy);
        let sessions = self.sessions.values().filter_map(|session| session.due_at(now)).min();
        [coordinator, metadata, sessions].into_iter().flatten().min()
    }

    /// Whether the member is in its group, or stays out of it as it was told to, and, where it has something to fetch, knows from
    /// whom.
    pub(crate) fn is_joined(&self) -> bool {
        (self.membership.is_member() || self.is_resting) && !self.troubles.is_any_serious()
    }

    /// Partitions that are assigned.
    pub(crate) fn assigned(&self) -> usize {
        self.membership.assignment().len()
    }

    /// Whether a broker is, or was lately, a leader of what is fetched.
    pub(crate) fn has_session(&self, broker: BrokerId) -> bool {
        self.sessions.contains_key(&broker)
    }

    /// The group's coordinator, if it is known.
    pub(crate) const fn coordinator(&self) -> Option<BrokerId> {
        match &self.coordinator {
            Coordinator::Known { node, .. } => Some(node.broker),
            Coordinator::Unknown { .. } => None,
        }
    }

    /// Records held.
    pub(crate) fn held(&self) -> usize {
        self.sessions.values().map(Session::held).sum()
    }

    /// What is in the way, the most important first.
    pub(crate) fn troubles(&self) -> impl Iterator<Item = &Trouble> {
        self.troubles.iter()
    }

    fn poll_coordinator(&mut self, now: Instant) -> Option<Call> {
        if self.membership.is_outside() {
            return None;
        }
        match &mut self.coordinator {
            Coordinator::Unknown { not_before, backoff, is_in_flight } => {
                if *is_in_flight || *not_before > now || self.is_any_busy {
                    return None;
                }
                self.is_any_busy = true;
                *is_in_flight = true;
                *not_before = now + backoff.next_wait();
                let mut request = FindCoordinatorRequest::default();
                request.key_type = GROUP_COORDINATOR;
                request.coordinator_keys = vec![(&*self.settings.group).into()];
                Some(Call::new(Target::Any, Request::FindCoordinator(request)))
            }
            Coordinator::Known { node, .. } => {
                let target = Target::Coordinator(node.clone());
                self.membership.poll(now).map(|request| Call::new(target, Request::Heartbeat(request)))
            }
        }
    }

    fn poll_sessions(&mut self, now: Instant) -> Option<Call> {
        self.drop_sessions();
        let mut told = Vec::new();
        let mut found = None;
        let allowance = self.share(now);
        for broker in self.order() {
            let (Some(node), Some(session)) = (self.metadata.address(broker), self.sessions.get_mut(&broker))
            else {
                continue;
            };
            let target = Target::Session(node.clone());
            if let Some(request) = session.poll(now, allowance, &mut told) {
                let is_fetch = session.expected() > 0;
                found = Some(match request {
                    SessionRequest::Fetch(request) => {
                        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
                        Call { target, request: Request::Fetch(request), wait }
                    }
                    SessionRequest::Acknowledge(request) => Call::new(target, Request::Acknowledge(request)),
                });
                if is_fetch {
                    self.turn = self.after(broker);
                }
                break;
            }
        }
        self.tell(told);
        found
    }

    /// Lets go of sessions that are over, and of their brokers' troubles.
    fn drop_sessions(&mut self) {
        let over = self.sessions.extract_if(.., |_, session| session.is_over());
        let cleared = over.filter_map(|(broker, _)| self.troubles.clear(&Subject::Broker(broker)));
        self.events.extend(cleared);
    }

    /// Brokers in the order in which they are asked.
    fn order(&self) -> Vec<BrokerId> {
        let turn = self.turn.unwrap_or(BrokerId(i32::MIN));
        let after = self.sessions.range(turn..).map(|(broker, _)| *broker);
        after.chain(self.sessions.range(..turn).map(|(broker, _)| *broker)).collect()
    }

    fn after(&self, broker: BrokerId) -> Option<BrokerId> {
        self.sessions.range(BrokerId(broker.0.saturating_add(1))..).next().map(|(broker, _)| *broker)
    }

    /// The share of one broker, whichever is asked, of what may be fetched.
    fn share(&self, now: Instant) -> Allowance {
        let expected: usize = self.sessions.values().map(Session::expected).sum();
        let left = self.allowance.records.saturating_sub(expected);
        let hungry = self.sessions.values().filter(|session| session.is_hungry(now)).count().max(1);
        let records = match self.fetch.acquire_mode {
            AcquireMode::RecordLimit if expected > 0 => 0,
            AcquireMode::RecordLimit => left,
            AcquireMode::BatchOptimized => left.div_ceil(hungry),
        };
        Allowance { records, bytes: self.allowance.bytes }
    }

    /// Gives each leader's session its partitions.
    fn reassign(&mut self) {
        let mut by_leader: BTreeMap<BrokerId, BTreeSet<TopicPartition>> = BTreeMap::new();
        for partition in self.membership.assignment() {
            match self.metadata.leader(*partition) {
                Some((leader, _)) => {
                    by_leader.entry(leader).or_default().insert(*partition);
                }
                None => self.metadata.refresh(),
            }
        }
        for (broker, session) in &mut self.sessions {
            session.assign(by_leader.remove(broker).unwrap_or_default());
        }
        if self.life != Life::Running {
            return;
        }
        for (broker, partitions) in by_leader {
            let identity = Identity {
                group: Arc::clone(&self.settings.group),
                member_id: Arc::clone(&self.settings.member_id),
            };
            let seed = self.settings.seed.wrapping_add(u64::from(broker.0.unsigned_abs()) << 24);
            let mut session = Session::new(identity, Arc::clone(&self.fetch), seed);
            session.assign(partitions);
            self.sessions.insert(broker, session);
        }
    }

    /// Goes one step further in closing when the one before is done.
    fn advance_closing(&mut self, now: Instant) {
        if self.life == Life::ClosingSessions {
            let mut told = Vec::new();
            for session in self.sessions.values_mut() {
                told.append(&mut session.give_up());
            }
            self.tell(told);
        }
        if self.life == Life::ClosingSessions && self.sessions.values().all(Session::is_over) {
            self.sessions.clear();
            self.membership.leave(now);
            self.life = Life::Leaving;
        }
        // Without a coordinator there is nobody to take leave of: the session timeout does it.
        let is_mute = matches!(self.coordinator, Coordinator::Unknown { .. });
        if self.life == Life::Leaving && (self.membership.is_outside() || is_mute) {
            self.life = Life::Over;
        }
    }

    fn tell(&mut self, told: impl IntoIterator<Item = (TopicPartition, Told)>) {
        self.events.extend(told.into_iter().filter(|(_, told)| told.token != OWN).map(
            |(partition, told)| {
                Event::Acknowledged(Acknowledged {
                    token: told.token,
                    partition,
                    offsets: (told.first, told.last),
                    kind: told.kind,
                    result: told.result,
                })
            },
        ));
    }
}

/// Token of what the member says by itself.
pub(crate) const OWN: u64 = u64::MAX;

impl Call {
    const fn new(target: Target, request: Request) -> Self {
        Self { target, request, wait: Duration::ZERO }
    }
}

impl Coordinator {
    const fn unknown(not_before: Instant, seed: u64) -> Self {
        let backoff = Backoff::new(COORDINATOR_BACKOFF.0, COORDINATOR_BACKOFF.1, seed);
        Self::Unknown { not_before, backoff, is_in_flight: false }
    }
}

#[cfg(test)]
mod tests;
