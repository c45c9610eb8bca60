//! The same on a real Kafka.

use serde_json::json;
use tidegate_process_tests::eventually;
use tidegate_test_brokers::kafka::{Cluster, ClusterOptions, Listener, Record};

use crate::{
    FIVE, GROUP, Owner, TOPIC, command, first, other, receipt, settle_in_every_way, settle_one, start_other,
};

#[tokio::test(flavor = "multi_thread")]
async fn receipts_of_a_real_share_group_are_settled_here_and_there() {
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let driver = cluster.driver();
    driver.create_topic(TOPIC, 1).await.unwrap();
    driver.configure_group(GROUP, &[("share.auto.offset.reset", "earliest")]).await.unwrap();
    let owner = Owner::new(&cluster.bootstrap(Listener::Plaintext), "", "");
    let (program, service) = owner.start().await;
    let home = other(&first(&owner), "");
    let (passing, through) = start_other(&home).await;
    let produce = async |values: &[&str]| {
        let records: Vec<Record> = values.iter().map(|value| Record::new((*value).to_owned())).collect();
        driver.produce(TOPIC, 0, &records).await.unwrap();
    };
    for settling in [&service, &through] {
        produce(&FIVE).await;
        settle_in_every_way(&service, settling).await;
    }
    assert_eq!(driver.describe_group(GROUP).await.unwrap().members.len(), 1, "one host takes part");

    produce(&["command", "kept"]).await;
    let taken = service.pull_all(2).await;
    let ended = command(&home, &["ack", &receipt(&taken, "command")]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    program.kill().await;
    let accept = json!({ "verdict": "accept" });
    let kept = receipt(&taken, "kept");
    assert_eq!(settle_one(&through, &kept, &accept).0, "retry-later");
    let (program, service) = owner.start().await;
    eventually("the owner's word", || {
        let (status, told) = settle_one(&through, &kept, &accept);
        (status != "retry-later").then(|| assert_eq!(status, "unknown", "{told}"))
    })
    .await;
    let again = service.pull_all(1).await;
    assert_eq!(crate::bodies(&again), ["kept"]);
    assert_eq!(through.settle(&again, &accept), ["done"]);
    assert_eq!(passing.terminate().await.code, Some(0));
    assert_eq!(program.terminate().await.code, Some(0));
    // Nothing is left for whoever comes next.
    let offsets = driver.share_offsets(GROUP, TOPIC).await.unwrap();
    assert_eq!(offsets.iter().filter_map(|offset| offset.lag).sum::<i64>(), 0, "{offsets:?}");
    cluster.stop().await;
}
