//! Operators look at share groups, find out why nothing arrives, and change them: on a Kafka cluster in memory.
#![allow(clippy::expect_used, reason = "in the helpers of a test, a failure is the test's failure")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_connector::Clock;
use tidegate_kafka_share::{
    BootstrapServers, ClientOptions, Connector, ConsumerSettings, Event, MemberSettings, Observer,
    ShareConsumer, Subscription,
};
use tidegate_process_tests::{Ended, Home, PATIENCE, help_of, run_with_variables};
use tidegate_share_broker::{Options, Record, Service};

const LOGIN: &str =
    "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"ann\" password=\"s3cret\";";

#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {
    fn observe(&self, _: &Event) {}
}

/// A cluster with the topic `orders` of two partitions and five records in the first.
struct Stage {
    home: Home,
    service: Service,
}

impl Stage {
    async fn set(options: Options) -> Self {
        let service = Service::start(options).await.expect("the cluster");
        service.with(|cluster, _| {
            cluster.create_topic("orders", 2);
            cluster.append("orders", 0, (0..5).map(|_| Record::new("x"))).expect("it is there");
        });
        Self { home: Home::new(), service }
    }

    /// Runs `tidegate kafka group` against the cluster.
    async fn run(&self, arguments: &[&str]) -> Ended {
        let servers = self.service.bootstrap_servers();
        self.run_bare(&[arguments, &["--bootstrap-servers", &servers]].concat(), &[]).await
    }

    async fn run_bare(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        let directory = self.home.path().to_owned();
        let own = |text: &&str| (*text).to_owned();
        let arguments: Vec<String> = ["kafka", "group"].iter().chain(arguments).map(own).collect();
        let variables: Vec<(String, String)> =
            variables.iter().map(|(name, value)| (own(name), own(value))).collect();
        let running = tokio::task::spawn_blocking(move || {
            let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
            let variables: Vec<_> = variables.iter().map(|(name, value)| (&**name, &**value)).collect();
            run_with_variables(&directory, &arguments, &variables)
        });
        running.await.expect("the end of the command")
    }

    /// What a command says that succeeds: data and talk.
    async fn say(&self, arguments: &[&str]) -> (String, String) {
        let ended = self.run(arguments).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        (ended.stdout, ended.stderr)
    }

    /// The same as JSON.
    async fn json(&self, arguments: &[&str]) -> Value {
        let (data, talk) = self.say(&[arguments, &["--json"]].concat()).await;
        assert_eq!(talk, "", "{data}");
        serde_json::from_str(&data).expect("JSON")
    }

    /// What is said by a command that fails with this code.
    async fn fail(&self, code: i32, arguments: &[&str]) -> String {
        let ended = self.run(arguments).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        ended.stderr
    }

    /// A member of the group `work`, once it has partitions.
    async fn member(&self) -> ShareConsumer {
        let member = MemberSettings::new("work", "worker-1", Subscription::topics(["orders"]), 1);
        let bootstrap = BootstrapServers::parse(&self.service.bootstrap_servers()).expect("servers");
        let settings = ConsumerSettings {
            request_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(5),
            ..ConsumerSettings::new(member, bootstrap)
        };
        let connector = Connector::new(ClientOptions::default()).expect("no TLS");
        let consumer = ShareConsumer::start(settings, connector, Clock::start(), Arc::new(Deaf));
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while consumer.status().partitions < 2 {
            assert!(tokio::time::Instant::now() < deadline, "{:?}", consumer.status());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        consumer
    }
}

#[test]
fn help_of_every_command() {
    insta::assert_snapshot!(help_of(&[
        &["kafka"],
        &["kafka", "group"],
        &["kafka", "group", "list"],
        &["kafka", "group", "describe"],
        &["kafka", "group", "offsets"],
        &["kafka", "group", "reset"],
        &["kafka", "group", "configure"],
        &["kafka", "group", "delete"],
    ]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_seen_with_its_members_and_settings() {
    let stage = Stage::set(Options::quick()).await;
    let (none, told) = stage.say(&["list"]).await;
    assert_eq!((&*none, &*told), ("", "there is no share group that the client may see\n"));
    let member = stage.member().await;
    let (listed, _) = stage.say(&["list"]).await;
    assert_eq!(listed, "GROUP  STATE   COORDINATOR\nwork   Stable  1\n");
    let (told, talk) = stage.say(&["describe", "work"]).await;
    assert_eq!(
        told,
        "work: Stable, epoch 3, assigned at epoch 3 by simple\n  \
         delivery-count limit  5\n  lock duration         30s\n  lock renewal          on\n  \
         reset policy          earliest\n  isolation level       read_uncommitted\n\
         MEMBER    CLIENT    HOST       RACK  EPOCH  TOPICS  ASSIGNMENT\n\
         worker-1  tidegate  127.0.0.1  -     3      orders  orders:0,1\n"
    );
    assert_eq!(talk, "");
    let told = stage.json(&["describe", "work"]).await;
    assert_eq!(told["members"][0]["assignment"], json!([{ "topic": "orders", "partitions": [0, 1] }]));
    assert_eq!(
        (&told["settings"]["record-lock-duration-ms"], &told["settings"]["renews-locks"], &told["findings"]),
        (&json!(30_000), &json!(true), &Value::Null)
    );
    let refused = stage.fail(1, &["delete", "work"]).await;
    assert_eq!(
        refused,
        "error: share group `work` cannot be deleted while somebody is in it (`worker-1` of client `tidegate` at \
         127.0.0.1); stop its members first\n"
    );
    member.close().await;
    let (_, told) = stage.say(&["delete", "work"]).await;
    assert_eq!(told, "share group `work` is deleted\n");
    let told = stage.fail(2, &["describe", "work"]).await;
    assert_eq!(told, "error: there is no share group `work`\n");
    stage.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_changes_nothing_until_it_is_told_to() {
    let stage = Stage::set(Options::quick()).await;
    let member = stage.member().await;
    let batches = member.receive(5, usize::MAX, Duration::from_secs(10)).await.expect("open");
    assert_eq!(batches.len(), 1);
    let (told, talk) = stage.say(&["reset", "work", "--to", "latest"]).await;
    assert_eq!(told, "TOPIC   PARTITION  FROM  TO\norders  0          0     5\norders  1          0     0\n");
    assert_eq!(
        talk,
        "nothing was changed; --execute does it\nnot while somebody is in the group: `worker-1` of client `tidegate` at \
         127.0.0.1\n"
    );
    let told = stage.fail(1, &["reset", "work", "--to", "latest", "--execute"]).await;
    assert!(told.contains("cannot be set to other offsets while somebody is in it (`worker-1`"), "{told}");
    member.close().await;

    stage.say(&["reset", "work", "--to", "latest"]).await;
    let (before, _) = stage.say(&["offsets", "work"]).await;
    assert_eq!(
        before,
        "TOPIC   PARTITION  START  EPOCH  LAG\norders  0          0      0      5\norders  1          0      0      0\n"
    );
    let told = stage.json(&["reset", "work", "--offset", "orders:0:3", "--execute"]).await;
    let moves = json!([{ "topic": "orders", "partition": 0, "from": 0, "to": 3 }]);
    assert_eq!(told, json!({ "group": "work", "executed": true, "moves": moves, "members": [] }));
    let after = stage.json(&["offsets", "work"]).await;
    assert_eq!(
        after["topics"][0]["partitions"][0],
        json!({ "partition": 0, "start": 3, "leader-epoch": 0, "lag": 2, "error": null })
    );
    let told = stage.fail(2, &["reset", "work", "--offset", "orders:0:6"]).await;
    assert!(told.contains("of `orders:0`: 6 is not between 0, its first offset, and 5, its next"), "{told}");
    let told = stage.fail(2, &["reset", "work"]).await;
    assert!(told.contains("<--to <POSITION>|--offset <TOPIC:PARTITION:OFFSET>>"), "{told}");
    let told = stage.fail(2, &["reset", "work", "--to", "sometimes"]).await;
    assert!(told.contains("must be earliest, latest, a time with its offset"), "{told}");
    let (_, told) = stage.say(&["delete", "work", "--topic", "orders"]).await;
    assert_eq!(told, "share group `work` begins anew in `orders`\n");
    let told = stage.json(&["offsets", "work"]).await;
    assert_eq!(told["topics"], json!([]));
    stage.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_shown_and_changed() {
    let stage = Stage::set(Options::quick()).await;
    let (_, told) = stage
        .say(&["configure", "new", "share.record.lock.duration.ms=20000", "share.auto.offset.reset=latest"])
        .await;
    assert_eq!(told, "share group `new` is configured; it takes half a second to be in force\n");
    let (told, _) = stage.say(&["configure", "new"]).await;
    for line in [
        "share.record.lock.duration.ms     20000             group",
        "share.auto.offset.reset           latest            group",
        "share.delivery.count.limit        5                 default",
    ] {
        assert!(told.lines().any(|told| told == line), "{told}");
    }
    let told = stage.json(&["configure", "new", "--unset", "share.record.lock.duration.ms"]).await;
    assert_eq!(told["changed"], json!([{ "name": "share.record.lock.duration.ms", "value": null }]));
    let told = stage.fail(2, &["configure", "new", "share.record.lock.duration.ms=1"]).await;
    assert_eq!(
        told,
        "error: share group `new` was not configured: share.record.lock.duration.ms must be greater than or equal to \
         group.share.min.record.lock.duration.ms\n"
    );
    stage.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_records_away_is_explained() {
    let stage = Stage::set(Options::quick()).await;
    stage
        .say(&["configure", "work", "share.auto.offset.reset=latest", "share.renew.acknowledge.enable=false"])
        .await;
    let arguments = ["describe", "work", "--explain", "--renews", "--topic", "orders", "--topic", "absent"];
    let ended = stage.run(&arguments).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for line in [
        "blocks   there is no topic `absent`, or the client may not see it; create it, or grant Describe and Read to it",
        "warning  the group begins in topic `orders` with what is written after its first fetch \
         (`share.auto.offset.reset` is latest): 5 records that are there already will not come; set it to earliest before \
         the first fetch, or reset the group's offsets",
        "warning  locks cannot be renewed: the group has `share.renew.acknowledge.enable` off, so each record comes again \
         30s after it was handed out; set it to true, or do without policies that renew or defer",
        "note     nobody is in the group at the moment",
    ] {
        assert!(ended.stdout.lines().any(|told| told == line), "{}", ended.stdout);
    }
    assert!(
        ended.stderr.ends_with("error: one thing keeps records away from share group `work`\n"),
        "{ended:?}"
    );
    stage.say(&["configure", "work", "share.auto.offset.reset=earliest"]).await;
    let member = stage.member().await;
    let (told, _) = stage.say(&["describe", "work", "--explain"]).await;
    assert!(told.ends_with("\nnothing keeps records away\n"), "{told}");
    member.close().await;
    let told = stage.json(&["describe", "work", "--explain", "--topic", "orders"]).await;
    assert_eq!(
        told["findings"],
        json!([{ "severity": "note", "cause": "nobody-there", "text": "nobody is in the group at the moment" }])
    );
    stage.service.stop().await;

    let old = Stage::set(Options { share_groups: false, ..Options::quick() }).await;
    let ended = old.run(&["describe", "work", "--explain"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("share groups need Kafka 4.2 or newer; upgrade the broker"), "{ended:?}");
    let told = old.fail(2, &["list"]).await;
    assert!(told.contains("share groups need Kafka 4.2 or newer"), "{told}");
    old.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_of_a_configured_source_is_asked() {
    let users = vec![("ann".to_owned(), "s3cret".to_owned())];
    let stage = Stage::set(Options { users, ..Options::quick() }).await;
    let servers = stage.service.bootstrap_servers();
    let configuration = format!(
        "[sources.orders]\nconnector = \"kafka-sharegroup\"\nproperties.bootstrap.servers = \"{servers}\"\n\
         share-group-id = \"work\"\ntopic = \"orders\"\nproperties.security.protocol = \"SASL_PLAINTEXT\"\n\
         properties.sasl.mechanism = \"PLAIN\"\nproperties.sasl.jaas.config = \"env:LOGIN\"\n\
         [sinks.out]\nconnector = \"discard\"\n[flows.orders]\nsource = \"orders\"\nsink = \"out\"\n"
    );
    stage.home.write("tidegate.toml", configuration);
    let login = [("LOGIN", LOGIN)];
    let ended = stage.run_bare(&["configure", "work", "--source", "orders"], &login).await;
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    assert!(ended.stdout.starts_with("SETTING "), "{ended:?}");
    let ended = stage.run_bare(&["list", "--source", "other"], &login).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("`tidegate.toml` has no source `other`"), "{ended:?}");
    stage.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn properties_are_those_of_javas_clients_and_secrets_stay_out_of_sight() {
    let users = vec![("ann".to_owned(), "s3cret".to_owned())];
    let stage = Stage::set(Options { users, ..Options::quick() }).await;
    let servers = stage.service.bootstrap_servers();
    let file = format!(
        "# for Kafka's own tools\nbootstrap.servers={servers}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n\
         sasl.jaas.config={LOGIN}\n"
    );
    stage.home.write("client.properties", file);
    let ended = stage.run_bare(&["list", "--properties-file", "client.properties"], &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let plain = [
        "list",
        "--property",
        "security.protocol=SASL_PLAINTEXT",
        "--property",
        "sasl.mechanism=PLAIN",
        "--bootstrap-servers",
        servers.as_str(),
        "--property",
    ];
    let with = |login: &'static str| [&plain[..], &[login]].concat();
    let ended = stage.run_bare(&with("sasl.jaas.config=env:LOGIN"), &[("LOGIN", LOGIN)]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let wrong = LOGIN.replace("s3cret", "wr0ng");
    let ended = stage.run_bare(&with("sasl.jaas.config=env:LOGIN"), &[("LOGIN", wrong.as_str())]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(
        ended.stderr.contains("the broker refused PLAIN") && !ended.stderr.contains("wr0ng"),
        "{ended:?}"
    );
    let ended = stage.run_bare(&with("sasl.jaas.config=s3cret"), &[]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stderr.contains("can be seen by every user") && !ended.stderr.contains("s3cret"),
        "{ended:?}"
    );
    let ended = stage.run_bare(&with("group.id=g"), &[]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("property `group.id` is not one that a connection needs"), "{ended:?}");
    let ended = stage.run_bare(&["list"], &[]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stderr.contains("nothing says where the cluster is: give --bootstrap-servers"),
        "{ended:?}"
    );
    stage.service.with(|cluster, now| cluster.stop_node(now, 1));
    let ended = stage.run_bare(&["list", "--bootstrap-servers", &servers], &[]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("is it right in `--bootstrap-servers`"), "{ended:?}");
    stage.service.stop().await;
}
