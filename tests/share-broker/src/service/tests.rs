//! Over sockets, with a client that knows kafka-wire and nothing of this crate's own encoding.

use bytes::{Bytes, BytesMut};
use kafka_wire::{
    MetadataRequest, OutboundFrameLimits, RequestResponsePair, ResponseHeader, ShareAcknowledgeRequest,
    ShareFetchRequest, ShareGroupHeartbeatRequest, encode_request, metadata_request,
    response_header_version_for, share_acknowledge_request, share_fetch_request,
};
use kafka_wire_core::{ApiVersion, DecodeLimits, Decoder, KafkaDecode, StrBytes, Uuid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::batch::Record;
use crate::faults::{Effect, Fault};
use crate::wire::{Api, message};

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(20);

struct Client {
    stream: TcpStream,
    correlation_id: i32,
}

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.expect("somebody listens"), correlation_id: 0 }
    }

    async fn send<R: RequestResponsePair>(&mut self, request: &R, version: i16) {
        self.correlation_id += 1;
        let mut frame = BytesMut::new();
        let client = Some(StrBytes::from("test"));
        let limits = OutboundFrameLimits::new(1 << 20);
        encode_request(&mut frame, self.correlation_id, client, request, ApiVersion::new(version), limits)
            .expect("it can be said");
        self.stream.write_all(&frame).await.expect("the connection lives");
    }

    async fn receive<R: RequestResponsePair>(&mut self, version: i16) -> std::io::Result<R::Response> {
        let read = async {
            let length = self.stream.read_u32().await?;
            let mut frame = vec![0; usize::try_from(length).expect("a length")];
            self.stream.read_exact(&mut frame).await?;
            Ok::<_, std::io::Error>(frame)
        };
        let frame = tokio::time::timeout(PATIENCE, read).await.expect("an answer in time")?;
        let mut decoder = Decoder::new(Bytes::from(frame), DecodeLimits::default()).expect("a frame");
        let version = ApiVersion::new(version);
        let header = ApiVersion::new(response_header_version_for::<R>(version).expect("it is known"));
        let header = ResponseHeader::decode(&mut decoder, header).expect("a header");
        assert_eq!(header.correlation_id, self.correlation_id);
        let body = R::Response::decode(&mut decoder, version).expect("a body");
        decoder.finish().expect("nothing after it");
        Ok(body)
    }

    async fn call<R: RequestResponsePair>(&mut self, request: &R, version: i16) -> R::Response {
        self.send(request, version).await;
        self.receive::<R>(version).await.expect("the connection lives")
    }
}

fn heartbeat(member: &str, epoch: i32, topics: Option<&[&str]>) -> ShareGroupHeartbeatRequest {
    message!(ShareGroupHeartbeatRequest {
        group_id: StrBytes::from("g"),
        member_id: StrBytes::from(member),
        member_epoch: epoch,
        subscribed_topic_names: topics.map(|names| names.iter().map(|name| StrBytes::from(*name)).collect()),
    })
}

fn fetch(member: &str, epoch: i32, topic: Option<Uuid>, wait: i32) -> ShareFetchRequest {
    let topics = topic.into_iter().map(|topic| {
        message!(share_fetch_request::FetchTopic {
            topic_id: topic,
            partitions: vec![message!(share_fetch_request::FetchPartition { partition_index: 0 })],
        })
    });
    message!(ShareFetchRequest {
        group_id: Some(StrBytes::from("g")),
        member_id: Some(StrBytes::from(member)),
        share_session_epoch: epoch,
        max_wait_ms: wait,
        min_bytes: 1,
        max_records: 500,
        batch_size: 500,
        topics: topics.collect(),
    })
}

fn accept(member: &str, epoch: i32, topic: Uuid, last: i64) -> ShareAcknowledgeRequest {
    let batch = message!(share_acknowledge_request::AcknowledgementBatch {
        first_offset: 0,
        last_offset: last,
        acknowledge_types: vec![1],
    });
    let partition =
        message!(share_acknowledge_request::AcknowledgePartition { acknowledgement_batches: vec![batch] });
    message!(ShareAcknowledgeRequest {
        group_id: Some(StrBytes::from("g")),
        member_id: Some(StrBytes::from(member)),
        share_session_epoch: epoch,
        topics: vec![message!(share_acknowledge_request::AcknowledgeTopic {
            topic_id: topic,
            partitions: vec![partition],
        })],
    })
}

async fn start(options: Options) -> (Service, Uuid) {
    let service = Service::start(options).await.expect("there are ports");
    let topic = service.with(|cluster, _| cluster.create_topic("t", 1));
    (service, topic)
}

#[tokio::test]
async fn a_member_joins_fetches_and_accepts() {
    let (service, topic) = start(Options { nodes: 2, ..Options::quick() }).await;
    let mut client = Client::connect(service.addresses()[1]).await;
    let asked = message!(metadata_request::MetadataRequestTopic { name: Some(StrBytes::from("t")) });
    for version in [12, 13] {
        let metadata =
            client.call(&message!(MetadataRequest { topics: Some(vec![asked.clone()]) }), version).await;
        assert_eq!(metadata.topics[0].topic_id, topic);
        let ports: Vec<i32> = metadata.brokers.iter().map(|node| node.port).collect();
        assert_eq!(ports, service.addresses().iter().map(|at| i32::from(at.port())).collect::<Vec<_>>());
    }
    let coordinator = service.with(|cluster, _| cluster.coordinator("g"));
    let mut coordinator = Client::connect(service.address(coordinator).expect("it is a node")).await;
    let told = coordinator.call(&heartbeat("m", 0, Some(&["t"])), 1).await;
    let assigned: Vec<i32> = told
        .assignment
        .iter()
        .flat_map(|all| &all.topic_partitions)
        .flat_map(|one| one.partitions.clone())
        .collect();
    assert_eq!((told.error_code, assigned), (0, vec![0]));

    let mut leader = Client::connect(service.address(1).expect("it is a node")).await;
    leader.send(&fetch("m", 0, Some(topic), 10_000), 2).await;
    let records = (0..10).map(|number| Record::new(format!("value {number}")));
    service.with(|cluster, _| cluster.append("t", 0, records)).expect("the topic exists");
    let fetched = leader.receive::<ShareFetchRequest>(2).await.expect("it waited for records");
    let partition = &fetched.responses[0].partitions[0];
    assert_eq!(
        (partition.acquired_records[0].first_offset, partition.acquired_records[0].last_offset),
        (0, 9)
    );
    assert!(partition.records.windows(7).any(|bytes| bytes == b"value 7"));
    let done = leader.call(&accept("m", 1, topic, 4), 1).await;
    assert_eq!(done.responses[0].partitions[0].error_code, 0);
    drop(leader);

    // The connection's end gives the rest back, and the next fetch has it.
    let mut other = Client::connect(service.address(1).expect("it is a node")).await;
    let mut epoch = 0;
    let again = loop {
        let answer = other.call(&fetch("n", epoch, (epoch == 0).then_some(topic), 50), 2).await;
        epoch += 1;
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
        if let Some(range) = partitions.flat_map(|partition| &partition.acquired_records).next() {
            break (range.first_offset, range.delivery_count);
        }
        assert!(epoch < 400, "never given back");
    };
    assert_eq!(again, (5, 2));
    assert_eq!(service.with(|cluster, _| cluster.tally("g").accepted), 5);
    let first = service.with(|cluster, _| cluster.journal().entries().next().cloned()).expect("it is kept");
    assert_eq!(
        (first.node, first.api(), first.request.client_id.as_deref()),
        (2, Api::Metadata, Some("test"))
    );
    service.stop().await;
}

#[tokio::test]
async fn requests_of_one_connection_wait_for_each_other() {
    let (service, topic) = start(Options::quick()).await;
    let mut client = Client::connect(service.addresses()[0]).await;
    client.call(&heartbeat("m", 0, Some(&["t"])), 1).await;
    client.send(&fetch("m", 0, Some(topic), 300), 2).await;
    let asked = client.correlation_id;
    client.send(&MetadataRequest::default(), 12).await;
    client.correlation_id = asked;
    client.receive::<ShareFetchRequest>(2).await.expect("the fetch is answered first");
    client.correlation_id += 1;
    client.receive::<MetadataRequest>(12).await.expect("and then the other one");
    service.stop().await;
}

#[tokio::test]
async fn nodes_that_stop_close_their_port_and_come_back_to_it() {
    let (service, topic) = start(Options::quick()).await;
    let address = service.addresses()[0];
    let mut client = Client::connect(address).await;
    client.call(&heartbeat("m", 0, Some(&["t"])), 1).await;
    client.send(&fetch("m", 0, Some(topic), 60_000), 2).await;
    while service.with(|cluster, _| cluster.waiting()) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    service.with(|cluster, now| cluster.stop_node(now, 1));
    client.receive::<ShareFetchRequest>(2).await.expect_err("the connection ends");
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("nobody listens any more");
    service.with(|cluster, _| cluster.start_node(1));
    let back = async {
        loop {
            if let Ok(stream) = TcpStream::connect(address).await {
                return Client { stream, correlation_id: 0 };
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let mut client = tokio::time::timeout(PATIENCE, back).await.expect("it comes back");
    assert_eq!(client.call(&heartbeat("m", 3, None), 1).await.error_code, 0);
    service.stop().await;
}

#[tokio::test]
async fn faults_reach_the_socket() {
    let (service, _) = start(Options::quick()).await;
    let address = service.addresses()[0];
    let fault =
        |effect| service.with(|cluster, _| cluster.inject(Fault::new(Api::ShareGroupHeartbeat, effect, 1)));
    fault(Effect::Garbage(Bytes::from_static(b"no frame")));
    let mut client = Client::connect(address).await;
    client.send(&heartbeat("m", 0, Some(&["t"])), 1).await;
    let mut bytes = [0; 8];
    client.stream.read_exact(&mut bytes).await.expect("garbage");
    assert_eq!(&bytes, b"no frame");
    fault(Effect::Disconnect);
    let mut client = Client::connect(address).await;
    client.send(&heartbeat("m", 0, Some(&["t"])), 1).await;
    client.receive::<ShareGroupHeartbeatRequest>(1).await.expect_err("cut");
    fault(Effect::Delay(Duration::from_millis(20)));
    let mut client = Client::connect(address).await;
    assert_eq!(client.call(&heartbeat("m", 0, Some(&["t"])), 1).await.error_code, 0);
    fault(Effect::Twice);
    client.send(&heartbeat("m", 3, None), 1).await;
    for _ in 0..2 {
        client.receive::<ShareGroupHeartbeatRequest>(1).await.expect("twice");
    }
    service.stop().await;
}
