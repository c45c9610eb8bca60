//! Texts with places for what is known only at the request: `${env:NAME}` for a variable, `${endpoint}` and
//! `${purpose}` for what is asked about, and `$$` for a dollar sign.
//!
//! A place may say how its text is to be written: `${env:SECRET|url}` for a URL or a form, `|json` within the quotes of a
//! JSON string, `|base64`.

use tidegate_guest::credentials::{Failure, Request, purpose_name};
use tidegate_guest::json::quote;

/// A template that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Place(Place, Writing),
}

#[derive(Clone, Debug, PartialEq)]
enum Place {
    Variable(String),
    Endpoint,
    Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Writing {
    Plain,
    Url,
    Json,
    Base64,
}

/// What the places are filled with, and what of it is secret.
pub(crate) struct Filling<'a> {
    request: &'a Request,
    get: &'a dyn Fn(&str) -> Option<String>,
    /// Texts of variables as they were written, which no failure may repeat.
    secrets: Vec<String>,
}

impl Template {
    /// Reads a template; the error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            parts.push(Part::Text(before.to_owned()));
            if let Some(after) = after.strip_prefix('$') {
                parts.push(Part::Text("$".to_owned()));
                rest = after;
                continue;
            }
            let place = after.strip_prefix('{').and_then(|after| after.split_once('}'));
            let Some((place, after)) = place else {
                return Err("has a `$` that begins no `${...}`; write `$$` for a dollar sign".to_owned());
            };
            parts.push(part(place)?);
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
        Ok(Self(parts))
    }

    /// Whether the text begins with this, whatever fills its places.
    pub(crate) fn begins_with(&self, beginning: char) -> bool {
        matches!(self.0.first(), Some(Part::Text(text)) if text.trim_start().starts_with(beginning))
    }

    pub(crate) fn fill(&self, filling: &mut Filling<'_>) -> Result<String, Failure> {
        let mut filled = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Place(place, writing) => {
                    let text = filling.find(place)?;
                    let written = writing.write(&text);
                    if matches!(place, Place::Variable(_)) {
                        filling.secrets.extend([written.clone(), text]);
                    }
                    filled.push_str(&written);
                }
            }
        }
        Ok(filled)
    }
}

fn part(place: &str) -> Result<Part, String> {
    let (place, writing) = match place.split_once('|') {
        None => (place, Writing::Plain),
        Some((place, "url")) => (place, Writing::Url),
        Some((place, "json")) => (place, Writing::Json),
        Some((place, "base64")) => (place, Writing::Base64),
        Some((_, other)) => return Err(format!("knows `|url`, `|json` and `|base64`, not `|{other}`")),
    };
    let place = match (place, place.strip_prefix("env:")) {
        ("endpoint", _) => Place::Endpoint,
        ("purpose", _) => Place::Purpose,
        (_, Some(name)) if !name.is_empty() => Place::Variable(name.to_owned()),
        _ => {
            return Err(format!(
                "knows `${{env:NAME}}`, `${{endpoint}}` and `${{purpose}}`, not `${{{place}}}`"
            ));
        }
    };
    Ok(Part::Place(place, writing))
}

impl<'a> Filling<'a> {
    pub(crate) fn new(request: &'a Request, get: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { request, get, secrets: Vec::new() }
    }

    /// Takes out of a text of others what must not be read in a log.
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut secrets: Vec<_> = self.secrets.iter().filter(|secret| !secret.is_empty()).collect();
        // A secret that has another within it goes first.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "..."))
    }

    /// As [`Filling::redact`] for a text that was made of filled ones.
    pub(crate) fn add_secret(&mut self, secret: String) {
        self.secrets.push(secret);
    }

    fn find(&self, place: &Place) -> Result<String, Failure> {
        match place {
            Place::Endpoint => Ok(self.request.endpoint.clone()),
            Place::Purpose => Ok(purpose_name(self.request.purpose).to_owned()),
            Place::Variable(name) => (self.get)(name).filter(|text| !text.is_empty()).ok_or_else(|| {
                Failure::Denied(format!("the variable `{name}` is empty, not set, or not granted"))
            }),
        }
    }
}

impl Writing {
    fn write(self, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Url => url_encode(text),
            Self::Json => {
                let quoted = quote(text);
                quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
            }
            Self::Base64 => base64(text.as_bytes()),
        }
    }
}

fn url_encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let hex = |digit: u8| char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase();
            encoded.extend(['%', hex(byte >> 4), hex(byte & 15)]);
        }
    }
    encoded
}

/// Base64 with padding (RFC 4648).
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |n: usize| u32::from(chunk.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for n in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * n)) as usize & 63];
            encoded.push(if n <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use tidegate_guest::credentials::Purpose;

    use super::*;

    fn fill(text: &str) -> Result<String, Failure> {
        let request = Request { endpoint: "10.0.0.5:8081".to_owned(), purpose: Purpose::Acknowledge };
        let get = |name: &str| (name == "SECRET").then(|| "a \"b\"&ü".to_owned());
        Template::parse(text).unwrap().fill(&mut Filling::new(&request, &get))
    }

    #[test]
    fn places_are_filled() {
        for (text, filled) in [
            ("", ""),
            ("plain", "plain"),
            ("a$$b", "a$b"),
            ("${endpoint}/${purpose}", "10.0.0.5:8081/acknowledge"),
            ("x=${env:SECRET}", "x=a \"b\"&ü"),
            ("x=${env:SECRET|url}&y", "x=a%20%22b%22%26%C3%BC&y"),
            (r#"{"x": "${env:SECRET|json}"}"#, r#"{"x": "a \"b\"&ü"}"#),
            ("Basic ${env:SECRET|base64}", "Basic YSAiYiImw7w="),
        ] {
            assert_eq!(fill(text).as_deref(), Ok(filled), "{text}");
        }
        let missing = Failure::Denied("the variable `OTHER` is empty, not set, or not granted".to_owned());
        assert_eq!(fill("${env:OTHER}"), Err(missing));
    }

    #[test]
    fn what_is_no_template_is_told() {
        for (text, expected) in [
            ("a$b", "has a `$`"),
            ("${endpoint", "has a `$`"),
            ("${env:}", "knows `${env:NAME}`, `${endpoint}` and `${purpose}`, not `${env:}`"),
            ("${host}", "knows `${env:NAME}`"),
            ("${endpoint|hex}", "knows `|url`, `|json` and `|base64`, not `|hex`"),
        ] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }
}
