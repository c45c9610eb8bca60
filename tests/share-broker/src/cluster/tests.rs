//! One client after the other against a cluster, by the facts measured on Kafka 4.3.1.

mod administration;
mod disturbances;
mod fetching;
mod sessions;

use kafka_wire::{
    ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse,
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, share_acknowledge_request, share_fetch_request,
};
use kafka_wire_core::StrBytes;

use super::*;
use crate::batch::{Batch, Record};

const GROUP: &str = "g";
const TOPIC: &str = "t";

fn ms(at: u64) -> Duration {
    Duration::from_millis(at)
}

/// First and last offset, and a type for all or for each.
type Said<'a> = (i32, i64, i64, &'a [i8]);

/// A fetch, as a Java client sends it unless said otherwise.
#[derive(Clone)]
struct Fetch<'a> {
    member: &'a str,
    epoch: i32,
    partitions: &'a [i32],
    said: &'a [Said<'a>],
    forget: &'a [i32],
    wait: i32,
    min_bytes: i32,
    max_bytes: i32,
    records: i32,
    exact: bool,
    renew: bool,
}

const FETCH: Fetch<'static> = Fetch {
    member: "a",
    epoch: 0,
    partitions: &[0],
    said: &[],
    forget: &[],
    wait: 500,
    min_bytes: 1,
    max_bytes: i32::MAX,
    records: 500,
    exact: true,
    renew: false,
};

struct Bench {
    cluster: Cluster,
    now: Duration,
    topic: Uuid,
}

impl Bench {
    /// A topic of one partition with so many batches of 100 records of 100 bytes, and a group that takes part.
    fn new(options: Options, batches: usize) -> Self {
        let mut cluster = Cluster::new(options);
        let topic = cluster.create_topic(TOPIC, 1);
        let batch = Batch::of((0..100).map(|_| Record::new(vec![b'x'; 100])));
        cluster.append_repeated(TOPIC, 0, &batch, batches).expect("the topic exists");
        let mut bench = Self { cluster, now: Duration::ZERO, topic };
        bench.join("a");
        bench
    }

    fn quick(batches: usize) -> Self {
        Self::new(Options::quick(), batches)
    }

    fn join(&mut self, member: &str) {
        let coordinator = self.cluster.coordinator(GROUP);
        let connection = self.connect(coordinator);
        let told = self.heartbeat(connection, member, 0, Some(&[TOPIC]));
        assert_eq!(told.error_code, 0);
        self.cluster.disconnect(self.now, connection);
    }

    fn connect(&mut self, node: i32) -> ConnectionId {
        self.cluster.connect(node).expect("the node is up")
    }

    fn ask<R>(&mut self, connection: ConnectionId, body: impl Into<RequestBody>) -> R
    where
        R: TryFrom<ResponseBody, Error = ResponseBody>,
    {
        self.try_ask(connection, body).expect("an answer at once")
    }

    fn try_ask<R>(&mut self, connection: ConnectionId, body: impl Into<RequestBody>) -> Option<R>
    where
        R: TryFrom<ResponseBody, Error = ResponseBody>,
    {
        let answers = self.cluster.handle_request(self.now, connection, Request::new(body));
        let body = answers.into_iter().next()?.into_body()?;
        Some(R::try_from(body).expect("an answer of the kind that was asked"))
    }

    fn heartbeat(
        &mut self,
        connection: ConnectionId,
        member: &str,
        epoch: i32,
        topics: Option<&[&str]>,
    ) -> ShareGroupHeartbeatResponse {
        let topics = topics.map(|names| names.iter().map(|name| StrBytes::from(*name)).collect());
        let body = message!(ShareGroupHeartbeatRequest {
            group_id: StrBytes::from(GROUP),
            member_id: StrBytes::from(member),
            member_epoch: epoch,
            subscribed_topic_names: topics,
        });
        self.ask(connection, body)
    }

    fn fetch_body(&self, fetch: &Fetch<'_>) -> ShareFetchRequest {
        let batches = |of: i32| {
            let said = fetch.said.iter().filter(move |(partition, ..)| *partition == of);
            said.map(|(_, first, last, types)| {
                message!(share_fetch_request::AcknowledgementBatch {
                    first_offset: *first,
                    last_offset: *last,
                    acknowledge_types: types.to_vec(),
                })
            })
            .collect()
        };
        let mut named: Vec<i32> = fetch.partitions.to_vec();
        named.extend(fetch.said.iter().map(|(partition, ..)| *partition));
        named.sort_unstable();
        named.dedup();
        let partitions: Vec<share_fetch_request::FetchPartition> = named
            .iter()
            .map(|partition| {
                message!(share_fetch_request::FetchPartition {
                    partition_index: *partition,
                    acknowledgement_batches: batches(*partition),
                })
            })
            .collect();
        let mut body = message!(ShareFetchRequest {
            group_id: Some(StrBytes::from(GROUP)),
            member_id: Some(StrBytes::from(fetch.member)),
            share_session_epoch: fetch.epoch,
            max_wait_ms: fetch.wait,
            min_bytes: fetch.min_bytes,
            max_bytes: fetch.max_bytes,
            max_records: fetch.records,
            batch_size: fetch.records,
            share_acquire_mode: i8::from(fetch.exact),
            is_renew_ack: fetch.renew,
        });
        if !partitions.is_empty() {
            body.topics = vec![message!(share_fetch_request::FetchTopic {
                topic_id: self.topic,
                partitions: partitions,
            })];
        }
        if !fetch.forget.is_empty() {
            body.forgotten_topics_data = vec![message!(share_fetch_request::ForgottenTopic {
                topic_id: self.topic,
                partitions: fetch.forget.to_vec(),
            })];
        }
        body
    }

    fn fetch(&mut self, connection: ConnectionId, fetch: &Fetch<'_>) -> ShareFetchResponse {
        self.try_fetch(connection, fetch).expect("an answer at once")
    }

    fn try_fetch(&mut self, connection: ConnectionId, fetch: &Fetch<'_>) -> Option<ShareFetchResponse> {
        let body = self.fetch_body(fetch);
        self.try_ask(connection, body)
    }

    fn acknowledge(
        &mut self,
        connection: ConnectionId,
        member: &str,
        epoch: i32,
        said: &[Said<'_>],
    ) -> ShareAcknowledgeResponse {
        self.acknowledge_renewing(connection, member, epoch, said, false)
    }

    fn acknowledge_renewing(
        &mut self,
        connection: ConnectionId,
        member: &str,
        epoch: i32,
        said: &[Said<'_>],
        renew: bool,
    ) -> ShareAcknowledgeResponse {
        let partitions: Vec<share_acknowledge_request::AcknowledgePartition> = said
            .iter()
            .map(|(partition, first, last, types)| {
                message!(share_acknowledge_request::AcknowledgePartition {
                    partition_index: *partition,
                    acknowledgement_batches: vec![message!(
                        share_acknowledge_request::AcknowledgementBatch {
                            first_offset: *first,
                            last_offset: *last,
                            acknowledge_types: types.to_vec(),
                        }
                    )],
                })
            })
            .collect();
        let body = message!(ShareAcknowledgeRequest {
            group_id: Some(StrBytes::from(GROUP)),
            member_id: Some(StrBytes::from(member)),
            share_session_epoch: epoch,
            is_renew_ack: renew,
            topics: vec![message!(share_acknowledge_request::AcknowledgeTopic {
                topic_id: self.topic,
                partitions: partitions,
            })],
        });
        self.ask(connection, body)
    }

    /// What comes by itself until `at`, looked for when the cluster says so.
    fn wait_until(&mut self, at: Duration) -> Vec<(Duration, Answer)> {
        let mut answers = Vec::new();
        while let Some(due) = self.cluster.poll_timeout().filter(|due| *due <= at) {
            self.now = self.now.max(due);
            let polled = self.cluster.poll_answers(self.now);
            answers.extend(polled.into_iter().map(|(_, answer)| (self.now, answer)));
        }
        self.now = at;
        answers
    }

    /// The one fetch that is answered by itself until `at`, and when that is.
    fn wait_for_fetch(&mut self, at: Duration) -> (Duration, ShareFetchResponse) {
        let mut answers = self.wait_until(at);
        assert_eq!(answers.len(), 1, "one answer: {answers:?}");
        let (when, answer) = answers.remove(0);
        let body = answer.into_body().expect("a response");
        (when, ShareFetchResponse::try_from(body).expect("of a fetch"))
    }
}

/// Partition, first and last offset, delivery count.
fn acquired(response: &ShareFetchResponse) -> Vec<(i32, i64, i64, i16)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions
        .flat_map(|partition| {
            let ranges = partition.acquired_records.iter();
            ranges.map(|range| {
                (partition.partition_index, range.first_offset, range.last_offset, range.delivery_count)
            })
        })
        .collect()
}

/// Partition, its error and that of its acknowledgements.
fn errors(response: &ShareFetchResponse) -> Vec<(i32, i16, i16)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|partition| (partition.partition_index, partition.error_code, partition.acknowledge_error_code))
        .collect()
}

fn settled(response: &ShareAcknowledgeResponse) -> Vec<(i32, i16)> {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    partitions.map(|partition| (partition.partition_index, partition.error_code)).collect()
}
