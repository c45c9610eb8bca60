//! What does not get into a recording.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tidegate_model::Message;

/// What stands in the place of a value.
pub const MASKED: &str = "[masked]";

/// How what is said of bodies begins.
const BODY: &str = "body";

/// Bytes of a body that are recorded unless said otherwise.
const BODY_BYTES: usize = 4 << 10;

/// What is left out of a recording.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Masking {
    /// Names of properties whose values are masked; `*` at the end of one stands for any ending.
    pub properties: Vec<String>,
    /// Bytes of a body that are recorded; 0 for none.
    pub body_bytes: usize,
    /// Whether keys, lite topics and groups are replaced by a hash: the same for the same key within one recording, so
    /// that fairness stays visible. A key that is the value of a masked property is in any case.
    pub keys: bool,
    /// What the hashes begin with.
    secret: [u8; 16],
}

impl Default for Masking {
    /// Masks nothing but the ends of long bodies, and so needs no secret.
    fn default() -> Self {
        Self { properties: Vec::new(), body_bytes: BODY_BYTES, keys: false, secret: [0; 16] }
    }
}

/// There are no random numbers to be had for the secret of hashed keys.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("keys cannot be masked without random numbers of the system")]
pub struct NoRandomness(#[source] getrandom::Error);

impl Masking {
    /// Masks the values of these properties and what of a body is beyond so many bytes, and keys if `keys` is set, under
    /// a secret of its own that is nowhere kept.
    ///
    /// # Errors
    /// When the system gives no random numbers.
    pub fn new(properties: Vec<String>, body_bytes: usize, keys: bool) -> Result<Self, NoRandomness> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(NoRandomness)?;
        Ok(Self { properties, body_bytes, keys, secret })
    }

    /// The key of a message as it is shown.
    pub(super) fn key(&self, key: &Arc<str>, message: &Message) -> Arc<str> {
        let mut properties = message.properties.iter();
        if self.keys || properties.any(|(name, value)| **value == *key.as_bytes() && self.masks(name)) {
            hashed(&self.secret, key).into()
        } else {
            Arc::clone(key)
        }
    }

    pub(super) fn name(&self, name: &str) -> String {
        if self.keys { hashed(&self.secret, name) } else { name.to_owned() }
    }

    fn masks(&self, property: &str) -> bool {
        self.properties.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => property.starts_with(beginning),
            None => property == pattern,
        })
    }

    pub(super) fn property<'a>(&self, name: &str, value: &'a [u8]) -> Cow<'a, [u8]> {
        if self.masks(name) { MASKED.as_bytes().into() } else { value.into() }
    }

    pub(super) fn body_shown<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        body.get(..self.body_bytes).unwrap_or(body)
    }

    /// What it does, for people.
    pub(super) fn described(&self) -> Vec<String> {
        let properties = self.properties.iter().map(|pattern| format!("property {pattern}"));
        let body = match self.body_bytes {
            0 => BODY.to_owned(),
            bytes => format!("{BODY} after {bytes} bytes"),
        };
        let keys = self.keys.then(|| "keys, as hashes".to_owned());
        properties.chain([body]).chain(keys).collect()
    }
}

/// Whether that is what [`Masking::described`] says of bodies.
pub(super) fn is_about_bodies(described: &str) -> bool {
    described.starts_with(BODY)
}

fn hashed(secret: &[u8; 16], text: &str) -> String {
    /// Enough to tell a million keys apart.
    const BYTES: usize = 8;
    let digest = Sha256::new_with_prefix(secret).chain_update(text).finalize();
    digest.iter().take(BYTES).fold("key-".to_owned(), |mut text, byte| {
        // Writing to a string has no way to fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
