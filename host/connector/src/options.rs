//! The option table machinery: one [`Table`] per connector feeds the configuration, `tidegate options`, and docs.
//!
//! A connector declares each option once, with its key, kind, default and a sentence. [`Table::read`] turns the
//! key-value pairs that a user wrote into typed [`Values`], reporting every mistake at once and naming the nearest
//! known key for an unknown one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::units;

/// One connector's options.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The connector's identifier, such as `rocketmq-grpc`.
    pub connector: &'static str,
    /// What the connector does, in one sentence.
    pub summary: &'static str,
    /// In the order in which they are documented.
    pub options: &'static [OptionSpec],
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// The full key, such as `rocketmq.client.endpoints`.
    pub key: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// Whether it must be given, and what holds when it is not.
    pub default: Default,
    /// Which side of the connector reads it.
    pub side: Side,
    /// Whether the value is a secret: then it may be `env:NAME` or `file:PATH`, and is never shown.
    pub secret: bool,
    /// What it does, in a sentence or two.
    pub summary: &'static str,
}

/// Which side of a connector an option belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// Both.
    Both,
    /// Only sources.
    Source,
    /// Only sinks.
    Sink,
    /// To read a table by: those of neither, which say how to reach the other side. No option is of this side alone.
    Client,
}

/// Whether an option must be given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Default {
    /// It must.
    Required,
    /// It need not, and nothing stands in for it.
    None,
    /// It need not; this text, read like a user's, stands in for it.
    Value(&'static str),
}

/// What an option's value is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number within these bounds.
    Integer {
        /// Least.
        min: i64,
        /// Greatest.
        max: i64,
    },
    /// A duration within these bounds, in milliseconds.
    Duration {
        /// Least.
        min_millis: u64,
        /// Greatest.
        max_millis: u64,
    },
    /// A size in bytes within these bounds.
    Size {
        /// Least.
        min: u64,
        /// Greatest.
        max: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// The name of a policy in the same configuration, and what it is used for.
    PolicyName(PolicyUse),
    /// A file or directory; a relative one counts from the directory of the configuration file.
    Path,
    /// Any number of texts.
    List,
    /// Texts under names that the user chooses.
    Pairs,
}

/// What a policy is used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PolicyUse {
    /// It decides about messages.
    Throttle,
    /// It decides about leases.
    Renewal,
    /// It says whom the host is to a broker.
    Credentials,
    /// It chooses partitions.
    Partitioner,
}

impl PolicyUse {
    /// The word for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throttle => "a throttle policy",
            Self::Renewal => "a renewal policy",
            Self::Credentials => "a credential resolver",
            Self::Partitioner => "a partitioner",
        }
    }
}

/// What a user wrote for one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Raw {
    /// A string.
    Text(String),
    /// A number.
    Integer(i64),
    /// `true` or `false`.
    Bool(bool),
    /// An array of strings.
    List(Vec<String>),
    /// A table of strings.
    Pairs(BTreeMap<String, String>),
    /// Something else that TOML can hold; the text names it, such as `an array`.
    Other(&'static str),
}

/// A typed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text, a choice, a policy name or a path.
    Text(String),
    /// A number.
    Integer(i64),
    /// `true` or `false`.
    Bool(bool),
    /// A duration.
    Duration(Duration),
    /// A size in bytes.
    Size(u64),
    /// Texts.
    List(Vec<String>),
    /// Texts under names.
    Pairs(BTreeMap<String, String>),
}

/// The options of one source or sink, checked and with defaults filled in.
#[derive(Clone, Default, PartialEq)]
pub struct Values {
    values: BTreeMap<&'static str, Value>,
    secrets: Vec<&'static str>,
    /// Parts of values that are secrets from elsewhere, not what the user wrote.
    looked_up: BTreeSet<(&'static str, String)>,
}

/// One mistake in the options.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("unknown key `{key}`{}", nearest.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default())]
    Unknown {
        /// As written.
        key: String,
        /// The nearest known key, if one is near.
        nearest: Option<&'static str>,
    },
    /// The option belongs to the connector's other side.
    #[error("`{key}` is an option of {side}s only")]
    WrongSide {
        /// The key.
        key: &'static str,
        /// The side that it belongs to.
        side: Side,
    },
    /// A required option is absent.
    #[error("`{key}` is required: {summary}")]
    Missing {
        /// The key.
        key: &'static str,
        /// What it does.
        summary: &'static str,
    },
    /// The value does not fit.
    #[error("`{key}` {problem}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// What was expected and what was found.
        problem: String,
    },
}

impl OptionError {
    /// The key at fault.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Unknown { key, .. } => key,
            Self::WrongSide { key, .. } | Self::Missing { key, .. } | Self::Invalid { key, .. } => key,
        }
    }
}

impl Table {
    /// Reads what a user wrote for a source or sink.
    ///
    /// # Errors
    /// Every mistake, in the order of the table, unknown keys first.
    pub fn read(&self, side: Side, raw: &BTreeMap<String, Raw>) -> Result<Values, Vec<OptionError>> {
        let (values, errors) = self.read_valid(side, raw);
        if errors.is_empty() { Ok(values) } else { Err(errors) }
    }

    /// Reads what is valid and reports what is not, for callers that go on to look for further mistakes in what
    /// they got.
    #[must_use]
    pub fn read_valid(&self, side: Side, raw: &BTreeMap<String, Raw>) -> (Values, Vec<OptionError>) {
        let unknown = raw.keys().filter(|key| self.find(side, key).is_none());
        let mut errors: Vec<_> = unknown.map(|key| self.unknown(side, key)).collect();
        let mut values = Values::default();
        for spec in self.on_side(side) {
            let given = raw.get(spec.key).cloned();
            let value = match (given, spec.default) {
                (Some(given), _) => spec.kind.read(&given),
                (None, Default::Value(text)) => spec.kind.read_text(text),
                (None, Default::None) => continue,
                (None, Default::Required) => {
                    errors.push(OptionError::Missing { key: spec.key, summary: spec.summary });
                    continue;
                }
            };
            match value {
                Ok(value) => {
                    values.values.insert(spec.key, value);
                    if spec.secret {
                        values.secrets.push(spec.key);
                    }
                }
                // What was found may be the secret itself, in the wrong place or of the wrong kind.
                Err(_) if spec.secret => {
                    let problem = format!("must be {}", spec.kind);
                    errors.push(OptionError::Invalid { key: spec.key, problem });
                }
                Err(problem) => errors.push(OptionError::Invalid { key: spec.key, problem }),
            }
        }
        (values, errors)
    }

    /// The options that a source or a sink reads.
    pub fn on_side(&self, side: Side) -> impl Iterator<Item = &'static OptionSpec> {
        self.options
            .iter()
            .filter(move |spec| side == Side::Both || spec.side == Side::Both || spec.side == side)
    }

    fn find(&self, side: Side, key: &str) -> Option<&'static OptionSpec> {
        self.on_side(side).find(|spec| spec.key == key)
    }

    fn unknown(&self, side: Side, key: &str) -> OptionError {
        match self.find(Side::Both, key) {
            Some(OptionSpec { key, side, .. }) => OptionError::WrongSide { key, side: *side },
            None => {
                let nearest = nearest(key, self.on_side(side).map(|spec| spec.key));
                OptionError::Unknown { key: key.to_owned(), nearest }
            }
        }
    }
}

/// The candidate nearest to `word`, if one is near enough to be what was meant. What two dotted keys have in common at
/// their beginning counts for nothing, or every key of a connector would be near every other.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this a suggestion confuses more than it helps.
    const SIMILARITY_MIN: f64 = 0.75;
    candidates
        .into_iter()
        .map(|candidate| {
            let (own, other) = without_common_parts(word, candidate);
            (strsim::jaro_winkler(own, other), candidate)
        })
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

fn without_common_parts<'k>(mut one: &'k str, mut other: &'k str) -> (&'k str, &'k str) {
    while let (Some((first, rest)), Some((other_first, other_rest))) =
        (one.split_once('.'), other.split_once('.'))
        && first == other_first
    {
        (one, other) = (rest, other_rest);
    }
    (one, other)
}

impl Kind {
    fn read(self, raw: &Raw) -> Result<Value, String> {
        match (self, raw) {
            (_, Raw::Text(text)) => self.read_text(text),
            (Self::Integer { min, max }, Raw::Integer(n)) if (min..=max).contains(n) => {
                Ok(Value::Integer(*n))
            }
            (Self::Integer { min, max }, Raw::Integer(n)) => Err(format!("must be {min} to {max}, not {n}")),
            (Self::Bool, Raw::Bool(value)) => Ok(Value::Bool(*value)),
            (Self::List, Raw::List(texts)) => Ok(Value::List(texts.clone())),
            (Self::Pairs, Raw::Pairs(pairs)) => Ok(Value::Pairs(pairs.clone())),
            (_, Raw::Integer(n)) => Err(format!("must be {self}, not the number {n}")),
            (_, Raw::Bool(value)) => Err(format!("must be {self}, not {value}")),
            (_, Raw::List(_)) => Err(format!("must be {self}, not an array")),
            (_, Raw::Pairs(_)) => Err(format!("must be {self}, not a table")),
            (_, Raw::Other(what)) => Err(format!("must be {self}, not {what}")),
        }
    }

    /// Texts are read for every kind, since a SQL `WITH` clause has nothing else.
    fn read_text(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Text | Self::PolicyName(_) | Self::Path => Ok(Value::Text(text.to_owned())),
            Self::List | Self::Pairs => Err(format!("must be {self}, not the text `{text}`")),
            Self::Bool => match text {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err(format!("must be {self}, not `{text}`")),
            },
            Self::Integer { .. } => match text.parse() {
                Ok(number) => self.read(&Raw::Integer(number)),
                Err(_) => Err(format!("must be {self}, not `{text}`")),
            },
            Self::Duration { min_millis, max_millis } => {
                let value = units::parse_duration(text).map_err(|e| format!("is not a duration: {e}"))?;
                let (min, max) = (Duration::from_millis(min_millis), Duration::from_millis(max_millis));
                if (min..=max).contains(&value) {
                    Ok(Value::Duration(value))
                } else {
                    Err(format!("must be {self}, not `{text}`"))
                }
            }
            Self::Size { min, max } => {
                let value = units::parse_size(text).map_err(|e| format!("is not a size: {e}"))?;
                if (min..=max).contains(&value) {
                    Ok(Value::Size(value))
                } else {
                    Err(format!("must be {self}, not `{text}`"))
                }
            }
            Self::Choice(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
            Self::Choice(words) => {
                let hint = nearest(text, words.iter().copied())
                    .map(|near| format!(" (did you mean `{near}`?)"))
                    .unwrap_or_default();
                Err(format!("must be {self}, not `{text}`{hint}"))
            }
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "source and sink",
            Self::Source => "source",
            Self::Sink => "sink",
            Self::Client => "settler",
        })
    }
}

/// What a value of this kind is, for errors and references.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::Bool => f.write_str("true or false"),
            Self::Integer { min, max: i64::MAX } => write!(f, "a whole number of at least {min}"),
            Self::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Duration { min_millis, max_millis } => {
                let min = units::format_duration(Duration::from_millis(*min_millis));
                let max = units::format_duration(Duration::from_millis(*max_millis));
                write!(f, "a duration from {min} to {max}")
            }
            Self::Size { min, max } => {
                write!(f, "a size from {} to {}", units::format_size(*min), units::format_size(*max))
            }
            Self::Choice(words) => write!(f, "one of `{}`", words.join("`, `")),
            Self::PolicyName(_) => f.write_str("the name of a policy"),
            Self::Path => f.write_str("a path"),
            Self::List => f.write_str("an array of texts, such as `[\"A\", \"B\"]`"),
            Self::Pairs => f.write_str("a table of texts, such as `{ NAME = \"TEXT\" }`"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "`{text}`"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Duration(duration) => f.write_str(&units::format_duration(*duration)),
            Self::Size(bytes) => f.write_str(&units::format_size(*bytes)),
            Self::List(texts) => write!(f, "{texts:?}"),
            Self::Pairs(pairs) => {
                let shown: Vec<_> = pairs.iter().map(|(name, text)| format!("{name} = {text:?}")).collect();
                write!(f, "{{ {} }}", shown.join(", "))
            }
        }
    }
}

impl Values {
    /// The value of an option, if it was given or has a default.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// The keys that have a value, in alphabetical order.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.values.keys().copied()
    }

    /// The value of an option as it may be shown: a secret is not.
    #[must_use]
    pub fn shown(&self, key: &str) -> Option<String> {
        let value = self.values.get(key)?;
        Some(if self.secrets.contains(&key) { "(secret)".to_owned() } else { value.to_string() })
    }

    /// A text, if it was given or has a default.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A flag; false when it was not given and has no default.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        matches!(self.values.get(key), Some(Value::Bool(true)))
    }

    /// A number, if it was given or has a default.
    #[must_use]
    pub fn integer(&self, key: &str) -> Option<i64> {
        match self.values.get(key)? {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// A duration, if it was given or has a default.
    #[must_use]
    pub fn duration(&self, key: &str) -> Option<Duration> {
        match self.values.get(key)? {
            Value::Duration(duration) => Some(*duration),
            _ => None,
        }
    }

    /// A size in bytes, if it was given or has a default.
    #[must_use]
    pub fn size(&self, key: &str) -> Option<u64> {
        match self.values.get(key)? {
            Value::Size(bytes) => Some(*bytes),
            _ => None,
        }
    }

    /// Texts; none when they were not given.
    #[must_use]
    pub fn list(&self, key: &str) -> &[String] {
        match self.values.get(key) {
            Some(Value::List(texts)) => texts,
            _ => &[],
        }
    }

    /// Texts under names, if they were given.
    #[must_use]
    pub fn pairs(&self, key: &str) -> Option<&BTreeMap<String, String>> {
        match self.values.get(key)? {
            Value::Pairs(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// Replaces a text by what it stands for: a secret once `env:` and `file:` have been looked up, a path once it is
    /// known where it counts from.
    pub fn set_text(&mut self, key: &'static str, text: String) {
        self.values.insert(key, Value::Text(text));
    }

    /// Replaces one of several texts under names by the secret that it stands for.
    pub fn set_part(&mut self, key: &'static str, name: &str, secret: String) {
        if let Some(Value::Pairs(pairs)) = self.values.get_mut(key) {
            pairs.insert(name.to_owned(), secret);
            self.looked_up.insert((key, name.to_owned()));
        }
    }

    /// Whether a text under a name is a secret from elsewhere. Then it means itself: nobody wrote it for us, so that it has
    /// no fields and no references in it, whatever it looks like.
    #[must_use]
    pub fn is_looked_up(&self, key: &str, name: &str) -> bool {
        self.looked_up.iter().any(|(known, part)| *known == key && part == name)
    }

    /// The keys whose values are secrets.
    #[must_use]
    pub fn secret_keys(&self) -> &[&'static str] {
        &self.secrets
    }
}

/// Secrets are not shown.
impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (key, value) in &self.values {
            if self.secrets.contains(key) {
                map.entry(key, &"(secret)");
            } else {
                map.entry(key, value);
            }
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Table = Table {
        connector: "test",
        summary: "For tests.",
        options: &[
            option("test.endpoints", Kind::Text, Default::Required),
            option("test.secret", Kind::Text, Default::None),
            option(
                "test.wait",
                Kind::Duration { min_millis: 10_000, max_millis: 60_000 },
                Default::Value("20s"),
            ),
            option("test.batch", Kind::Integer { min: 1, max: 32 }, Default::Value("32")),
            option("test.kind", Kind::Choice(&["lite", "normal"]), Default::Value("lite")),
        ],
    };

    const fn option(key: &'static str, kind: Kind, default: Default) -> OptionSpec {
        let secret = matches!(key.as_bytes(), b"test.secret");
        OptionSpec { key, kind, default, side: Side::Both, secret, summary: "For tests." }
    }

    fn read(pairs: &[(&str, Raw)]) -> Result<Values, Vec<String>> {
        let raw = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        TABLE.read(Side::Source, &raw).map_err(|errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn defaults_stand_in() {
        let values = read(&[("test.endpoints", Raw::Text("a:1".into()))]).expect("valid");
        assert_eq!(values.text("test.endpoints"), Some("a:1"));
        assert_eq!(values.duration("test.wait"), Some(Duration::from_secs(20)));
        assert_eq!(values.integer("test.batch"), Some(32));
        assert_eq!(values.text("test.secret"), None);
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let errors = read(&[
            ("test.endpoint", Raw::Text("a:1".into())),
            ("test.wait", Raw::Text("9s".into())),
            ("test.batch", Raw::Integer(33)),
            ("test.kind", Raw::Text("lit".into())),
        ])
        .expect_err("invalid");
        assert_eq!(
            errors,
            [
                "unknown key `test.endpoint`, did you mean `test.endpoints`?",
                "`test.endpoints` is required: For tests.",
                "`test.wait` must be a duration from 10s to 1m, not `9s`",
                "`test.batch` must be 1 to 32, not 33",
                "`test.kind` must be one of `lite`, `normal`, not `lit` (did you mean `lite`?)",
            ]
        );
    }

    #[test]
    fn the_nearest_key_is_near_where_it_differs() {
        let keys = ["limits.rules-size", "limits.memory", "source.main-topic"];
        assert_eq!(nearest("limits.retries", keys), None);
        assert_eq!(nearest("limits.memroy", keys), Some("limits.memory"));
        assert_eq!(nearest("sorce.main-topic", keys), Some("source.main-topic"));
        assert_eq!(nearest("main-topic", keys), None);
        assert_eq!(nearest("", keys), None);
    }

    #[test]
    fn a_secret_of_the_wrong_kind_is_not_shown() {
        let errors =
            read(&[("test.endpoints", Raw::Text("a:1".into())), ("test.secret", Raw::Integer(73_313))])
                .expect_err("invalid");
        assert_eq!(errors, ["`test.secret` must be text"]);
    }

    #[test]
    fn secrets_are_not_shown() {
        let values = read(&[
            ("test.endpoints", Raw::Text("a:1".into())),
            ("test.secret", Raw::Text("hunter2".into())),
        ])
        .expect("valid");
        assert!(!format!("{values:?}").contains("hunter2"));
        assert_eq!(values.shown("test.secret").as_deref(), Some("(secret)"));
        assert_eq!(values.shown("test.wait").as_deref(), Some("20s"));
    }
}
