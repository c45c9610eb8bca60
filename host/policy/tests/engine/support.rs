//! A directory of policies, a host over it, and questions.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as StdInstant};

use tempfile::TempDir;
use tidegate_connector::Clock;
use tidegate_model::{BodyState, Instant, Message, MessageId, Standing, Timestamp, Verdict};
use tidegate_policy::{
    Answer, Engine, EngineOptions, Limits, PolicyHost, PolicySpec, PolicyStatus, Question, ThrottleCaller,
};
use tidegate_telemetry::Telemetry;

/// Long enough for a machine with much else to do; nothing waits so long when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Bench {
    pub engine: Engine,
    pub telemetry: Telemetry,
    dir: TempDir,
}

impl Bench {
    pub fn new() -> Self {
        let telemetry = Telemetry::default();
        let options = EngineOptions { instances_max: 20, ..EngineOptions::new(Clock::start(), 7) };
        let engine = Engine::new(options, telemetry.clone()).unwrap();
        Self { engine, telemetry, dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub fn write(&self, file: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(file), bytes).unwrap();
    }

    /// A policy whose component is `NAME.wasm`, with limits that a slow machine does not reach by itself.
    pub fn spec(&self, name: &str) -> PolicySpec {
        PolicySpec {
            limits: Limits {
                deadline: Duration::from_secs(5),
                start_deadline: Duration::from_secs(5),
                compile_timeout: Duration::from_secs(60),
                ..Limits::default()
            },
            ..PolicySpec::new(name, self.path(&format!("{name}.wasm")))
        }
    }

    /// A policy with a component.
    pub fn policy(&self, name: &str, component: impl AsRef<[u8]>) -> PolicySpec {
        self.write(&format!("{name}.wasm"), component);
        self.spec(name)
    }

    pub fn host(&self, specs: Vec<PolicySpec>) -> PolicyHost {
        PolicyHost::start(&self.engine, specs, None).unwrap()
    }
}

pub fn caller(host: &PolicyHost, name: &str) -> ThrottleCaller {
    host.throttle(name).unwrap().caller()
}

pub fn status(host: &PolicyHost, name: &str) -> PolicyStatus {
    host.status().into_iter().find(|status| *status.name == *name).unwrap()
}

/// Waits until the policy's status is as wanted.
pub fn wait_for(host: &PolicyHost, name: &str, wanted: impl Fn(&PolicyStatus) -> bool) -> PolicyStatus {
    let began = StdInstant::now();
    loop {
        let status = status(host, name);
        if wanted(&status) {
            return status;
        }
        assert!(began.elapsed() < PATIENCE, "still {status:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A message of its own.
pub fn message(key: &str) -> Arc<Message> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    message_named(key, &format!("message-{}", COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// A message that may come again.
pub fn message_named(key: &str, id: &str) -> Arc<Message> {
    Arc::new(Message {
        topic: "tenants".into(),
        lite_topic: Some(key.into()),
        group: None,
        id: MessageId::from(id),
        tag: None,
        keys: vec![],
        properties: vec![("panic".into(), "bad quota table".into())],
        body: "hello".into(),
        body_state: BodyState::Intact,
        born_at: None,
        stored_at: None,
    })
}

/// Asks at so many milliseconds of the clock.
pub fn ask_at(caller: &mut ThrottleCaller, key: &str, millis: u64) -> Answer {
    let (message, key) = (message(key), Arc::from(key));
    caller.decide(&Question {
        source: "tenants",
        message: &message,
        key: &key,
        attempt: 1,
        age: Duration::from_secs(3),
        waited: Duration::from_secs(2),
        deferred: Duration::from_secs(1),
        standing: Standing::default(),
        wall: Timestamp::from_unix_millis(1_000_000 + millis),
        now: Instant::from_millis(millis),
        seed: millis,
    })
}

pub fn ask(caller: &mut ThrottleCaller, key: &str) -> Answer {
    ask_at(caller, key, 1)
}

pub fn rejected(reason: &str) -> Answer {
    Answer::Verdict(Verdict::Reject { reason: reason.into() })
}

pub const DELIVERED: Answer = Answer::Verdict(Verdict::Deliver);
