//! PLAIN (RFC 4616): one message that says it all.

use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

use super::{Mechanism, SaslError, Step};

/// Name and password, each after a NUL; the name to act as is left out, so it is the same.
pub(super) fn message(username: &str, password: &SecretString) -> Result<SecretSlice<u8>, SaslError> {
    let password = password.expose_secret();
    for (part, text) in [("user name", username), ("password", password)] {
        let problem = match text {
            "" => "is empty",
            text if text.contains('\0') => "has a NUL in it",
            _ => continue,
        };
        return Err(SaslError::Unsendable { part, problem });
    }
    Ok(SecretSlice::from([b"\0", username.as_bytes(), b"\0", password.as_bytes()].concat()))
}

pub(super) const fn step(answer: &[u8]) -> Result<Step, SaslError> {
    if answer.is_empty() {
        Ok(Step::Done)
    } else {
        Err(SaslError::Malformed { mechanism: Mechanism::Plain, problem: "it asks for more" })
    }
}
