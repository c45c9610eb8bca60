//! Name and password out of Java's text for a login: `MODULE required username="…" password="…";`.
//!
//! Nothing of the text is ever in an error: any of it may be the password.

use secrecy::SecretString;

/// Who logs in.
pub(super) struct Login {
    pub(super) username: Box<str>,
    pub(super) password: SecretString,
}

/// The modules of Kafka's own clients that take a name and a password.
const MODULES: [&str; 2] = ["plain.PlainLoginModule", "scram.ScramLoginModule"];

const SHAPE: &str = "must be `org.apache.kafka.common.security.scram.ScramLoginModule required username=\"…\" \
                     password=\"…\";`, or the same with `plain.PlainLoginModule`";

impl Login {
    /// What is wrong is told in words that follow the property's name.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim().strip_suffix(';').ok_or(SHAPE)?;
        let (module, rest) = text.split_once(char::is_whitespace).ok_or(SHAPE)?;
        let rest = rest.trim_start().strip_prefix("required").ok_or(SHAPE)?;
        if !MODULES.iter().any(|known| module.ends_with(known)) || !rest.starts_with(char::is_whitespace) {
            return Err(SHAPE);
        }
        let (mut username, mut password) = (None, None);
        let mut rest = rest.trim_start();
        while !rest.is_empty() {
            let (name, after) = rest.split_once('=').ok_or(SHAPE)?;
            let (value, after) = value(after.trim_start()).ok_or(SHAPE)?;
            rest = after.trim_start();
            match name.trim() {
                "username" => username = Some(value),
                "password" => password = Some(value),
                // Others of Java's module make no difference to what is sent.
                _ => {}
            }
        }
        match (username, password) {
            (Some(username), Some(password)) => {
                Ok(Self { username: username.into(), password: SecretString::from(password) })
            }
            _ => Err("must have `username=\"…\"` and `password=\"…\"`"),
        }
    }
}

/// A value in quotes, with backslashes before what stands for itself, or a bare word; and what follows it.
fn value(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        return (end > 0).then(|| (text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.push(chars.next()?.1),
            c if c == quote => return Some((value, &text[at + quote.len_utf8()..])),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn parsed(text: &str) -> Result<(String, String), &'static str> {
        Login::parse(text).map(|login| (login.username.into(), login.password.expose_secret().to_owned()))
    }

    #[test]
    fn names_and_passwords_are_read_as_java_reads_them() {
        let plain = "org.apache.kafka.common.security.plain.PlainLoginModule required";
        let expected = |name: &str, password: &str| Ok((name.to_owned(), password.to_owned()));
        let read = |rest: &str| parsed(&format!("{plain} {rest};"));
        assert_eq!(read("username=\"ann\" password=\"a b\""), expected("ann", "a b"));
        assert_eq!(read("username='ann'\n  password=\"\\\"\\\\é=;\""), expected("ann", "\"\\é=;"));
        assert_eq!(read("password=p serviceName=\"x\" username=u"), expected("u", "p"));
        let scram = "shaded.scram.ScramLoginModule required username=\"u\" password=\"\";";
        assert_eq!(parsed(scram), expected("u", ""));
    }

    #[test]
    fn what_is_no_login_is_refused_without_a_word_of_it() {
        for text in [
            "",
            "s3cret",
            "plain.PlainLoginModule required username=\"u\" password=\"s3cret\"",
            "other.Module required username=\"u\" password=\"s3cret\";",
            "plain.PlainLoginModule optional username=\"u\" password=\"s3cret\";",
            "plain.PlainLoginModule required username=\"u\" password=\"s3cret;",
            "plain.PlainLoginModule required username=\"u\";",
        ] {
            let problem = parsed(text).unwrap_err();
            assert!(!problem.contains("s3cret"), "{problem}");
        }
    }
}
