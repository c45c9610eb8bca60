//! Rules as a policy takes them: key by key, and what is left is refused.

use std::ops::RangeInclusive;

use crate::decimal::format_number;
use crate::json::{self, Value};
use crate::units::{parse_duration, parse_size};

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
                Err(self.out_of_range(key, &format_number(min), &format_number(max), &format_number(number)))
            }
            Some(other) => Err(self.error(key, format!("must be a number, not {}", other.kind()))),
        }
    }

    /// Takes a whole number within `range`.
    ///
    /// # Errors
    /// When it is something else or out of range.
    pub fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, RuleError> {
        let number = match self.take(key) {
            None => return Ok(None),
            Some(Value::Number(number)) => number,
            Some(other) => {
                return Err(self.error(key, format!("must be a whole number, not {}", other.kind())));
            }
        };
        // Numbers that a float does not hold exactly become the nearest whole one, as in most readers of JSON.
        let whole = number as i64;
        if whole as f64 != number {
            return Err(self.error(key, format!("must be a whole number, not {}", format_number(number))));
        }
        if !range.contains(&whole) {
            let (min, max) = range.into_inner();
            return Err(self.out_of_range(key, &min.to_string(), &max.to_string(), &whole.to_string()));
        }
        Ok(Some(whole))
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

    /// Takes a size such as `512KiB` or `64MiB`, in bytes.
    ///
    /// # Errors
    /// When it is something else.
    pub fn size(&mut self, key: &'static str) -> Result<Option<u64>, RuleError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let message = || format!("`{text}` is no size; write it such as `512KiB` or `64MiB`");
        parse_size(&text).map(Some).ok_or_else(|| self.error(key, message()))
    }

    /// Takes one of some words: its place among `choices`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn choice(&mut self, key: &'static str, choices: &[&str]) -> Result<Option<usize>, RuleError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let place = choices.iter().position(|choice| *choice == text);
        place.map(Some).ok_or_else(|| self.error(key, not_one_of(choices, &text)))
    }

    /// Takes an array of some words: their places among `choices`, in the order of the file; `None` when there is no
    /// array.
    ///
    /// # Errors
    /// When it is something else.
    pub fn choices(&mut self, key: &'static str, choices: &[&str]) -> Result<Option<Vec<usize>>, RuleError> {
        let Some(texts) = self.text_list(key)? else { return Ok(None) };
        let places = texts.iter().enumerate().map(|(n, text)| {
            let place = choices.iter().position(|choice| choice == text);
            place.ok_or_else(|| self.error(&format!("{key}[{n}]"), not_one_of(choices, text)))
        });
        places.collect::<Result<_, _>>().map(Some)
    }

    /// Takes an array of strings; `None` when there is none.
    ///
    /// # Errors
    /// When it is something else, or one of them is no string.
    pub fn text_list(&mut self, key: &'static str) -> Result<Option<Vec<String>>, RuleError> {
        let items = match self.take(key) {
            None => return Ok(None),
            Some(Value::List(items)) => items,
            Some(other) => {
                return Err(self.error(key, format!("must be an array of strings, not {}", other.kind())));
            }
        };
        let texts = items.into_iter().enumerate().map(|(n, item)| match item {
            Value::Text(text) => Ok(text),
            other => {
                Err(self.error(&format!("{key}[{n}]"), format!("must be a string, not {}", other.kind())))
            }
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// Takes a table.
    ///
    /// # Errors
    /// When it is something else.
    pub fn table(&mut self, key: &'static str) -> Result<Option<Self>, RuleError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Table(entries)) => {
                Ok(Some(Self { path: self.path_of(key), entries, known: Vec::new() }))
            }
            Some(other) => Err(self.error(key, format!("must be a table, not {}", other.kind()))),
        }
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

    /// What was taken, or an error that says that the key is missing.
    ///
    /// # Errors
    /// When there is nothing.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, RuleError> {
        value.ok_or_else(|| self.error(key, "is missing"))
    }

    /// An error about a key of this table, or about the whole of it when the key is empty.
    #[must_use]
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

    fn out_of_range(&self, key: &str, min: &str, max: &str, found: &str) -> RuleError {
        self.error(key, format!("must be {min} to {max}, not {found}"))
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        let at = self.entries.iter().position(|(name, _)| name == key)?;
        Some(self.entries.remove(at).1)
    }

    fn path_of(&self, key: &str) -> String {
        let dot = if self.path.is_empty() || key.is_empty() { "" } else { "." };
        [&self.path, dot, key].concat()
    }
}

fn not_one_of(choices: &[&str], text: &str) -> String {
    format!("must be `{}`, not `{text}`", choices.join("` or `"))
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
    fn lists_tables_sizes_and_words_are_taken() {
        let text = r#"{"i": -3, "s": "512KiB", "l": ["a", "b"], "w": "two", "ws": ["two", "one"], "t": {"x": {"y": 1}}}"#;
        let mut rules = rules(text);
        assert_eq!(rules.integer("i", -3..=3), Ok(Some(-3)));
        assert_eq!(rules.size("s"), Ok(Some(512 << 10)));
        assert_eq!(rules.text_list("l"), Ok(Some(vec!["a".to_owned(), "b".to_owned()])));
        assert_eq!(rules.choice("w", &["one", "two"]), Ok(Some(1)));
        assert_eq!(rules.choices("ws", &["one", "two"]), Ok(Some(vec![1, 0])));
        let mut table = rules.table("t").unwrap().unwrap();
        let mut inner = table.table("x").unwrap().unwrap();
        assert_eq!(inner.error("y", "no").key, "t.x.y");
        assert_eq!(inner.number("y", 0.0..=1.0), Ok(Some(1.0)));
        assert_eq!(rules.finish(), Ok(()));
        assert_eq!(rules.text_list("none"), Ok(None));
        assert_eq!(rules.required::<String>("none", None).unwrap_err(), rules.error("none", "is missing"));
    }

    #[test]
    fn what_does_not_fit_is_told_with_what_would() {
        let text =
            r#"{"i": 1.5, "j": 9, "s": "5MB", "l": ["a", 1], "w": "three", "ws": ["x"], "t": [], "o": 0.25}"#;
        let mut rules = rules(text);
        let check = |error: RuleError, key: &str, message: &str| {
            assert_eq!((error.key.as_str(), error.message.as_str()), (key, message));
        };
        check(rules.integer("i", 0..=3).unwrap_err(), "i", "must be a whole number, not 1.5");
        check(rules.integer("j", 0..=3).unwrap_err(), "j", "must be 0 to 3, not 9");
        check(rules.size("s").unwrap_err(), "s", "`5MB` is no size; write it such as `512KiB` or `64MiB`");
        check(rules.text_list("l").unwrap_err(), "l[1]", "must be a string, not a number");
        check(rules.choice("w", &["one", "two"]).unwrap_err(), "w", "must be `one` or `two`, not `three`");
        check(rules.choices("ws", &["one", "two"]).unwrap_err(), "ws[0]", "must be `one` or `two`, not `x`");
        check(rules.table("t").unwrap_err(), "t", "must be a table, not an array");
        check(rules.number("o", 0.001..=0.2).unwrap_err(), "o", "must be 0.001 to 0.2, not 0.25");
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
