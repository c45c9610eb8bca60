//! Test files, read.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use serde_json::{Map, Value};
use tidegate_policy::RuleError;

use super::super::facts::Facts;
use super::super::fields::Fields;
use super::super::subject::read_text;
use super::discover::{Found, component_of, directory_of};
use super::expectation::Expectation;
use crate::exit::Failure;

/// Times that one message may be asked; a slip of the hand must not run for hours.
const TIMES_MAX: u32 = 1_000_000;

/// A test file.
#[derive(Debug)]
pub(super) struct TestFile {
    pub(super) path: PathBuf,
    pub(super) component: PathBuf,
    /// Rules of cases that have none.
    pub(super) rules: Option<RulesSource>,
    pub(super) cases: Vec<Case>,
}

/// Where rules stand.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum RulesSource {
    File(PathBuf),
    /// In the test file itself, as TOML.
    Table(String),
}

#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) rules: Option<RulesSource>,
    pub(super) rules_error: Option<RulesError>,
    pub(super) messages: Vec<Asked>,
}

/// That the rules are to be refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct RulesError {
    key: String,
    message: Option<String>,
}

/// A message and what is expected of its answer.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) facts: Facts,
    pub(super) times: u32,
    pub(super) every: Duration,
    pub(super) expect: Expectation,
}

impl TestFile {
    pub(super) fn read(found: &Found) -> Result<Self, Failure> {
        let path = &found.file;
        let text = read_text(path)?;
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::config(anyhow!("`{}` is no test file:{error}", path.display()))
        };
        let value: Value = toml::from_str(&text).map_err(|error| wrong(&format!(" {error}")))?;
        let mut mistakes = Vec::new();
        let directory = directory_of(path);
        let mut named = None;
        let mut rules = None;
        let mut cases = Vec::new();
        if let Some(mut fields) = Fields::new("", value, &mut mistakes) {
            named = fields.text("component").map(|component| directory.join(component));
            rules = read_rules(&mut fields, &directory);
            for (n, value) in list(&mut fields, "case").into_iter().enumerate() {
                cases.extend(Case::read(&format!("case[{n}]"), value, &directory, fields.mistakes()));
            }
            fields.end();
        }
        if !mistakes.is_empty() {
            return Err(wrong(&format!("\n{}", mistakes.join("\n"))));
        }
        let component = match (&found.component, named) {
            (Some(component), _) => component.clone(),
            (None, Some(named)) => named,
            (None, None) => component_of(path)?,
        };
        Ok(Self { path: path.clone(), component, rules, cases })
    }
}

impl Case {
    fn read(
        path: &str,
        value: Value,
        directory: &std::path::Path,
        mistakes: &mut Vec<String>,
    ) -> Option<Self> {
        let mut fields = Fields::new(path, value, mistakes)?;
        let name = fields.text("name").unwrap_or_else(|| path.to_owned());
        let rules = read_rules(&mut fields, directory);
        let key = fields.text("rules-error");
        let message = fields.text("rules-error-message");
        if key.is_none() && message.is_some() {
            fields.complain("rules-error-message", "goes with `rules-error`, which names the key");
        }
        let facts = match fields.take("facts") {
            None => Map::new(),
            Some(Value::Object(facts)) => facts,
            Some(_) => {
                fields.complain("facts", "must be a table");
                Map::new()
            }
        };
        let mut messages = Vec::new();
        for (n, value) in list(&mut fields, "message").into_iter().enumerate() {
            let place = format!("{path}.message[{n}]");
            messages.extend(Asked::read(&place, n, merged(&facts, value), fields.mistakes()));
        }
        if key.is_some() && !messages.is_empty() {
            fields.complain("message", "rules that are refused answer nothing");
        }
        fields.end();
        Some(Self { name, rules, rules_error: key.map(|key| RulesError { key, message }), messages })
    }
}

impl Asked {
    fn read(path: &str, n: usize, value: Value, mistakes: &mut Vec<String>) -> Option<Self> {
        let is_named = value.get("id").is_some();
        let mut fields = Fields::new(path, value, mistakes)?;
        let mut facts = Facts::read(&mut fields);
        if !is_named {
            facts = facts.named(format!("message-{n}"));
        }
        let times = fields.small("times").unwrap_or(1);
        if !(1..=TIMES_MAX).contains(&times) {
            fields.complain("times", format_args!("must be 1 to {TIMES_MAX}"));
        }
        let every = fields.duration("every").unwrap_or_default();
        let expect = Expectation::read(&mut fields, times);
        fields.end();
        Some(Self { facts, times, every, expect: expect? })
    }
}

impl RulesError {
    pub(super) fn fits(&self, error: &RuleError) -> bool {
        error.key == self.key
            && self.message.as_ref().is_none_or(|text| error.message.contains(text.as_str()))
    }
}

impl std::fmt::Display for RulesError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the rules are refused for `{}`", self.key)?;
        match &self.message {
            Some(message) => write!(f, " with {message:?}"),
            None => Ok(()),
        }
    }
}

fn read_rules(fields: &mut Fields<'_>, directory: &std::path::Path) -> Option<RulesSource> {
    match fields.take("rules")? {
        Value::String(file) => Some(RulesSource::File(directory.join(file))),
        table @ Value::Object(_) => match toml::to_string(&table) {
            Ok(text) => Some(RulesSource::Table(text)),
            Err(error) => {
                fields.complain("rules", error);
                None
            }
        },
        _ => {
            fields.complain("rules", "must be the name of a file or a table");
            None
        }
    }
}

fn list(fields: &mut Fields<'_>, key: &'static str) -> Vec<Value> {
    match fields.take(key) {
        None => Vec::new(),
        Some(Value::Array(values)) => values,
        Some(_) => {
            fields.complain(key, format_args!("is a list: write [[{key}]]"));
            Vec::new()
        }
    }
}

/// A message with what all messages of its case have. Tables of both are put together.
fn merged(facts: &Map<String, Value>, message: Value) -> Value {
    let Value::Object(own) = message else { return message };
    let mut all = facts.clone();
    for (key, value) in own {
        match (all.get_mut(&key), value) {
            (Some(Value::Object(common)), Value::Object(own)) => common.extend(own),
            (_, value) => drop(all.insert(key, value)),
        }
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_all_messages_have_is_the_beginning_of_each() {
        let facts = json!({ "topic": "a", "standing": { "key-rate": 1.0, "active-keys": 2 } });
        let own = json!({ "topic": "b", "standing": { "key-rate": 9.0 }, "tag": "new" });
        let all = merged(facts.as_object().unwrap(), own);
        assert_eq!(
            all,
            json!({ "topic": "b", "standing": { "key-rate": 9.0, "active-keys": 2 }, "tag": "new" })
        );
    }
}
