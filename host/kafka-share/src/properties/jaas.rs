//! Java's text for a login: `MODULE required name="value" …;`.
//!
//! What Java's client takes is taken, but for modules: only the three that Kafka's own clients have are understood. Nothing of
//! a value is ever in an error: it may be the password.

mod tokens;

use std::collections::BTreeMap;

use self::tokens::{Token, Tokens};
use crate::Mechanism;

/// A login, as the text has it.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct Login {
    pub(super) module: Module,
    /// Values by names; of a name that comes twice, the last.
    pub(super) options: BTreeMap<String, String>,
}

/// Who logs in, in Java.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Module {
    Plain,
    Scram,
    OauthBearer,
}

const PACKAGE: &str = "org.apache.kafka.common.security";
/// Java's words for what comes of a module that refuses. With one module they all mean the same.
const FLAGS: [&str; 4] = ["required", "requisite", "sufficient", "optional"];
const OPTIONS: &str = "must have its options as `name=\"value\"`";

impl Module {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "org.apache.kafka.common.security.plain.PlainLoginModule",
            Self::Scram => "org.apache.kafka.common.security.scram.ScramLoginModule",
            Self::OauthBearer => "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        // Some vendors shade the package.
        [Self::Plain, Self::Scram, Self::OauthBearer].into_iter().find(|module| {
            name == module.name()
                || name.strip_suffix(module.name()).is_some_and(|before| before.ends_with('.'))
        })
    }

    /// The one that a mechanism takes.
    pub(super) const fn of(mechanism: Mechanism) -> Self {
        match mechanism {
            Mechanism::Plain => Self::Plain,
            Mechanism::OauthBearer => Self::OauthBearer,
            Mechanism::ScramSha256 | Mechanism::ScramSha512 => Self::Scram,
        }
    }
}

impl Login {
    /// Reads the text; what is wrong is the rest of a sentence that begins with the option's key.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens::of(text);
        let Some(Token::Word(name) | Token::Quoted(name)) = tokens.next() else {
            return Err(format!(
                "must begin with the name of a login module, such as `{}`",
                Module::Scram.name()
            ));
        };
        let module = Module::parse(&name).ok_or_else(|| {
            let known = "PlainLoginModule, ScramLoginModule and OAuthBearerLoginModule";
            // A text without a module may begin with a secret.
            if name.starts_with(PACKAGE) || name.ends_with("LoginModule") {
                format!("names the login module `{name}`; there are {known} of `{PACKAGE}`")
            } else {
                format!("must begin with the name of a login module: there are {known} of `{PACKAGE}`")
            }
        })?;
        let is_flag = |word: &str| FLAGS.iter().any(|flag| word.eq_ignore_ascii_case(flag));
        if !matches!(tokens.next(), Some(Token::Word(flag) | Token::Quoted(flag)) if is_flag(&flag)) {
            return Err("must have the word `required` behind the login module".to_owned());
        }
        let mut options = BTreeMap::new();
        loop {
            let name = match tokens.next() {
                Some(Token::End) => break,
                Some(Token::Word(name) | Token::Quoted(name)) => name,
                Some(Token::Unclosed) => return Err(unclosed()),
                Some(_) => return Err(OPTIONS.to_owned()),
                None => return Err("must end with `;`".to_owned()),
            };
            if !matches!(tokens.next(), Some(Token::Equals)) {
                return Err(OPTIONS.to_owned());
            }
            let value = match tokens.next() {
                Some(Token::Word(value) | Token::Quoted(value)) => value,
                Some(Token::Unclosed) => return Err(unclosed()),
                Some(Token::Number) => {
                    return Err("has an option that begins with a digit and stands without quotes".to_owned());
                }
                _ => return Err(OPTIONS.to_owned()),
            };
            options.insert(name, value);
        }
        if tokens.next().is_some() {
            return Err("has something behind the `;`: one login is enough".to_owned());
        }
        Ok(Self { module, options })
    }

    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }
}

fn unclosed() -> String {
    "has a quote that is never closed".to_owned()
}

#[cfg(test)]
mod tests;
