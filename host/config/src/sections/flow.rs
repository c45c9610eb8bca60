//! `[flows.NAME]`: source → throttle policy → sink, with its safety valves.

use std::sync::Arc;
use std::time::Duration;

use tidegate_connector::options::{Default, Kind, OptionSpec, PolicyUse, Side, Table, Values};

use super::read_values;
use crate::document::{Block, Reporter};
use crate::error::Problem;

/// The keys of `[flows.NAME]`.
pub const FLOW_TABLE: Table = Table {
    connector: "flows",
    summary: "A flow: source, throttle policy, sink, and the safety valves that no policy can override.",
    options: &[
        option("source", Kind::Text, Default::Required, "The name of a source; each source feeds one flow."),
        option(
            "throttle",
            Kind::PolicyName(PolicyUse::Throttle),
            Default::None,
            "The policy that decides. Without one all goes on.",
        ),
        option(
            "shadow",
            Kind::PolicyName(PolicyUse::Throttle),
            Default::None,
            "A policy that is asked about the same messages beside the one that decides. Its verdicts are compared and not \
             followed.",
        ),
        option(
            "sink",
            Kind::Text,
            Default::None,
            "The name of the sink that accepted messages go to. A flow has this or `sinks`.",
        ),
        option(
            "sinks",
            Kind::List,
            Default::None,
            "The names of several sinks: each message goes to all of them, and is done when all have taken it. When one has \
             not, it comes again, to all.",
        ),
        option(
            "ack",
            Kind::Choice(&["by-worker", "on-delivery"]),
            Default::Value("by-worker"),
            "When a message that a worker gets through a `handoff` sink is done: when the worker says so, or when it was \
             handed over, and then a worker that dies loses it.",
        ),
        option(
            "dead-letter",
            Kind::Text,
            Default::None,
            "The name of the sink that rejected messages go to. Without it they go to where the broker keeps its dead letters, if \
             it has such a place.",
        ),
        option(
            "dead-letter-burst",
            Kind::Integer { min: 1, max: 1_000_000_000 },
            Default::Value("1000"),
            "More dead letters than this within `dead-letter-window` pause the flow, before a mistake empties the topic into its \
             dead letters. `tidegate flow resume` goes on.",
        ),
        option(
            "dead-letter-window",
            Kind::Duration { min_millis: 1_000, max_millis: 86_400_000 },
            Default::Value("1m"),
            "The time that `dead-letter-burst` is counted in.",
        ),
        option(
            "key",
            Kind::Text,
            Default::Value("lite-topic"),
            "What fairness is counted by: `lite-topic`, `property:NAME` or `record-key`.",
        ),
        option(
            "max-delivery-attempt",
            Kind::Integer { min: 1, max: 1_000_000 },
            Default::Value("16"),
            "Attempts after which a message is not deferred again, but ends as `exhausted` says. Changes live.",
        ),
        option(
            "max-invisible-duration",
            Kind::Duration { min_millis: 1_000, max_millis: 43_200_000 },
            Default::Value("30m"),
            "The longest single deferral. Changes live.",
        ),
        option(
            "max-total-deferral",
            Kind::Duration { min_millis: 1_000, max_millis: 2_592_000_000 },
            Default::Value("24h"),
            "The longest that one message is deferred in all; then it ends as `exhausted` says. Keep it well under the topic's \
             `lite.topic.expiration`, after which the broker drops a lite topic with all that is in it. Changes live.",
        ),
        option(
            "exhausted",
            Kind::Choice(&["accept", "reject"]),
            Default::Value("accept"),
            "What becomes of a message after its last attempt or deferral: delivered like any other, or rejected. Changes \
             live.",
        ),
        option(
            "renew-emitted",
            Kind::Bool,
            Default::Value("false"),
            "Whether leases of messages that the sink is working on are renewed as well, by the source's renewal policy. Without it \
             a message's lease is as it was when the sink got it.",
        ),
        option(
            "queue-messages",
            Kind::Integer { min: 1, max: 1_000_000 },
            Default::None,
            "Messages held at most. Without it: what all the source's workers together can receive at once.",
        ),
        option(
            "queue-bytes",
            Kind::Size { min: 1 << 20, max: 64 << 30 },
            Default::Value("64MiB"),
            "Bytes of messages held at most.",
        ),
    ],
};

/// What a reload applies at once.
pub(crate) const FLOW_LIVE: &[&str] =
    &["max-delivery-attempt", "max-invisible-duration", "max-total-deferral", "exhausted"];

/// Source → throttle policy → sink.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Flow {
    /// The source's name.
    pub source: Arc<str>,
    /// The policy's name.
    pub throttle: Option<Arc<str>>,
    /// The name of the policy that is asked beside it.
    pub shadow: Option<Arc<str>>,
    /// The sinks' names; at least one.
    pub sinks: Vec<Arc<str>>,
    /// When a message that a worker gets is done.
    pub ack: AckMode,
    /// The name of the sink that rejected messages go to.
    pub dead_letter: Option<Arc<str>>,
    /// More dead letters than this within the window pause the flow.
    pub dead_letter_burst: u32,
    /// The time that they are counted in.
    pub dead_letter_window: Duration,
    /// What fairness is counted by.
    pub key: KeyBy,
    /// Host limits that no policy can override.
    pub valves: Valves,
    /// Whether leases of messages that the sink is working on are renewed as well.
    pub renew_emitted: bool,
    /// Messages held at most; `None`: what all the source's workers together can receive at once.
    pub queue_messages: Option<usize>,
    /// Bytes of messages held at most.
    pub queue_bytes: usize,
}

/// When a message that a worker gets is done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AckMode {
    /// When the worker says so.
    #[default]
    ByWorker,
    /// When it was handed over.
    OnDelivery,
}

/// What fairness is counted by.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum KeyBy {
    /// The lite topic.
    LiteTopic,
    /// The value of this property or header.
    Property(Arc<str>),
    /// The record key, or the first of the message's keys.
    RecordKey,
}

/// Host limits that no policy can override. These change live.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Valves {
    /// Attempts after which a message is not deferred again.
    pub max_delivery_attempt: u32,
    /// The longest single deferral.
    pub max_invisible_duration: Duration,
    /// The longest that one message is deferred in all.
    pub max_total_deferral: Duration,
    /// What becomes of a message at the end of its attempts or deferrals.
    pub exhausted: Exhausted,
}

/// What becomes of a message at the end of its attempts or deferrals.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exhausted {
    /// Settled as done.
    Accept,
    /// Rejected.
    Reject,
}

impl Flow {
    /// `None` when a key does not fit, which has been reported. Names are not looked up here.
    pub(crate) fn read(reporter: &mut Reporter<'_>, block: &Block) -> (Values, Option<Self>) {
        let values = read_values(reporter, block, Side::Both, &FLOW_TABLE);
        let key = read_key(reporter, block, &values);
        let sinks = read_sinks(reporter, block, &values);
        let flow = Self::from_values(&values, key, sinks);
        (values, flow)
    }

    fn from_values(values: &Values, key: Option<KeyBy>, sinks: Option<Vec<Arc<str>>>) -> Option<Self> {
        let name = |key| values.text(key).map(Arc::from);
        let count = |key| values.integer(key).and_then(|number| usize::try_from(number).ok());
        Some(Self {
            source: name("source")?,
            throttle: name("throttle"),
            shadow: name("shadow"),
            sinks: sinks?,
            ack: match values.text("ack")? {
                "on-delivery" => AckMode::OnDelivery,
                _ => AckMode::ByWorker,
            },
            dead_letter: name("dead-letter"),
            dead_letter_burst: u32::try_from(values.integer("dead-letter-burst")?).ok()?,
            dead_letter_window: values.duration("dead-letter-window")?,
            key: key?,
            valves: Valves {
                max_delivery_attempt: u32::try_from(values.integer("max-delivery-attempt")?).ok()?,
                max_invisible_duration: values.duration("max-invisible-duration")?,
                max_total_deferral: values.duration("max-total-deferral")?,
                exhausted: match values.text("exhausted")? {
                    "reject" => Exhausted::Reject,
                    _ => Exhausted::Accept,
                },
            },
            renew_emitted: values.flag("renew-emitted"),
            queue_messages: count("queue-messages"),
            queue_bytes: usize::try_from(values.size("queue-bytes")?).ok()?,
        })
    }
}

/// The one sink or the several; never none.
fn read_sinks(reporter: &mut Reporter<'_>, block: &Block, values: &Values) -> Option<Vec<Arc<str>>> {
    /// Each message waits for all of them, so that more would hardly ever be done.
    const SINKS_MAX: usize = 16;
    let several: Vec<Arc<str>> = values.list("sinks").iter().map(|name| Arc::from(name.as_str())).collect();
    let complaint = match (values.text("sink"), block.raw().contains_key("sinks")) {
        (Some(sink), false) => return Some(vec![sink.into()]),
        (Some(_), true) => "is given beside `sink`: a flow has one of them",
        (None, false) => {
            // A `sink` that is there and wrong has been reported.
            if !block.raw().contains_key("sink") {
                reporter.at_key(block, "sink", Problem::Missing { summary: "Where accepted messages go." });
            }
            return None;
        }
        (None, true) if several.is_empty() => "names no sink",
        (None, true) if several.len() > SINKS_MAX => "names more than 16 sinks",
        (None, true) if has_twice(&several) => "names a sink twice",
        (None, true) => return Some(several),
    };
    reporter.at_value(block, "sinks", Problem::Value { detail: complaint.to_owned() });
    None
}

fn has_twice(names: &[Arc<str>]) -> bool {
    names.iter().enumerate().any(|(at, name)| names[..at].contains(name))
}

fn read_key(reporter: &mut Reporter<'_>, block: &Block, values: &Values) -> Option<KeyBy> {
    let text = values.text("key")?;
    match (text, text.strip_prefix("property:")) {
        ("lite-topic", _) => Some(KeyBy::LiteTopic),
        ("record-key", _) => Some(KeyBy::RecordKey),
        (_, Some(name)) if !name.is_empty() => Some(KeyBy::Property(name.into())),
        _ => {
            let detail = format!(
                "must be `lite-topic`, `record-key` or `property:NAME` with the name of a property, not `{text}`"
            );
            reporter.at_value(block, "key", Problem::Value { detail });
            None
        }
    }
}

const fn option(key: &'static str, kind: Kind, default: Default, summary: &'static str) -> OptionSpec {
    OptionSpec { key, kind, default, side: Side::Both, secret: false, summary }
}
