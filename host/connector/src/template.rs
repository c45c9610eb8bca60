//! Texts with fields of an emission in them, such as `tenants/{lite-topic}`.
//!
//! A field stands in braces, `{{` and `}}` are braces. Behind a bar is what stands in for a field without a value:
//! `{tag|none}`, or nothing: `{tag|}`. An empty value counts as none, since half a path or half a topic name is worse
//! than an error.

use std::borrow::Cow;
use std::fmt;

use tidegate_model::Emission;

use crate::options::nearest;

/// Longest template, in bytes. Names and paths are far below.
pub const TEMPLATE_BYTES_MAX: usize = 4 * 1024;
/// Longest text that a template gives, in bytes: no topic name, path or header that anything accepts is longer.
pub const RENDERED_BYTES_MAX: usize = 8 * 1024;

/// A text with fields, checked.
#[derive(Clone, Eq, PartialEq)]
pub struct Template {
    text: Box<str>,
    parts: Box<[Part]>,
    is_literal: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Part {
    Text(Box<str>),
    Field { field: Field, default: Option<Box<str>> },
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Field {
    Topic,
    LiteTopic,
    MessageGroup,
    Key,
    MessageId,
    Tag,
    MessageKeys,
    Attempt,
    Property(Box<str>),
}

/// Why a text is no template. Places count characters from 1.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TemplateError {
    /// Longer than [`TEMPLATE_BYTES_MAX`].
    #[error("it has {bytes} bytes, and at most {TEMPLATE_BYTES_MAX} are allowed")]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// There is no such field.
    #[error(
        "unknown field `{{{field}}}` at character {at}{}",
        nearest.map_or_else(|| format!("; the fields are {}", listed()), |near| format!(", did you mean `{{{near}}}`?"))
    )]
    UnknownField {
        /// As written, without the braces.
        field: Box<str>,
        /// Where its brace is.
        at: usize,
        /// The nearest known field, if one is near.
        nearest: Option<&'static str>,
    },
    /// `{property:}`.
    #[error("the field at character {at} names no property, write `{{property:NAME}}`")]
    NoPropertyName {
        /// Where its brace is.
        at: usize,
    },
    /// A brace that is never closed, or has another one in it.
    #[error("the brace at character {at} is not closed; a brace that is meant as one is written `{{{{`")]
    NotClosed {
        /// Where it is.
        at: usize,
    },
    /// A closing brace alone.
    #[error("the brace at character {at} closes nothing; a brace that is meant as one is written `}}}}`")]
    NotOpened {
        /// Where it is.
        at: usize,
    },
}

/// Why a template gives no text for an emission.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RenderError {
    /// The message has no such thing, or an empty one, and there is no default.
    #[error("the message has no value for `{{{field}}}`")]
    NoValue {
        /// As in the template, without the braces.
        field: Box<str>,
    },
    /// A property's value is not UTF-8.
    #[error("the message's value for `{{{field}}}` is not text")]
    NotText {
        /// As in the template, without the braces.
        field: Box<str>,
    },
    /// The text would be longer than [`RENDERED_BYTES_MAX`].
    #[error("with the message's values it has more than {RENDERED_BYTES_MAX} bytes")]
    TooLong,
}

/// The fields as people write them.
const FIELDS: [&str; 9] = [
    "topic",
    "lite-topic",
    "message-group",
    "key",
    "message-id",
    "tag",
    "message-keys",
    "attempt",
    "property:NAME",
];
const PROPERTY: &str = "property";

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// When it is too long, a field is not known, or braces do not match.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(TemplateError::TooLong { bytes: text.len() });
        }
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(brace) = rest.find(['{', '}']) {
            let (before, from_brace) = rest.split_at(brace);
            plain.push_str(before);
            let at = text[..text.len() - from_brace.len()].chars().count() + 1;
            if let Some(after) = from_brace.strip_prefix("{{") {
                plain.push('{');
                rest = after;
            } else if let Some(after) = from_brace.strip_prefix("}}") {
                plain.push('}');
                rest = after;
            } else if let Some(inside) = from_brace.strip_prefix('{') {
                let end = inside.find(['{', '}']).filter(|end| inside[*end..].starts_with('}'));
                let end = end.ok_or(TemplateError::NotClosed { at })?;
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain).into()));
                }
                parts.push(Part::parse_field(&inside[..end], at)?);
                rest = &inside[end + 1..];
            } else {
                return Err(TemplateError::NotOpened { at });
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        Ok(Self { text: text.into(), parts: parts.into(), is_literal: false })
    }

    /// A text that means itself, braces and all.
    ///
    /// # Errors
    /// When it is too long.
    pub fn literal(text: &str) -> Result<Self, TemplateError> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(TemplateError::TooLong { bytes: text.len() });
        }
        let parts = if text.is_empty() { Vec::new() } else { vec![Part::Text(text.into())] };
        Ok(Self { text: text.into(), parts: parts.into(), is_literal: true })
    }

    /// Whether it was made as a text that means itself.
    #[must_use]
    pub const fn is_literal(&self) -> bool {
        self.is_literal
    }

    /// The text for an emission.
    ///
    /// # Errors
    /// When the emission lacks what a field without a default needs, or the text becomes too long.
    pub fn render(&self, emission: &Emission) -> Result<String, RenderError> {
        self.render_escaped(emission, |value| Cow::Borrowed(value))
    }

    /// The same with every value passed through `escape` on its way, such as for a URL. The template's own text and
    /// its defaults are taken as written.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_escaped(
        &self,
        emission: &Emission,
        escape: impl Fn(&str) -> Cow<'_, str>,
    ) -> Result<String, RenderError> {
        let mut rendered = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => rendered.push_str(text),
                Part::Field { field, default } => match (field.value(emission)?, default) {
                    (Some(value), _) if value.len() > RENDERED_BYTES_MAX => return Err(RenderError::TooLong),
                    (Some(value), _) => rendered.push_str(&escape(&value)),
                    (None, Some(default)) => rendered.push_str(default),
                    (None, None) => return Err(RenderError::NoValue { field: field.to_string().into() }),
                },
            }
            if rendered.len() > RENDERED_BYTES_MAX {
                return Err(RenderError::TooLong);
            }
        }
        Ok(rendered)
    }

    /// Whether it has no fields: every emission gets the same text.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// The text that every emission gets, if it has no fields.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The template's own texts, defaults included: what every value stands between or is replaced by. For whoever must
    /// know that they fit.
    pub fn literals(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(&**text),
            Part::Field { default, .. } => default.as_deref(),
        })
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A literal one may be a secret.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.is_literal { "(literal)" } else { &self.text };
        f.debug_tuple("Template").field(&text).finish()
    }
}

/// As it was written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Part {
    fn parse_field(inside: &str, at: usize) -> Result<Self, TemplateError> {
        let (name, default) = match inside.split_once('|') {
            Some((name, default)) => (name, Some(default.into())),
            None => (inside, None),
        };
        let field = match (name, name.split_once(':')) {
            ("topic", _) => Field::Topic,
            ("lite-topic", _) => Field::LiteTopic,
            ("message-group", _) => Field::MessageGroup,
            ("key", _) => Field::Key,
            ("message-id", _) => Field::MessageId,
            ("tag", _) => Field::Tag,
            ("message-keys", _) => Field::MessageKeys,
            ("attempt", _) => Field::Attempt,
            (PROPERTY, _) | (_, Some((PROPERTY, ""))) => return Err(TemplateError::NoPropertyName { at }),
            (_, Some((PROPERTY, property))) => Field::Property(property.into()),
            (_, before_colon) => {
                // What comes behind the colon is the user's own word and says nothing about what was meant before it.
                let word = before_colon.map_or(name, |(word, _)| word);
                let short = |field: &'static str| field.split(':').next().unwrap_or(field);
                let near = nearest(word, FIELDS.iter().copied().map(short));
                let nearest = near.and_then(|near| FIELDS.into_iter().find(|field| short(field) == near));
                return Err(TemplateError::UnknownField { field: inside.into(), at, nearest });
            }
        };
        Ok(Self::Field { field, default })
    }
}

impl Field {
    /// `None` when there is none or an empty one.
    fn value<'e>(&self, emission: &'e Emission) -> Result<Option<Cow<'e, str>>, RenderError> {
        let message = &*emission.message;
        let value = match self {
            Self::Topic => Some(Cow::Borrowed(&*message.topic)),
            Self::LiteTopic => message.lite_topic.as_deref().map(Cow::Borrowed),
            Self::MessageGroup => message.group.as_deref().map(Cow::Borrowed),
            Self::Key => Some(Cow::Borrowed(&*emission.key)),
            Self::MessageId => Some(Cow::Borrowed(message.id.as_str())),
            Self::Tag => message.tag.as_deref().map(Cow::Borrowed),
            Self::MessageKeys => Some(Cow::Owned(message.keys.join(" "))),
            Self::Attempt => Some(Cow::Owned(emission.attempt.to_string())),
            Self::Property(wanted) => match message.properties.iter().find(|(name, _)| name == wanted) {
                None => None,
                Some((_, value)) => {
                    let not_text = |_| RenderError::NotText { field: self.to_string().into() };
                    Some(Cow::Borrowed(std::str::from_utf8(value).map_err(not_text)?))
                }
            },
        };
        Ok(value.filter(|value| !value.is_empty()))
    }
}

/// As in a template, without the braces.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Topic => "topic",
            Self::LiteTopic => "lite-topic",
            Self::MessageGroup => "message-group",
            Self::Key => "key",
            Self::MessageId => "message-id",
            Self::Tag => "tag",
            Self::MessageKeys => "message-keys",
            Self::Attempt => "attempt",
            Self::Property(name) => return write!(f, "{PROPERTY}:{name}"),
        })
    }
}

fn listed() -> String {
    FIELDS.map(|field| format!("`{{{field}}}`")).join(", ")
}

#[cfg(test)]
mod tests;
