//! What answers and failures do to a member.

use std::collections::BTreeSet;
use std::sync::Arc;

use kafka_wire::{
    FindCoordinatorResponse, MetadataResponse, ShareAcknowledgeResponse, ShareFetchResponse,
    ShareGroupHeartbeatResponse,
};
use tidegate_model::Instant;

use super::{Coordinator, Delivered, DeliveredBatch, Event, Life, Member, OWN, Request, Subject, Target};
use crate::acks::{Acknowledgement, Acquisition};
use crate::membership::Outcome;
use crate::session::{Acquired, Effects, NodeAddress};
use crate::sorted::sort;
use crate::{BrokerId, Complaint, ErrorCode, Subscription, TopicPartition};

/// An answer to a call.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Metadata(MetadataResponse),
    FindCoordinator(FindCoordinatorResponse),
    Heartbeat(ShareGroupHeartbeatResponse),
    Fetch(ShareFetchResponse),
    Acknowledge(ShareAcknowledgeResponse),
}

impl Member {
    /// The answer to a call. `target` is the call's.
    pub(crate) fn handle_answer(&mut self, now: Instant, target: &Target, answer: Answer) {
        self.is_any_busy &= *target != Target::Any;
        match (answer, target) {
            (Answer::Metadata(response), _) => self.handle_metadata(now, &response),
            (Answer::FindCoordinator(response), _) => self.handle_coordinator(now, &response),
            (Answer::Heartbeat(response), _) => {
                let outcome = self.membership.handle_response(now, &response);
                self.handle_membership(now, outcome);
            }
            (Answer::Fetch(response), Target::Session(node)) => {
                self.acquisitions += 1;
                let acquisition = Acquisition(self.acquisitions);
                let Some(session) = self.sessions.get_mut(&node.broker) else { return };
                let effects = session.handle_fetched(now, response, acquisition);
                self.handle_effects(node.broker, effects, true);
            }
            (Answer::Acknowledge(response), Target::Session(node)) => {
                let Some(session) = self.sessions.get_mut(&node.broker) else { return };
                let effects = session.handle_acknowledged(now, &response);
                self.handle_effects(node.broker, effects, false);
            }
            // A shell that mixes up its calls.
            (Answer::Fetch(_) | Answer::Acknowledge(_), Target::Any | Target::Coordinator(_)) => {}
        }
    }

    /// A call had no answer, for a reason in one sentence; its connection is gone.
    pub(crate) fn handle_failure(&mut self, now: Instant, target: &Target, request: &Request, reason: &str) {
        self.is_any_busy &= *target != Target::Any;
        match request {
            Request::Metadata(_) => {
                self.metadata.handle_failure();
                self.raise(Subject::Cluster, reason);
            }
            Request::FindCoordinator(_) => {
                if let Coordinator::Unknown { is_in_flight, .. } = &mut self.coordinator {
                    *is_in_flight = false;
                }
                self.raise(Subject::Cluster, reason);
            }
            Request::Heartbeat(_) => {
                let outcome = self.membership.handle_failure(now);
                if outcome != Outcome::Left {
                    self.raise(Subject::Group, reason);
                }
                self.handle_membership(now, outcome);
            }
            Request::Fetch(_) | Request::Acknowledge(_) => {
                let Target::Session(node) = target else { return };
                let Some(session) = self.sessions.get_mut(&node.broker) else { return };
                let effects = session.handle_lost(now);
                self.tell(effects.told);
                self.metadata.refresh();
                self.raise(Subject::Broker(node.broker), reason);
            }
        }
    }

    /// A connection was opened to a leader, which can renew locks or cannot.
    pub(crate) fn handle_connected(&mut self, broker: BrokerId, has_renewal: bool) {
        self.renewing.insert(broker, has_renewal);
    }

    fn handle_metadata(&mut self, now: Instant, response: &MetadataResponse) {
        let code = ErrorCode(response.error_code);
        let has_changed = self.metadata.handle_response(now, response);
        if !code.is_ok() {
            return self.raise(Subject::Cluster, Complaint::new(code, None).to_string());
        }
        self.clear(&Subject::Cluster);
        let names = self.topics();
        self.handle_topics(now, &names);
        if has_changed {
            self.membership.handle_topics_changed(now);
            for partition in self.membership.assignment() {
                if let Some(session) =
                    self.metadata.leader(*partition).and_then(|(leader, _)| self.sessions.get_mut(&leader))
                {
                    session.resume(*partition);
                }
            }
        }
        self.reassign();
    }

    /// Which topics there are to fetch from, and what the cluster has against them.
    fn handle_topics(&mut self, now: Instant, names: &BTreeSet<Arc<str>>) {
        if let Subscription::Pattern(pattern) = &self.settings.subscription {
            let text = pattern.to_string();
            if self.life == Life::Running && !self.is_resting {
                self.membership.subscribe(now, names.clone());
            }
            if names.is_empty() {
                self.raise(Subject::Group, format!("no topic matches `{text}`"));
            } else {
                self.clear(&Subject::Group);
            }
        }
        // What is meant no more is in nobody's way.
        self.fetch_complaints.retain(|topic| names.contains(topic));
        let complaints: Vec<(Arc<str>, Box<str>)> = self
            .metadata
            .complaints()
            .iter()
            .filter(|(name, _)| names.contains(*name))
            .map(|(name, complaint)| (Arc::clone(name), topic_sentence(complaint)))
            .collect();
        let over = self.troubles.retain_topics(|topic| {
            complaints.iter().any(|(name, _)| &**name == topic) || self.fetch_complaints.contains(topic)
        });
        self.events.extend(over);
        for (name, sentence) in complaints {
            self.raise(Subject::Topic(name), sentence);
        }
    }

    fn handle_coordinator(&mut self, now: Instant, response: &FindCoordinatorResponse) {
        // Somebody answers again; metadata, which may not be due for minutes, need not say so first.
        self.clear(&Subject::Cluster);
        let Coordinator::Unknown { backoff, is_in_flight, .. } = &mut self.coordinator else { return };
        *is_in_flight = false;
        let Some(found) = response.coordinators.first() else { return };
        let complaint = Complaint::new(ErrorCode(found.error_code), found.error_message.as_deref());
        if !complaint.code.is_ok() {
            // A fresh cluster makes the topic for it first; that passes by itself.
            if complaint.code != ErrorCode::COORDINATOR_NOT_AVAILABLE || backoff.failures() > 3 {
                let sentence = group_sentence(&self.settings.group, &complaint);
                self.raise(Subject::Group, sentence);
            }
            return;
        }
        if let Some(node) = NodeAddress::new(found.node_id, &found.host, found.port) {
            let backoff = backoff.clone();
            self.coordinator = Coordinator::Known { node, backoff };
        }
        self.advance_closing(now);
    }

    fn handle_membership(&mut self, now: Instant, outcome: Outcome) {
        match outcome {
            Outcome::Unchanged => self.handle_heartbeat_ok(),
            Outcome::Assigned(partitions) => {
                self.handle_heartbeat_ok();
                self.events.push_back(Event::Assigned { partitions: partitions.len() });
                // Partitions may be gone because their topic is: metadata knows.
                self.metadata.refresh();
                self.reassign();
            }
            Outcome::CoordinatorUnknown => self.lose_coordinator(now),
            Outcome::PutOut(code) => {
                self.events.push_back(Event::PutOut(code));
                self.events.push_back(Event::Assigned { partitions: 0 });
                self.reassign();
            }
            Outcome::Left => {
                self.events.push_back(Event::Left);
                self.advance_closing(now);
            }
            Outcome::Complaint(complaint) => {
                let sentence = group_sentence(&self.settings.group, &complaint);
                self.raise(Subject::Group, sentence);
            }
            Outcome::Refused(complaint) => {
                let sentence = group_sentence(&self.settings.group, &complaint);
                self.raise(Subject::Group, sentence);
                self.events.push_back(Event::Refused(complaint));
                self.reassign();
            }
        }
    }

    fn handle_heartbeat_ok(&mut self) {
        if let Coordinator::Known { backoff, .. } = &mut self.coordinator {
            backoff.reset();
        }
        self.clear(&Subject::Group);
    }

    fn lose_coordinator(&mut self, now: Instant) {
        if let Coordinator::Known { backoff, .. } = &self.coordinator {
            let mut backoff = backoff.clone();
            // At once the first time.
            let not_before = if backoff.failures() == 0 { now } else { now + backoff.next_wait() };
            self.coordinator = Coordinator::Unknown { not_before, backoff, is_in_flight: false };
        }
    }

    fn handle_effects(&mut self, broker: BrokerId, effects: Effects, is_fetch: bool) {
        self.tell(effects.told);
        for acquired in effects.acquired {
            self.deliver(broker, &acquired);
        }
        if effects.duplicates > 0 {
            self.events.push_back(Event::Duplicated { offsets: effects.duplicates });
        }
        for node in effects.nodes {
            self.metadata.handle_node(node);
        }
        let mut is_news = false;
        for hint in effects.leaders {
            is_news |= self.metadata.handle_hint(hint);
        }
        if effects.is_metadata_old {
            self.metadata.refresh();
        }
        self.complain(broker, &effects.complaints, is_fetch);
        if is_news {
            self.reassign();
        }
    }

    /// Tells what a broker has against a fetch, and that it has nothing any more.
    fn complain(
        &mut self,
        broker: BrokerId,
        complaints: &[(Option<TopicPartition>, Complaint)],
        is_fetch: bool,
    ) {
        let whole = complaints.iter().find(|(partition, _)| partition.is_none());
        if let Some((_, complaint)) = whole {
            return self.raise(Subject::Broker(broker), complaint.to_string());
        }
        self.clear(&Subject::Broker(broker));
        let mut complained = BTreeSet::new();
        for (partition, complaint) in complaints {
            // Leaders move, and metadata tells whether there is none.
            let Some(partition) = partition.filter(|_| !complaint.code.is_about_leader()) else { continue };
            let Some(name) = self.metadata.name(partition.topic).cloned() else { continue };
            let sentence = format!("partition {}: {}", partition.partition, topic_sentence(complaint));
            complained.insert(Arc::clone(&name));
            self.fetch_complaints.insert(Arc::clone(&name));
            self.raise(Subject::Topic(name), sentence);
        }
        if !is_fetch {
            return;
        }
        // What this broker serves again.
        let served: BTreeSet<Arc<str>> = self
            .sessions
            .get(&broker)
            .into_iter()
            .flat_map(|session| session.served())
            .filter_map(|partition| self.metadata.name(partition.topic).cloned())
            .collect();
        for name in served.difference(&complained) {
            if self.fetch_complaints.remove(name) {
                self.clear(&Subject::Topic(Arc::clone(name)));
            }
        }
    }

    fn deliver(&mut self, broker: BrokerId, acquired: &Acquired) {
        let sorted = sort(acquired, &mut self.decompressor);
        self.events.extend(sorted.damages.into_iter().map(Event::Damaged));
        let Some(session) = self.sessions.get_mut(&broker) else { return };
        let mut told = Vec::new();
        for (first, last, kind) in sorted.rest {
            let ack = Acknowledgement { first, last, acquisition: acquired.acquisition, kind, token: OWN };
            session.acknowledge(acquired.partition, ack, &mut told);
        }
        self.allowance.records = self.allowance.records.saturating_sub(sorted.records.len());
        if sorted.records.is_empty() {
            return;
        }
        let id = acquired.partition.topic;
        let topic = self.metadata.name(id).cloned().unwrap_or_else(|| id.to_string().into());
        let records = sorted
            .records
            .into_iter()
            .map(|(record, delivery_count)| Delivered { record, delivery_count })
            .collect();
        self.events.push_back(Event::Delivered(DeliveredBatch {
            topic,
            partition: acquired.partition,
            broker,
            acquisition: acquired.acquisition.0,
            expires_at: acquired.expires_at,
            lock: acquired.lock,
            records,
        }));
    }

    fn raise(&mut self, subject: Subject, detail: impl Into<Box<str>>) {
        self.events.extend(self.troubles.raise(subject, detail));
    }

    fn clear(&mut self, subject: &Subject) {
        self.events.extend(self.troubles.clear(subject));
    }
}

fn topic_sentence(complaint: &Complaint) -> Box<str> {
    match complaint.code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => "it does not exist; make it, or correct its name".into(),
        ErrorCode::TOPIC_AUTHORIZATION_FAILED => {
            "no right to read it; allow READ on the topic to this user".into()
        }
        ErrorCode::LEADER_NOT_AVAILABLE => "it has no leader at the moment".into(),
        _ => complaint.to_string().into(),
    }
}

fn group_sentence(group: &str, complaint: &Complaint) -> String {
    let advice = match complaint.code {
        ErrorCode::GROUP_AUTHORIZATION_FAILED => "; allow READ on the group to this user",
        ErrorCode::TOPIC_AUTHORIZATION_FAILED => "; allow READ on its topics to this user",
        ErrorCode::GROUP_MAX_SIZE_REACHED => {
            "; the group is full (`group.share.max.size`), and its members keep others out"
        }
        ErrorCode::UNSUPPORTED_VERSION => {
            "; share groups are switched off in the cluster (feature `share.version`)"
        }
        ErrorCode::COORDINATOR_NOT_AVAILABLE => "; the cluster has no coordinator for it at the moment",
        _ => "",
    };
    format!("share group `{group}`: {complaint}{advice}")
}
