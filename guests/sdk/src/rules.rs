//! Rules as a policy takes them: key by key, and what is left is refused.

use std::ops::RangeInclusive;

use crate::json::{self, Value};
use crate::units::parse_duration;

/// One rule that makes no sense.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RuleError {
    /// Path of the key, such as `rule[2].rate`; empty when it is the whole.
    pub key: String,
    /// What is wrong and what was expected.
    pub message: String,
}

/// A table of rules. Each key is taken once, by the method of its kind.
#[derive(Debug)]
pub struct Rules {
    /// Where this table is, empty at the top.
    path: String,
    entries: Vec<(String, Value)>,
    /// Keys that the policy asked for.
    known: Vec<&'static str>,
}

impl Rules {
    /// Reads the JSON object that the host gives.
    ///
    /// # Errors
    /// When it is not one.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let refused = |message: String| RuleError { key: String::new(), message };
        match json::parse(text) {
            Ok(Value::Table(entries)) => Ok(Self { path: String::new(), entries, known: Vec::new() }),
            Ok(other) => Err(refused(format!("the rules must be a table, not {}", other.kind()))),
            Err(offset) => Err(refused(format!("the rules are not JSON at byte {offset}"))),
        }
    }

    /// Takes a number within `range`.
    ///
    /// # Errors
    /// When it is something else or out of range.
    pub fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, RuleError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Number(number)) if range.contains(&number) => Ok(Some(number)),
            Some(Value::Number(number)) => {
                let (min, max) = range.into_inner();
                Err(self.error(key, format!("must be {min} to {max}, not {number}")))
            }
            Some(other) => Err(self.error(key, format!("must be a number, not {}", other.kind()))),
        }
    }

    /// Takes `true` or `false`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn boolean(&mut self, key: &'static str) -> Result<Option<bool>, RuleError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Boolean(value)) => Ok(Some(value)),
            Some(other) => Err(self.error(key, format!("must be `true` or `false`, not {}", other.kind()))),
        }
    }

    /// Takes a string.
    ///
    /// # Errors
    /// When it is something else.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, RuleError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(self.error(key, format!("must be a string, not {}", other.kind()))),
        }
    }

    /// Takes a duration such as `250ms` or `1m30s`, in milliseconds.
    ///
    /// # Errors
    /// When it is something else.
    pub fn duration(&mut self, key: &'static str) -> Result<Option<u64>, RuleError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let millis = parse_duration(&text);
        let message = || format!("`{text}` is no duration; write it such as `250ms`, `5s` or `1m30s`");
        millis.map(Some).ok_or_else(|| self.error(key, message()))
    }

    /// Takes an array of tables, empty when there is none.
    ///
    /// # Errors
    /// When it is something else.
    pub fn tables(&mut self, key: &'static str) -> Result<Vec<Self>, RuleError> {
        let items = match self.take(key) {
            None => Vec::new(),
            Some(Value::List(items)) => items,
            Some(other) => {
                return Err(self.error(key, format!("must be an array of tables, not {}", other.kind())));
            }
        };
        let path = self.path_of(key);
        let tables = items.into_iter().enumerate().map(|(n, item)| {
            let path = format!("{path}[{n}]");
            match item {
                Value::Table(entries) => Ok(Self { path, entries, known: Vec::new() }),
                other => {
                    Err(RuleError { key: path, message: format!("must be a table, not {}", other.kind()) })
                }
            }
        });
        tables.collect()
    }

    /// Takes a table of strings under names of the user's choice, in the order of the file's keys.
    ///
    /// # Errors
    /// When it is something else, or one of them is no string.
    pub fn texts(&mut self, key: &'static str) -> Result<Vec<(String, String)>, RuleError> {
        let entries = match self.take(key) {
            None => Vec::new(),
            Some(Value::Table(entries)) => entries,
            Some(other) => {
                return Err(self.error(key, format!("must be a table of strings, not {}", other.kind())));
            }
        };
        let path = self.path_of(key);
        let texts = entries.into_iter().map(|(name, value)| match value {
            Value::Text(text) => Ok((name, text)),
            other => Err(RuleError {
                key: format!("{path}.{name}"),
                message: format!("must be a string, not {}", other.kind()),
            }),
        });
        texts.collect()
    }

    /// An error about a key of this table.
    pub fn error(&self, key: &str, message: impl Into<String>) -> RuleError {
        RuleError { key: self.path_of(key), message: message.into() }
    }

    /// Ends the table: nothing may be left in it. To be called when every key was taken and before they are looked at
    /// together, since a key that is written wrong is the likelier cause of one that is missing.
    ///
    /// # Errors
    /// When a key was not taken.
    pub fn finish(&self) -> Result<(), RuleError> {
        let Some((key, _)) = self.entries.first() else { return Ok(()) };
        let known = self.known.join("`, `");
        Err(self.error(key, format!("unknown key; known here are `{known}`")))
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        let at = self.entries.iter().position(|(name, _)| name == key)?;
        Some(self.entries.remove(at).1)
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        Rules::parse(text).unwrap()
    }

    #[test]
    fn keys_are_taken_by_kind() {
        let mut rules = rules(r#"{"n": 1.5, "b": true, "t": "x", "d": "1m30s", "m": {"z": "1", "a": "2"}}"#);
        assert_eq!(rules.number("n", 0.0..=2.0), Ok(Some(1.5)));
        assert_eq!(rules.number("other", 0.0..=2.0), Ok(None));
        assert_eq!(rules.boolean("b"), Ok(Some(true)));
        assert_eq!(rules.text("t"), Ok(Some("x".to_owned())));
        assert_eq!(rules.duration("d"), Ok(Some(90_000)));
        let texts = vec![("z".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())];
        assert_eq!(rules.texts("m"), Ok(texts));
        assert_eq!(rules.finish(), Ok(()));
    }

    #[test]
    fn errors_name_the_path_and_what_was_expected() {
        let mut top = rules(r#"{"n": 3, "rule": [{"rate": 1}, {"rate": "x", "rates": 2}]}"#);
        assert_eq!(top.number("n", 0.0..=2.0).unwrap_err(), top.error("n", "must be 0 to 2, not 3"));
        let mut tables = top.tables("rule").unwrap();
        let mut second = tables.remove(1);
        let error = second.number("rate", 0.0..=1.0).unwrap_err();
        assert_eq!(
            (error.key.as_str(), error.message.as_str()),
            ("rule[1].rate", "must be a number, not a string")
        );
        let error = second.finish().unwrap_err();
        assert_eq!(
            (error.key.as_str(), error.message.as_str()),
            ("rule[1].rates", "unknown key; known here are `rate`")
        );
    }

    #[test]
    fn what_is_no_table_is_refused() {
        assert!(Rules::parse("[]").unwrap_err().message.contains("not an array"));
        assert!(Rules::parse("{").unwrap_err().message.contains("byte 1"));
        assert!(rules(r#"{"rule": [1]}"#).tables("rule").unwrap_err().key == "rule[0]");
        assert!(rules(r#"{"m": {"a": 1}}"#).texts("m").unwrap_err().key == "m.a");
        assert!(rules(r#"{"d": "5"}"#).duration("d").unwrap_err().message.contains("`5` is no duration"));
    }
}
