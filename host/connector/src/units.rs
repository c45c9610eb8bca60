//! Typed strings of the configuration: durations and sizes.

use std::time::Duration;

/// Why a text is not a duration or size.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UnitError {
    /// No number at the beginning.
    #[error("`{0}` does not begin with a number")]
    Number(String),
    /// The unit is missing or unknown.
    #[error("`{text}` needs a unit: {expected}")]
    Unit {
        /// What was given.
        text: String,
        /// The known units.
        expected: &'static str,
    },
    /// It does not fit the host's range.
    #[error("`{0}` is too large")]
    Range(String),
}

const DURATION_UNITS: &str = "ms, s, m, h or d, such as `5s` or `1m30s`";
const SIZE_UNITS: &str = "B, KiB, MiB or GiB, such as `64MiB`";

/// Reads a duration: numbers with units, largest first, such as `20s`, `1m30s`, `250ms`.
///
/// # Errors
/// When a number or a unit is missing.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(UnitError::Number(text.to_owned()));
    }
    while !rest.is_empty() {
        let (number, after) = leading_number(rest).ok_or_else(|| UnitError::Number(text.to_owned()))?;
        let unit_len = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let millis_per_unit = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(UnitError::Unit { text: text.to_owned(), expected: DURATION_UNITS }),
        };
        let range = || UnitError::Range(text.to_owned());
        let millis = number.checked_mul(millis_per_unit).ok_or_else(range)?;
        total = total.checked_add(Duration::from_millis(millis)).ok_or_else(range)?;
        rest = after.trim_start();
    }
    Ok(total)
}

/// Writes a duration the way [`parse_duration`] reads it, such as `1m30s`.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let mut millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, per) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if millis >= per {
            text.push_str(&format!("{}{unit}", millis / per));
            millis %= per;
        }
    }
    text
}

/// Reads a size in bytes, such as `64MiB` or `512KiB`.
///
/// # Errors
/// When the number or the unit is missing.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = leading_number(text.trim()).ok_or_else(|| UnitError::Number(text.to_owned()))?;
    let bytes_per_unit = match unit.trim() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(UnitError::Unit { text: text.to_owned(), expected: SIZE_UNITS }),
    };
    number.checked_mul(bytes_per_unit).ok_or_else(|| UnitError::Range(text.to_owned()))
}

/// Writes a size the way [`parse_size`] reads it, in the largest unit that divides it, such as `64MiB`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let unit = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)]
        .into_iter()
        .find(|(_, per)| bytes > 0 && bytes.is_multiple_of(*per));
    match unit {
        Some((unit, per)) => format!("{}{unit}", bytes / per),
        None => format!("{bytes}B"),
    }
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse_duration("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert!(parse_duration("20 s").is_err());
        assert!(matches!(parse_duration("20"), Err(UnitError::Unit { .. })));
        assert!(matches!(parse_duration("s"), Err(UnitError::Number(_))));
        assert!(matches!(parse_duration(""), Err(UnitError::Number(_))));
        assert!(matches!(parse_duration("99999999999999999999d"), Err(UnitError::Number(_))));
        assert!(matches!(parse_duration("999999999999999999d"), Err(UnitError::Range(_))));
    }

    #[test]
    fn durations_round_trip() {
        for millis in [0, 1, 999, 1_000, 61_001, 86_400_000, 90_061_001] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("512 KiB"), Ok(512 << 10));
        assert!(matches!(parse_size("64MB"), Err(UnitError::Unit { .. })));
        for bytes in [0, 1, 1_023, 1 << 10, 1_536, 64 << 20, 3 << 30, u64::MAX] {
            assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
    }
}
