//! Reading an object key by key, with every mistake told at once and the nearest key for one that is unknown.

use std::fmt::Display;
use std::time::Duration;

use serde_json::{Map, Value};
use tidegate_connector::options::nearest;
use tidegate_connector::units::parse_duration;

/// An object that is being read. Dropping it without [`Fields::end`] would let unknown keys pass.
pub(super) struct Fields<'a> {
    /// Where it is, such as `case[0].message[2]`; empty for the whole.
    path: String,
    object: Map<String, Value>,
    known: Vec<&'static str>,
    mistakes: &'a mut Vec<String>,
}

impl<'a> Fields<'a> {
    /// Begins; `None` when the value is no object.
    pub(super) fn new(path: &str, value: Value, mistakes: &'a mut Vec<String>) -> Option<Self> {
        match value {
            Value::Object(object) => Some(Self::of(path, object, mistakes)),
            other => {
                let place = if path.is_empty() { "it" } else { path };
                mistakes.push(format!("{place} must be an object, not {other}"));
                None
            }
        }
    }

    /// Begins with an object.
    pub(super) fn of(path: &str, object: Map<String, Value>, mistakes: &'a mut Vec<String>) -> Self {
        Self { path: path.to_owned(), object, known: Vec::new(), mistakes }
    }

    /// What stands under a key.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.object.remove(key)
    }

    /// A mistake about a key.
    pub(super) fn complain(&mut self, key: &str, message: impl Display) {
        let place = self.place(key);
        self.mistakes.push(format!("{place}: {message}"));
    }

    /// Where a key is.
    pub(super) fn place(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Where mistakes go.
    pub(super) fn mistakes(&mut self) -> &mut Vec<String> {
        self.mistakes
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        self.take_as(key, "a string", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        self.take_as(key, "an array of strings", |value| {
            value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        })
    }

    pub(super) fn boolean(&mut self, key: &'static str) -> Option<bool> {
        self.take_as(key, "`true` or `false`", Value::as_bool)
    }

    pub(super) fn whole(&mut self, key: &'static str) -> Option<u64> {
        self.take_as(key, "a whole number from 0", Value::as_u64)
    }

    /// A whole number of 32 bits.
    pub(super) fn small(&mut self, key: &'static str) -> Option<u32> {
        self.take_as(key, "a whole number from 0 to 4294967295", |value| u32::try_from(value.as_u64()?).ok())
    }

    pub(super) fn number(&mut self, key: &'static str) -> Option<f64> {
        self.take_as(key, "a number", Value::as_f64)
    }

    /// A string such as `250ms`, or milliseconds.
    pub(super) fn duration(&mut self, key: &'static str) -> Option<Duration> {
        match self.take(key)? {
            Value::String(text) => match parse_duration(&text) {
                Ok(duration) => Some(duration),
                Err(error) => {
                    self.complain(key, error);
                    None
                }
            },
            value => {
                let millis = value.as_u64();
                if millis.is_none() {
                    self.complain(
                        key,
                        format_args!("must be a duration such as `250ms`, or milliseconds, not {value}"),
                    );
                }
                millis.map(Duration::from_millis)
            }
        }
    }

    /// Complains about what is left.
    pub(super) fn end(self) {
        for key in self.object.keys() {
            let place = self.place(key);
            let advice = match nearest(key, self.known.iter().copied()) {
                Some(near) => format!("unknown key, did you mean `{near}`?"),
                None => format!("unknown key; known are `{}`", self.known.join("`, `")),
            };
            self.mistakes.push(format!("{place}: {advice}"));
        }
    }

    fn take_as<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.take(key)?;
        let taken = read(&value);
        if taken.is_none() {
            self.complain(key, format_args!("must be {wanted}, not {value}"));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_mistake_is_told_with_its_place() {
        let mut mistakes = Vec::new();
        let value = json!({ "attempt": -1, "age": "soon", "lite-topc": "a", "rate": 1.5, "at": 20 });
        let mut fields = Fields::new("message[1]", value, &mut mistakes).unwrap();
        assert_eq!(fields.small("attempt"), None);
        assert_eq!(fields.duration("age"), None);
        assert_eq!(fields.duration("at"), Some(Duration::from_millis(20)));
        assert_eq!(fields.number("rate"), Some(1.5));
        assert_eq!(fields.text("lite-topic"), None);
        fields.end();
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
        assert!(mistakes[0].starts_with("message[1].attempt: must be a whole number"), "{mistakes:?}");
        assert!(mistakes[1].starts_with("message[1].age: "), "{mistakes:?}");
        assert_eq!(mistakes[2], "message[1].lite-topc: unknown key, did you mean `lite-topic`?");
    }

    #[test]
    fn what_is_no_object_is_no_object() {
        let mut mistakes = Vec::new();
        assert!(Fields::new("", json!(3), &mut mistakes).is_none());
        assert_eq!(mistakes, ["it must be an object, not 3"]);
    }
}
