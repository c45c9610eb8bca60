//! Who may do what: bearer tokens with rights per flow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tidegate_connector::files::{self, ReadError};

/// The largest file of tokens that is read, in bytes: room for thousands.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Shorter ones can be guessed.
const TOKEN_CHARS_MIN: usize = 16;

/// Why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It cannot be read.
    #[error("cannot read the tokens in `{}`: {problem}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: Box<str>,
    },
    /// It does not say what it should.
    #[error("the tokens in `{}` cannot be used: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong. Shows no token.
        problem: Box<str>,
    },
}

/// Whom the service lets in, now: the file may change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights {
    /// `None`: everybody may do everything.
    callers: Option<Arc<RwLock<Callers>>>,
}

/// Whom one state of the file lets in.
#[derive(Debug)]
struct Callers {
    /// Of the file, to see when it changes.
    digest: [u8; 32],
    /// By digest, so that a comparison tells nothing about the tokens.
    by_digest: BTreeMap<[u8; 32], Caller>,
}

/// Somebody who was let in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Caller {
    /// The token's name, for people.
    pub(crate) name: Arc<str>,
    /// The token's digest, if one was needed.
    token: Option<[u8; 32]>,
    /// `None`: all of them.
    flows: Option<Arc<BTreeSet<String>>>,
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Stranger {
    #[error("a bearer token is needed: `authorization: Bearer TOKEN`")]
    NoToken,
    #[error("this bearer token is not known here")]
    UnknownToken,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    tokens: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Entry {
    sha256: Option<String>,
    token: Option<String>,
    flows: Option<BTreeSet<String>>,
}

impl Rights {
    /// Reads a file of tokens: for each, under `[tokens.NAME]`, its `token` or the `sha256` of it, and the `flows` that it
    /// is for; without them it is for all.
    pub(crate) fn load(path: &Path) -> Result<Self, TokensError> {
        let bytes = Self::read(path)?;
        let callers = Callers::parse(&bytes)
            .map_err(|problem| TokensError::Content { path: path.to_owned(), problem })?;
        Ok(Self { callers: Some(Arc::new(RwLock::new(callers))) })
    }

    /// Reads the file again; gives the number of tokens when it has changed. What cannot be used changes nothing.
    pub(crate) fn refresh(&self, path: &Path) -> Result<Option<usize>, TokensError> {
        let Some(callers) = &self.callers else { return Ok(None) };
        let bytes = Self::read(path)?;
        if callers.read().digest == Callers::digest_of(&bytes) {
            return Ok(None);
        }
        let changed = Callers::parse(&bytes)
            .map_err(|problem| TokensError::Content { path: path.to_owned(), problem })?;
        let count = changed.by_digest.len();
        *callers.write() = changed;
        Ok(Some(count))
    }

    fn read(path: &Path) -> Result<Vec<u8>, TokensError> {
        let bytes = files::read(path, FILE_BYTES_MAX).map_err(|error| TokensError::Read {
            path: path.to_owned(),
            problem: match error {
                ReadError::Io(error) => error.to_string().into(),
                ReadError::NotAFile { .. } => "it is not a regular file".into(),
                ReadError::TooLarge { bytes } => format!("it has {bytes} bytes").into(),
            },
        })?;
        Ok(bytes)
    }

    /// The flows that tokens are for, each with the token's name.
    pub(crate) fn flows(&self) -> Vec<(Arc<str>, String)> {
        let Some(callers) = &self.callers else { return Vec::new() };
        let callers = callers.read();
        let named =
            callers.by_digest.values().filter_map(|caller| Some((&caller.name, caller.flows.as_ref()?)));
        let mut flows: Vec<_> = named
            .flat_map(|(name, flows)| flows.iter().map(move |flow| (Arc::clone(name), flow.clone())))
            .collect();
        flows.sort();
        flows
    }

    /// Who comes with this `authorization`.
    pub(crate) fn admit(&self, authorization: Option<&[u8]>) -> Result<Caller, Stranger> {
        let Some(callers) = &self.callers else {
            return Ok(Caller { name: "anyone".into(), token: None, flows: None });
        };
        let text = authorization.and_then(|value| str::from_utf8(value).ok()).ok_or(Stranger::NoToken)?;
        let (scheme, token) = text.split_once(' ').ok_or(Stranger::NoToken)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Stranger::NoToken);
        }
        let digest = digest_of(token.trim());
        callers.read().by_digest.get(&digest).cloned().ok_or(Stranger::UnknownToken)
    }

    /// Whether somebody who was let in would be let in now, and may have to do with a flow.
    pub(crate) fn still_admits(&self, caller: &Caller, flow: &str) -> bool {
        let Some(callers) = &self.callers else { return true };
        caller
            .token
            .is_some_and(|token| callers.read().by_digest.get(&token).is_some_and(|caller| caller.may(flow)))
    }
}

impl Callers {
    fn digest_of(bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    fn parse(bytes: &[u8]) -> Result<Self, Box<str>> {
        let text = str::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
        // The parser's own text quotes the line, which may hold a token.
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let mut callers = BTreeMap::new();
        for (name, Entry { sha256, token, flows }) in file.tokens {
            let digest = match (token, sha256) {
                (Some(token), None) if token.len() < TOKEN_CHARS_MIN => {
                    return Err(
                        format!("the token `{name}` has fewer than {TOKEN_CHARS_MIN} characters").into()
                    );
                }
                (Some(token), None) => digest_of(&token),
                (None, Some(hex)) => parse_hex(&hex)
                    .ok_or_else(|| format!("`{name}` needs 64 hexadecimal digits as sha256"))?,
                _ => return Err(format!("`{name}` needs either `token` or `sha256`").into()),
            };
            let caller =
                Caller { name: name.as_str().into(), token: Some(digest), flows: flows.map(Arc::new) };
            if let Some(other) = callers.insert(digest, caller) {
                return Err(format!("`{name}` and `{}` are one token", other.name).into());
            }
        }
        if callers.is_empty() {
            return Err("it has no token, so that nobody would be let in".into());
        }
        Ok(Self { digest: Self::digest_of(bytes), by_digest: callers })
    }
}

impl Caller {
    /// Whether it may have to do with a flow.
    pub(crate) fn may(&self, flow: &str) -> bool {
        self.flows.as_ref().is_none_or(|flows| flows.contains(flow))
    }
}

fn digest_of(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    // A sign would pass for a digit below.
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[tokens.billing]\ntoken = \"billing-0123456789\"\nflows = [\"bills\"]\n\
                        [tokens.ops]\nsha256 = \"b9c2f3f30b6d9c2ec3b0f6a2b5f3c0f1d6a9e8b7c5d4e3f2a1b0c9d8e7f6a5b4\"\n";

    fn rights(text: &str) -> Rights {
        let callers = Callers::parse(text.as_bytes()).unwrap();
        Rights { callers: Some(Arc::new(RwLock::new(callers))) }
    }

    #[test]
    fn an_edit_is_in_force_and_a_mistake_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let token = |name: &str| {
            format!("[tokens.{name}]\ntoken = \"{name}-0123456789abcdef\"\nflows = [\"bills\"]\n")
        };
        write(&token("old"));
        let rights = Rights::load(&path).unwrap();
        let old = rights.admit(Some(b"Bearer old-0123456789abcdef")).unwrap();
        assert_eq!(rights.refresh(&path).unwrap(), None, "it is the same");
        assert!(rights.still_admits(&old, "bills") && !rights.still_admits(&old, "orders"));
        for mistake in ["", "[tokens.a", "[tokens]\n"] {
            write(mistake);
            assert!(rights.refresh(&path).is_err(), "{mistake}");
        }
        assert!(rights.still_admits(&old, "bills"), "editors empty a file before they write it");
        write(&[token("new"), token("other")].concat());
        assert_eq!(rights.refresh(&path).unwrap(), Some(2));
        assert_eq!(rights.admit(Some(b"Bearer old-0123456789abcdef")), Err(Stranger::UnknownToken));
        assert!(!rights.still_admits(&old, "bills"), "it was let in before");
        assert!(rights.admit(Some(b"Bearer new-0123456789abcdef")).is_ok());
    }

    #[test]
    fn a_token_has_its_flows() {
        let rights = rights(FILE);
        let caller = rights.admit(Some(b"Bearer billing-0123456789")).unwrap();
        assert!(caller.may("bills") && !caller.may("orders"));
        assert_eq!(rights.admit(None), Err(Stranger::NoToken));
        assert_eq!(rights.admit(Some(b"Basic billing-0123456789")), Err(Stranger::NoToken));
        assert_eq!(rights.admit(Some(b"Bearer billing-0123456788")), Err(Stranger::UnknownToken));
        assert_eq!(rights.admit(Some(b"bearer \xff")), Err(Stranger::NoToken));
    }

    #[test]
    fn a_digest_stands_for_its_token() {
        let hex: String = digest_of("0123456789abcdef").iter().map(|byte| format!("{byte:02x}")).collect();
        let rights = rights(&format!("[tokens.ops]\nsha256 = \"{hex}\"\n"));
        assert!(rights.admit(Some(b"Bearer 0123456789abcdef")).unwrap().may("any"));
    }

    #[test]
    fn mistakes_show_no_token() {
        let told = |text: &str| Callers::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(told("").contains("tokens"), "{}", told(""));
        assert!(told("[tokens]\n").contains("nobody"));
        assert!(told("[tokens.a]\ntoken = \"hunter2\"\n").contains("fewer than 16"));
        assert!(told("[tokens.a]\n").contains("either"));
        let cut = told("[tokens.a]\ntoken = \"hunter2-hunter2-hunter2\ntokens = 3");
        assert!(!cut.contains("hunter2"), "{cut}");
        let twice = "[tokens.a]\ntoken = \"0123456789abcdef\"\n[tokens.b]\ntoken = \"0123456789abcdef\"\n";
        assert!(told(twice).contains("one token"));
    }

    #[test]
    fn without_tokens_everybody_may() {
        assert!(Rights::default().admit(None).unwrap().may("any"));
    }
}
