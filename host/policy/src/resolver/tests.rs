use std::sync::atomic::AtomicU64;

use secrecy::{ExposeSecret as _, SecretString};

use super::*;

/// Answers with a token that counts the questions, as slowly as it is told to.
struct Counting {
    asked: Arc<AtomicU64>,
    generation: Arc<AtomicU64>,
    takes: Duration,
    valid_for: Option<Duration>,
    fails: Arc<AtomicBool>,
    /// Gives another token only then.
    rotates: bool,
}

impl Resolve for Counting {
    fn resolve(&mut self, _: &str, _: Purpose) -> Result<Resolved, ResolveFailure> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let (_held, wait) = std::sync::mpsc::sync_channel::<()>(1);
        let _ = wait.recv_timeout(self.takes);
        if self.fails.load(Ordering::SeqCst) {
            return Err(ResolveFailure { kind: FailureKind::Denied, detail: "the door is shut".to_owned() });
        }
        let token = if self.rotates { format!("token-{asked}") } else { "token".to_owned() };
        Ok(Resolved { secret: Secret::Bearer(SecretString::from(token)), valid_for: self.valid_for })
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }
}

fn counting() -> Counting {
    Counting {
        asked: Arc::default(),
        generation: Arc::default(),
        takes: Duration::from_millis(20),
        valid_for: None,
        fails: Arc::default(),
        rotates: true,
    }
}

fn start(answering: Counting) -> Resolver {
    Resolver::start("vault".into(), Box::new(answering), 1, Clock::start(), Telemetry::default()).unwrap()
}

fn text(secret: &Secret) -> String {
    let hidden = secret.hidden();
    hidden[0].expose_secret().to_owned()
}

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn many_who_wait_ask_once() {
    let answering = counting();
    let asked = Arc::clone(&answering.asked);
    let resolver = start(answering);
    assert!(resolver.current("a:1", Purpose::Consume).is_err(), "it never waits");
    let waiting = (0..50).map(|_| {
        let resolver = resolver.clone();
        tokio::spawn(async move { resolver.ensure("a:1", Purpose::Consume, PATIENCE).await })
    });
    for waiting in waiting.collect::<Vec<_>>() {
        assert_eq!(text(&waiting.await.unwrap().unwrap()), "token-1");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(resolver.status(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_secret_is_renewed_once_for_all() {
    let answering = counting();
    let asked = Arc::clone(&answering.asked);
    let resolver = start(answering);
    let old = resolver.ensure("a:1", Purpose::Consume, PATIENCE).await.unwrap();
    let waiting = (0..50).map(|_| {
        let (resolver, old) = (resolver.clone(), Arc::clone(&old));
        tokio::spawn(async move { resolver.renew("a:1", Purpose::Consume, &old).await })
    });
    for waiting in waiting.collect::<Vec<_>>() {
        assert!(waiting.await.unwrap());
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(text(&resolver.current("a:1", Purpose::Consume).unwrap()), "token-2");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_secret_again_is_none_that_is_worth_a_try() {
    let resolver = start(Counting { rotates: false, ..counting() });
    let old = resolver.ensure("a:1", Purpose::Consume, PATIENCE).await.unwrap();
    assert!(!resolver.renew("a:1", Purpose::Consume, &old).await);
    assert!(!resolver.renew("a:1", Purpose::Consume, &old).await, "at once, without asking");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_renewed_before_they_end() {
    let answering = Counting { valid_for: Some(Duration::from_millis(1_500)), ..counting() };
    let asked = Arc::clone(&answering.asked);
    let resolver = start(answering);
    resolver.ensure("a:1", Purpose::Consume, PATIENCE).await.unwrap();
    while asked.load(Ordering::SeqCst) < 3 {
        assert!(resolver.current("a:1", Purpose::Consume).is_ok(), "never without one");
        time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_told_at_once_and_a_reload_mends_it() {
    let answering = counting();
    answering.fails.store(true, Ordering::SeqCst);
    let (fails, generation) = (Arc::clone(&answering.fails), Arc::clone(&answering.generation));
    let resolver = start(answering);
    let error = resolver.ensure("a:1", Purpose::Consume, PATIENCE).await.unwrap_err().to_string();
    assert!(
        error.contains("`vault`") && error.contains("denied") && error.contains("the door is shut"),
        "{error}"
    );
    assert!(resolver.status().unwrap().contains("a:1"));
    fails.store(false, Ordering::SeqCst);
    generation.store(1, Ordering::SeqCst);
    let waiting = async {
        while resolver.current("a:1", Purpose::Consume).is_err() {
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    time::timeout(Duration::from_secs(10), waiting).await.expect("sooner than a denial waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_impatient_gets_the_reason() {
    let resolver = start(Counting { takes: Duration::from_secs(2), ..counting() });
    let error = resolver.ensure("a:1", Purpose::Consume, Duration::from_millis(50)).await.unwrap_err();
    assert!(error.to_string().contains("has not answered"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_with_its_last_handle() {
    let answering = counting();
    let asked = Arc::clone(&answering.asked);
    let resolver = start(answering);
    let other = resolver.clone();
    drop(resolver);
    other.ensure("a:1", Purpose::Consume, PATIENCE).await.unwrap();
    drop(other);
    let ended = async {
        while Arc::strong_count(&asked) > 1 {
            time::sleep(Duration::from_millis(5)).await;
        }
    };
    time::timeout(Duration::from_secs(10), ended).await.expect("the thread let go of it");
}
