//! Commands that talk to a broker get their keys as a running host does.
#![allow(clippy::expect_used, reason = "in the helpers of a test, a failure is the test's failure")]

use tidegate_process_tests::{Ended, GROUP, Home, admin, run_with_variables, start_guarded_broker};

/// `tidegate check --connect` with this secret key in the environment.
async fn check(home: &Home, secret: &'static str) -> Ended {
    let directory = home.path().to_owned();
    let run = move || {
        let variables = [("READER_KEY", "reader"), ("READER_SECRET", secret)];
        run_with_variables(&directory, &["check", "--connect", "--config", "tidegate.toml"], &variables)
    };
    tokio::task::spawn_blocking(run).await.expect("the end of the command")
}

#[tokio::test(flavor = "multi_thread")]
async fn check_connects_with_the_keys_of_the_resolver() {
    let broker = start_guarded_broker(vec![admin("reader", "right")], [GROUP.to_owned()].into_iter()).await;
    let home = Home::new();
    home.install("env-keys");
    home.write("policies/env-keys.toml", "id = \"READER_KEY\"\nsecret = \"READER_SECRET\"\n");
    let endpoint = broker.address();
    home.configure(
        &endpoint.to_string(),
        "[policies.keys]\ncomponent = \"env-keys.wasm\"\nrules = \"env-keys.toml\"\n\
         limits.start-deadline = \"10s\"\ngrants.env = [\"READER_KEY\", \"READER_SECRET\"]\n",
    );
    let text = std::fs::read_to_string(home.file("tidegate.toml")).expect("the configuration");
    let source = "connector = \"rocketmq-grpc\"\n";
    let named = format!("{source}rocketmq.client.credentials-resolver = \"keys\"\n");
    home.write("tidegate.toml", text.replacen(source, &named, 1));

    let right = check(&home, "right").await;
    assert_eq!(right.code, Some(0), "{right:?}");
    let wrong = check(&home, "wrong").await;
    assert_eq!(wrong.code, Some(3), "{wrong:?}");
    assert!(wrong.stdout.contains("access     failed"), "{wrong:?}");
    let none = check(&home, "").await;
    assert_eq!(none.code, Some(3), "{none:?}");
    assert!(none.stdout.contains("no credentials for"), "{none:?}");
    assert!(!home.file("state").exists(), "a check leaves nothing behind");
    broker.stop().await;
}
