//! OAUTHBEARER (RFC 7628): a token, and when it is refused, the reason.

use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

use super::{Extension, SaslError, Step, told};

/// Parts of the message end with it; alone it asks the server to say no.
const END: u8 = 0x01;

/// The token and what goes along with it.
pub(super) fn message(token: &SecretString, extensions: &[Extension]) -> Result<SecretSlice<u8>, SaslError> {
    let token = token.expose_secret();
    let problem = match token {
        "" => Some("is empty"),
        token if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Some("has characters outside of printable ASCII")
        }
        _ => None,
    };
    if let Some(problem) = problem {
        return Err(SaslError::Unsendable { part: "token", problem });
    }
    let mut message = [b"n,,\x01auth=Bearer ", token.as_bytes(), &[END]].concat();
    for Extension { name, value } in extensions {
        message.extend_from_slice(name.as_bytes());
        message.push(b'=');
        message.extend_from_slice(value.as_bytes());
        message.push(END);
    }
    message.push(END);
    Ok(SecretSlice::from(message))
}

/// What the server said against the token, if it did.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    refusal: Option<Box<str>>,
}

impl Exchange {
    /// An empty answer is a yes, anything else a no that the client must confirm before it becomes one.
    pub(super) fn step(&mut self, answer: &[u8]) -> Result<Step, SaslError> {
        if let Some(refusal) = self.refusal.take() {
            return Err(SaslError::Refused(refusal));
        }
        if answer.is_empty() {
            return Ok(Step::Done);
        }
        self.refusal = Some(told(&String::from_utf8_lossy(answer)));
        Ok(Step::Send(SecretSlice::from(vec![END])))
    }
}
