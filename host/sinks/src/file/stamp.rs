//! Times in names of files: all of one length, so that names sort as times do.

use tidegate_model::Timestamp;

/// Bytes of a stamp.
pub(super) const STAMP_BYTES: usize = 20;

const DAY_MILLIS: u64 = 86_400_000;
/// 9999-12-31T23:59:59.999Z: years have four digits.
const MILLIS_MAX: u64 = 253_402_300_799_999;

/// A time in UTC such as `20260102T030405.678Z`.
pub(super) fn format(time: Timestamp) -> String {
    let millis = time.as_unix_millis().min(MILLIS_MAX);
    let (year, month, day) = civil_date(millis / DAY_MILLIS);
    let (seconds, fraction) = (millis % DAY_MILLIS / 1_000, millis % 1_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{fraction:03}Z")
}

/// The time of a stamp; `None` for what is none.
pub(super) fn parse(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == STAMP_BYTES && text.is_ascii())?;
    let number = |from: usize, to: usize| text[from..to].parse::<u64>().ok();
    let days = days_since_epoch(number(0, 4)?, number(4, 6)?, number(6, 8)?)?;
    let seconds = number(9, 11)? * 3_600 + number(11, 13)? * 60 + number(13, 15)?;
    let time = Timestamp::from_unix_millis(days * DAY_MILLIS + seconds * 1_000 + number(16, 19)?);
    // Whatever is out of range, or has other letters, does not come out as it went in.
    (format(time) == text).then_some(time)
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Eras of 400 years have 146,097
/// days; years begin in March, so that the leap day is the last.
const fn civil_date(days_since_epoch: u64) -> (u64, u64, u64) {
    let days = days_since_epoch + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// The other way round; `None` before 1970.
const fn days_since_epoch(year: u64, month: u64, day: u64) -> Option<u64> {
    if year < 1_970 || month == 0 || month > 12 || day == 0 {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        for (millis, text) in [
            (0, "19700101T000000.000Z"),
            (951_782_400_000, "20000229T000000.000Z"),
            (1_767_323_045_678, "20260102T030405.678Z"),
            (1_735_689_599_999, "20241231T235959.999Z"),
            (MILLIS_MAX, "99991231T235959.999Z"),
        ] {
            let time = Timestamp::from_unix_millis(millis);
            assert_eq!(format(time), text);
            assert_eq!(parse(text.as_bytes()), Some(time));
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "20260102T030405.678",
            "20260102T030405.678z",
            "20261302T030405.678Z",
            "20260230T030405.678Z",
            "20260102T030460.678Z",
            "20260102T240000.000Z",
            "2026010 T030405.678Z",
            "+0260102T030405.678Z",
            "20260102T03040\u{e9}.67Z",
            "19691231T235959.999Z",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn stamps_sort_as_times_do(a in 0..=MILLIS_MAX, b in 0..=MILLIS_MAX) {
            let (one, other) = (Timestamp::from_unix_millis(a), Timestamp::from_unix_millis(b));
            prop_assert_eq!(format(one).cmp(&format(other)), a.cmp(&b));
            prop_assert_eq!(format(one).len(), STAMP_BYTES);
            prop_assert_eq!(parse(format(one).as_bytes()), Some(one));
        }
    }
}
