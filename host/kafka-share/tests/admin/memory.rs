//! On a cluster in memory: the cases, and what goes wrong on demand.

use tidegate_kafka_share::admin::{
    Cause, DeleteGroupError, DescribeError, Expectation, Finding, Operation, ReachError, Resource, Severity,
};
use tidegate_kafka_share::{BootstrapServers, Connector, Fault as Whose};
use tidegate_share_broker::{Access, Api, Effect, Fault, Options, Service};

use crate::stage::{Cluster, Stage, admin_with, options};

const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
const COORDINATOR_NOT_AVAILABLE: i16 = 15;
const NOT_COORDINATOR: i16 = 16;

async fn stage_of(options: Options) -> Stage {
    let service = Service::start(options).await.unwrap();
    Stage { bootstrap: service.bootstrap_servers(), cluster: Cluster::Memory(service) }
}

async fn stage() -> Stage {
    stage_of(Options { nodes: 3, ..Options::quick() }).await
}

play!(stage().await);

fn service(stage: &Stage) -> &Service {
    match &stage.cluster {
        Cluster::Memory(service) => service,
        Cluster::Real(_) => unreachable!("these tests are of the cluster in memory"),
    }
}

/// A stage with a group that has been there and is empty.
async fn with_a_group(options: Options) -> Stage {
    let stage = stage_of(options).await;
    stage.create_topic("t", 2).await;
    stage.member("g", "m", "t").await.close().await;
    stage
}

async fn causes(stage: &Stage, topics: &[&str]) -> Vec<(Severity, &'static str)> {
    let topics = topics.iter().map(|topic| (*topic).into()).collect();
    let findings = stage.admin().diagnose("g", &Expectation { topics, renews_locks: false }).await;
    findings.iter().map(|finding| (finding.severity, finding.cause.name())).collect()
}

#[tokio::test]
async fn a_coordinator_that_begins_or_has_moved_is_looked_for_again() {
    let stage = with_a_group(Options { nodes: 3, ..Options::quick() }).await;
    let mut admin = stage.admin();
    admin.describe("g").await.unwrap();
    for code in [COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR] {
        service(&stage).with(|cluster, _| {
            cluster.inject(Fault::new(Api::FindCoordinator, Effect::Error(code), 2));
            cluster.inject(Fault::new(Api::ShareGroupDescribe, Effect::Error(code), 2));
        });
        admin.describe("g").await.unwrap();
        assert_eq!(service(&stage).with(|cluster, _| cluster.faults_pending()), 0);
    }
    let next = service(&stage).with(|cluster, _| {
        let next = cluster.coordinator("g") % 3 + 1;
        cluster.move_coordinator("g", next);
        next
    });
    admin.describe("g").await.unwrap();
    let listed = admin.list().await.unwrap();
    assert_eq!(listed[0].coordinator.0, next);
}

#[tokio::test]
async fn connections_that_end_are_made_anew() {
    let stage = with_a_group(Options::quick()).await;
    let mut admin = stage.admin();
    admin.describe("g").await.unwrap();
    service(&stage).with(|cluster, now| {
        for connection in cluster.connections_of(1) {
            cluster.drop_connection(now, connection);
        }
    });
    admin.describe("g").await.unwrap();
    service(&stage).with(|cluster, _| {
        cluster.inject(Fault::new(Api::ShareGroupDescribe, Effect::Disconnect, 2));
    });
    admin.describe("g").await.unwrap();
}

/// The broker deletes, and its answer is lost: the second try finds no group, and that is success.
#[tokio::test]
async fn a_deletion_whose_answer_was_lost_is_done() {
    let stage = with_a_group(Options::quick()).await;
    service(&stage).with(|cluster, _| {
        cluster.inject(Fault::new(Api::DeleteGroups, Effect::DisconnectAfter, 1));
    });
    let mut admin = stage.admin();
    admin.delete("g").await.unwrap();
    let error = admin.delete("g").await.unwrap_err();
    assert!(matches!(error, DeleteGroupError::NotFound { .. }), "{error:?}");
}

#[tokio::test]
async fn what_does_not_end_is_given_up_with_what_was_in_the_way() {
    let stage = with_a_group(Options::quick()).await;
    service(&stage).with(|cluster, _| {
        cluster.inject(Fault::new(Api::ShareGroupDescribe, Effect::Error(NOT_COORDINATOR), u32::MAX));
    });
    let waits = tidegate_kafka_share::admin::AdminOptions {
        timeout: std::time::Duration::from_millis(300),
        ..tidegate_kafka_share::admin::AdminOptions::default()
    };
    let servers = BootstrapServers::parse(&stage.bootstrap).unwrap();
    let connector = Connector::new(options()).unwrap();
    let mut admin = tidegate_kafka_share::admin::ShareGroupAdmin::new(connector, servers, waits, 1);
    let error = admin.describe("g").await.unwrap_err();
    let DescribeError::Reach { reason: reason @ ReachError::Late { .. }, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(reason.to_string().contains("last in the way: NOT_COORDINATOR (16)"), "{reason}");
}

#[tokio::test]
async fn a_group_that_may_not_be_seen_is_told_with_the_right() {
    let stage = with_a_group(Options::quick()).await;
    service(&stage).with(|cluster, _| cluster.set_group_access("g", false));
    let mut admin = stage.admin();
    let error = admin.describe("g").await.unwrap_err();
    let DescribeError::Denied { right, .. } = &error else { panic!("{error:?}") };
    assert_eq!((right.operation, &right.resource), (Operation::Describe, &Resource::Group("g".into())));
    assert_eq!(error.fault(), Whose::Access);
    assert!(admin.list().await.unwrap().is_empty());
    let found = causes(&stage, &["t"]).await;
    assert_eq!(found, [(Severity::Blocks, "denied"), (Severity::Note, "settings-unseen")]);
}

#[tokio::test]
async fn topics_without_rights_or_leaders_are_found() {
    let stage = with_a_group(Options::quick()).await;
    let nobody = (Severity::Note, "nobody-there");
    service(&stage).with(|cluster, _| cluster.set_topic_access("t", Access::Describe));
    assert_eq!(causes(&stage, &["t"]).await, [(Severity::Blocks, "denied"), nobody]);
    service(&stage).with(|cluster, _| {
        cluster.set_topic_access("t", Access::Read);
        cluster.move_leader("t", 1, -1);
    });
    assert_eq!(causes(&stage, &["t"]).await, [(Severity::Warning, "no-leader"), nobody]);
    service(&stage).with(|cluster, _| cluster.move_leader("t", 0, -1));
    assert_eq!(causes(&stage, &["t"]).await, [(Severity::Blocks, "no-leader"), nobody]);
}

#[tokio::test]
async fn clusters_without_share_groups_are_found() {
    let off = stage_of(Options { share_version: 0, ..Options::quick() }).await;
    assert_eq!(causes(&off, &[]).await, [(Severity::Blocks, "share-version-off")]);
    let error = off.admin().describe("g").await.unwrap_err();
    assert!(error.to_string().contains("kafka-features.sh upgrade --feature share.version=1"), "{error}");
    let old = stage_of(Options { share_groups: false, ..Options::quick() }).await;
    let findings = old.admin().diagnose("g", &Expectation::default()).await;
    let [Finding { severity: Severity::Blocks, cause: Cause::TooOld { problem } }] = &findings[..] else {
        panic!("{findings:?}")
    };
    assert!(problem.contains("share groups need Kafka 4.2 or newer"), "{problem}");
}

#[tokio::test]
async fn topics_of_the_clusters_own_that_cannot_be_made_are_found() {
    let with =
        |name: &str| Options { properties: vec![(name.to_owned(), "3".to_owned())], ..Options::quick() };
    let state = stage_of(with("share.coordinator.state.topic.replication.factor")).await;
    state.create_topic("t", 1).await;
    let nobody = (Severity::Note, "nobody-there");
    assert_eq!(causes(&state, &["t"]).await, [(Severity::Blocks, "state-topic-replication"), nobody]);
    let offsets = stage_of(with("offsets.topic.replication.factor")).await;
    assert_eq!(causes(&offsets, &["t"]).await, [(Severity::Blocks, "offsets-topic-replication")]);
    let silent = stage_of(Options {
        describe_nodes: false,
        ..with("share.coordinator.state.topic.replication.factor")
    })
    .await;
    silent.create_topic("t", 1).await;
    assert_eq!(causes(&silent, &["t"]).await, [nobody]);
}

#[tokio::test]
async fn a_group_that_is_full_is_found() {
    let limit = vec![("group.share.max.size".to_owned(), "1".to_owned())];
    let stage = stage_of(Options { properties: limit, group_size_max: 1, ..Options::quick() }).await;
    stage.create_topic("t", 1).await;
    let member = stage.member("g", "m", "t").await;
    assert_eq!(causes(&stage, &["t"]).await, [(Severity::Blocks, "group-full")]);
    member.close().await;
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_told_at_once() {
    let stage = stage().await;
    for node in 1..=3 {
        service(&stage).with(|cluster, now| cluster.stop_node(now, node));
    }
    let mut admin = admin_with(&stage.bootstrap, options());
    let error = admin.list().await.unwrap_err();
    assert_eq!(error.fault(), Whose::Network);
    assert_eq!(causes(&stage, &[]).await, [(Severity::Blocks, "unreachable")]);
}
