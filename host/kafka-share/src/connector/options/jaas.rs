//! Java's text for a login: `MODULE required name="value" …;`.
//!
//! Only the three modules that Kafka's own clients have are understood. Nothing of a value is ever in an error: it may be the
//! password.

/// A login, as the text has it.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct Login {
    pub(super) module: Module,
    /// Names and values, in the order of the text.
    pub(super) options: Vec<(String, String)>,
}

/// Who logs in, in Java.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Module {
    Plain,
    Scram,
    OauthBearer,
}

const PACKAGE: &str = "org.apache.kafka.common.security";

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
}

impl Login {
    /// Reads the text; what is wrong is the rest of a sentence that begins with the option's key.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = tokens(text)?.into_iter();
        let Some(Token::Word(name)) = tokens.next() else {
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
        let flags = ["required", "requisite", "sufficient", "optional"];
        if !matches!(tokens.next(), Some(Token::Word(flag)) if flags.contains(&&*flag.to_ascii_lowercase())) {
            return Err("must have the word `required` behind the login module".to_owned());
        }
        let mut options = Vec::new();
        loop {
            match tokens.next() {
                Some(Token::End) => break,
                Some(Token::Word(name)) => {
                    let (Some(Token::Equals), Some(Token::Word(value) | Token::Quoted(value))) =
                        (tokens.next(), tokens.next())
                    else {
                        return Err("must have its options as `name=\"value\"`".to_owned());
                    };
                    options.push((name, value));
                }
                None => return Err("must end with `;`".to_owned()),
                Some(_) => return Err("must have its options as `name=\"value\"`".to_owned()),
            }
        }
        if tokens.next().is_some() {
            return Err("has something behind the `;`: one login is enough".to_owned());
        }
        Ok(Self { module, options })
    }

    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

enum Token {
    Word(String),
    Quoted(String),
    Equals,
    End,
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(first) = rest.next() {
        match first {
            ' ' | '\t' | '\r' | '\n' => {}
            '=' => tokens.push(Token::Equals),
            ';' => tokens.push(Token::End),
            quote @ ('"' | '\'') => {
                let mut value = String::new();
                loop {
                    match rest.next() {
                        None => return Err("has a quote that is never closed".to_owned()),
                        Some(end) if end == quote => break,
                        Some('\\') => match rest.next() {
                            Some('n') => value.push('\n'),
                            Some('t') => value.push('\t'),
                            Some('r') => value.push('\r'),
                            Some(other) => value.push(other),
                            None => return Err("has a quote that is never closed".to_owned()),
                        },
                        Some(other) => value.push(other),
                    }
                }
                tokens.push(Token::Quoted(value));
            }
            first => {
                let mut word = String::from(first);
                while let Some(next) =
                    rest.next_if(|next| !next.is_whitespace() && !matches!(next, '=' | ';' | '"' | '\''))
                {
                    word.push(next);
                }
                tokens.push(Token::Word(word));
            }
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javas_texts_are_read() {
        let login = Login::parse(
            "org.apache.kafka.common.security.plain.PlainLoginModule required\n  username=\"alice\"\n  \
             password=\"a \\\"b\\\\ ;=c\";",
        )
        .ok()
        .unwrap();
        assert_eq!(login.module, Module::Plain);
        assert_eq!(
            (login.option("username"), login.option("password")),
            (Some("alice"), Some("a \"b\\ ;=c"))
        );
        let shaded =
            "x.org.apache.kafka.common.security.scram.ScramLoginModule required username=u password='p';";
        assert_eq!(Login::parse(shaded).ok().unwrap().option("password"), Some("p"));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        let module = Module::Scram.name();
        for (text, said) in [
            (String::new(), "must begin"),
            ("hunter2-top-secret".to_owned(), "must begin"),
            ("com.sun.security.auth.module.Krb5LoginModule required hunter2;".to_owned(), "Krb5LoginModule"),
            (format!("{module} username=\"u\" password=\"hunter2\";"), "`required`"),
            (format!("{module} required username=\"u\" password=\"hunter2\""), "`;`"),
            (format!("{module} required password=\"hunter2;"), "never closed"),
            (format!("{module} required password \"hunter2\";"), "name="),
            (format!("{module} required password=\"hunter2\"; {module} required;"), "behind"),
        ] {
            let problem = Login::parse(&text).err().expect(&text);
            assert!(problem.contains(said) && !problem.contains("hunter2"), "{text}: {problem}");
        }
    }
}
