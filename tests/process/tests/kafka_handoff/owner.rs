//! Settling at the host that gave a message out.

use tidegate_share_broker::Options;

use crate::{FIVE, Owner, append, cluster, five_are_settled, settle_in_every_way};

#[tokio::test(flavor = "multi_thread")]
async fn each_verdict_has_its_effect_at_the_broker() {
    let cluster = cluster(Options::quick()).await;
    append(&cluster, &FIVE);
    let owner = Owner::new(&cluster.bootstrap_servers(), "", "");
    let (program, service) = owner.start().await;
    settle_in_every_way(&service, &service).await;
    five_are_settled(&cluster).await;
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    cluster.stop().await;
}
