//! The parts that a secret is put together from, each by the name of its place.

use crate::credentials::{AccessKey, Failure, Identity, Login, Secret};
use crate::{Description, RuleError, Rules};

/// Names of the places where a secret's parts are: of variables, of files, of keys in an answer, as the resolver takes
/// them. Which keys the rules have says what kind of secret it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Parts {
    /// `id`, `secret` and perhaps `session-token`.
    AccessKey {
        /// Where the key's id is.
        id: String,
        /// Where its secret is.
        secret: String,
        /// Where the session token is, if there may be one.
        session_token: Option<String>,
    },
    /// `username` and `password`.
    Login {
        /// Where the name is.
        username: String,
        /// Where the password is.
        password: String,
    },
    /// `token`.
    Bearer {
        /// Where the token is.
        token: String,
    },
    /// `certificate` and `key`, in PEM.
    Identity {
        /// Where the chain of certificates is.
        certificate: String,
        /// Where the private key is.
        key: String,
    },
}

/// The keys that a kind of secret must have.
const KINDS: [&[&str]; 4] =
    [&["id", "secret"], &["username", "password"], &["token"], &["certificate", "key"]];

impl Parts {
    /// Takes the keys of one secret; `None` when there are none of them.
    ///
    /// # Errors
    /// When some are missing, or they are of two kinds.
    #[inline(never)]
    pub fn read(rules: &mut Rules) -> Result<Option<Self>, RuleError> {
        let mut take = |key| Ok::<_, RuleError>((key, rules.text(key)?));
        let taken = [
            take("id")?,
            take("secret")?,
            take("session-token")?,
            take("username")?,
            take("password")?,
            take("token")?,
            take("certificate")?,
            take("key")?,
        ];
        let Some((first, _)) = taken.iter().find(|(_, place)| place.is_some()) else { return Ok(None) };
        let kind = KINDS.iter().find(|kind| kind.contains(first)).unwrap_or(&KINDS[0]);
        for key in *kind {
            if taken.iter().any(|(taken, place)| taken == key && place.is_none()) {
                return Err(rules.error(key, format!("is missing; it goes with `{first}`")));
            }
        }
        let session = kind[0] == "id";
        let foreign = taken.iter().find(|(key, place)| {
            place.is_some() && !kind.contains(key) && !(session && *key == "session-token")
        });
        if let Some((key, _)) = foreign {
            return Err(rules.error(key, format!("does not go with `{first}`")));
        }
        Ok(match taken.map(|(_, place)| place) {
            [Some(id), Some(secret), session_token, ..] => {
                Some(Self::AccessKey { id, secret, session_token })
            }
            [_, _, _, Some(username), Some(password), ..] => Some(Self::Login { username, password }),
            [_, _, _, _, _, Some(token), ..] => Some(Self::Bearer { token }),
            [.., Some(certificate), Some(key)] => Some(Self::Identity { certificate, key }),
            _ => None,
        })
    }

    /// Adds the keys to a description. `place` says what their values name, such as `The variable that has`.
    #[must_use]
    pub fn describe(description: Description, place: &str) -> Description {
        [
            ("id", "the id of an access key"),
            ("secret", "its secret"),
            ("session-token", "its session token, if there may be one"),
            ("username", "a username, when it is a login"),
            ("password", "its password"),
            ("token", "a bearer token, when it is one"),
            ("certificate", "a chain of certificates in PEM, when it is an identity"),
            ("key", "its private key in PEM"),
        ]
        .into_iter()
        .fold(description, |description, (key, what)| {
            description.text(key, &[place, " ", what, "."].concat(), None)
        })
    }

    /// Puts the secret together. `find` answers the text at a place, `missing` what is wrong when there is none.
    ///
    /// # Errors
    /// When a part cannot be had.
    pub fn resolve(
        &self,
        mut find: impl FnMut(&str) -> Result<Option<String>, Failure>,
        missing: impl Fn(&str) -> Failure,
    ) -> Result<Secret, Failure> {
        let mut need = |place: &String| find(place)?.ok_or_else(|| missing(place));
        Ok(match self {
            Self::AccessKey { id, secret, session_token } => Secret::AccessKey(AccessKey {
                id: need(id)?,
                secret: need(secret)?,
                session_token: match session_token {
                    Some(place) => find(place)?,
                    None => None,
                },
            }),
            Self::Login { username, password } => {
                Secret::Login(Login { username: need(username)?, password: need(password)? })
            }
            Self::Bearer { token } => Secret::Bearer(need(token)?),
            Self::Identity { certificate, key } => {
                Secret::Identity(Identity { certificate_chain: need(certificate)?, private_key: need(key)? })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Parts>, String> {
        let mut rules = Rules::parse(text).unwrap();
        Parts::read(&mut rules).map_err(|error| format!("{}: {}", error.key, error.message))
    }

    /// The texts are the places' names in capitals; `none` has none.
    fn resolve(text: &str) -> Result<Secret, Failure> {
        let find = |place: &str| Ok(Some(place.to_uppercase()).filter(|_| place != "none"));
        read(text).unwrap().unwrap().resolve(find, |place| Failure::Denied(format!("no {place}")))
    }

    #[test]
    fn the_keys_say_the_kind() {
        let key = |session_token: Option<&str>| {
            Secret::AccessKey(AccessKey {
                id: "A".to_owned(),
                secret: "B".to_owned(),
                session_token: session_token.map(str::to_owned),
            })
        };
        assert_eq!(resolve(r#"{"id": "a", "secret": "b"}"#), Ok(key(None)));
        assert_eq!(resolve(r#"{"id": "a", "secret": "b", "session-token": "c"}"#), Ok(key(Some("C"))));
        assert_eq!(resolve(r#"{"id": "a", "secret": "b", "session-token": "none"}"#), Ok(key(None)));
        let login = Login { username: "U".to_owned(), password: "P".to_owned() };
        assert_eq!(resolve(r#"{"username": "u", "password": "p"}"#), Ok(Secret::Login(login)));
        assert_eq!(resolve(r#"{"token": "t"}"#), Ok(Secret::Bearer("T".to_owned())));
        let identity = Identity { certificate_chain: "C".to_owned(), private_key: "K".to_owned() };
        assert_eq!(resolve(r#"{"certificate": "c", "key": "k"}"#), Ok(Secret::Identity(identity)));
        assert_eq!(read("{}"), Ok(None));
    }

    #[test]
    fn a_missing_part_is_told_by_its_place() {
        let denied = |place: &str| Err(Failure::Denied(format!("no {place}")));
        assert_eq!(resolve(r#"{"id": "a", "secret": "none"}"#), denied("none"));
        assert_eq!(resolve(r#"{"token": "none"}"#), denied("none"));
    }

    #[test]
    fn half_a_secret_and_two_secrets_are_refused() {
        for (text, expected) in [
            (r#"{"id": "a"}"#, "secret: is missing; it goes with `id`"),
            (r#"{"session-token": "a"}"#, "id: is missing; it goes with `session-token`"),
            (r#"{"key": "a"}"#, "certificate: is missing; it goes with `key`"),
            (r#"{"token": "a", "username": "b", "password": "c"}"#, "token: does not go with `username`"),
            (r#"{"token": "a", "session-token": "b"}"#, "id: is missing; it goes with `session-token`"),
            (r#"{"token": 1}"#, "token: must be a string"),
        ] {
            assert_eq!(read(text).unwrap_err().get(..expected.len()), Some(expected), "{text}");
        }
    }
}
