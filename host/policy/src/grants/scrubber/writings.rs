//! How a secret is written when it goes into a URL, a header, or a quoted text.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::log_tail::printable;

/// Of longer values only what they are is looked for: they are files, which nobody puts into a URL.
const BYTES_MAX: usize = 512;

/// Shorter base64 would be found in other words.
const BASE64_BYTES_MIN: usize = 8;

/// Every other way in which `value` may stand in a text.
pub(super) fn writings(value: &str) -> Vec<String> {
    // As a line of the log has it.
    let mut written = vec![printable(value, usize::MAX)];
    if value.len() <= BYTES_MAX {
        let quoted = format!("{value:?}");
        written.push(quoted[1..quoted.len() - 1].to_owned());
        let percent = utf8_percent_encode(value, UNRESERVED).to_string();
        written.push(lower_escapes(&percent));
        written.push(percent.replace("%20", "+"));
        written.push(percent);
        let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        written.push(hex.to_uppercase());
        written.push(hex);
        written.extend(base64(value.as_bytes()));
    }
    written.sort_unstable();
    written.dedup();
    written.retain(|written| written != value);
    written
}

/// What a URL has as it is; every other byte is its number.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The same with `%2f` in the place of `%2F`.
fn lower_escapes(percent: &str) -> String {
    let mut parts = percent.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (escape, rest) = part.split_at(part.len().min(2));
        text.push('%');
        text.push_str(&escape.to_ascii_lowercase());
        text.push_str(rest);
    }
    text
}

/// In base64, also as the end of a longer text, such as `user:` before a password: of each only the characters that are
/// the same whatever stands before and after it.
fn base64(value: &[u8]) -> Vec<String> {
    let mut written = Vec::new();
    for before in 0..3_usize {
        let padded = [&[0; 2][..before], value].concat();
        let (first, last) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let certain = engine.encode(&padded).get(first..last).unwrap_or_default().to_owned();
            if certain.len() >= BASE64_BYTES_MIN {
                written.push(certain);
            }
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn a_value_is_written_in_these_ways() {
        let written = writings("a/b c\t\"d\"");
        for way in [
            "a/b c\\t\"d\"",
            "a/b c\\t\\\"d\\\"",
            "a%2Fb%20c%09%22d%22",
            "a%2fb%20c%09%22d%22",
            "a%2Fb+c%09%22d%22",
        ] {
            assert!(written.iter().any(|written| written == way), "{way}: {written:?}");
        }
        assert!(written.contains(&"612f62206309226422".to_owned()));
        assert!(!writings("plain-enough").contains(&"plain-enough".to_owned()));
    }

    #[test]
    fn base64_is_found_wherever_it_begins() {
        let value = "correct?horse>battery";
        for before in ["", "a", "ab", "user:", "user2:"] {
            for after in ["", "!", "@host"] {
                let whole = STANDARD.encode(format!("{before}{value}{after}"));
                let found = writings(value).iter().any(|written| whole.contains(written.as_str()));
                assert!(found, "{whole}");
            }
        }
    }
}
