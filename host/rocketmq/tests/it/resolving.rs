//! Keys that somebody else finds out, and that change while calls are under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use secrecy::SecretString;
use tidegate_connector::secret::{AccessKey, Purpose, Secret, SecretError, SecretSource};
use tidegate_model::Verb;
use tidegate_rocketmq::{ClientOptions, Outgoing, Producer, Resolving};

use crate::access::guarded;
use crate::support::Stage;

/// Has right keys after a while, and wrong ones whenever it is told to spoil them: then the broker refuses what is in
/// use, as when keys end before their time.
#[derive(Debug, Default)]
struct Vault {
    present: Mutex<Option<Arc<Secret>>>,
    slow: Duration,
    is_shut: AtomicBool,
    renewals: AtomicUsize,
}

impl Vault {
    fn spoil(&self) {
        *self.present.lock() = Some(keys("wrong"));
    }
}

fn keys(secret_key: &str) -> Arc<Secret> {
    let keys = AccessKey::new("alice", SecretString::from(secret_key.to_owned()));
    Arc::new(Secret::AccessKey(Arc::new(keys)))
}

#[async_trait]
impl SecretSource for Vault {
    fn current(&self, _: &str, _: Purpose) -> Result<Arc<Secret>, SecretError> {
        self.present.lock().clone().ok_or(SecretError { detail: "the vault is shut".into() })
    }

    async fn first(&self, endpoint: &str, purpose: Purpose) -> Result<Arc<Secret>, SecretError> {
        if !self.is_shut.load(Ordering::SeqCst) {
            tokio::time::sleep(self.slow).await;
            self.present.lock().get_or_insert_with(|| keys("right"));
        }
        self.current(endpoint, purpose)
    }

    async fn renew(&self, _: &str, _: Purpose, _: &Arc<Secret>) -> bool {
        self.renewals.fetch_add(1, Ordering::SeqCst);
        if self.is_shut.load(Ordering::SeqCst) {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        *self.present.lock() = Some(keys("right"));
        true
    }
}

fn client(stage: &Stage, vault: &Arc<Vault>) -> ClientOptions {
    let mut options = stage.client();
    options.credentials = Arc::new(Resolving::new(Arc::clone(vault) as Arc<dyn SecretSource>));
    options
}

async fn producer(stage: &Stage, vault: &Arc<Vault>) -> Producer {
    let options = client(stage, vault);
    Producer::connect(options, stage.clock, stage.telemetry.clone(), "p".into()).await.expect("set up")
}

#[tokio::test]
async fn the_first_keys_are_waited_for() {
    let stage = guarded().await;
    let vault = Arc::new(Vault { slow: Duration::from_millis(300), ..Vault::default() });
    let producer = producer(&stage, &vault).await;
    producer.send(Outgoing::lite("T", "tenant-1", "x")).await.expect("sent");
    let mut options = stage.lite();
    options.client = client(&stage, &vault);
    let consumer = stage.consumer(options).await;
    let deliveries = consumer.receive(1).await;
    assert!(consumer.settle(&deliveries, Verb::Accept).await.iter().all(Result::is_ok));
    assert_eq!(vault.renewals.load(Ordering::SeqCst), 0, "nothing was refused");
    consumer.source.close().await;
    producer.close().await;
}

#[tokio::test]
async fn keys_that_end_under_load_fail_no_call() {
    let stage = guarded().await;
    let vault = Arc::new(Vault::default());
    let producer = producer(&stage, &vault).await;
    let mut options = stage.lite();
    options.client = client(&stage, &vault);
    let consumer = stage.consumer(options).await;
    for round in 0..60 {
        // Before sending, before receiving, before settling: each in its turn meets keys that have just ended.
        let spoils = |place: usize| {
            if round % 3 == place {
                vault.spoil();
            }
        };
        spoils(0);
        producer.send(Outgoing::lite("T", "tenant-1", round.to_string())).await.expect("sent");
        spoils(1);
        let deliveries = consumer.receive(1).await;
        spoils(2);
        for result in consumer.settle(&deliveries, Verb::Accept).await {
            result.expect("settled");
        }
    }
    assert!(vault.renewals.load(Ordering::SeqCst) >= 40, "the broker did refuse them");
    consumer.source.close().await;
    producer.close().await;
}

#[tokio::test]
async fn without_keys_no_call_is_made_and_the_status_says_why() {
    let stage = guarded().await;
    let vault = Arc::new(Vault { is_shut: AtomicBool::new(true), ..Vault::default() });
    let mut options = stage.lite();
    options.client = client(&stage, &vault);
    let consumer = stage.consumer(options).await;
    let status = consumer.status(|status| status.contains("the vault is shut")).await;
    assert!(!status.contains("40100"), "the broker was not asked: {status}");
    // Keys that come later are enough.
    vault.is_shut.store(false, Ordering::SeqCst);
    consumer.status_is_clear().await;
    consumer.source.close().await;
}
