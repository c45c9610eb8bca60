//! The metadata of a call: who calls, when, signed with what.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use tidegate_connector::Clock;
use tokio::time;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

use crate::credentials::{Credentials, CredentialsError, Keys, Purpose};
use crate::fault::Method;
use crate::signature;

/// What the server takes for our client's version. It compares texts and answers older clients with other codes.
pub(crate) const CLIENT_VERSION: &str = "5.2.1";

/// Signatures kept for a second: one for each of the keys in use, which a resolver may give per endpoint and purpose.
const SIGNED_MAX: usize = 32;

/// Puts the metadata on requests of one client. What never changes is built once; what changes each second is kept
/// for that second.
#[derive(Debug)]
pub(crate) struct Stamp {
    client_id: Arc<str>,
    fixed: MetadataMap,
    credentials: Arc<dyn Credentials>,
    /// What the client does when it does not settle.
    purpose: Purpose,
    clock: Clock,
    requests: AtomicU64,
    request_prefix: u64,
    signed: Mutex<Vec<Signed>>,
}

#[derive(Clone, Debug)]
struct Signed {
    second: u64,
    keys: Option<Arc<Keys>>,
    date_time: MetadataValue<Ascii>,
    authorization: Option<MetadataValue<Ascii>>,
    session_token: Option<MetadataValue<Ascii>>,
}

impl Stamp {
    /// `client_id` is one per consumer or producer; `seed` makes request ids differ from those of other clients.
    pub(crate) fn new(
        client_id: Arc<str>,
        namespace: &str,
        credentials: Arc<dyn Credentials>,
        purpose: Purpose,
        clock: Clock,
        seed: u64,
    ) -> Self {
        let mut fixed = MetadataMap::with_capacity(12);
        let entries = [
            ("x-mq-client-id", &*client_id),
            ("x-mq-language", "RUST"),
            ("x-mq-protocol", "v2"),
            ("x-mq-client-version", CLIENT_VERSION),
            ("x-mq-namespace", namespace),
        ];
        for (name, value) in entries {
            fixed.insert(name, ascii(value));
        }
        let requests = AtomicU64::new(0);
        Self {
            client_id,
            fixed,
            credentials,
            purpose,
            clock,
            requests,
            request_prefix: seed,
            signed: Mutex::new(Vec::new()),
        }
    }

    pub(crate) const fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    /// Whether a call that was refused may be made again with other keys.
    pub(crate) fn may_change(&self) -> bool {
        self.credentials.may_change()
    }

    /// The keys for a call to `endpoint`. The first ones are waited for, at most `patience`.
    pub(crate) async fn keys(
        &self,
        endpoint: &str,
        method: Method,
        patience: Duration,
    ) -> Result<Option<Arc<Keys>>, CredentialsError> {
        let purpose = self.purpose_of(method);
        let present = self.credentials.keys(endpoint, purpose);
        if present.is_ok() || !self.credentials.may_change() {
            return present;
        }
        match time::timeout(patience, self.credentials.first_keys(endpoint, purpose)).await {
            Ok(keys) => keys,
            Err(_) => self.credentials.keys(endpoint, purpose),
        }
    }

    /// Has the keys that a consumer settles with fetched, so that they are there when the first settlement is.
    pub(crate) fn warm_up(&self, endpoint: &str) {
        if self.purpose == Purpose::Consume && self.credentials.may_change() {
            // Looking is enough.
            let _ = self.credentials.keys(endpoint, Purpose::Acknowledge);
        }
    }

    /// Asks for other keys after `endpoint` refused these; true when there are others. Waits at most `patience`.
    pub(crate) async fn refresh(
        &self,
        endpoint: &str,
        method: Method,
        refused: Option<&Arc<Keys>>,
        patience: Duration,
    ) -> bool {
        let refreshing = self.credentials.refresh(endpoint, self.purpose_of(method), refused);
        time::timeout(patience, refreshing).await.unwrap_or(false)
    }

    /// The keys that are at hand.
    pub(crate) fn present_keys(&self, endpoint: &str, method: Method) -> Option<Arc<Keys>> {
        self.credentials.keys(endpoint, self.purpose_of(method)).ok().flatten()
    }

    fn purpose_of(&self, method: Method) -> Purpose {
        let settles = matches!(
            method,
            Method::AckMessage | Method::ChangeInvisibleDuration | Method::ForwardMessageToDeadLetterQueue
        );
        if settles { Purpose::Acknowledge } else { self.purpose }
    }

    /// A request with its metadata, signed with these keys.
    pub(crate) fn request<T>(&self, keys: Option<&Arc<Keys>>, message: T) -> Request<T> {
        let signed = self.signed(keys.cloned());
        let mut metadata = self.fixed.clone();
        metadata.insert("x-mq-request-id", self.request_id());
        metadata.insert("x-mq-date-time", signed.date_time);
        if let Some(authorization) = signed.authorization {
            metadata.insert("authorization", authorization);
        }
        if let Some(token) = signed.session_token {
            metadata.insert("x-mq-session-token", token);
        }
        let mut request = Request::new(message);
        *request.metadata_mut() = metadata;
        request
    }

    fn signed(&self, keys: Option<Arc<Keys>>) -> Signed {
        let wall = self.clock.wall();
        let second = wall.as_unix_millis() / 1_000;
        let mut cached = self.signed.lock();
        cached.retain(|signed| signed.second == second);
        if let Some(signed) = cached.iter().find(|signed| signed.is_by(keys.as_ref())) {
            return signed.clone();
        }
        if cached.len() >= SIGNED_MAX {
            cached.clear();
        }
        let date_time = signature::date_time(wall);
        let authorization = keys.as_ref().map(|keys| ascii(&signature::authorization(keys, &date_time)));
        let token = keys.as_ref().and_then(|keys| keys.session_token());
        let session_token = token.map(|token| sensitive(ascii(token.expose_secret())));
        let signed = Signed {
            second,
            date_time: ascii(&date_time),
            authorization: authorization.map(sensitive),
            session_token,
            keys,
        };
        cached.push(signed.clone());
        signed
    }

    fn request_id(&self) -> MetadataValue<Ascii> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let (high, low) = (self.request_prefix, number);
        // The form of a UUID, which is how servers' logs show it.
        let text = format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            low >> 48 & 0xfff,
            low & 0xffff_ffff_ffff
        );
        ascii(&text)
    }
}

impl Signed {
    fn is_by(&self, keys: Option<&Arc<Keys>>) -> bool {
        match (&self.keys, keys) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => Arc::ptr_eq(ours, theirs),
            _ => false,
        }
    }
}

/// Text as a header value; what a header cannot hold is left out, so that the server refuses the call and says why.
fn ascii(text: &str) -> MetadataValue<Ascii> {
    text.parse().unwrap_or_else(|_| {
        let visible: String = text.chars().filter(char::is_ascii_graphic).collect();
        visible.parse().unwrap_or_else(|_| MetadataValue::from_static(""))
    })
}

/// Keeps a value out of HTTP/2's header tables and of debug output.
fn sensitive(mut value: MetadataValue<Ascii>) -> MetadataValue<Ascii> {
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use secrecy::SecretString;

    use super::*;
    use crate::credentials::{Anonymous, Fixed};

    #[test]
    fn an_anonymous_call_is_not_signed() {
        let metadata = metadata(Arc::new(Anonymous));
        let get = |name| metadata.get(name).map(|value| value.to_str().expect("text").to_owned());
        assert_eq!(get("x-mq-client-id").as_deref(), Some("host@1@0@a"));
        assert_eq!(get("x-mq-language").as_deref(), Some("RUST"));
        assert_eq!(get("x-mq-protocol").as_deref(), Some("v2"));
        assert_eq!(get("x-mq-namespace").as_deref(), Some("ns"));
        assert_eq!(get("x-mq-client-version").as_deref(), Some(CLIENT_VERSION));
        assert_eq!(get("x-mq-date-time").map(|text| text.len()), Some(16));
        assert_eq!(get("authorization"), None);
    }

    #[test]
    fn a_signed_call_signs_its_own_date() {
        let keys = || Keys::new("alice", SecretString::from("s".to_owned()));
        let token = SecretString::from("token".to_owned());
        let metadata = metadata(Arc::new(Fixed::new(keys().with_session_token(token))));
        let get = |name| metadata.get(name).expect(name).to_str().expect("text").to_owned();
        assert_eq!(get("authorization"), signature::authorization(&keys(), &get("x-mq-date-time")));
        assert_eq!(get("x-mq-session-token"), "token");
        assert!(!format!("{metadata:?}").contains("Signature"));
    }

    #[tokio::test]
    async fn request_ids_differ() {
        let stamp = stamp(Arc::new(Anonymous));
        let ids: HashSet<_> = (0..1_000).map(|_| stamp.request_id()).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| id.len() == 36));
    }

    fn metadata(credentials: Arc<dyn Credentials>) -> MetadataMap {
        let keys = credentials.keys("e:1", Purpose::Produce).expect("keys");
        stamp(credentials).request(keys.as_ref(), ()).metadata().clone()
    }

    fn stamp(credentials: Arc<dyn Credentials>) -> Stamp {
        Stamp::new(Arc::from("host@1@0@a"), "ns", credentials, Purpose::Produce, Clock::start(), 42)
    }
}
