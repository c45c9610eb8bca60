//! A credential resolver for tests: it says its secret in every place where a policy can say something. What it says is
//! the host's to clean.

use tidegate_guest::credentials::{AccessKey, CredentialResolver, Failure, Request, Resolved, Secret};
use tidegate_guest::{Description, RuleError, Rules, env, files, http, log};

/// A variable whose value this policy tells in its description, when it is granted and set.
const DESCRIBED: &str = "LEAKING_DESCRIBED";

/// Milliseconds. Short, so that it is asked again and again.
const VALID_FOR: u64 = 1_000;

struct Leaking {
    id: String,
    from: String,
    aloud: Aloud,
}

/// Where the secret is said.
#[derive(Clone, Copy)]
enum Aloud {
    /// In lines of the log; the secret is then given as it should be.
    Log,
    /// In a panic.
    Panic,
    /// In a failure of each kind, one after the other.
    Failure,
    /// In the complaint about the rules.
    Rules,
    /// In a panic while the rules are read.
    Start,
}

const ALOUD: [&str; 5] = ["log", "panic", "failure", "rules", "start"];

impl Leaking {
    /// What is at `env:NAME`, in the file `GRANT/path`, or at the URL.
    fn read(&self) -> Result<String, Failure> {
        let other = |text: &str| Failure::Other(text.to_owned());
        if let Some(name) = self.from.strip_prefix("env:") {
            return env::get(name).ok_or_else(|| other("not set"));
        }
        let bytes = if self.from.starts_with("http:") {
            let request = http::Request {
                method: "GET".to_owned(),
                url: self.from.clone(),
                headers: Vec::new(),
                body: Vec::new(),
            };
            http::fetch(&request).map_err(|_| other("no answer"))?.body
        } else {
            files::read(&self.from).map_err(|_| other("no file"))?
        };
        String::from_utf8(bytes).map_err(|_| other("no text"))
    }
}

/// The secret by itself, out of a text such as `{"id": "me", "secret": "..."}`: taken out as a careless policy would, so
/// that it is found in text that is no JSON too.
fn taken_out(text: &str) -> &str {
    let Some((_, rest)) = text.split_once("\"secret\"") else { return text.trim() };
    let rest = rest.trim_start_matches([':', ' ', '"']);
    rest.split(['"', '\n', '}']).next().unwrap_or(rest)
}

/// As in a URL.
fn percent(text: &str) -> String {
    let written = text.bytes().map(|byte| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    written.collect()
}

/// Without padding.
fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.as_bytes().chunks(3).flat_map(|bytes| {
        let number = (0..3).fold(0, |number, at| number << 8 | u32::from(*bytes.get(at).unwrap_or(&0)));
        let digit = move |at: usize| char::from(DIGITS[(number >> (18 - 6 * at) & 63) as usize]);
        (0..=bytes.len()).map(digit)
    });
    digits.collect()
}

impl CredentialResolver for Leaking {
    fn describe() -> Description {
        let summary = match env::get(DESCRIBED) {
            Some(value) => ["Says aloud ", &value].concat(),
            None => "Says its secret aloud.".to_owned(),
        };
        Description::of("leaking", env!("CARGO_PKG_VERSION"), &summary)
            .text("id", "The access key.", None)
            .text("from", "Where the secret is: `env:NAME`, `GRANT/path`, or a URL.", None)
            .text("aloud", "Where it is said.", None)
    }

    fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
        let (id, from) = (rules.text("id")?, rules.text("from")?);
        let aloud = match rules.choice("aloud", &ALOUD)?.unwrap_or_default() {
            0 => Aloud::Log,
            1 => Aloud::Panic,
            2 => Aloud::Failure,
            3 => Aloud::Rules,
            _ => Aloud::Start,
        };
        let policy = Self { id: rules.required("id", id)?, from: rules.required("from", from)?, aloud };
        let text = || policy.read().unwrap_or_default();
        match policy.aloud {
            Aloud::Rules => Err(rules.error("from", ["has ", taken_out(&text())].concat())),
            Aloud::Start => panic!("at the start there is {}", taken_out(&text())),
            _ => Ok(policy),
        }
    }

    fn resolve(&mut self, request: &Request) -> Result<Resolved, Failure> {
        let text = self.read()?;
        let secret = taken_out(&text);
        let said = ["the secret is ", secret, " for ", &request.endpoint].concat();
        match self.aloud {
            Aloud::Log => {
                for level in [log::Level::Debug, log::Level::Info, log::Level::Warn, log::Level::Error] {
                    log::write(level, &said);
                }
                log::write(log::Level::Info, &["read ", &text].concat());
                log::write(log::Level::Info, &["GET /?secret=", &percent(secret)].concat());
                let basic = base64(&[&self.id, ":", secret].concat());
                log::write(log::Level::Info, &["authorization: Basic ", &basic].concat());
                log::write(log::Level::Info, &["quoted \"", &text.escape_debug().to_string(), "\""].concat());
                let key = AccessKey { id: self.id.clone(), secret: secret.to_owned(), session_token: None };
                Ok(Resolved { secret: Secret::AccessKey(key), valid_for: Some(VALID_FOR) })
            }
            Aloud::Panic => panic!("{said}"),
            _ => Err(match tidegate_guest::clock::random() % 3 {
                0 => Failure::Unavailable(said),
                1 => Failure::Other(said),
                _ => Failure::Denied(said),
            }),
        }
    }
}

tidegate_guest::credential_resolver!(Leaking);
