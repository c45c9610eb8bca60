//! Encryption and login by the properties of Java's clients, wherever these stand.

use std::path::PathBuf;
use std::sync::Arc;

use secrecy::SecretString;
use tidegate_connector::secret::{Secret, SecretSource};
use tidegate_connector::tls::{Client as Tls, Identity, Pem, ServerNameCheck, Trust};

use super::jaas::{Login, Module};
use super::{
    CHAIN, JAAS, KEY, KEY_FILE, KEY_TYPE, MECHANISM, NAME_CHECK, PROTOCOL, TOKEN_URL, TRUST_FILE, TRUST_TEXT,
    TRUST_TYPE,
};
use crate::{Extension, FixedSecret, Mechanism, Sasl, Security, TokenFile};

const PEM: &str = "PEM";
const HTTPS: &str = "https";

/// Where properties are found.
pub(crate) trait Given {
    /// The value of a property.
    fn text(&self, name: &'static str) -> Option<&str>;

    /// What whoever wrote it calls a property.
    fn called(&self, name: &'static str) -> String;

    /// What gives the login in place of the properties, when it does: its name.
    fn resolver(&self) -> Option<&str>;

    /// Whether a value only says where a secret is, and nobody has looked yet.
    fn is_elsewhere(&self, value: &str) -> bool;

    /// What to do without a file that has a token.
    fn token_advice(&self) -> String;
}

/// What is wrong with a property, in words that follow its name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Problem {
    /// Java's name of it.
    pub(crate) name: &'static str,
    /// What is wrong.
    pub(crate) text: String,
}

/// Reads them, and notes everything that is wrong.
pub(crate) fn read(given: &impl Given, problems: &mut Vec<Problem>) -> Security {
    let mut reader = Reader { given, problems };
    let protocol = given.text(PROTOCOL).unwrap_or("PLAINTEXT");
    let (has_tls, has_sasl) = match protocol {
        "PLAINTEXT" => (false, false),
        "SSL" => (true, false),
        "SASL_PLAINTEXT" => (false, true),
        "SASL_SSL" => (true, true),
        _ => {
            reader.note(PROTOCOL, "must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL");
            return Security { tls: None, sasl: None };
        }
    };
    if !has_tls {
        let names = [TRUST_FILE, TRUST_TEXT, TRUST_TYPE, KEY_FILE, CHAIN, KEY, KEY_TYPE, NAME_CHECK];
        reader.note_idle(&names, protocol, "TLS");
    }
    if !has_sasl {
        reader.note_idle(&[MECHANISM, JAAS, TOKEN_URL], protocol, "SASL");
    }
    let tls = has_tls.then(|| reader.tls());
    let sasl = if has_sasl { reader.sasl() } else { None };
    Security { tls, sasl }
}

struct Reader<'a, G> {
    given: &'a G,
    problems: &'a mut Vec<Problem>,
}

impl<'a, G: Given> Reader<'a, G> {
    fn text(&self, name: &'static str) -> Option<&'a str> {
        self.given.text(name)
    }

    fn called(&self, name: &'static str) -> String {
        self.given.called(name)
    }

    fn note(&mut self, name: &'static str, text: impl Into<String>) {
        self.problems.push(Problem { name, text: text.into() });
    }

    /// Notes what does nothing without TLS or SASL, unless it only says what is so anyway.
    fn note_idle(&mut self, names: &[&'static str], protocol: &str, word: &str) {
        let said = format!("has no effect: `{}` is {protocol}, which has no {word}", self.called(PROTOCOL));
        for name in names.iter().copied() {
            let as_ever = match name {
                TRUST_TYPE | KEY_TYPE => Some(PEM),
                NAME_CHECK => Some(HTTPS),
                _ => None,
            };
            if self.text(name).is_some_and(|text| Some(text) != as_ever) {
                self.note(name, said.clone());
            }
        }
    }

    fn tls(&mut self) -> Tls {
        for (name, convert) in [
            (TRUST_TYPE, "`keytool -exportcert -rfc -keystore STORE -alias ALIAS`"),
            (KEY_TYPE, "`openssl pkcs12 -in STORE -nodes -out FILE.pem`"),
        ] {
            if let Some(kind) = self.text(name).filter(|kind| *kind != PEM) {
                self.note(name, format!("must be `{PEM}`, not `{kind}`: convert the store with {convert}"));
            }
        }
        for name in [TRUST_FILE, KEY_FILE] {
            if self
                .text(name)
                .is_some_and(|path| [".jks", ".p12", ".pfx"].iter().any(|end| path.ends_with(end)))
            {
                self.note(name, "must name a PEM file, not a store of Java's");
            }
        }
        let trust = match (self.pem_file(TRUST_FILE), self.pem_text(TRUST_TEXT)) {
            (Some(_), Some(_)) => {
                self.note_beside(TRUST_TEXT, TRUST_FILE);
                Trust::SystemRoots
            }
            (Some(pem), None) | (None, Some(pem)) => Trust::Certificates(pem),
            (None, None) => Trust::SystemRoots,
        };
        let identity = match (self.pem_file(KEY_FILE), self.pem_text(CHAIN), self.pem_text(KEY)) {
            (Some(pem), None, None) => Some(Identity { certificates: pem.clone(), key: pem }),
            (None, Some(certificates), Some(key)) => Some(Identity { certificates, key }),
            (Some(_), chain, key) => {
                for (name, _) in [(CHAIN, chain), (KEY, key)].iter().filter(|(_, text)| text.is_some()) {
                    self.note_beside(name, KEY_FILE);
                }
                None
            }
            (None, Some(_), None) => {
                self.note_missing_half(KEY, CHAIN);
                None
            }
            (None, None, Some(_)) => {
                self.note_missing_half(CHAIN, KEY);
                None
            }
            (None, None, None) => None,
        };
        let server_name = match self.text(NAME_CHECK) {
            None | Some(HTTPS) => ServerNameCheck::On,
            Some("") => ServerNameCheck::Off,
            Some(other) => {
                self.note(NAME_CHECK, format!("must be `{HTTPS}` or empty, not `{other}`"));
                ServerNameCheck::On
            }
        };
        Tls { trust, server_name, identity }
    }

    fn pem_file(&self, name: &'static str) -> Option<Pem> {
        self.text(name).map(|path| Pem::File(PathBuf::from(path)))
    }

    fn pem_text(&self, name: &'static str) -> Option<Pem> {
        self.text(name).map(|text| Pem::Text(SecretString::from(text.to_owned())))
    }

    fn note_beside(&mut self, name: &'static str, other: &'static str) {
        self.note(name, format!("cannot stand beside `{}`: give one of them", self.called(other)));
    }

    fn note_missing_half(&mut self, name: &'static str, given: &'static str) {
        let other = self.called(given);
        self.note(name, format!("is missing: `{other}` is given, and one needs the other"));
    }

    fn sasl(&mut self) -> Option<Sasl> {
        let Some(mechanism) = self.text(MECHANISM).and_then(Mechanism::parse) else {
            let names: Vec<_> = Mechanism::ALL.iter().map(|mechanism| mechanism.name()).collect();
            let missing = if self.text(MECHANISM).is_none() { "is missing: it " } else { "" };
            self.note(MECHANISM, format!("{missing}must be one of {}", names.join(", ")));
            return None;
        };
        match self.sasl_of(mechanism) {
            Ok(sasl) => Some(sasl),
            Err((name, text)) => {
                self.note(name, text);
                None
            }
        }
    }

    fn sasl_of(&self, mechanism: Mechanism) -> Result<Sasl, (&'static str, String)> {
        let is_bearer = mechanism == Mechanism::OauthBearer;
        let text = self.text(JAAS).filter(|text| !self.given.is_elsewhere(text));
        let login = text.map(Login::parse).transpose().map_err(|problem| (JAAS, problem))?;
        let wanted = Module::of(mechanism);
        if login.as_ref().is_some_and(|login| login.module != wanted) {
            let key = self.called(MECHANISM);
            return Err((JAAS, format!("must have `{}` for `{key}` = `{mechanism}`", wanted.name())));
        }
        let extensions = login.as_ref().map(extensions).transpose().map_err(|problem| (JAAS, problem))?;
        let token = self.text(TOKEN_URL);
        if !is_bearer && token.is_some() {
            let key = self.called(MECHANISM);
            return Err((TOKEN_URL, format!("has no effect with `{key}` = `{mechanism}`")));
        }
        let secrets: Arc<dyn SecretSource> = if let Some(resolver) = self.given.resolver() {
            let beside = |name| Err((name, format!("cannot stand beside `{resolver}`: give one of them")));
            if !is_bearer && self.text(JAAS).is_some() {
                return beside(JAAS);
            }
            if token.is_some() {
                return beside(TOKEN_URL);
            }
            Arc::new(FixedSecret::new(Secret::None))
        } else if is_bearer {
            Arc::new(self.token_file(token).map_err(|problem| (TOKEN_URL, problem))?)
        } else {
            Arc::new(FixedSecret::new(self.password(mechanism, login.as_ref())?))
        };
        Ok(Sasl { mechanism, secrets, extensions: extensions.unwrap_or_default() })
    }

    fn password(
        &self,
        mechanism: Mechanism,
        login: Option<&Login>,
    ) -> Result<Secret, (&'static str, String)> {
        let Some(login) = login else {
            // One that stands elsewhere is looked up before anybody connects.
            return self.text(JAAS).map(|_| Secret::None).ok_or_else(|| {
                let key = self.called(MECHANISM);
                (JAAS, format!("is missing: `{key}` is {mechanism}, which takes a name and a password"))
            });
        };
        let (Some(username), Some(password)) = (login.option("username"), login.option("password")) else {
            return Err((JAAS, "must have `username=\"…\"` and `password=\"…\"`".to_owned()));
        };
        Ok(Secret::Login { username: username.into(), password: SecretString::from(password.to_owned()) })
    }

    fn token_file(&self, url: Option<&str>) -> Result<TokenFile, String> {
        let advice = self.given.token_advice();
        match url.map(|url| url.strip_prefix("file://")) {
            None => Err(format!("is missing: OAUTHBEARER takes a token; {advice}")),
            Some(Some(path)) if path.starts_with('/') => Ok(TokenFile::new(path)),
            Some(Some(_)) => {
                Err("must be `file://` and a whole path, as `file:///run/secrets/token`".to_owned())
            }
            Some(None) => Err(format!("must be a file: tokens are not fetched from a server here; {advice}")),
        }
    }
}

/// What goes along with a token: options called `extension_NAME`.
fn extensions(login: &Login) -> Result<Vec<Extension>, String> {
    let given =
        login.options.iter().filter_map(|(name, value)| Some((name.strip_prefix("extension_")?, value)));
    given
        .map(|(name, value)| {
            Extension::new(name, value)
                .map_err(|error| format!("has the extension `{name}`, which cannot be sent: {error}"))
        })
        .collect()
}
