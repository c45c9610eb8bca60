//! The credential resolver `mounted-files`: the parts of a secret are in files of directories that the host's
//! configuration grants, such as a mounted secret of Kubernetes. They are read anew every time, and what was read is
//! good for a while only, so that a file that changes is noticed.
//!
//! Either each part has a file of its own, or `json` names one file and the parts name keys in it.

use tidegate_guest::credentials::{
    ByEndpoint, CredentialResolver, Failure, Parts, Request, Resolved, Secret, describe_entries, valid_for,
};
use tidegate_guest::files::{self, Failure as FileFailure};
use tidegate_guest::json::{self, Value};
use tidegate_guest::{Description, RuleError, Rules};

/// How often the files are read when they change at that very moment.
const TRIES: u32 = 3;

struct MountedFiles {
    secrets: ByEndpoint<Source>,
    /// Milliseconds.
    valid_for: u64,
}

/// Where one secret is.
#[derive(Clone, Debug, PartialEq)]
struct Source {
    /// The file in which the parts are keys; none when they are files.
    json: Option<String>,
    parts: Parts,
}

/// Reads a file: its path and what is in it.
type Read<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, FileFailure>;

impl Source {
    fn read(rules: &mut Rules) -> Result<Option<Self>, RuleError> {
        let json = rules.text("json")?;
        let parts = Parts::read(rules)?;
        match (json, parts) {
            (Some(_), None) => {
                Err(rules.error("json", "needs the keys that are in the file, such as `id` and `secret`"))
            }
            (json, parts) => Ok(parts.map(|parts| Self { json, parts })),
        }
    }

    /// The secret as it is at one moment: files that are replaced together, as a secret is that is renewed, are not mixed.
    fn secret(&self, read: Read<'_>) -> Result<Secret, Failure> {
        let mut before = self.read_once(read)?;
        // One file is one moment's by itself.
        if self.json.is_some() {
            return Ok(before);
        }
        for _ in 0..TRIES {
            let after = self.read_once(read)?;
            if after == before {
                return Ok(after);
            }
            before = after;
        }
        Err(Failure::Unavailable("the files change all the time".to_owned()))
    }

    fn read_once(&self, read: Read<'_>) -> Result<Secret, Failure> {
        let Some(file) = &self.json else {
            let find = |path: &str| match text(path, read(path)) {
                Err(Failure::Unavailable(_)) if self.is_optional(path) => Ok(None),
                found => found.map(Some),
            };
            return self.parts.resolve(find, |path| Failure::Unavailable(format!("`{path}` is not there")));
        };
        let text = text(file, read(file))?;
        let value = json::parse(&text)
            .map_err(|offset| Failure::Unavailable(format!("`{file}` is not JSON at byte {offset}")))?;
        self.parts.resolve(
            |key| {
                Ok(value.at(key).and_then(Value::as_text).filter(|text| !text.is_empty()).map(str::to_owned))
            },
            |key| Failure::Denied(format!("`{file}` has no text at `{key}`")),
        )
    }

    fn is_optional(&self, path: &str) -> bool {
        matches!(&self.parts, Parts::AccessKey { session_token: Some(place), .. } if place == path)
    }
}

/// What a file has, without the line breaks that editors put at its end.
fn text(path: &str, read: Result<Vec<u8>, FileFailure>) -> Result<String, Failure> {
    let bytes = read.map_err(|failure| match failure {
        FileFailure::NotFound => {
            Failure::Unavailable(format!("`{path}` is not there, or its directory is not granted"))
        }
        FileFailure::TooLarge(bytes) => {
            Failure::Denied(format!("`{path}` has {bytes} bytes, which is too large"))
        }
        FileFailure::Refused(why) => Failure::Denied(format!("`{path}` may not be read: {why}")),
        FileFailure::Other(why) => Failure::Unavailable(format!("`{path}` cannot be read: {why}")),
    })?;
    let text = String::from_utf8(bytes).map_err(|_| Failure::Denied(format!("`{path}` is not text")))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        // As it is for a moment while it is written.
        return Err(Failure::Unavailable(format!("`{path}` is empty")));
    }
    Ok(text.to_owned())
}

impl MountedFiles {
    fn resolved(&self, request: &Request, read: Read<'_>) -> Result<Resolved, Failure> {
        let secret = match self.secrets.find(request)? {
            None => Secret::None,
            Some(source) => source.secret(read)?,
        };
        Ok(Resolved { secret, valid_for: Some(self.valid_for) })
    }
}

impl CredentialResolver for MountedFiles {
    fn describe() -> Description {
        let description = Description::of(
            "mounted-files",
            env!("CARGO_PKG_VERSION"),
            "Secrets from mounted files that may change; each key names the file.",
        )
        .text(
            "json",
            "One file with all parts; the other keys then name places in it, such as `data.password`.",
            None,
        );
        let description = Parts::describe(description, "The file (`GRANT/path`) that has").duration(
            "valid-for",
            "After so long the files are read again.",
            Some("1m"),
        );
        describe_entries(description)
    }

    fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
        let valid_for = valid_for(rules)?.unwrap_or(60_000);
        Ok(Self { secrets: ByEndpoint::read(rules, Source::read)?, valid_for })
    }

    fn resolve(&mut self, request: &Request) -> Result<Resolved, Failure> {
        self.resolved(request, &files::read)
    }
}

tidegate_guest::credential_resolver!(MountedFiles);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tidegate_guest::credentials::{AccessKey, Identity, Login, Purpose};

    use super::*;

    const SEPARATE: &str = r#"{"id": "creds/id", "secret": "creds/secret", "session-token": "creds/none"}"#;

    fn resolve(rules: &str, read: Read<'_>) -> Result<Resolved, Failure> {
        let files = MountedFiles::configure(&mut Rules::parse(rules).unwrap()).unwrap();
        files.resolved(&Request { endpoint: "a:1".to_owned(), purpose: Purpose::Produce }, read)
    }

    fn fixed(path: &str) -> Result<Vec<u8>, FileFailure> {
        match path {
            "creds/id" => Ok(b"me\n".to_vec()),
            "creds/secret" => Ok(b"swordfish".to_vec()),
            "creds/all.json" => Ok(br#"{"data": {"user": "me", "password": "swordfish"}}"#.to_vec()),
            "tls/tls.crt" => Ok(b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n".to_vec()),
            "tls/tls.key" => Ok(b"-----BEGIN PRIVATE KEY-----\nB\n-----END PRIVATE KEY-----\r\n".to_vec()),
            "creds/empty" => Ok(b"\n".to_vec()),
            "creds/binary" => Ok(vec![0xff]),
            "creds/large" => Err(FileFailure::TooLarge(70_000)),
            "creds/loop" => Err(FileFailure::Refused("it leads out of its directory".to_owned())),
            "creds/broken" => Err(FileFailure::Other("input/output error".to_owned())),
            _ => Err(FileFailure::NotFound),
        }
    }

    fn key(id: &str, secret: &str) -> Secret {
        Secret::AccessKey(AccessKey { id: id.to_owned(), secret: secret.to_owned(), session_token: None })
    }

    #[test]
    fn parts_are_files_or_keys_of_one_file() {
        let expected = Resolved { secret: key("me", "swordfish"), valid_for: Some(60_000) };
        assert_eq!(resolve(SEPARATE, &fixed), Ok(expected));
        let json = r#"{"json": "creds/all.json", "username": "data.user", "password": "/data/password", "valid-for": "5s"}"#;
        let login = Login { username: "me".to_owned(), password: "swordfish".to_owned() };
        let expected = Resolved { secret: Secret::Login(login), valid_for: Some(5_000) };
        assert_eq!(resolve(json, &fixed), Ok(expected));
        let pair = r#"{"certificate": "tls/tls.crt", "key": "tls/tls.key"}"#;
        let identity = Identity {
            certificate_chain: "-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----".to_owned(),
            private_key: "-----BEGIN PRIVATE KEY-----\nB\n-----END PRIVATE KEY-----".to_owned(),
        };
        assert_eq!(resolve(pair, &fixed).unwrap().secret, Secret::Identity(identity));
    }

    #[test]
    fn a_secret_that_is_replaced_meanwhile_is_never_mixed() {
        // It is replaced after so many reads.
        for replaced_after in 0..12 {
            let reads = Cell::new(0);
            let read = |path: &str| {
                reads.set(reads.get() + 1);
                let suffix = if reads.get() > replaced_after { "2" } else { "1" };
                match path {
                    "creds/none" => Err(FileFailure::NotFound),
                    _ => Ok(format!("{path}-{suffix}").into_bytes()),
                }
            };
            let secret = resolve(SEPARATE, &read).unwrap().secret;
            let is = |suffix| secret == key(&format!("creds/id-{suffix}"), &format!("creds/secret-{suffix}"));
            assert!(is("1") || is("2"), "{secret:?}");
        }
        let reads = Cell::new(0);
        let read = |_: &str| {
            reads.set(reads.get() + 1);
            Ok(reads.get().to_string().into_bytes())
        };
        assert!(
            matches!(resolve(SEPARATE, &read), Err(Failure::Unavailable(text)) if text.contains("change"))
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_by_its_path() {
        let failure = |file: &str| resolve(&format!(r#"{{"token": "{file}"}}"#), &fixed).unwrap_err();
        for (file, why) in [
            ("creds/missing", "`creds/missing` is not there, or its directory is not granted"),
            ("creds/empty", "`creds/empty` is empty"),
            ("creds/broken", "`creds/broken` cannot be read: input/output error"),
        ] {
            assert_eq!(failure(file), Failure::Unavailable(why.to_owned()));
        }
        for (file, why) in [
            ("creds/large", "`creds/large` has 70000 bytes, which is too large"),
            ("creds/loop", "`creds/loop` may not be read: it leads out of its directory"),
            ("creds/binary", "`creds/binary` is not text"),
        ] {
            assert_eq!(failure(file), Failure::Denied(why.to_owned()));
        }
        let half = resolve(r#"{"json": "creds/all.json", "token": "data.token"}"#, &fixed).unwrap_err();
        assert_eq!(half, Failure::Denied("`creds/all.json` has no text at `data.token`".to_owned()));
        let broken = resolve(r#"{"json": "creds/id", "token": "t"}"#, &fixed).unwrap_err();
        assert_eq!(broken, Failure::Unavailable("`creds/id` is not JSON at byte 0".to_owned()));
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_by_key() {
        let error =
            |rules: &str| MountedFiles::configure(&mut Rules::parse(rules).unwrap()).err().unwrap().key;
        assert_eq!(error(r#"{"json": "creds/all.json"}"#), "json");
        assert_eq!(error(r#"{"token": "a", "valid-for": "0s"}"#), "valid-for");
        assert_eq!(error(r#"{"endpoint": [{"json": "creds/all.json", "id": "a"}]}"#), "endpoint[0].secret");
    }
}
