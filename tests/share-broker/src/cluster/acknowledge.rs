//! ShareAcknowledge, and the acknowledgements that ride on fetches.

use std::time::Duration;

use kafka_wire::{ShareAcknowledgeRequest, ShareAcknowledgeResponse, share_acknowledge_response};
use kafka_wire_core::{StrBytes, Uuid};

use super::fetch::{CLOSES, OPENS};
use super::membership::millis;
use super::{Cluster, Origin, ordered};
use crate::error_code::{
    GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST, INVALID_SHARE_SESSION_EPOCH, NONE, SHARE_SESSION_NOT_FOUND,
    TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
};
use crate::faults::Effect;
use crate::options::Access;
use crate::session::SessionKey;
use crate::share::{Acknowledgement, Refusal, Rules};
use crate::wire::message;

/// What a request says about one partition's records.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) partition: (Uuid, i32),
    pub(super) batches: Vec<Acknowledgement>,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    pub(super) partition: (Uuid, i32),
    pub(super) code: i16,
    pub(super) text: Option<&'static str>,
}

impl Cluster {
    pub(super) fn share_acknowledge(
        &mut self,
        now: Duration,
        origin: Origin,
        body: &ShareAcknowledgeRequest,
        effect: Option<&Effect>,
    ) -> ShareAcknowledgeResponse {
        let (Some(group), Some(member)) = (&body.group_id, &body.member_id) else {
            return refused(INVALID_REQUEST);
        };
        if self.denied_groups.contains(group.as_str()) {
            return refused(GROUP_AUTHORIZATION_FAILED);
        }
        let key: SessionKey = (group.to_string(), member.to_string());
        let Some(node) = self.nodes.get_mut(&origin.node) else { return refused(SHARE_SESSION_NOT_FOUND) };
        let entered = match body.share_session_epoch {
            OPENS => Err(INVALID_SHARE_SESSION_EPOCH),
            CLOSES => node.sessions.get(&key).map(drop).ok_or(SHARE_SESSION_NOT_FOUND),
            epoch => node.sessions.step(&key, epoch).map(drop),
        };
        if let Err(code) = entered {
            return refused(code);
        }
        let settled = self.settle(now, origin.node, &key, &said(body), body.is_renew_ack, effect);
        if body.share_session_epoch == CLOSES {
            self.leave_session(origin.node, &key);
        }
        let mut response = ShareAcknowledgeResponse::default();
        if origin.version >= 2 {
            response.acquisition_lock_timeout_ms = millis(self.group_options(group).record_lock_duration);
        }
        for settled in settled {
            let data = message!(share_acknowledge_response::PartitionData {
                partition_index: settled.partition.1,
                error_code: settled.code,
                error_message: settled.text.map(StrBytes::from),
            });
            let topic = response.responses.iter_mut().find(|topic| topic.topic_id == settled.partition.0);
            match topic {
                Some(topic) => topic.partitions.push(data),
                None => response.responses.push(message!(
                    share_acknowledge_response::ShareAcknowledgeTopicResponse {
                        topic_id: settled.partition.0,
                        partitions: vec![data],
                    }
                )),
            }
        }
        response
    }

    /// Applies what a member says, partition by partition.
    pub(super) fn settle(
        &mut self,
        now: Duration,
        node: i32,
        key: &SessionKey,
        said: &[Said],
        renewing: bool,
        effect: Option<&Effect>,
    ) -> Vec<Settled> {
        let rules = self.group_options(&key.0).rules();
        let settle = |said: &Said| {
            let done = match spoilt(said.partition.1, effect) {
                Some(code) => Err(Refusal { code, text: "" }),
                None => self.settle_partition((now, &rules), node, key, said, renewing),
            };
            let (code, text) = done.err().map_or((NONE, None), |refusal| (refusal.code, Some(refusal.text)));
            Settled { partition: said.partition, code, text: text.filter(|text| !text.is_empty()) }
        };
        said.iter().map(settle).collect()
    }

    fn settle_partition(
        &mut self,
        (now, rules): (Duration, &Rules),
        node: i32,
        key: &SessionKey,
        said: &Said,
        renewing: bool,
    ) -> Result<(), Refusal> {
        let (id, number) = said.partition;
        let refuse = |code, text| Err(Refusal { code, text });
        let Some((name, topic)) = self.topic(id) else { return refuse(UNKNOWN_TOPIC_ID, "") };
        if self.access_to(name) < Access::Read {
            return refuse(TOPIC_AUTHORIZATION_FAILED, "");
        }
        let led = topic.partition(number).is_some_and(|partition| partition.leader == node);
        let Some(log_start) = topic.partition(number).filter(|_| led).map(|partition| partition.log.start())
        else {
            return refuse(UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.");
        };
        let share = self.shares.get_mut(&ordered(&(key.0.clone(), id, number)));
        let Some(share) = share.filter(|share| share.node == Some(node)) else {
            return refuse(UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.");
        };
        share.partition.trim(log_start);
        share.partition.acknowledge(&key.1, &said.batches, renewing, (now, rules))
    }
}

/// The code that a fault has for this partition's acknowledgements.
fn spoilt(number: i32, effect: Option<&Effect>) -> Option<i16> {
    match effect? {
        Effect::AcknowledgeError(code) => Some(*code),
        Effect::PartitionError { code, partition } if partition.is_none_or(|wanted| wanted == number) => {
            Some(*code)
        }
        _ => None,
    }
}

/// An answer of a code alone.
pub(super) fn refused(code: i16) -> ShareAcknowledgeResponse {
    message!(ShareAcknowledgeResponse { error_code: code })
}

fn said(body: &ShareAcknowledgeRequest) -> Vec<Said> {
    let mut said = Vec::new();
    for topic in &body.topics {
        for partition in
            topic.partitions.iter().filter(|partition| !partition.acknowledgement_batches.is_empty())
        {
            let batches = partition.acknowledgement_batches.iter().map(|batch| Acknowledgement {
                first: batch.first_offset,
                last: batch.last_offset,
                types: batch.acknowledge_types.clone(),
            });
            said.push(Said {
                partition: (topic.topic_id, partition.partition_index),
                batches: batches.collect(),
            });
        }
    }
    said
}
