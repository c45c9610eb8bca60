//! What can be wrong with a configuration, where, and what to do about it.

use std::fmt;
use std::sync::Arc;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use tidegate_connector::options::OptionError;

/// Every mistake of a configuration, in the order of the text. Never empty.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Errors(Vec<Error>);

/// One mistake. Its text holds no secret.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Error {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub problem: Problem,
}

/// Something odd that does not keep the configuration from being used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Warning {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub oddity: Oddity,
}

/// A place in a configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The file, as it was named by whoever started the host.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The full path of the key, such as `flows.tenants.sink`; empty when the mistake belongs to no key.
    pub key: String,
}

/// What is wrong, as the rest of a sentence that begins with the key, if there is one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The text is not TOML.
    #[error("not valid TOML: {detail}")]
    Syntax {
        /// What the parser says, or a plainer sentence where it is hard to follow.
        detail: String,
    },
    /// There is nothing in it.
    #[error(
        "the configuration is empty; it needs a [sources.NAME], a [sinks.NAME] and a [flows.NAME] that joins them"
    )]
    Empty,
    /// It has no flow, so there is nothing to do.
    #[error(
        "no flow is configured; add a [flows.NAME] with its `source` and its `sink`, or, for a host that only settles, a \
         [settlers.NAME] or a [peers.NAME] and a sink with `connector = \"handoff\"`"
    )]
    NoFlows,
    /// No such section.
    #[error("is not a section; {}", did_you_mean(*nearest, "the sections are", known))]
    UnknownSection {
        /// The nearest one, if one is near.
        nearest: Option<&'static str>,
        /// All of them.
        known: &'static str,
    },
    /// Something else stands where a section should.
    #[error("must be a section written as [{header}], not {found}")]
    NotASection {
        /// How its header would look.
        header: String,
        /// What is there.
        found: &'static str,
    },
    /// The name of a section is not fit for labels and paths.
    #[error("is not a usable name; names have 1 to {max} ASCII letters, digits, `-` and `_`")]
    Name {
        /// The longest allowed, in characters.
        max: usize,
    },
    /// The same key twice, once in dotted and once in quoted form.
    #[error("is given twice")]
    Twice,
    /// No such key.
    #[error("is not a known key{}", nearest.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    UnknownKey {
        /// The nearest one, if one is near.
        nearest: Option<String>,
    },
    /// The key is the beginning of longer keys.
    #[error("is a group of keys, such as `{example}`, and has no value of its own")]
    Group {
        /// One of the group.
        example: String,
    },
    /// The key goes on below one that has a value of its own.
    #[error("goes too deep: `{parent}` is {kind}, not a table")]
    TooDeep {
        /// The known key.
        parent: &'static str,
        /// What its value is.
        kind: String,
    },
    /// A key that must be given is absent.
    #[error("is required: {summary}")]
    Missing {
        /// What the key is for.
        summary: &'static str,
    },
    /// The value does not fit.
    #[error("{detail}")]
    Value {
        /// What was expected and what was found.
        detail: String,
    },
    /// The key is known, but not in this role or not in this version.
    #[error("{reason}")]
    Unsupported {
        /// Why, and what to do.
        reason: String,
    },
    /// No such connector.
    #[error("is `{found}`, which is no connector for {role}s; {}", did_you_mean(*nearest, "there are", known))]
    UnknownConnector {
        /// As written.
        found: String,
        /// `source` or `sink`.
        role: &'static str,
        /// The nearest one, if one is near.
        nearest: Option<&'static str>,
        /// All of them, empty when there is none.
        known: String,
    },
    /// A name that leads nowhere.
    #[error(
        "names the {what} `{found}`, which is not configured; {}",
        did_you_mean(nearest.as_deref(), "there are", known)
    )]
    UnknownName {
        /// `source`, `sink` or `policy`.
        what: &'static str,
        /// As written.
        found: String,
        /// The nearest one, if one is near.
        nearest: Option<String>,
        /// All of them, empty when there is none.
        known: String,
    },
    /// A source feeds one flow only, since it has one settler.
    #[error(
        "names the source `{source_name}`, which already feeds the flow `{flow}`; give each flow its own source"
    )]
    SourceShared {
        /// The source.
        source_name: String,
        /// The other flow.
        flow: String,
    },
    /// There are so many mistakes that the rest is not listed.
    #[error("and {count} more mistakes")]
    Further {
        /// How many.
        count: usize,
    },
    /// The admin API would be open to the network.
    #[error(
        "is {address}, which other machines can reach, and the admin API has no authentication; use a loopback \
         address such as 127.0.0.1, or allow it with `admin-allow-remote = true`"
    )]
    AdminRemote {
        /// As written.
        address: String,
    },
}

/// What is odd, as the rest of a sentence that begins with the key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Oddity {
    /// Nothing refers to it.
    #[error("is not used by any flow and will not be started")]
    Unused,
    /// Messages would be rejected with nowhere to go.
    #[error(
        "rejects messages after their last attempt, and the flow has no `dead-letter` sink: where the broker keeps no \
         dead letters of its own, as on lite topics, they are dropped"
    )]
    NoDeadLetter,
}

// === impl Errors ===

impl Errors {
    /// `errors` in the order of the text.
    pub(crate) fn new(mut errors: Vec<Error>) -> Self {
        debug_assert!(!errors.is_empty(), "no errors are no `Errors`");
        errors.sort_by(|a, b| a.place.order().cmp(&b.place.order()));
        Self(errors)
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Error> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// One line each.
impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

// === impl Error ===

impl Error {
    /// The sentence without the place.
    #[must_use]
    pub fn message(&self) -> String {
        sentence(&self.place.key, &self.problem)
    }

    /// The key or name that was probably meant.
    #[must_use]
    pub fn nearest(&self) -> Option<&str> {
        self.problem.nearest()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message())
    }
}

impl std::error::Error for Error {}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.place.serialize_with(serializer, &self.message(), self.nearest())
    }
}

// === impl Warning ===

impl Warning {
    /// The sentence without the place.
    #[must_use]
    pub fn message(&self) -> String {
        sentence(&self.place.key, &self.oddity)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message())
    }
}

impl Serialize for Warning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.place.serialize_with(serializer, &self.message(), None)
    }
}

// === impl Place ===

impl Place {
    pub(crate) fn order(&self) -> (usize, usize, &str) {
        (self.line, self.column, &self.key)
    }

    fn serialize_with<S: Serializer>(
        &self,
        serializer: S,
        message: &str,
        nearest: Option<&str>,
    ) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Error", 6)?;
        fields.serialize_field("file", &*self.file)?;
        fields.serialize_field("line", &self.line)?;
        fields.serialize_field("column", &self.column)?;
        fields.serialize_field("key", &self.key)?;
        fields.serialize_field("message", message)?;
        fields.serialize_field("nearest", &nearest)?;
        fields.end()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

// === impl Problem ===

impl Problem {
    fn nearest(&self) -> Option<&str> {
        match self {
            Self::UnknownSection { nearest, .. } | Self::UnknownConnector { nearest, .. } => *nearest,
            Self::UnknownKey { nearest } | Self::UnknownName { nearest, .. } => nearest.as_deref(),
            _ => None,
        }
    }
}

impl From<OptionError> for Problem {
    fn from(error: OptionError) -> Self {
        match error {
            OptionError::Unknown { nearest, .. } => Self::UnknownKey { nearest: nearest.map(Into::into) },
            OptionError::WrongSide { side, .. } => {
                Self::Unsupported { reason: format!("is an option of {side}s only") }
            }
            OptionError::Missing { summary, .. } => Self::Missing { summary },
            OptionError::Invalid { problem, .. } => Self::Value { detail: problem },
        }
    }
}

fn sentence(key: &str, rest: &dyn fmt::Display) -> String {
    if key.is_empty() { rest.to_string() } else { format!("`{key}` {rest}") }
}

fn did_you_mean(nearest: Option<&str>, there_are: &str, known: &str) -> String {
    match nearest {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there is none".to_owned(),
        None => format!("{there_are} {known}"),
    }
}
