//! The cluster: nodes, topics, groups, and the way of a request through them. Sans-io: it takes `now` and requests and
//! gives answers.

mod acknowledge;
mod configurations;
mod control;
mod effects;
mod fetch;
mod groups;
mod membership;
mod metadata;
mod offsets;
mod positions;
mod sasl;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use kafka_wire::ApiVersionsResponse;
use kafka_wire_core::Uuid;

pub use self::control::UnknownPartition;
use self::fetch::Pending;
use self::sasl::Sasl;
use crate::error_code::UNSUPPORTED_VERSION;
use crate::faults::{Effect, Faults};
use crate::group::{Bounds, Group, Known};
use crate::journal::{Entry, Journal};
use crate::options::{Access, GroupOptions, Options};
use crate::random::Random;
use crate::session::Sessions;
use crate::share::SharePartition;
use crate::topic::Topic;
use crate::wire::{Api, FrameError, Request, RequestBody, Response, ResponseBody, message};

/// Connections at once, so that a client that never stops connecting is noticed.
const CONNECTIONS_MAX: usize = 10_000;

/// A connection to a node.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConnectionId(pub(crate) u64);

/// What a connection is to carry, or to suffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// An answer.
    Response(Response),
    /// Bytes as they are.
    Bytes(Bytes),
    /// The connection ends; the cluster has forgotten it.
    Disconnect,
}

impl Answer {
    /// The response's body, if it is one.
    #[must_use]
    pub fn into_body(self) -> Option<ResponseBody> {
        match self {
            Self::Response(response) => Some(response.body),
            Self::Bytes(_) | Self::Disconnect => None,
        }
    }
}

#[derive(Debug)]
struct Node {
    host: String,
    port: u16,
    /// Whether it takes connections.
    up: bool,
    /// Whether metadata names it.
    listed: bool,
    /// Whether it does nothing at all, with its connections open.
    frozen: bool,
    sessions: Sessions,
}

#[derive(Debug)]
struct Connection {
    node: i32,
    sasl: Sasl,
    /// It never gets an answer any more.
    silenced: bool,
}

/// One partition of one topic for one group.
pub(crate) type ShareKey = (String, Uuid, i32);

#[derive(Debug)]
struct Share {
    partition: SharePartition,
    /// The node that has it loaded.
    node: Option<i32>,
}

/// What an answer goes to.
#[derive(Clone, Copy, Debug)]
struct Origin {
    connection: ConnectionId,
    node: i32,
    version: i16,
    correlation_id: i32,
}

/// What came of a request.
enum Outcome {
    Done(ResponseBody),
    /// It waits in [`Cluster::pending`].
    Waits,
    Closes,
}

impl<T: Into<ResponseBody>> From<T> for Outcome {
    fn from(body: T) -> Self {
        Self::Done(body.into())
    }
}

/// A cluster in memory.
#[derive(Debug)]
pub struct Cluster {
    options: Options,
    random: Random,
    nodes: BTreeMap<i32, Node>,
    topics: BTreeMap<String, Topic>,
    names: HashMap<[u8; 16], String>,
    groups: BTreeMap<String, Group>,
    configurations: HashMap<String, GroupOptions>,
    /// Which names of its configuration a group has a value of its own for.
    configured: HashMap<String, BTreeSet<&'static str>>,
    coordinators: HashMap<String, i32>,
    /// When there are coordinators.
    coordinators_from: Option<Duration>,
    shares: BTreeMap<ShareKeyBytes, Share>,
    connections: BTreeMap<ConnectionId, Connection>,
    last_connection: u64,
    pending: Vec<Pending>,
    delayed: Vec<(Duration, ConnectionId, Vec<Answer>)>,
    /// Requests that came while their nodes were frozen.
    unread: Vec<(ConnectionId, Request)>,
    faults: Faults,
    journal: Journal,
    access: HashMap<String, Access>,
    denied_groups: HashSet<String>,
}

/// A share key that can be ordered.
type ShareKeyBytes = (String, [u8; 16], i32);

fn ordered(key: &ShareKey) -> ShareKeyBytes {
    (key.0.clone(), key.1.to_bytes(), key.2)
}

impl Cluster {
    /// A cluster without topics.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let nodes = (1..=options.nodes.max(1)).map(|id| {
            let port = 9_000_u16.saturating_add(u16::try_from(id).unwrap_or(u16::MAX));
            let host = "127.0.0.1".to_owned();
            (id, Node { host, port, up: true, listed: true, frozen: false, sessions: Sessions::default() })
        });
        Self {
            nodes: nodes.collect(),
            random: Random::seeded(options.seed),
            journal: Journal::keeping(options.journal_max),
            topics: BTreeMap::new(),
            names: HashMap::new(),
            groups: BTreeMap::new(),
            configurations: HashMap::new(),
            configured: HashMap::new(),
            coordinators: HashMap::new(),
            coordinators_from: None,
            shares: BTreeMap::new(),
            connections: BTreeMap::new(),
            last_connection: 0,
            pending: Vec::new(),
            delayed: Vec::new(),
            unread: Vec::new(),
            faults: Faults::default(),
            access: HashMap::new(),
            denied_groups: HashSet::new(),
            options,
        }
    }

    /// A new connection to a node; none if the node is down, or there are too many.
    pub fn connect(&mut self, node: i32) -> Option<ConnectionId> {
        if self.connections.len() >= CONNECTIONS_MAX || !self.nodes.get(&node)?.up {
            return None;
        }
        self.last_connection += 1;
        let id = ConnectionId(self.last_connection);
        let sasl = Sasl::beginning(&self.options.users);
        self.connections.insert(id, Connection { node, sasl, silenced: false });
        Some(id)
    }

    /// The connection is gone. Its share session is closed, and what was acquired in it is to be had again.
    pub fn disconnect(&mut self, now: Duration, connection: ConnectionId) {
        self.expire(now);
        let Some(gone) = self.connections.remove(&connection) else { return };
        self.pending.retain(|pending| pending.origin.connection != connection);
        self.delayed.retain(|(_, of, _)| *of != connection);
        self.unread.retain(|(of, _)| *of != connection);
        let evicted = self.nodes.get_mut(&gone.node).and_then(|node| node.sessions.disconnect(connection));
        if let Some(((group, member), session)) = evicted {
            self.give_back(gone.node, &group, &member, &session.partitions);
        }
    }

    /// Takes a frame without its length; see [`Cluster::handle_request`].
    pub fn handle_frame(&mut self, now: Duration, connection: ConnectionId, frame: Bytes) -> Vec<Answer> {
        match Request::decode(frame) {
            Ok(request) => self.handle_request(now, connection, request),
            Err(FrameError::ApiVersionsVersion { correlation_id }) => {
                let body = message!(ApiVersionsResponse { error_code: UNSUPPORTED_VERSION });
                vec![Answer::Response(Response { version: 0, correlation_id, body: body.into() })]
            }
            Err(error) => {
                tracing::debug!(%error, "the share broker closes a connection");
                self.disconnect(now, connection);
                vec![Answer::Disconnect]
            }
        }
    }

    /// Takes a request. Gives the answer, or nothing if it comes later from [`Cluster::poll_answers`] (or, by a fault,
    /// never).
    ///
    /// Real nodes take a connection's requests one after the other; here nothing waits for the one before.
    pub fn handle_request(
        &mut self,
        now: Duration,
        connection: ConnectionId,
        request: Request,
    ) -> Vec<Answer> {
        self.expire(now);
        let Some(known) = self.connections.get(&connection) else { return vec![Answer::Disconnect] };
        let (node, silenced) = (known.node, known.silenced);
        if self.is_frozen(node) {
            self.unread.push((connection, request));
            return Vec::new();
        }
        let api = request.body.api();
        self.journal.note(|| Entry { at: now, node, connection, request: request.clone() }, node, api);
        if silenced {
            return Vec::new();
        }
        if !self.may_ask(connection, api) {
            return self.cut(now, connection);
        }
        let origin =
            Origin { connection, node, version: request.version, correlation_id: request.correlation_id };
        let member = member_of(&request.body);
        let effect = self.faults.take(api, node, member.as_deref());
        match &effect {
            Some(Effect::Disconnect) => return self.cut(now, connection),
            Some(Effect::Silence) => {
                self.silence(connection);
                return Vec::new();
            }
            Some(Effect::Garbage(bytes)) => return vec![Answer::Bytes(bytes.clone())],
            Some(Effect::Error(code)) => {
                let body = effects::refuse(&request.body, *code);
                return self.finish(now, origin, body, effect.as_ref());
            }
            _ => {}
        }
        if self.options.share_version == 0 && api.key() >= Api::ShareGroupHeartbeat.key() {
            let body = effects::refuse(&request.body, UNSUPPORTED_VERSION);
            return self.finish(now, origin, body, effect.as_ref());
        }
        match self.dispatch(now, origin, request, effect.as_ref()) {
            Outcome::Done(body) => self.finish(now, origin, body, effect.as_ref()),
            Outcome::Waits => Vec::new(),
            Outcome::Closes => self.cut(now, connection),
        }
    }

    fn dispatch(
        &mut self,
        now: Duration,
        origin: Origin,
        request: Request,
        effect: Option<&Effect>,
    ) -> Outcome {
        match request.body {
            RequestBody::ApiVersions(_) => self.api_versions().into(),
            RequestBody::Metadata(body) => self.metadata(&body, request.version).into(),
            RequestBody::FindCoordinator(body) => self.find_coordinator(now, &body, request.version).into(),
            RequestBody::SaslHandshake(body) => self.sasl_handshake(origin.connection, &body).into(),
            RequestBody::SaslAuthenticate(body) => self.sasl_authenticate(now, origin, &body),
            RequestBody::CreateTopics(body) => self.create_topics(&body).into(),
            RequestBody::ListOffsets(body) => self.list_offsets(origin.node, &body).into(),
            RequestBody::ListGroups(body) => self.list_groups(now, origin.node, &body).into(),
            RequestBody::DeleteGroups(body) => self.delete_groups(now, origin.node, &body).into(),
            RequestBody::DescribeConfigs(body) => self.describe_configurations(origin.node, &body).into(),
            RequestBody::IncrementalAlterConfigs(body) => self.alter_configurations(&body).into(),
            RequestBody::ShareGroupHeartbeat(body) => {
                self.heartbeat(now, origin.node, &body, request.client_id).into()
            }
            RequestBody::ShareGroupDescribe(body) => self.describe(now, origin.node, &body).into(),
            RequestBody::ShareFetch(body) => self.share_fetch(now, origin, &body, effect),
            RequestBody::ShareAcknowledge(body) => self.share_acknowledge(now, origin, &body, effect).into(),
            RequestBody::DescribeShareGroupOffsets(body) => {
                self.describe_offsets(origin.node, &body, request.version).into()
            }
            RequestBody::AlterShareGroupOffsets(body) => self.alter_offsets(origin.node, &body).into(),
            RequestBody::DeleteShareGroupOffsets(body) => self.delete_offsets(origin.node, &body).into(),
        }
    }

    /// What the passing of time brings: fetches that waited, answers that were delayed, connections that were cut.
    pub fn poll_answers(&mut self, now: Duration) -> Vec<(ConnectionId, Answer)> {
        self.expire(now);
        let mut answers = Vec::new();
        let mut due = Vec::new();
        let (connections, nodes) = (&self.connections, &self.nodes);
        self.delayed.retain_mut(|(at, connection, delayed)| {
            let of = connections.get(connection).and_then(|connection| nodes.get(&connection.node));
            if *at > now || of.is_some_and(|node| node.frozen) {
                return true;
            }
            due.extend(delayed.drain(..).map(|answer| (*connection, answer)));
            false
        });
        for (connection, answer) in due {
            if answer == Answer::Disconnect {
                self.disconnect(now, connection);
            }
            answers.push((connection, answer));
        }
        let mut at = 0;
        while at < self.pending.len() {
            if self.is_frozen(self.pending[at].origin.node) {
                at += 1;
                continue;
            }
            let pending = &mut self.pending[at];
            let over = pending.deadline <= now;
            if !std::mem::take(&mut pending.woken) && !over {
                at += 1;
                continue;
            }
            let mut pending = self.pending.remove(at);
            let (origin, effect) = (pending.origin, pending.effect.clone());
            match self.resume(now, &mut pending, over) {
                Some(body) => {
                    let finished = self.finish(now, origin, body.into(), effect.as_ref());
                    answers.extend(finished.into_iter().map(|answer| (origin.connection, answer)));
                }
                None => {
                    self.pending.insert(at, pending);
                    at += 1;
                }
            }
        }
        answers
    }

    /// When [`Cluster::poll_answers`] should be asked next, if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let mut awake = self.pending.iter().filter(|pending| !self.is_frozen(pending.origin.node));
        if awake.clone().any(|pending| pending.woken) {
            return Some(Duration::ZERO);
        }
        let waits = awake.by_ref().map(|pending| pending.deadline);
        let delays = self.delayed.iter().filter(|(_, connection, _)| {
            let of = self.connections.get(connection);
            of.is_none_or(|connection| !self.is_frozen(connection.node))
        });
        let delays = delays.map(|(at, ..)| *at);
        let locks = self.shares.values().filter_map(|share| share.partition.poll_timeout());
        waits.chain(delays).chain(locks).min()
    }

    /// Applies what a fault does to an answer; gives what is to be sent now.
    fn finish(
        &mut self,
        now: Duration,
        origin: Origin,
        mut body: ResponseBody,
        effect: Option<&Effect>,
    ) -> Vec<Answer> {
        if let Some(effect) = effect {
            effects::spoil(&mut body, effect);
        }
        let response = Response { version: origin.version, correlation_id: origin.correlation_id, body };
        let answer = Answer::Response(response);
        match effect {
            Some(Effect::Delay(by)) => {
                self.delayed.push((now + *by, origin.connection, vec![answer]));
                Vec::new()
            }
            Some(Effect::DisconnectAfter) => self.cut(now, origin.connection),
            Some(Effect::SilenceAfter) => {
                self.silence(origin.connection);
                Vec::new()
            }
            Some(Effect::Twice) => vec![answer.clone(), answer],
            _ => vec![answer],
        }
    }

    fn cut(&mut self, now: Duration, connection: ConnectionId) -> Vec<Answer> {
        self.disconnect(now, connection);
        vec![Answer::Disconnect]
    }

    fn silence(&mut self, connection: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.silenced = true;
        }
    }

    /// Lets locks run out, and wakes who waits for what they held.
    fn expire(&mut self, now: Duration) {
        let mut freed = Vec::new();
        for (key, share) in &mut self.shares {
            let options = self.configurations.get(&key.0).unwrap_or(&self.options.group);
            if share.partition.handle_timeout(now, &options.rules()) {
                freed.push(key.clone());
            }
        }
        for (group, topic, partition) in freed {
            self.wake(Some(&group), (Uuid::from_bytes(topic), partition));
        }
    }

    /// Fetches of this partition, by this group or by all, look again.
    fn wake(&mut self, group: Option<&str>, partition: (Uuid, i32)) {
        for pending in &mut self.pending {
            let session =
                self.nodes.get(&pending.origin.node).and_then(|node| node.sessions.get(&pending.key));
            let waits = session.is_some_and(|session| session.partitions.contains(&partition));
            if waits && group.is_none_or(|group| group == pending.key.0) {
                pending.woken = true;
            }
        }
    }

    /// What a member held of these partitions is to be had again. Nobody is woken by it: as measured.
    fn give_back(&mut self, node: i32, group: &str, member: &str, partitions: &[(Uuid, i32)]) {
        let rules = self.group_options(group).rules();
        for (topic, number) in partitions {
            let key = (group.to_owned(), topic.to_bytes(), *number);
            if let Some(share) = self.shares.get_mut(&key).filter(|share| share.node == Some(node)) {
                share.partition.release_member(member, &rules);
            }
        }
    }

    fn group_options(&self, group: &str) -> &GroupOptions {
        self.configurations.get(group).unwrap_or(&self.options.group)
    }

    fn bounds(&self) -> Bounds {
        Bounds { size_max: self.options.group_size_max, initialize_delay: self.options.initialize_delay }
    }

    fn known(&self) -> Known {
        self.topics.iter().map(|(name, topic)| (name.clone(), (topic.id, topic.count()))).collect()
    }

    fn topic(&self, id: Uuid) -> Option<(&String, &Topic)> {
        self.topics.get_key_value(self.names.get(id.as_bytes())?)
    }

    fn access_to(&self, topic: &str) -> Access {
        self.access.get(topic).copied().unwrap_or_default()
    }
}

fn member_of(body: &RequestBody) -> Option<String> {
    match body {
        RequestBody::ShareGroupHeartbeat(body) => Some(body.member_id.to_string()),
        RequestBody::ShareFetch(body) => body.member_id.as_ref().map(ToString::to_string),
        RequestBody::ShareAcknowledge(body) => body.member_id.as_ref().map(ToString::to_string),
        _ => None,
    }
}
