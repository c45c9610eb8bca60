//! A message and all that a policy may look at, written by hand.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;
use tidegate_model::{BodyState, Instant, Message, MessageId, Standing, Timestamp};
use tidegate_policy::{LeaseFacts, OutgoingRecord, Probe, Question, Trace, World};

use super::answer::Answer;
use super::fields::Fields;
use crate::exit::Failure;

/// Partitions that a partitioner is told of unless the message says otherwise.
const PARTITIONS: u32 = 8;

/// What a policy is asked about.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    source: String,
    message: Arc<Message>,
    key: Arc<str>,
    /// The key as it was written, if it was.
    given_key: Option<String>,
    attempt: u32,
    age: Duration,
    waited: Duration,
    deferred: Duration,
    standing: Standing,
    lease: LeaseFacts,
    partitions: u32,
    /// On the monotonic clock, if it says so.
    pub(super) at: Option<Duration>,
    wall_ms: Option<u64>,
    seed: Option<u64>,
}

impl Facts {
    /// Reads the keys that describe a message; others are left for the caller.
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        let topic = fields.text("topic").unwrap_or_else(|| "topic".to_owned());
        let lite_topic = fields.text("lite-topic");
        let keys = fields.texts("keys").unwrap_or_default();
        let given_key = fields.text("key");
        let key = given_key.as_ref().or(lite_topic.as_ref()).or(keys.first()).unwrap_or(&topic);
        let key = Arc::from(key.as_str());
        let message = Message {
            topic: topic.into(),
            lite_topic: lite_topic.map(Into::into),
            group: fields.text("group").map(Into::into),
            id: MessageId::from(fields.text("id").unwrap_or_else(|| "message-1".to_owned())),
            tag: fields.text("tag").map(Into::into),
            keys: keys.into_iter().map(Into::into).collect(),
            properties: properties(fields),
            body: body(fields),
            body_state: BodyState::Intact,
            born_at: None,
            stored_at: None,
        };
        Self {
            source: fields.text("source").unwrap_or_else(|| "source".to_owned()),
            message: Arc::new(message),
            key,
            given_key,
            attempt: fields.small("attempt").unwrap_or(1),
            age: fields.duration("age").unwrap_or_default(),
            waited: fields.duration("waited").unwrap_or_default(),
            deferred: fields.duration("deferred").unwrap_or_default(),
            standing: standing(fields),
            lease: lease(fields),
            partitions: partitions(fields),
            at: fields.duration("at"),
            wall_ms: fields.whole("wall-ms"),
            seed: fields.whole("seed"),
        }
    }

    /// Reads one message, or an array of them.
    pub(super) fn parse(text: &str) -> Result<Vec<Self>, Failure> {
        let value =
            serde_json::from_str(text).map_err(|error| Failure::config(anyhow!("not JSON: {error}")))?;
        let mut mistakes = Vec::new();
        let values = match value {
            Value::Array(values) => {
                values.into_iter().enumerate().map(|(n, value)| (format!("[{n}]"), value)).collect()
            }
            value => vec![(String::new(), value)],
        };
        let mut all = Vec::new();
        for (path, value) in values {
            if let Some(mut fields) = Fields::new(&path, value, &mut mistakes) {
                all.push(Self::read(&mut fields));
                fields.end();
            }
        }
        if mistakes.is_empty() { Ok(all) } else { Err(Failure::config(anyhow!(mistakes.join("\n")))) }
    }

    /// With something in every field, as a policy in a busy flow would see it.
    pub(super) fn sample() -> Self {
        let text = r#"{"topic": "orders", "lite-topic": "tenant-7", "id": "0A1B2C3D4E5F", "tag": "new", "keys": ["a"],
            "properties": {"tier": "gold"}, "source": "orders", "attempt": 1, "age": "2s", "waited": "20ms",
            "standing": {"key-in-flight": 12, "flow-in-flight": 400, "flow-budget": 1000, "flow-queued": 100,
            "flow-emitted": 32, "active-keys": 20, "key-rate": 20.0, "flow-rate": 400.0, "flow-throughput": 380.0,
            "key-share": 0.05}, "lease": {"remaining": "20s", "length": "60s", "queue-position": 100}}"#;
        let object = serde_json::from_str(text).unwrap_or_default();
        let mut mistakes = Vec::new();
        let mut message = Self::read(&mut Fields::of("", object, &mut mistakes));
        message.message = Arc::new(Message { body: vec![b'x'; 1_024].into(), ..(*message.message).clone() });
        message
    }

    /// Gives each of several messages a name of its own, unless it has one.
    pub(super) fn named(mut self, name: String) -> Self {
        self.message = Arc::new(Message { id: MessageId::from(name), ..(*self.message).clone() });
        self
    }

    /// At that time of the monotonic clock.
    pub(super) const fn at(mut self, at: Duration) -> Self {
        self.at = Some(at);
        self
    }

    pub(super) fn id(&self) -> &str {
        self.message.id.as_str()
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Asks a policy of that world. `None` when such policies are not asked about messages.
    pub(super) fn ask(&self, world: World, probe: &mut Probe, moment: &Moment) -> Option<Trace<Answer>> {
        Some(match world {
            World::ThrottlePolicy => map(probe.decide(&self.question(moment)), Answer::Verdict),
            World::RenewalPolicy => map(probe.renew(&self.question(moment), &self.lease), Answer::Renewal),
            World::PartitionerPolicy => {
                let (now, wall, seed) = self.moment(moment);
                let answer = probe.partition(now, wall, seed, self.record(), self.partitions);
                map(answer, Answer::Partition)
            }
            World::CredentialResolver => return None,
        })
    }

    pub(super) fn question(&self, moment: &Moment) -> Question<'_> {
        let (now, wall, seed) = self.moment(moment);
        Question {
            source: &self.source,
            message: &self.message,
            key: &self.key,
            attempt: self.attempt,
            age: self.age,
            waited: self.waited,
            deferred: self.deferred,
            standing: self.standing,
            wall,
            now,
            seed,
        }
    }

    pub(super) const fn lease(&self) -> &LeaseFacts {
        &self.lease
    }

    pub(super) const fn partitions(&self) -> u32 {
        self.partitions
    }

    pub(super) fn record(&self) -> OutgoingRecord {
        OutgoingRecord {
            topic: Arc::clone(&self.message.topic),
            key: self.given_key.as_ref().map(|key| Bytes::from(key.clone())),
            headers: self.message.properties.clone(),
            value: self.message.body.clone(),
        }
    }

    fn moment(&self, moment: &Moment) -> (Instant, Timestamp, u64) {
        let now = self.at.map_or(moment.now, |at| Instant::ZERO + at);
        let wall = self.wall_ms.map_or(moment.wall, Timestamp::from_unix_millis);
        (now, wall, self.seed.unwrap_or(moment.seed))
    }
}

/// What holds for a message that does not say when it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Instant,
    pub(super) wall: Timestamp,
    pub(super) seed: u64,
}

fn map<T>(trace: Trace<T>, answer: impl FnOnce(T) -> Answer) -> Trace<Answer> {
    Trace {
        answer: trace.answer.map(answer),
        log: trace.log,
        log_dropped: trace.log_dropped,
        took: trace.took,
        fuel: trace.fuel,
        memory_bytes: trace.memory_bytes,
    }
}

fn properties(fields: &mut Fields<'_>) -> Vec<(Box<str>, Bytes)> {
    let Some(value) = fields.take("properties") else { return Vec::new() };
    let pairs: Option<Vec<_>> = value.as_object().and_then(|object| {
        let pairs = object.iter();
        pairs.map(|(name, value)| Some((name.as_str().into(), value.as_str()?.to_owned().into()))).collect()
    });
    pairs.unwrap_or_else(|| {
        fields.complain("properties", "must be an object of strings");
        Vec::new()
    })
}

fn body(fields: &mut Fields<'_>) -> Bytes {
    let text = fields.text("body");
    match (text, fields.text("body-base64")) {
        (None, None) => Bytes::new(),
        (Some(text), None) => text.into(),
        (None, Some(text)) => match STANDARD.decode(text) {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                fields.complain("body-base64", error);
                Bytes::new()
            }
        },
        (Some(_), Some(_)) => {
            fields.complain("body-base64", "the body is given already, as `body`");
            Bytes::new()
        }
    }
}

/// A quiet key in a quiet flow, unless it says otherwise.
fn standing(fields: &mut Fields<'_>) -> Standing {
    let quiet = Standing {
        key_in_flight: 1,
        flow_in_flight: 1,
        flow_budget: 1_000,
        active_keys: 1,
        ..Standing::default()
    };
    let Some(value) = fields.take("standing") else { return quiet };
    let path = fields.place("standing");
    let Some(mut fields) = Fields::new(&path, value, fields.mistakes()) else { return quiet };
    let key_in_flight = fields.small("key-in-flight").unwrap_or(quiet.key_in_flight);
    let standing = Standing {
        key_in_flight,
        flow_in_flight: fields.small("flow-in-flight").unwrap_or(key_in_flight),
        flow_budget: fields.small("flow-budget").unwrap_or(quiet.flow_budget),
        flow_queued: fields.small("flow-queued").unwrap_or_default(),
        flow_emitted: fields.small("flow-emitted").unwrap_or_default(),
        active_keys: fields.small("active-keys").unwrap_or(quiet.active_keys),
        key_rate: fields.number("key-rate").unwrap_or_default(),
        flow_rate: fields.number("flow-rate").unwrap_or_default(),
        flow_throughput: fields.number("flow-throughput").unwrap_or_default(),
        key_share: fields.number("key-share").unwrap_or_default(),
    };
    fields.end();
    standing
}

/// A lease of a minute of which a third is left, unless it says otherwise.
fn lease(fields: &mut Fields<'_>) -> LeaseFacts {
    let usual = LeaseFacts {
        remaining: Duration::from_secs(20),
        length: Duration::from_secs(60),
        renewals: 0,
        emitted: false,
        queue_position: 0,
    };
    let Some(value) = fields.take("lease") else { return usual };
    let path = fields.place("lease");
    let Some(mut fields) = Fields::new(&path, value, fields.mistakes()) else { return usual };
    let lease = LeaseFacts {
        remaining: fields.duration("remaining").unwrap_or(usual.remaining),
        length: fields.duration("length").unwrap_or(usual.length),
        renewals: fields.small("renewals").unwrap_or_default(),
        emitted: fields.boolean("emitted").unwrap_or_default(),
        queue_position: fields.small("queue-position").unwrap_or_default(),
    };
    fields.end();
    lease
}

fn partitions(fields: &mut Fields<'_>) -> u32 {
    let partitions = fields.small("partitions").unwrap_or(PARTITIONS);
    if partitions == 0 {
        fields.complain("partitions", "there is at least one");
    }
    partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_no_mistakes() {
        let sample = Facts::sample();
        assert_eq!(
            (sample.key(), sample.id(), sample.standing.key_in_flight),
            ("tenant-7", "0A1B2C3D4E5F", 12)
        );
        assert_eq!(sample.lease.queue_position, 100);
    }

    #[test]
    fn the_key_is_what_fairness_is_usually_counted_by() {
        let key = |text: &str| Facts::parse(text).unwrap()[0].key().to_owned();
        assert_eq!(key(r#"{"lite-topic": "a", "keys": ["b"], "key": "c"}"#), "c");
        assert_eq!(key(r#"{"lite-topic": "a", "keys": ["b"]}"#), "a");
        assert_eq!(key(r#"{"keys": ["b"]}"#), "b");
        assert_eq!(key(r#"{"topic": "orders"}"#), "orders");
    }

    #[test]
    fn mistakes_are_told_together() {
        let text =
            r#"[{"standng": {}}, {"standing": {"key-rate": "fast"}, "body": "a", "body-base64": "YQ=="}]"#;
        let error = Facts::parse(text).unwrap_err().to_string();
        assert!(error.contains("[0].standng: unknown key, did you mean `standing`?"), "{error}");
        assert!(error.contains("[1].standing.key-rate: must be a number"), "{error}");
        assert!(error.contains("[1].body-base64: "), "{error}");
    }

    #[test]
    fn what_is_not_said_is_quiet() {
        let facts = &Facts::parse("{}").unwrap()[0];
        let moment = Moment { now: Instant::from_millis(5), wall: Timestamp::from_unix_millis(7), seed: 9 };
        let question = facts.question(&moment);
        assert_eq!(
            (question.attempt, question.now, question.wall, question.seed),
            (1, moment.now, moment.wall, 9)
        );
        assert_eq!((question.standing.key_in_flight, question.standing.flow_queued), (1, 0));
        let facts = &Facts::parse(r#"{"at": "2s", "wall-ms": 3, "seed": 4}"#).unwrap()[0];
        let question = facts.question(&moment);
        assert_eq!(
            (question.now, question.wall.as_unix_millis(), question.seed),
            (Instant::from_millis(2_000), 3, 4)
        );
    }
}
