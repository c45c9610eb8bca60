//! A directory of policies, a host over it, and questions.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as StdInstant};

use tempfile::TempDir;
use tidegate_connector::Clock;
use tidegate_model::{BodyState, Instant, Message, MessageId, Standing, Timestamp, Verdict};
use tidegate_policy::{
    Answer, Engine, EngineOptions, Limits, LoadError, PolicyHost, PolicySpec, PolicyStatus, Question,
    ReloadError, ReloadReport, ThrottleCaller,
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
        let engine = Engine::new(engine_options(), telemetry.clone()).unwrap();
        Self { engine, telemetry, dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    /// Puts a file in place as a whole: on a busy machine a file written in place is empty for long enough to be read.
    pub fn write(&self, file: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(file);
        let new = path.with_extension("new");
        fs::write(&new, bytes).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// Writes a file where it is, as editors and copies do.
    pub fn write_in_place(&self, file: &str, bytes: impl AsRef<[u8]>) {
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

    /// A host that keeps copies of what ran well.
    pub fn host_keeping_copies(&self, specs: Vec<PolicySpec>) -> PolicyHost {
        PolicyHost::start(&self.engine, specs, Some(self.path("last-good"))).unwrap()
    }

    /// The number of a metric, by the beginning of its line; 0 when it was never counted.
    pub fn metric(&self, line: &str) -> f64 {
        metric(&self.telemetry, line)
    }
}

pub fn engine_options() -> EngineOptions {
    EngineOptions { instances_max: 20, ..EngineOptions::new(Clock::start(), 7) }
}

pub fn metric(telemetry: &Telemetry, line: &str) -> f64 {
    let text = telemetry.encode();
    let line = text.lines().find_map(|found| found.strip_prefix(line));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0.0)
}

/// Asks for a reload or an update until there is room for one more generation: on a busy machine a call that stands
/// still in an old one keeps it.
pub fn when_drained(ask: impl Fn() -> Result<ReloadReport, ReloadError>) -> ReloadReport {
    let began = StdInstant::now();
    loop {
        match ask() {
            Err(ReloadError::Rejected { source, .. }) if matches!(*source, LoadError::Draining { .. }) => {
                assert!(began.elapsed() < PATIENCE, "{source}");
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other.unwrap(),
        }
    }
}

/// A thread that asks a policy again and again.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Traffic {
    /// Every answer must be as wanted.
    pub fn start(host: &PolicyHost, policy: &str, wanted: impl Fn(&Answer) -> bool + Send + 'static) -> Self {
        let mut caller = caller(host, policy);
        let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = std::thread::spawn({
            let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    let answer = ask_at(&mut caller, "tenant", calls.load(Ordering::Relaxed) / 100);
                    assert!(wanted(&answer), "{answer:?}");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let traffic = Self { stop, calls, thread };
        traffic.goes_on();
        traffic
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Waits for some more calls, each of them answered as wanted.
    pub fn goes_on(&self) {
        let (began, before) = (StdInstant::now(), self.calls());
        while self.calls() < before + 20 {
            assert!(!self.thread.is_finished(), "an answer was another");
            assert!(began.elapsed() < PATIENCE, "no calls any more");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it; answers how many calls it made.
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.calls.load(Ordering::Relaxed)
    }
}

/// Memory of this process that is in use now.
pub fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
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

/// Asks about a message of its own at so many milliseconds of the clock.
pub fn ask_at(caller: &mut ThrottleCaller, key: &str, millis: u64) -> Answer {
    ask_about(caller, &message(key), millis)
}

/// Asks about a message, whose lite topic is its key.
pub fn ask_about(caller: &mut ThrottleCaller, message: &Arc<Message>, millis: u64) -> Answer {
    caller.decide(&question(message, &Arc::from(message.lite_topic.as_deref().unwrap()), millis))
}

pub fn question<'a>(message: &'a Arc<Message>, key: &'a Arc<str>, millis: u64) -> Question<'a> {
    Question {
        source: "tenants",
        message,
        key,
        attempt: 1,
        age: Duration::from_secs(3),
        waited: Duration::from_secs(2),
        deferred: Duration::from_secs(1),
        standing: Standing::default(),
        wall: Timestamp::from_unix_millis(1_000_000 + millis),
        now: Instant::from_millis(millis),
        seed: millis,
    }
}

pub fn ask(caller: &mut ThrottleCaller, key: &str) -> Answer {
    ask_at(caller, key, 1)
}

pub fn rejected(reason: &str) -> Answer {
    Answer::Verdict(Verdict::Reject { reason: reason.into() })
}

pub const DELIVERED: Answer = Answer::Verdict(Verdict::Deliver);
