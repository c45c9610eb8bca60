//! One request to an endpoint that gives secrets, and what its answer means.

use tidegate_guest::credentials::{Failure, Parts, Request, Resolved};
use tidegate_guest::http::{Failure as HttpFailure, Request as HttpRequest, Response};
use tidegate_guest::json::{self, Value};
use tidegate_guest::{RuleError, Rules};

use crate::expiry::{EXPIRIES, EXPIRY_NAMES, Expiry};
use crate::template::{Filling, Template, base64};

const METHODS: [&str; 3] = ["GET", "POST", "PUT"];

/// Where secrets are asked for, and where they are in the answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exchange {
    url: Template,
    /// The part of the URL that may be told: scheme and host, as the rules have them.
    origin: String,
    method: &'static str,
    headers: Vec<(String, Template)>,
    /// Username and password of the endpoint itself.
    basic: Option<(Template, Template)>,
    body: Option<Template>,
    parts: Parts,
    expires: Option<(String, Expiry)>,
}

/// What the host gives, for tests to give as well.
pub(crate) struct World<'a> {
    pub(crate) get: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) fetch: &'a dyn Fn(&HttpRequest) -> Result<Response, HttpFailure>,
    /// Milliseconds since the Unix epoch.
    pub(crate) now: u64,
}

impl Exchange {
    /// Takes the keys of one exchange; `None` when there are none of them.
    pub(crate) fn read(rules: &mut Rules) -> Result<Option<Self>, RuleError> {
        let url = rules.text("url")?;
        let method = rules.choice("method", &METHODS)?;
        let headers = rules.texts("headers")?;
        let basic = rules.table("basic")?;
        let body = rules.text("body")?;
        let expires = rules.text("expires")?;
        let expires_as = rules.choice("expires-as", &EXPIRY_NAMES)?;
        let parts = Parts::read(rules)?;
        let Some(url) = url else {
            let given = method.is_some()
                || !headers.is_empty()
                || basic.is_some()
                || body.is_some()
                || expires.is_some()
                || expires_as.is_some()
                || parts.is_some();
            return if given { Err(rules.error("url", "is missing: say what to ask")) } else { Ok(None) };
        };
        let parts = parts.ok_or_else(|| {
            rules.error(
                "token",
                "is missing: say where in the answer the secret is, in `token`, `id` or `username`",
            )
        })?;
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err(rules.error("url", "must begin with `https://` or `http://`"));
        }
        let template = |rules: &Rules, key: &str, text: &str| {
            Template::parse(text).map_err(|message| rules.error(key, message))
        };
        let headers = headers.into_iter().map(|(name, text)| {
            let template = template(rules, &format!("headers.{name}"), &text)?;
            Ok((name, template))
        });
        let basic = match basic {
            None => None,
            Some(mut table) => {
                let (username, password) = (table.text("username")?, table.text("password")?);
                table.finish()?;
                let username = table.required("username", username)?;
                let password = table.required("password", password)?;
                Some((template(&table, "username", &username)?, template(&table, "password", &password)?))
            }
        };
        let expiry = expires_as.and_then(|place| EXPIRIES.get(place).copied()).unwrap_or(Expiry::Seconds);
        if expires.is_none() && expires_as.is_some() {
            return Err(rules.error("expires", "is missing; it goes with `expires-as`"));
        }
        let default_method = if body.is_some() { "POST" } else { "GET" };
        Ok(Some(Self {
            url: template(rules, "url", &url)?,
            origin: origin(&url),
            method: method.and_then(|place| METHODS.get(place).copied()).unwrap_or(default_method),
            headers: headers.collect::<Result<_, RuleError>>()?,
            basic,
            body: body.map(|body| template(rules, "body", &body)).transpose()?,
            parts,
            expires: expires.map(|path| (path, expiry)),
        }))
    }

    /// Asks, and reads the answer.
    pub(crate) fn run(&self, request: &Request, world: &World<'_>) -> Result<Resolved, Failure> {
        let mut filling = Filling::new(request, world.get);
        let asked = self.request(&mut filling)?;
        let origin = &self.origin;
        let response = (world.fetch)(&asked).map_err(|failure| match failure {
            HttpFailure::Refused(why) => {
                Failure::Denied(format!("the host does not ask {origin}: {}", filling.redact(&why)))
            }
            HttpFailure::TimedOut => Failure::Unavailable(format!("{origin} did not answer in time")),
            HttpFailure::TooLarge(bytes) => {
                Failure::Other(format!("{origin} answered more than {bytes} bytes"))
            }
            HttpFailure::Other(why) => {
                Failure::Unavailable(format!("{origin} cannot be asked: {}", filling.redact(&why)))
            }
        })?;
        let status = response.status;
        match status {
            200..=299 => self.answer(&response.body, world.now),
            401 | 403 => Err(Failure::Denied(format!("{origin} answered {status}"))),
            408 | 425 | 429 | 500..=599 => Err(Failure::Unavailable(format!("{origin} answered {status}"))),
            300..=399 => {
                Err(Failure::Other(format!("{origin} answered {status}, and redirects are not followed")))
            }
            _ => Err(Failure::Other(format!("{origin} answered {status}"))),
        }
    }

    fn request(&self, filling: &mut Filling<'_>) -> Result<HttpRequest, Failure> {
        let mut headers = Vec::new();
        for (name, template) in &self.headers {
            headers.push((name.clone(), template.fill(filling)?));
        }
        let mut default = |name: &str, value: &dyn Fn() -> String| {
            if !headers.iter().any(|(set, _)| set.eq_ignore_ascii_case(name)) {
                headers.push((name.to_owned(), value()));
            }
        };
        default("accept", &|| "application/json".to_owned());
        if let Some((username, password)) = &self.basic {
            let pair = [username.fill(filling)?, password.fill(filling)?].join(":");
            let encoded = base64(pair.as_bytes());
            filling.add_secret(encoded.clone());
            default("authorization", &|| format!("Basic {encoded}"));
        }
        let body = match &self.body {
            None => String::new(),
            Some(body) => {
                let json = body.begins_with('{') || body.begins_with('[');
                let form = "application/x-www-form-urlencoded";
                default("content-type", &|| if json { "application/json" } else { form }.to_owned());
                body.fill(filling)?
            }
        };
        let url = self.url.fill(filling)?;
        Ok(HttpRequest { method: self.method.to_owned(), url, headers, body: body.into_bytes() })
    }

    /// Reads a good answer. What is in it is secret: failures tell places and not texts.
    fn answer(&self, body: &[u8], now: u64) -> Result<Resolved, Failure> {
        let origin = &self.origin;
        let text = std::str::from_utf8(body).map_err(|error| {
            Failure::Other(format!("{origin} answered no text at byte {}", error.valid_up_to()))
        })?;
        let value = json::parse(text)
            .map_err(|offset| Failure::Other(format!("{origin} answered no JSON at byte {offset}")))?;
        let secret = self.parts.resolve(
            |path| {
                Ok(value.at(path).and_then(Value::as_text).filter(|text| !text.is_empty()).map(str::to_owned))
            },
            |path| Failure::Other(format!("the answer of {origin} has no text at `{path}`")),
        )?;
        let valid_for = match &self.expires {
            None => None,
            Some((path, expiry)) => match value.at(path).map(|value| expiry.left(value, now)) {
                // Some leave it out of what does not end.
                None => None,
                Some(None) => {
                    return Err(Failure::Other(format!("the answer of {origin} has no time at `{path}`")));
                }
                Some(Some(0)) => {
                    return Err(Failure::Unavailable(format!(
                        "{origin} answered a secret that is over already"
                    )));
                }
                Some(left) => left,
            },
        };
        Ok(Resolved { secret, valid_for })
    }
}

/// Scheme and host of a URL, without a name and password before the host.
fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    [scheme, "://", host].concat()
}

#[cfg(test)]
mod tests;
