//! How long a token is good for, as endpoints say it.

use tidegate_guest::json::Value;

/// How the answer says when the secret ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Expiry {
    /// Seconds from now.
    Seconds,
    /// A time such as `2026-11-30T05:55:46Z`.
    Rfc3339,
    /// Seconds since the Unix epoch.
    UnixSeconds,
    /// Milliseconds since the Unix epoch.
    UnixMillis,
}

/// Their names in the rules, in the order of [`EXPIRIES`].
pub(crate) const EXPIRY_NAMES: [&str; 4] = ["seconds", "rfc3339", "unix-seconds", "unix-milliseconds"];

pub(crate) const EXPIRIES: [Expiry; 4] =
    [Expiry::Seconds, Expiry::Rfc3339, Expiry::UnixSeconds, Expiry::UnixMillis];

impl Expiry {
    /// Milliseconds that are left at `now` (in milliseconds since the Unix epoch), 0 when it is over; `None` when the
    /// value says nothing.
    pub(crate) fn left(self, value: &Value, now: u64) -> Option<u64> {
        if self == Self::Rfc3339 {
            return Some(parse_rfc3339(value.as_text()?)?.saturating_sub_unsigned(now).max(0) as u64);
        }
        // Some write their numbers as strings.
        let number = match value {
            Value::Text(text) => tidegate_guest::json::parse(text).ok()?.as_number()?,
            value => value.as_number()?,
        };
        // What is below zero or too large becomes the nearest that fits.
        Some(match self {
            Self::Seconds => (number * 1_000.0) as u64,
            Self::UnixSeconds => ((number * 1_000.0) as u64).saturating_sub(now),
            Self::UnixMillis | Self::Rfc3339 => (number as u64).saturating_sub(now),
        })
    }
}

/// Reads a time of RFC 3339 into milliseconds since the Unix epoch.
fn parse_rfc3339(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, len: usize| -> Option<i64> {
        let digits = bytes.get(from..from + len)?;
        digits
            .iter()
            .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
    };
    let is = |at: usize, expected: &[u8]| bytes.get(at).is_some_and(|byte| expected.contains(byte));
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let separated = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    // A second of 60 is a leap second.
    let in_range = (1..=12).contains(&month)
        && (1..=days_of_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !separated || !in_range {
        return None;
    }
    let (mut at, mut millis) = (19, 0);
    if is(at, b".") {
        at += 1;
        let digits = bytes.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        for n in 0..3 {
            millis = millis * 10 + if n < digits { number(at + n, 1)? } else { 0 };
        }
        at += digits;
        if digits == 0 {
            return None;
        }
    }
    let offset_minutes = if is(at, b"Zz") {
        at += 1;
        0
    } else {
        let (hours, minutes) = (number(at + 1, 2)?, number(at + 4, 2)?);
        if !is(at, b"+-") || !is(at + 3, b":") || hours >= 24 || minutes >= 60 {
            return None;
        }
        let minutes = hours * 60 + minutes;
        let east = is(at, b"+");
        at += 6;
        if east { minutes } else { -minutes }
    };
    if at != bytes.len() {
        return None;
    }
    let minutes = (days_before(year, month, day) * 24 + hour) * 60 + minute - offset_minutes;
    Some((minutes * 60 + second) * 1_000 + millis)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the first of January 1970 to this one.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let before = year - 1;
    let leap_days = before / 4 - before / 100 + before / 400;
    // So many days had gone by at the end of 1969.
    let years = before * 365 + leap_days - 719_162;
    years + (1..month).map(|month| days_of_month(year, month)).sum::<i64>() + day - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T01:00:00+01:00", 0),
            ("1969-12-31T19:30:00.5-04:30", 500),
            ("2000-02-29T12:00:00z", 951_825_600_000),
            ("2026-11-30T05:55:46Z", 1_796_018_146_000),
            ("2038-01-19T03:14:07.999999Z", 2_147_483_647_999),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("0001-01-01 00:00:00Z", -62_135_596_800_000),
        ] {
            assert_eq!(parse_rfc3339(text), Some(millis), "{text}");
        }
        for wrong in [
            "",
            "2026-11-30",
            "2026-11-30T05:55:46",
            "2026-13-30T05:55:46Z",
            "2026-02-29T05:55:46Z",
            "2026-11-30T24:00:00Z",
            "2026-11-30T05:55:46.Z",
            "2026-11-30T05:55:46Zx",
            "2026-11-30T05:55:46+1:00",
            "2026/11/30T05:55:46Z",
        ] {
            assert_eq!(parse_rfc3339(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_left_is_counted_from_now() {
        let now = 1_796_018_146_000;
        let left = |expiry: Expiry, json: &str| expiry.left(&tidegate_guest::json::parse(json).unwrap(), now);
        assert_eq!(left(Expiry::Seconds, "3600"), Some(3_600_000));
        assert_eq!(left(Expiry::Seconds, r#""1.5""#), Some(1_500));
        assert_eq!(left(Expiry::Seconds, "-1"), Some(0));
        assert_eq!(left(Expiry::Rfc3339, r#""2026-11-30T05:55:47Z""#), Some(1_000));
        assert_eq!(left(Expiry::Rfc3339, r#""2026-11-30T05:55:45Z""#), Some(0));
        assert_eq!(left(Expiry::UnixSeconds, "1796018147"), Some(1_000));
        assert_eq!(left(Expiry::UnixMillis, r#""1796018146007""#), Some(7));
        assert_eq!(left(Expiry::UnixSeconds, "1"), Some(0));
        for nothing in ["null", "\"soon\"", "[]", "\"\""] {
            assert_eq!(left(Expiry::Seconds, nothing), None, "{nothing}");
        }
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut days = days_before(1, 1, 1);
        for year in 1..=2_500 {
            for month in 1..=12 {
                for day in 1..=days_of_month(year, month) {
                    assert_eq!(days_before(year, month, day), days, "{year}-{month}-{day}");
                    days += 1;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9TZz:. +-]{0,30}|.{0,30}") {
            let _ = parse_rfc3339(&text);
        }
    }
}
