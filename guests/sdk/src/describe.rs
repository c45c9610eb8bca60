//! What a policy says about itself.

use crate::bindings::lifecycle::{self, ParameterKind};
use crate::decimal::format_number;
use crate::json::quote;

/// A policy's name and the rules it takes, built up key by key.
#[derive(Debug)]
pub struct Description(lifecycle::Description);

impl Description {
    /// A policy without rules.
    #[must_use]
    pub fn of(name: &str, version: &str, summary: &str) -> Self {
        Self(lifecycle::Description {
            name: name.to_owned(),
            version: version.to_owned(),
            summary: summary.to_owned(),
            parameters: Vec::new(),
        })
    }

    /// A number, with or without a fraction.
    #[must_use]
    pub fn number(self, name: &str, summary: &str, default: Option<f64>) -> Self {
        self.parameter(name, ParameterKind::Number, summary, default.map(format_number))
    }

    /// A whole number.
    #[must_use]
    pub fn integer(self, name: &str, summary: &str, default: Option<i64>) -> Self {
        self.parameter(name, ParameterKind::Integer, summary, default.map(|default| default.to_string()))
    }

    /// `true` or `false`.
    #[must_use]
    pub fn boolean(self, name: &str, summary: &str, default: Option<bool>) -> Self {
        self.parameter(name, ParameterKind::Boolean, summary, default.map(|default| default.to_string()))
    }

    /// A string.
    #[must_use]
    pub fn text(self, name: &str, summary: &str, default: Option<&str>) -> Self {
        self.parameter(name, ParameterKind::Text, summary, default.map(quote))
    }

    /// A duration, written such as `250ms` or `1m30s`.
    #[must_use]
    pub fn duration(self, name: &str, summary: &str, default: Option<&str>) -> Self {
        self.parameter(name, ParameterKind::Duration, summary, default.map(quote))
    }

    /// A size, written such as `512KiB` or `64MiB`.
    #[must_use]
    pub fn size(self, name: &str, summary: &str, default: Option<&str>) -> Self {
        self.parameter(name, ParameterKind::Size, summary, default.map(quote))
    }

    /// A table.
    #[must_use]
    pub fn table(self, name: &str, summary: &str) -> Self {
        self.parameter(name, ParameterKind::Table, summary, None)
    }

    /// An array, or an array of tables.
    #[must_use]
    pub fn list(self, name: &str, summary: &str) -> Self {
        self.parameter(name, ParameterKind::List, summary, None)
    }

    /// The parameter added last must be set.
    #[must_use]
    pub fn required(mut self) -> Self {
        if let Some(last) = self.0.parameters.last_mut() {
            last.required = true;
        }
        self
    }

    pub(crate) fn into_wit(self) -> lifecycle::Description {
        self.0
    }

    fn parameter(mut self, name: &str, kind: ParameterKind, summary: &str, default: Option<String>) -> Self {
        self.0.parameters.push(lifecycle::Parameter {
            name: name.to_owned(),
            kind,
            required: false,
            default,
            summary: summary.to_owned(),
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_json() {
        let description = Description::of("example", "1.0.0", "For the test.")
            .number("number", "", Some(0.1))
            .integer("integer", "", Some(-3))
            .boolean("boolean", "", Some(true))
            .text("text", "", Some("a \"b\""))
            .duration("duration", "", Some("1m30s"))
            .size("size", "", Some("64KiB"))
            .table("table", "")
            .list("list", "")
            .required()
            .into_wit();
        let found: Vec<_> = description.parameters.iter().map(|p| p.default.as_deref()).collect();
        let expected = ["0.1", "-3", "true", "\"a \\\"b\\\"\"", "\"1m30s\"", "\"64KiB\""];
        assert_eq!(found[..6], expected.map(Some));
        assert_eq!(found[6..], [None, None]);
        let required: Vec<_> =
            description.parameters.iter().filter(|p| p.required).map(|p| &*p.name).collect();
        assert_eq!(required, ["list"]);
    }
}
