//! Requests: bodies and headers of batches.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use http::{Method, Request, Uri};
use http_body_util::Full;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use tidegate_model::{BodyState, Emission, Timestamp};

use super::options::{BodyFormat, HttpMethod, HttpOptions};
use super::schedule::Batch;
use super::signature::sign;
use crate::parts::Recorder;

/// Metadata of one message in headers. Usual servers take less than this of headers in all, so that such a message can
/// never be taken.
const METADATA_BYTES_MAX: usize = 64 << 10;

/// In headers: whatever is not visible ASCII, and `%` itself.
const TEXT: &AsciiSet = &CONTROLS.add(b' ').add(b'%');
/// In the header of properties, which is written as forms are.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const SIGNATURE: HeaderName = HeaderName::from_static("tidegate-signature");

/// Makes requests.
#[derive(Debug)]
pub(super) struct Requests {
    scheme: http::uri::Scheme,
    authority: http::uri::Authority,
    method: Method,
    body: BodyFormat,
    is_array: bool,
    authorization: Option<HeaderValue>,
    signature_secret: Option<SecretString>,
    recorder: Recorder,
}

/// Why a batch makes no request: none of it ever will.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("it makes no JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("its metadata makes {0} bytes of headers, and {METADATA_BYTES_MAX} are sent at most")]
    Metadata(usize),
    #[error("it makes no request: {0}")]
    Http(#[from] http::Error),
}

/// The header of that name, if there is to be one.
pub(super) fn authorization(options: &HttpOptions) -> Result<Option<HeaderValue>, InvalidHeaderValue> {
    let value = options.authorization.as_ref();
    let mut value = value.map(|value| HeaderValue::from_str(value.expose_secret())).transpose()?;
    if let Some(value) = &mut value {
        value.set_sensitive(true);
    }
    Ok(value)
}

impl Requests {
    /// `None` when the origin or the value of `authorization` cannot be sent.
    pub(super) fn new(options: &HttpOptions, recorder: Recorder) -> Option<Self> {
        let is_https = options.origin.is_https();
        Some(Self {
            scheme: if is_https { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP },
            authority: options.origin.authority().parse().ok()?,
            method: match options.method {
                HttpMethod::Post => Method::POST,
                HttpMethod::Put => Method::PUT,
            },
            body: options.body,
            is_array: options.batch_max > 1,
            authorization: authorization(options).ok()?,
            signature_secret: options.signature_secret.clone(),
            recorder,
        })
    }

    /// The request of a batch. Made anew for each try, so that nothing of it is held between them.
    pub(super) fn make(&self, batch: &Batch, now: Timestamp) -> Result<Request<Full<Bytes>>, RequestError> {
        let mut headers = HeaderMap::new();
        let (content_type, body) = match (self.body, batch.emissions.as_slice()) {
            (BodyFormat::Raw, [emission]) => {
                self.describe(emission, &mut headers)?;
                ("application/octet-stream", emission.message.body.clone())
            }
            (BodyFormat::Ndjson, emissions) => {
                ("application/x-ndjson", self.records(emissions, "", "\n", "\n")?)
            }
            (_, [emission]) if !self.is_array => {
                ("application/json", self.records(std::slice::from_ref(emission), "", "", "")?)
            }
            (_, emissions) => ("application/json", self.records(emissions, "[", ",", "]")?),
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        let agent = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        for (name, value) in &batch.target.headers {
            headers.insert(name, value.clone());
        }
        if let Some(value) = &self.authorization {
            headers.insert(header::AUTHORIZATION, value.clone());
        }
        if let Some(secret) = &self.signature_secret {
            let value = HeaderValue::from_str(&sign(secret, now, &body)).map_err(http::Error::from)?;
            headers.insert(SIGNATURE, value);
        }
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(batch.target.path_and_query.clone())
            .build()?;
        let mut request = Request::builder().method(self.method.clone()).uri(uri).body(Full::new(body))?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    fn records(
        &self,
        emissions: &[Emission],
        before: &str,
        between: &str,
        behind: &str,
    ) -> Result<Bytes, serde_json::Error> {
        let mut body = before.as_bytes().to_vec();
        for (at, emission) in emissions.iter().enumerate() {
            if at > 0 {
                body.extend_from_slice(between.as_bytes());
            }
            self.recorder.write(emission, &mut body)?;
        }
        body.extend_from_slice(behind.as_bytes());
        Ok(body.into())
    }

    /// The metadata of a record as headers. What is not visible ASCII is percent-encoded.
    fn describe(&self, emission: &Emission, headers: &mut HeaderMap) -> Result<(), RequestError> {
        let message = &*emission.message;
        let receipt = self.recorder.receipt(emission);
        let mut bytes = 0;
        let mut put = |name: &'static str, value: Option<String>| {
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                bytes += name.len() + value.len();
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        let text = |value: &str| Some(utf8_percent_encode(value, TEXT).to_string());
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let millis = |time: Timestamp| time.as_unix_millis();
        put("tidegate-source", text(self.recorder.source()));
        put("tidegate-topic", text(&message.topic));
        put("tidegate-lite-topic", message.lite_topic.as_deref().and_then(text));
        put("tidegate-message-group", message.group.as_deref().and_then(text));
        put("tidegate-key", text(&emission.key));
        put("tidegate-message-id", text(message.id.as_str()));
        put("tidegate-tag", message.tag.as_deref().and_then(text));
        let keys: Vec<_> = message.keys.iter().filter_map(|key| text(key)).collect();
        put("tidegate-message-keys", (!keys.is_empty()).then(|| keys.join(" ")));
        put("tidegate-properties", (!message.properties.is_empty()).then(|| form(emission)));
        put("tidegate-delivery-attempt", Some(emission.attempt.to_string()));
        put("tidegate-born-at", number(message.born_at.map(millis)));
        put("tidegate-stored-at", number(message.stored_at.map(millis)));
        if let BodyState::Corrupted { reason } = &message.body_state {
            put("tidegate-corrupted", text(reason));
        }
        put("tidegate-receipt", Some(receipt));
        if let Some(given_up) = &emission.dead_letter {
            put("tidegate-dead-letter-flow", text(&given_up.flow));
            put("tidegate-dead-letter-source", text(&given_up.source));
            put("tidegate-dead-letter-policy", given_up.policy.as_deref().and_then(text));
            put("tidegate-dead-letter-reason", text(&given_up.reason));
            put("tidegate-dead-letter-attempts", Some(emission.attempt.to_string()));
            put("tidegate-dead-letter-first-received-at", number(Some(millis(given_up.first_received_at))));
            put("tidegate-dead-letter-last-received-at", number(Some(millis(given_up.last_received_at))));
        }
        if bytes > METADATA_BYTES_MAX { Err(RequestError::Metadata(bytes)) } else { Ok(()) }
    }
}

/// Properties as forms have them: `name=value&name=value`.
fn form(emission: &Emission) -> String {
    let pairs = emission.message.properties.iter().map(|(name, value)| {
        let name = utf8_percent_encode(name, FORM);
        format!("{name}={}", percent_encoding::percent_encode(value, FORM))
    });
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests;
