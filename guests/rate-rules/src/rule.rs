//! One rule: which messages it is for, and what becomes of them.

use tidegate_guest::pace::Pace;
use tidegate_guest::{Message, RuleError, Rules};

use tidegate_guest::glob::Glob;

/// A rule.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Name of its buckets in the host: the patterns, so that it keeps them when other rules come and go.
    pub(crate) bucket: String,
    pattern: Pattern,
    pub(crate) action: Action,
}

/// All of them must fit; none fits every message.
#[derive(Debug, Default)]
struct Pattern {
    lite_topic: Option<Glob>,
    key: Option<Glob>,
    tag: Option<Glob>,
    properties: Vec<(String, Glob)>,
}

/// What becomes of a message.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// It passes.
    Deliver,
    /// It never passes.
    Reject(String),
    /// It passes at a rate.
    Pace { pace: Pace, per: Per },
}

/// What shares a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Per {
    /// Each key has its own.
    Key,
    /// All messages of the rule share one.
    Rule,
}

impl Rule {
    pub(crate) fn read(mut rules: Rules) -> Result<Self, RuleError> {
        let mut bucket = String::new();
        let pattern = Pattern::read(&mut rules, &mut bucket)?;
        let action = Action::read(&mut rules)?;
        Ok(Self { bucket, pattern, action })
    }

    pub(crate) fn is_for(&self, message: &Message) -> bool {
        let Pattern { lite_topic, key, tag, properties } = &self.pattern;
        let fits = |glob: &Option<Glob>, text: &dyn Fn() -> Option<String>| match glob {
            Some(glob) => text().is_some_and(|text| glob.matches(&text)),
            None => true,
        };
        fits(lite_topic, &|| message.lite_topic())
            && fits(key, &|| Some(message.key()))
            && fits(tag, &|| message.tag())
            && properties
                .iter()
                .all(|(name, glob)| message.property(name).is_some_and(|text| glob.matches(&text)))
    }
}

impl Pattern {
    fn read(rules: &mut Rules, bucket: &mut String) -> Result<Self, RuleError> {
        let mut glob = |rules: &mut Rules, key: &'static str| {
            let Some(text) = rules.text(key)? else { return Ok(None) };
            let glob = Glob::parse(&text).map_err(|message| rules.error(key, message))?;
            bucket.push_str(&format!("{key}={text};"));
            Ok(Some(glob))
        };
        let lite_topic = glob(rules, "lite-topic")?;
        let key = glob(rules, "key")?;
        let tag = glob(rules, "tag")?;
        let mut properties = Vec::new();
        for (name, text) in rules.texts("property")? {
            let glob =
                Glob::parse(&text).map_err(|message| rules.error(&format!("property.{name}"), message))?;
            bucket.push_str(&format!("property.{name}={text};"));
            properties.push((name, glob));
        }
        Ok(Self { lite_topic, key, tag, properties })
    }
}

impl Action {
    fn read(rules: &mut Rules) -> Result<Self, RuleError> {
        let reject = rules.text("reject")?;
        let deliver = rules.boolean("deliver")?;
        let rate = rules.number("rate", 0.001..=1e9)?;
        let pace = Pacing::read(rules)?;
        rules.finish()?;
        let pace = pace.with(rules, rate)?;
        match (reject, deliver, pace) {
            (Some(reason), None, None) => Ok(Self::Reject(reason)),
            (None, Some(true), None) => Ok(Self::Deliver),
            (None, None, Some(pace)) => Ok(pace),
            (None, Some(false), _) => Err(rules.error("deliver", "must be `true`; leave it out otherwise")),
            _ => Err(rules.error("rate", "a rule has exactly one of `rate`, `reject` and `deliver`")),
        }
    }
}

/// The keys that go with `rate`.
struct Pacing {
    burst: Option<f64>,
    delay: Option<u64>,
    max_delay: Option<u64>,
    jitter: Option<f64>,
    per: Option<String>,
}

impl Pacing {
    fn read(rules: &mut Rules) -> Result<Self, RuleError> {
        Ok(Self {
            burst: rules.number("burst", 1.0..=1e9)?,
            delay: rules.duration("delay")?,
            max_delay: rules.duration("max-delay")?,
            jitter: rules.number("jitter", 0.0..=1.0)?,
            per: rules.text("per")?,
        })
    }

    /// The action of a rule with a rate; `None` for one without, which must not have these keys either.
    fn with(self, rules: &Rules, rate: Option<f64>) -> Result<Option<Action>, RuleError> {
        let Self { burst, delay, max_delay, jitter, per } = self;
        let Some(rate_per_second) = rate else {
            let given = [
                ("burst", burst.is_some()),
                ("delay", delay.is_some()),
                ("max-delay", max_delay.is_some()),
                ("jitter", jitter.is_some()),
                ("per", per.is_some()),
            ];
            return match given.into_iter().find(|(_, given)| *given) {
                Some((key, _)) => Err(rules.error(key, "goes with `rate`, which this rule does not have")),
                None => Ok(None),
            };
        };
        let delay = delay.unwrap_or(DELAY_DEFAULT);
        let max_delay = max_delay.unwrap_or_else(|| delay.max(MAX_DELAY_DEFAULT));
        if max_delay < delay {
            return Err(rules.error("max-delay", format!("must not be below `delay`, which is {delay} ms")));
        }
        let per = match per.as_deref() {
            None | Some("key") => Per::Key,
            Some("rule") => Per::Rule,
            Some(other) => return Err(rules.error("per", format!("must be `key` or `rule`, not `{other}`"))),
        };
        let pace = Pace {
            rate_per_second,
            burst: burst.unwrap_or_else(|| rate_per_second.max(1.0)),
            delay,
            max_delay,
            jitter: jitter.unwrap_or(JITTER_DEFAULT),
        };
        Ok(Some(Action::Pace { pace, per }))
    }
}

/// The shortest deferral, in milliseconds: below it a broker is asked more often than it is worth.
const DELAY_DEFAULT: u64 = 1_000;

/// The longest, in milliseconds.
const MAX_DELAY_DEFAULT: u64 = 60_000;

/// Part of a deferral that is left to chance.
const JITTER_DEFAULT: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rule: &str) -> Result<Rule, String> {
        let mut rules = Rules::parse(&format!(r#"{{"rule": [{rule}]}}"#)).unwrap();
        let rule = rules.tables("rule").unwrap().remove(0);
        Rule::read(rule).map_err(|error| format!("{}: {}", error.key, error.message))
    }

    #[test]
    fn a_rate_has_defaults() {
        let rule = read(r#"{"lite-topic": "t-*", "property": {"tier": "free"}, "rate": 10}"#).unwrap();
        let pace = Pace { rate_per_second: 10.0, burst: 10.0, delay: 1_000, max_delay: 60_000, jitter: 0.1 };
        assert_eq!(rule.action, Action::Pace { pace, per: Per::Key });
        assert_eq!(rule.bucket, "lite-topic=t-*;property.tier=free;");
    }

    #[test]
    fn a_rule_has_exactly_one_action() {
        assert_eq!(read(r#"{"reject": "gone"}"#).unwrap().action, Action::Reject("gone".to_owned()));
        assert_eq!(read(r#"{"deliver": true}"#).unwrap().action, Action::Deliver);
        for rule in [r#"{"tag": "a"}"#, r#"{"rate": 1, "reject": "no"}"#, r#"{"rate": 1, "deliver": true}"#] {
            assert!(read(rule).unwrap_err().contains("exactly one"), "{rule}");
        }
        assert!(read(r#"{"deliver": false}"#).unwrap_err().starts_with("rule[0].deliver: "));
    }

    #[test]
    fn errors_name_the_key() {
        for (rule, expected) in [
            (r#"{"rates": 1}"#, "rule[0].rates: unknown key"),
            (r#"{"rate": 0}"#, "rule[0].rate: must be 0.001 to"),
            (r#"{"lite-topic": "a[", "rate": 1}"#, "rule[0].lite-topic: `a[` has"),
            (r#"{"property": {"x": "["}, "rate": 1}"#, "rule[0].property.x: `[` has"),
            (r#"{"reject": "no", "burst": 1}"#, "rule[0].burst: goes with `rate`"),
            (r#"{"rate": 1, "per": "tenant"}"#, "rule[0].per: must be `key` or `rule`"),
            (r#"{"rate": 1, "delay": "5s", "max-delay": "1s"}"#, "rule[0].max-delay: must not be below"),
        ] {
            let error = read(rule).unwrap_err();
            assert!(error.starts_with(expected), "{rule}: {error}");
        }
    }
}
