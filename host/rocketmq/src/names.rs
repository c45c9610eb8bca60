//! Names that the server accepts, checked before it is asked.

/// Longest lite topic, in bytes (`maxLiteTopicSize` of the proxy).
pub(crate) const LITE_TOPIC_BYTES_MAX: usize = 64;
/// Longest topic or group, in bytes: the broker's own limit for groups, the larger of the two.
const RESOURCE_BYTES_MAX: usize = 255;

/// Why a name is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("must not be empty")]
    Empty,
    /// Too many characters.
    #[error("has {length} characters, at most {max} are allowed")]
    TooLong {
        /// As given.
        length: usize,
        /// The limit.
        max: usize,
    },
    /// A character that the server refuses.
    #[error("contains `{}`, but only letters, digits, {} are allowed", found.escape_default(), allowed)]
    Character {
        /// The first one.
        found: char,
        /// What may be used beside letters and digits.
        allowed: &'static str,
    },
}

/// Checks a lite topic: `[A-Za-z0-9_-]{1,64}` (measured: 40020 otherwise).
pub(crate) fn check_lite_topic(name: &str) -> Result<(), NameError> {
    check(name, LITE_TOPIC_BYTES_MAX, "`-` and `_`", |c| matches!(c, '-' | '_'))
}

/// Checks a topic or group: `[%A-Za-z0-9_-]+`.
pub(crate) fn check_resource(name: &str) -> Result<(), NameError> {
    check(name, RESOURCE_BYTES_MAX, "`-`, `_` and `%`", |c| matches!(c, '-' | '_' | '%'))
}

fn check(
    name: &str,
    max: usize,
    allowed: &'static str,
    is_allowed: fn(char) -> bool,
) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if let Some(found) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !is_allowed(*c)) {
        return Err(NameError::Character { found, allowed });
    }
    if name.len() > max {
        return Err(NameError::TooLong { length: name.len(), max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lite_topics() {
        assert_eq!(check_lite_topic("tenant-7_A"), Ok(()));
        assert_eq!(check_lite_topic(&"a".repeat(64)), Ok(()));
        assert_eq!(check_lite_topic(&"a".repeat(65)), Err(NameError::TooLong { length: 65, max: 64 }));
        assert_eq!(check_lite_topic(""), Err(NameError::Empty));
        for bad in [" ", ".", "/", "%", "$", ":", "|", "@", "+", "#", "\u{7}", "\u{e9}"] {
            assert!(matches!(check_lite_topic(bad), Err(NameError::Character { .. })), "{bad}");
        }
    }

    #[test]
    fn topics_may_hold_a_percent_sign() {
        assert_eq!(check_resource("%DLQ%group"), Ok(()));
        assert!(check_resource("a b").is_err());
    }
}
