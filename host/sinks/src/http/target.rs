//! Where one delivery goes: path, query and headers, with the delivery's values in them.

use std::borrow::Cow;
use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tidegate_connector::template::{RenderError, Template};
use tidegate_model::Emission;

use super::options::HttpOptions;

/// RFC 3986: everything but `unreserved`. A value can then neither end its segment nor begin a query.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What deliveries of one request have in common.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Target {
    pub(super) path_and_query: PathAndQuery,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

/// Why a delivery goes nowhere.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    #[error("`url`: {0}")]
    Url(RenderError),
    #[error("`url`: with the message's values the path has `.` or `..` as a segment")]
    DotSegment,
    #[error("`url`: with the message's values it is no valid path")]
    Path,
    #[error("the header `{name}`: {source}")]
    Header { name: HeaderName, source: RenderError },
    #[error("the header `{name}`: the message's values have characters that no header can have")]
    HeaderValue { name: HeaderName },
}

/// Makes targets.
#[derive(Debug)]
pub(super) struct Targets {
    path_and_query: Template,
    headers: Vec<(HeaderName, Template)>,
    /// The one target, when no template has fields.
    fixed: Option<Arc<Target>>,
}

impl Targets {
    pub(super) fn new(options: &HttpOptions) -> Self {
        Self { path_and_query: options.path_and_query.clone(), headers: options.headers.clone(), fixed: None }
    }

    pub(super) fn target_of(&mut self, emission: &Emission) -> Result<Arc<Target>, TargetError> {
        if let Some(fixed) = &self.fixed {
            return Ok(Arc::clone(fixed));
        }
        let target = Arc::new(self.render(emission)?);
        let is_fixed =
            self.path_and_query.is_fixed() && self.headers.iter().all(|(_, value)| value.is_fixed());
        if is_fixed {
            self.fixed = Some(Arc::clone(&target));
        }
        Ok(target)
    }

    fn render(&self, emission: &Emission) -> Result<Target, TargetError> {
        let path_and_query =
            self.path_and_query.render_escaped(emission, escape).map_err(TargetError::Url)?;
        if has_dot_segment(&path_and_query) {
            return Err(TargetError::DotSegment);
        }
        let path_and_query = path_and_query.parse().map_err(|_| TargetError::Path)?;
        let header = |(name, template): &(HeaderName, Template)| {
            let failed = |source| TargetError::Header { name: name.clone(), source };
            let value = template.render(emission).map_err(failed)?;
            let value = HeaderValue::from_bytes(value.as_bytes());
            let mut value = value.map_err(|_| TargetError::HeaderValue { name: name.clone() })?;
            // It may be a token.
            value.set_sensitive(true);
            Ok((name.clone(), value))
        };
        let headers = self.headers.iter().map(header).collect::<Result<_, _>>()?;
        Ok(Target { path_and_query, headers })
    }
}

fn escape(value: &str) -> Cow<'_, str> {
    utf8_percent_encode(value, VALUE).into()
}

/// Whether servers would take a path for another one: a message must not choose what is above its own.
pub(super) fn has_dot_segment(path_and_query: &str) -> bool {
    let path = path_and_query.split('?').next().unwrap_or_default();
    let is_dots = |segment: &str| {
        let plain = segment.replace("%2e", ".").replace("%2E", ".");
        plain == "." || plain == ".."
    };
    path.split('/').any(is_dots)
}

#[cfg(test)]
mod tests {
    use tidegate_model::Message;

    use super::*;
    use crate::testing::emission;

    fn path_of(url: &str, message: Message) -> Result<String, String> {
        let mut targets = Targets::new(&HttpOptions::new(url).unwrap());
        let target = targets.target_of(&emission(1, message)).map_err(|error| error.to_string())?;
        Ok(target.path_and_query.to_string())
    }

    fn tagged(tag: &str) -> Message {
        Message { tag: Some(tag.into()), ..Message::new("t", "i") }
    }

    #[test]
    fn a_value_cannot_leave_its_segment() {
        for (tag, expected) in [
            ("plain-1_2.3~", "/a/plain-1_2.3~?b=plain-1_2.3~"),
            ("x/y", "/a/x%2Fy?b=x%2Fy"),
            ("?q=1&r#f", "/a/%3Fq%3D1%26r%23f?b=%3Fq%3D1%26r%23f"),
            ("a b%", "/a/a%20b%25?b=a%20b%25"),
            ("\u{e9}\n", "/a/%C3%A9%0A?b=%C3%A9%0A"),
            ("...", "/a/...?b=..."),
        ] {
            assert_eq!(path_of("http://h/a/{tag}?b={tag}", tagged(tag)).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_value_cannot_climb() {
        for tag in [".", ".."] {
            let error = path_of("http://h/a/{tag}/b", tagged(tag)).unwrap_err();
            assert!(error.contains("segment"), "{error}");
        }
        let error = path_of("http://h/a/{tag}{tag}", tagged(".")).unwrap_err();
        assert!(error.contains("segment"), "{error}");
        let error = path_of("http://h/a/%2e{tag}", tagged(".")).unwrap_err();
        assert!(error.contains("segment"), "{error}");
        // In a query they mean nothing.
        assert_eq!(path_of("http://h/a?b={tag}/..", tagged("..")).as_deref(), Ok("/a?b=../.."));
    }

    #[test]
    fn a_value_cannot_end_a_header() {
        let mut options = HttpOptions::new("http://h/").unwrap();
        options.headers = vec![(HeaderName::from_static("x-tag"), Template::parse("t={tag}").unwrap())];
        let mut targets = Targets::new(&options);
        let error = targets.target_of(&emission(1, tagged("a\r\nx-evil: 1"))).unwrap_err().to_string();
        assert_eq!(error, "the header `x-tag`: the message's values have characters that no header can have");
        let target = targets.target_of(&emission(1, tagged("\u{e9}"))).unwrap();
        assert_eq!(target.headers[0].1.as_bytes(), "t=\u{e9}".as_bytes());
        assert!(!format!("{target:?}").contains("t="), "{target:?}");
        let error = targets.target_of(&emission(1, Message::new("t", "i"))).unwrap_err().to_string();
        assert_eq!(error, "the header `x-tag`: the message has no value for `{tag}`");
    }

    #[test]
    fn without_fields_there_is_one_target() {
        let mut targets = Targets::new(&HttpOptions::new("http://h/a").unwrap());
        let one = targets.target_of(&emission(1, tagged("a"))).unwrap();
        let other = targets.target_of(&emission(2, tagged("b"))).unwrap();
        assert!(Arc::ptr_eq(&one, &other));
    }
}
