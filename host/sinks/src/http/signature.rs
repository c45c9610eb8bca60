//! The header with which a server knows that a request is ours and new.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use tidegate_model::Timestamp;

/// `t=SECONDS,v1=HEX`: the HMAC-SHA256 over the seconds since 1970, a full stop, and the body.
pub(super) fn sign(secret: &SecretString, at: Timestamp, body: &[u8]) -> String {
    let seconds = at.as_unix_millis() / 1_000;
    let mut text = format!("t={seconds},v1=");
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()) else { return text };
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body);
    for byte in mac.finalize().into_bytes() {
        // Writing to a string has no way to fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `printf '1767323045.{"a":1}' | openssl dgst -sha256 -hmac key` says it.
    #[test]
    fn known_signature() {
        let at = Timestamp::from_unix_millis(1_767_323_045_678);
        let signature = sign(&SecretString::from("key".to_owned()), at, b"{\"a\":1}");
        assert_eq!(signature, EXPECTED);
    }

    const EXPECTED: &str = "t=1767323045,v1=7a74ddb6c5eee22d6198e210cf7a4aae6004fa7dc07f66752779c1d480cc319f";
}
