//! The login of a source from a credential resolver.

use serde_json::json;
use tidegate_process_tests::{Program, eventually};
use tidegate_share_broker::Options;

use crate::service::Service;
use crate::{Owner, WORKER, append, cluster, tally};

const SASL: &str = "properties.security.protocol = \"SASL_PLAINTEXT\"\nproperties.sasl.mechanism = \"PLAIN\"\n\
                    credentials-resolver = \"keys\"\n\
                    [policies.keys]\ncomponent = \"env-keys.wasm\"\nrules = \"env-keys.toml\"\n\
                    limits.start-deadline = \"10s\"\ngrants.env = [\"READER\", \"READER_PASSWORD\"]";

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_knows_the_login_of_a_share_group() {
    let users = vec![("ann".to_owned(), "s3cret-s3cret".to_owned())];
    let cluster = cluster(Options { users, ..Options::quick() }).await;
    append(&cluster, &["a"]);
    let owner = Owner::new(&cluster.bootstrap_servers(), SASL, "");
    owner.home.install("env-keys");
    owner.home.write("policies/env-keys.toml", "username = \"READER\"\npassword = \"READER_PASSWORD\"\n");
    let start = |password: &str| {
        let variables = [("READER", "ann"), ("READER_PASSWORD", password)];
        Program::start_with_variables(owner.home.path(), &["run"], &variables)
    };
    let refused = start("wr0ng-wr0ng");
    refused.wait_for_log("refused PLAIN").await;
    let ended = refused.terminate().await;
    assert!(!ended.stderr.contains("wr0ng"), "{}", ended.stderr);

    let program = start("s3cret-s3cret");
    let service = Service::of(&program).await.with_token(WORKER);
    program.wait_for_log("flow running").await;
    let taken = service.pull_all(1).await;
    assert_eq!(service.settle(&taken, &json!({ "verdict": "accept" })), ["done"]);
    eventually("it is accepted", || (tally(&cluster).accepted == 1).then_some(())).await;
    let ended = program.terminate().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("s3cret"), "{}", ended.stderr);
    cluster.stop().await;
}
