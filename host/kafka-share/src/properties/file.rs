//! Java's file of properties: `name=value`, `name: value` or `name value` a line, `#` and `!` before remarks, a backslash
//! before what stands for itself or at the end of a line that goes on.

use secrecy::SecretString;

use super::Properties;

/// Java's blanks within a line.
const BLANKS: [char; 3] = [' ', '\t', '\u{c}'];

/// Why a file has no properties.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FileError {
    /// An escape that is none.
    #[error("line {line} has `\\u` without four hexadecimal digits after it, or with half a character")]
    Escape {
        /// Where, from 1.
        line: usize,
    },
    /// A name twice: the second would silently win.
    #[error("line {line} gives `{name}` a second time")]
    Twice {
        /// Where, from 1.
        line: usize,
        /// Which.
        name: Box<str>,
    },
}

/// Reads such a file.
///
/// # Errors
/// When it is no such file. Nothing of a value is in the error.
pub fn parse(text: &str) -> Result<Properties, FileError> {
    let mut properties = Properties::new();
    let mut lines = natural_lines(text).enumerate();
    while let Some((at, line)) = lines.next() {
        let line_number = at + 1;
        let mut whole = line.trim_start_matches(BLANKS).to_owned();
        if whole.is_empty() || whole.starts_with(['#', '!']) {
            continue;
        }
        while goes_on(&whole) {
            whole.pop();
            let Some((_, next)) = lines.next() else { break };
            whole.push_str(next.trim_start_matches(BLANKS));
        }
        let (name, value) = split(&whole, line_number)?;
        let name: Box<str> = name.into();
        if properties.insert(name.clone(), SecretString::from(value)).is_some() {
            return Err(FileError::Twice { line: line_number, name });
        }
    }
    Ok(properties)
}

/// Lines that end as Java has it: with a line feed, a carriage return, or both.
fn natural_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\n', '\r']) else {
            rest = None;
            return (!text.is_empty()).then_some(text);
        };
        let (line, after) = text.split_at(end);
        rest = Some(after.strip_prefix("\r\n").unwrap_or(&after[1..]));
        Some(line)
    })
}

/// Whether a line ends in a backslash that is not itself escaped.
fn goes_on(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

fn split(line: &str, number: usize) -> Result<(String, String), FileError> {
    let mut chars = line.chars();
    let mut name = String::new();
    let mut has_mark = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => name.push(escaped(&mut chars, number)?),
            '=' | ':' => {
                has_mark = true;
                break;
            }
            c if BLANKS.contains(&c) => break,
            c => name.push(c),
        }
    }
    let mut rest = chars.as_str().trim_start_matches(BLANKS);
    // After a blank there may still be a mark.
    if !has_mark && let Some(after) = rest.strip_prefix(['=', ':']) {
        rest = after.trim_start_matches(BLANKS);
    }
    let mut value = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        value.push(if c == '\\' { escaped(&mut chars, number)? } else { c });
    }
    Ok((name, value))
}

fn escaped(chars: &mut std::str::Chars<'_>, line: usize) -> Result<char, FileError> {
    Ok(match chars.next() {
        Some('n') => '\n',
        Some('t') => '\t',
        Some('r') => '\r',
        Some('f') => '\u{c}',
        Some('u') => {
            let first = unit(chars).ok_or(FileError::Escape { line })?;
            // What does not fit into 16 bits is two of them.
            let second = match chars.as_str().strip_prefix("\\u") {
                Some(rest) if (0xd800..0xdc00).contains(&first) => {
                    *chars = rest.chars();
                    unit(chars)
                }
                _ => None,
            };
            let mut decoded = char::decode_utf16([first].into_iter().chain(second));
            match (decoded.next(), decoded.next()) {
                (Some(Ok(c)), None) => c,
                _ => return Err(FileError::Escape { line }),
            }
        }
        Some(c) => c,
        None => '\\',
    })
}

/// Four hexadecimal digits.
fn unit(chars: &mut std::str::Chars<'_>) -> Option<u16> {
    let mut unit = 0;
    for _ in 0..4 {
        let digit = chars.next()?.to_digit(16)?;
        unit = (unit << 4) | u16::try_from(digit).ok()?;
    }
    Some(unit)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn lines_are_read_as_java_reads_them() {
        let text =
            "# a remark\n! another\n\na=1\nb : two words \n  c   3\nd.e\\=f=x\\\n   y\\\\\ng=\\u00e9\\t\nh\n";
        let read = parse(text).unwrap();
        let read: Vec<_> = read.iter().map(|(name, value)| (&**name, value.expose_secret())).collect();
        assert_eq!(
            read,
            [("a", "1"), ("b", "two words "), ("c", "3"), ("d.e=f", "xy\\"), ("g", "é\t"), ("h", "")]
        );
    }

    #[test]
    fn line_ends_and_characters_are_javas() {
        let text = "a=1\rb=2\r\nc=\\\r\n  3\nd=\u{a0}x\ne=\\ud83e\\udd80\n";
        let read = parse(text).unwrap();
        let read: Vec<_> = read.iter().map(|(name, value)| (&**name, value.expose_secret())).collect();
        assert_eq!(read, [("a", "1"), ("b", "2"), ("c", "3"), ("d", "\u{a0}x"), ("e", "\u{1f980}")]);
    }

    #[test]
    fn what_is_no_such_file_is_told_by_its_line() {
        assert_eq!(parse("a=1\nb=\\u12").unwrap_err(), FileError::Escape { line: 2 });
        assert_eq!(parse("b=\\u+123").unwrap_err(), FileError::Escape { line: 1 });
        assert_eq!(parse("b=\\ud83e").unwrap_err(), FileError::Escape { line: 1 });
        assert_eq!(parse("a=1\n\na=2").unwrap_err(), FileError::Twice { line: 3, name: "a".into() });
    }
}
