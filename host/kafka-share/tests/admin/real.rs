//! On real brokers: the cases, and what they alone can show.

use std::sync::Arc;

use secrecy::SecretString;
use tidegate_connector::secret::Secret;
use tidegate_kafka_share::admin::{
    Cause, ConfigureError, DeleteGroupError, DescribeError, Expectation, ListError, Operation, ResetError,
    SettingChange, Severity, ShareGroupAdmin,
};
use tidegate_kafka_share::admin::{Position, ResetTarget};
use tidegate_kafka_share::{ClientOptions, FixedSecret, Mechanism, Sasl as ClientSasl, Security};
use tidegate_test_brokers::kafka::{
    Acl, Cluster as Kafka, ClusterOptions, Listener, Mechanism as UserMechanism, Operation as Right,
    Resource as Of, Sasl,
};
use tokio::sync::OnceCell;

use crate::stage::{Cluster, Stage, admin_with, options};

/// One cluster for all tests; its watchdog ends it with the test process.
static KAFKA: OnceCell<Kafka> = OnceCell::const_new();

const USER: &str = "ann";
const PASSWORD: &str = "secret";

async fn kafka() -> &'static Kafka {
    let start = || async {
        let sasl = Sasl::default().user(UserMechanism::Plain, USER, PASSWORD);
        Kafka::start(ClusterOptions { sasl: Some(sasl), authorizer: true, ..ClusterOptions::default() })
            .await
            .unwrap()
    };
    KAFKA.get_or_init(start).await
}

async fn stage() -> Stage {
    let kafka = kafka().await;
    Stage { bootstrap: kafka.bootstrap(Listener::Plaintext), cluster: Cluster::Real(kafka.driver()) }
}

play!(stage().await);

/// An administrator with no rights but those that are granted.
async fn ann() -> ShareGroupAdmin {
    let secret = Secret::Login { username: USER.into(), password: SecretString::from(PASSWORD.to_owned()) };
    let sasl = ClientSasl {
        mechanism: Mechanism::Plain,
        secrets: Arc::new(FixedSecret::new(secret)),
        extensions: Vec::new(),
    };
    let security = Security { sasl: Some(sasl), ..Security::default() };
    let options = ClientOptions { security, ..options() };
    admin_with(&kafka().await.bootstrap(Listener::SaslPlaintext), options)
}

async fn found(admin: &mut ShareGroupAdmin, group: &str, topic: &str) -> Vec<(Severity, String)> {
    let expectation = Expectation { topics: vec![topic.into()], renews_locks: false };
    let findings = admin.diagnose(group, &expectation).await;
    let told = findings.iter().map(|finding| match &finding.cause {
        Cause::Denied(right) => {
            (finding.severity, format!("{} {:?}", right.operation.name(), right.resource))
        }
        cause => (finding.severity, cause.name().to_owned()),
    });
    told.collect()
}

/// What a client lacks is told right by right, until it lacks nothing.
#[tokio::test]
async fn missing_rights_are_named_one_after_the_other() {
    let (group, topic) = ("rights", "rights-topic");
    let stage = stage().await;
    stage.create_topic(topic, 1).await;
    stage.member(group, "rights-one", topic).await.close().await;
    let driver = kafka().await.driver();
    let allow = async |operation, resource, name| {
        driver.allow(&[Acl { user: USER, operation, resource, name }]).await.unwrap();
        // Rights are in force within 300 ms.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    };
    let mut admin = ann().await;
    let blocks = |what: &str| (Severity::Blocks, what.to_owned());
    let note = |what: &str| (Severity::Note, what.to_owned());

    assert!(!admin.list().await.unwrap().iter().any(|listed| &*listed.id == group));
    let error = admin.describe(group).await.unwrap_err();
    assert!(
        matches!(&error, DescribeError::Denied { right, .. } if right.operation == Operation::Describe),
        "{error:?}"
    );
    let all = found(&mut admin, group, topic).await;
    assert!(all.contains(&blocks("Describe Group(\"rights\")")), "{all:?}");
    assert!(all.contains(&note("settings-unseen")), "{all:?}");

    allow(Right::Describe, Of::Group, group).await;
    assert!(admin.list().await.unwrap().iter().any(|listed| &*listed.id == group));
    let all = found(&mut admin, group, topic).await;
    assert!(all.contains(&blocks("Read Group(\"rights\")")), "{all:?}");
    let target = ResetTarget::Position { position: Position::Earliest, topics: vec![topic.into()] };
    let error = admin.plan_reset(group, &target).await.unwrap_err();
    assert!(
        matches!(&error, ResetError::Denied { right, .. } if right.operation == Operation::Describe),
        "{error:?}"
    );

    allow(Right::Describe, Of::Topic, topic).await;
    let plan = admin.plan_reset(group, &target).await.unwrap();
    let error = admin.reset(&plan).await.unwrap_err();
    assert!(
        matches!(&error, ResetError::Denied { right, .. } if right.operation == Operation::Read),
        "{error:?}"
    );
    let error = admin.delete(group).await.unwrap_err();
    assert!(
        matches!(&error, DeleteGroupError::Denied { right, .. } if right.operation == Operation::Delete),
        "{error:?}"
    );
    let changes = [SettingChange { name: "share.auto.offset.reset".into(), value: Some("earliest".into()) }];
    let error = admin.configure(group, &changes).await.unwrap_err();
    assert!(
        matches!(&error, ConfigureError::Denied { right, .. } if right.operation == Operation::AlterConfigs),
        "{error:?}"
    );
    let all = found(&mut admin, group, topic).await;
    assert!(all.contains(&blocks("Read Topic(\"rights-topic\")")), "{all:?}");

    allow(Right::Read, Of::Group, group).await;
    allow(Right::Read, Of::Topic, topic).await;
    allow(Right::DescribeConfigs, Of::Group, group).await;
    let all = found(&mut admin, group, topic).await;
    assert_eq!(all, [note("nobody-there")]);
    admin.reset(&plan).await.unwrap();
}

#[tokio::test]
async fn share_groups_that_are_switched_off_are_found() {
    let options = ClusterOptions { features: vec![("share.version", 0)], ..ClusterOptions::default() };
    let kafka = Kafka::start(options).await.unwrap();
    let mut admin = admin_with(&kafka.bootstrap(Listener::Plaintext), crate::stage::options());
    let findings = found(&mut admin, "g", "t").await;
    assert_eq!(findings, [(Severity::Blocks, "share-version-off".to_owned())]);
    let error = admin.describe("g").await.unwrap_err();
    assert!(error.to_string().contains("the cluster has share groups switched off"), "{error}");
    let listed: Result<_, ListError> = admin.list().await;
    assert_eq!(listed.unwrap(), []);
    kafka.stop().await;
}

#[tokio::test]
async fn a_state_topic_that_cannot_be_made_is_found() {
    let options = ClusterOptions::default().property("share.coordinator.state.topic.replication.factor", "3");
    let kafka = Kafka::start(options).await.unwrap();
    kafka.driver().create_topic("t", 1).await.unwrap();
    let mut admin = admin_with(&kafka.bootstrap(Listener::Plaintext), crate::stage::options());
    let findings = found(&mut admin, "g", "t").await;
    let expected = [(Severity::Blocks, "state-topic-replication"), (Severity::Note, "nobody-there")];
    assert_eq!(findings, expected.map(|(severity, name)| (severity, name.to_owned())));
    kafka.stop().await;
}
