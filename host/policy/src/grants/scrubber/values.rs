//! Takes a text apart into what may be a secret in it, whatever its notation: JSON, TOML, YAML, a form, lines of
//! `NAME=VALUE`, or the half of a file that somebody is writing.
//!
//! A parser would refuse exactly the texts that policies complain about. This one takes everything, and rather gives too
//! much than too little: names, which stand before a colon or an equals sign, are the only thing that it leaves out, so
//! that complaints can still name a key.

/// A run of characters within quotes that is longer than words are: a secret, even if the quotes are in a wrong place.
const RUN_BYTES_MIN: usize = 16;

/// Everything in `text` that may be a value.
pub(super) fn values(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        values_of_line(line, &mut found);
    }
    found
}

fn values_of_line(line: &str, found: &mut Vec<String>) {
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        if is_quote(first) {
            let (inside, after) = quoted(&rest[1..], first);
            rest = after;
            if !names_something(after) {
                found.extend(unescaped(inside));
                found.push(inside.to_owned());
                let runs = inside.split(is_between).filter(|run| run.len() >= RUN_BYTES_MIN);
                found.extend(runs.map(str::to_owned));
            }
        } else if is_between(first) {
            rest = &rest[first.len_utf8()..];
        } else {
            // A quote within a run is a part of it.
            let (run, after) = rest.split_at(rest.find(is_between).unwrap_or(rest.len()));
            rest = after;
            let padding = padding(after);
            if padding > 0 {
                found.push(format!("{run}{}", &after[..padding]));
            } else if !names_something(after) {
                found.push(run.to_owned());
            }
        }
    }
}

/// What stands between values.
fn is_between(c: char) -> bool {
    c.is_whitespace()
        || matches!(c, ',' | ';' | ':' | '=' | '&' | '{' | '}' | '[' | ']' | '(' | ')' | '<' | '>')
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

/// Whether what ended before this is a name: of a key, a header, a variable.
fn names_something(after: &str) -> bool {
    after.trim_start().starts_with([':', '='])
}

/// Bytes of equals signs that are the end of a value, as in base64, and not the sign after a name.
fn padding(after: &str) -> usize {
    let signs = after.len() - after.trim_start_matches('=').len();
    let ends = after[signs..].chars().next().is_none_or(|next| is_between(next) && next != '=');
    if (1..=2).contains(&signs) && ends { signs } else { 0 }
}

/// What is within quotes, to the next one that is not escaped or to the end of the line, and what comes after them.
fn quoted(text: &str, quote: char) -> (&str, &str) {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if c == '\\' {
            is_escaped = true;
        } else if c == quote {
            return (&text[..at], &text[at + c.len_utf8()..]);
        }
    }
    (text, "")
}

/// The text that stands there escaped, if it does; as JSON and TOML have it.
fn unescaped(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return None;
    }
    // A policy that reads it has it so, even when more of the text is wrong.
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            clean.push(c);
            continue;
        }
        match rest.next() {
            Some('n') => clean.push('\n'),
            Some('t') => clean.push('\t'),
            Some('r') => clean.push('\r'),
            Some('b') => clean.push('\u{8}'),
            Some('f') => clean.push('\u{c}'),
            Some('u') => {
                let digits: String = rest.clone().take(4).collect();
                match u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32) {
                    Some(decoded) => {
                        clean.push(decoded);
                        rest.nth(3);
                    }
                    None => clean.push('u'),
                }
            }
            Some(other) => clean.push(other),
            None => {}
        }
    }
    Some(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        values(text)
    }

    #[test]
    fn values_are_found_in_every_notation() {
        for text in [
            r#"{"user": "alice", "password": "correct-horse"}"#,
            r#"{"password":"correct-horse","user":"alice"}"#,
            "{\n  \"password\": \"correct-horse\",\n  \"user\": \"alice\"\n}",
            "user = \"alice\"\npassword = \"correct-horse\"",
            "user = 'alice'\npassword='correct-horse'",
            "user: alice\npassword: correct-horse",
            "export user=alice\nexport password=correct-horse",
            "user=alice&password=correct-horse&x=",
            "alice:correct-horse",
            "machine db login alice password correct-horse",
            "<password>correct-horse</password><user>alice</user>",
            "[\"alice\", \"correct-horse\"]",
        ] {
            let values = found(text);
            assert!(values.iter().any(|value| value == "correct-horse"), "{text}: {values:?}");
        }
    }

    #[test]
    fn names_of_keys_are_none() {
        for text in
            [r#"{"password" : "correct-horse"}"#, "password = \"correct-horse\"", "password: correct-horse"]
        {
            assert_eq!(found(text), ["correct-horse"], "{text}");
        }
    }

    #[test]
    fn half_a_text_has_values_too() {
        for text in [
            r#"{"user": "alice", "password": "correct-horse-battery"#,
            r#"{"user": "alice, "password": "correct-horse-battery"}"#,
            r#"{"password": "correct-horse-battery, "user": "alice"}"#,
            r#"{"user": "al"ice", "password": "correct-horse-battery"}"#,
            r#""password": correct-horse-battery"}"#,
        ] {
            let values = found(text);
            assert!(
                values.iter().any(|value| value.trim_matches('"') == "correct-horse-battery"),
                "{text}: {values:?}"
            );
        }
    }

    #[test]
    fn escaped_values_are_found_as_they_are_and_as_they_are_meant() {
        let values = found(r#"{"password": "a \"b\" \\ \u00e9\n-\/"}"#);
        assert_eq!(values, ["a \"b\" \\ é\n-/", r#"a \"b\" \\ \u00e9\n-\/"#]);
        assert_eq!(found(r#""a\uXYZW\"#)[0], "auXYZW");
    }

    #[test]
    fn padding_is_a_part_of_its_value() {
        for text in ["token: Y29ycmVjdA==", "token=Y29ycmVjdA==", "{token: Y29ycmVjdA==}", "Y29ycmVjdA=="] {
            assert_eq!(found(text), ["Y29ycmVjdA=="], "{text}");
        }
    }
}
