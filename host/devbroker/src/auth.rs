//! Who is asking, and may they: the check of the proxy's default providers, with their texts.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use crate::options::User;

const SCHEME: &str = "MQv2-HMAC-SHA1";

/// The users of a broker; without any, everybody may do everything.
#[derive(Debug)]
pub(crate) struct Users(Vec<User>);

/// What the headers say about the asking user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim<'a> {
    /// The `authorization` header.
    pub(crate) authorization: Option<&'a str>,
    /// The `x-mq-date-time` header: what is signed. Any text; its age is not looked at.
    pub(crate) date_time: Option<&'a str>,
}

/// Something a call touches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource<'a> {
    Topic(&'a str),
    Group(&'a str),
}

/// Why a call is answered 40100.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("username cannot be null.")]
    NoUser,
    #[error("datetime is null.")]
    NoDateTime,
    #[error("authentication keyValues length is incorrect")]
    Scheme,
    #[error("create authentication context error.")]
    NotHex,
    #[error("User:{0} is not found.")]
    UnknownUser(String),
    #[error("check signature failed.")]
    Signature,
    #[error("User:{user} has no permission to access {resource} from {peer}, no matched policies.")]
    Permission { user: String, resource: String, peer: String },
}

impl Users {
    pub(crate) fn new(users: Vec<User>) -> Self {
        Self(users)
    }

    /// Checks the signature; gives the user, or none when nobody is asked.
    pub(crate) fn authenticate(&self, claim: Claim<'_>) -> Result<Option<&User>, Refusal> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let Some(authorization) = claim.authorization else { return Err(Refusal::NoUser) };
        let date_time = claim.date_time.ok_or(Refusal::NoDateTime)?;
        let (credential, signature) = parse(authorization)?;
        let signature = decode_hex(signature).ok_or(Refusal::NotHex)?;
        let name = credential.split('/').next().unwrap_or_default();
        if name.is_empty() {
            return Err(Refusal::NoUser);
        }
        let user = self.0.iter().find(|user| user.access_key == name);
        let user = user.ok_or_else(|| Refusal::UnknownUser(name.to_owned()))?;
        let mut mac =
            Hmac::<Sha1>::new_from_slice(user.secret_key.as_bytes()).map_err(|_| Refusal::Signature)?;
        mac.update(date_time.as_bytes());
        mac.verify_slice(&signature).map_err(|_| Refusal::Signature)?;
        Ok(Some(user))
    }

    /// Checks that a user may touch something. The real text names the peer without its port.
    pub(crate) fn authorize(user: Option<&User>, resource: Resource<'_>, peer: &str) -> Result<(), Refusal> {
        let Some(user) = user else { return Ok(()) };
        let (allowed, name, kind) = match resource {
            Resource::Topic(name) => (&user.topics, name, "Topic"),
            Resource::Group(name) => (&user.groups, name, "Group"),
        };
        if user.is_admin || allowed.iter().any(|allowed| allowed == name) {
            return Ok(());
        }
        Err(Refusal::Permission {
            user: user.access_key.clone(),
            resource: format!("{kind}:{name}"),
            peer: peer.to_owned(),
        })
    }
}

/// Takes `MQv2-HMAC-SHA1 Credential=…, SignedHeaders=…, Signature=…` apart.
fn parse(authorization: &str) -> Result<(&str, &str), Refusal> {
    let fields = authorization.strip_prefix(SCHEME).ok_or(Refusal::Scheme)?;
    let value = |wanted: &str| {
        fields
            .split(',')
            .filter_map(|field| field.trim().split_once('='))
            .find(|(key, _)| *key == wanted)
            .map(|(_, value)| value)
    };
    match (value("Credential"), value("Signature")) {
        (Some(credential), Some(signature)) => Ok((credential, signature)),
        _ => Err(Refusal::Scheme),
    }
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> Users {
        Users::new(vec![User {
            access_key: "alice".to_owned(),
            secret_key: "secretKey".to_owned(),
            is_admin: false,
            topics: vec!["LA".to_owned()],
            groups: vec!["GA".to_owned()],
        }])
    }

    fn check(authorization: Option<&str>, date_time: Option<&str>) -> Result<(), Refusal> {
        users().authenticate(Claim { authorization, date_time }).map(|_| ())
    }

    #[test]
    fn a_good_signature_is_taken_in_either_case_and_at_any_age() {
        // The vector of the protocol notes.
        let hex = "963ABD36AD60920C3F000248E63AD8782DD2A04E";
        for hex in [hex.to_owned(), hex.to_lowercase()] {
            for credential in ["alice", "alice/cn/RocketMQ"] {
                let header = format!(
                    "{SCHEME} Credential={credential}, SignedHeaders=x-mq-date-time, Signature={hex}"
                );
                assert_eq!(check(Some(&header), Some("20260101T000000Z")), Ok(()));
                assert_eq!(check(Some(&header), Some("20260101T000001Z")), Err(Refusal::Signature));
            }
        }
    }

    #[test]
    fn refusals_have_the_measured_texts() {
        let header = |user: &str, hex: &str| format!("{SCHEME} Credential={user}, Signature={hex}");
        let text =
            |authorization: Option<&str>, date_time| check(authorization, date_time).unwrap_err().to_string();
        assert_eq!(text(None, Some("x")), "username cannot be null.");
        assert_eq!(text(Some(&header("alice", "00")), None), "datetime is null.");
        assert_eq!(text(Some("Bearer abc"), Some("x")), "authentication keyValues length is incorrect");
        assert_eq!(text(Some(&header("alice", "zzzz")), Some("x")), "create authentication context error.");
        assert_eq!(text(Some(&header("zed", "00")), Some("x")), "User:zed is not found.");
        assert_eq!(text(Some(&header("alice", "00")), Some("x")), "check signature failed.");
        let users = users();
        let refusal = Users::authorize(users.0.first(), Resource::Topic("LB"), "127.0.0.1").unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "User:alice has no permission to access Topic:LB from 127.0.0.1, no matched policies."
        );
        assert_eq!(Users::authorize(users.0.first(), Resource::Group("GA"), "127.0.0.1"), Ok(()));
    }
}
