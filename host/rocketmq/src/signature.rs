//! The `authorization` of a call: HMAC-SHA1 over the text of its date-time.

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::ExposeSecret as _;
use sha1::Sha1;
use tidegate_model::Timestamp;

use crate::credentials::Keys;

/// The value of `authorization` for a call at `date_time`, as the text of `x-mq-date-time` says it.
pub(crate) fn authorization(keys: &Keys, date_time: &str) -> String {
    let signature = sign(keys.secret_key().expose_secret(), date_time);
    let access_key = keys.access_key();
    format!("MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={signature}")
}

/// A wall-clock time as the protocol writes it, such as `20260101T000000Z`, in UTC.
pub(crate) fn date_time(time: Timestamp) -> String {
    let seconds = time.as_unix_millis() / 1_000;
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

fn sign(secret_key: &str, text: &str) -> String {
    use std::fmt::Write as _;
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(secret_key.as_bytes()) else { return String::new() };
    mac.update(text.as_bytes());
    let mut hex = String::with_capacity(40);
    for byte in mac.finalize().into_bytes() {
        // Writing to a string has no way to fail.
        let _ = write!(hex, "{byte:02X}");
    }
    hex
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Eras of 400 years have 146,097
/// days; years begin in March, so that the leap day is the last.
const fn civil_date(days_since_epoch: u64) -> (u64, u64, u64) {
    /// Days from 0000-03-01 to 1970-01-01.
    const DAYS_TO_EPOCH: u64 = 719_468;
    let days = days_since_epoch + DAYS_TO_EPOCH;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    #[test]
    fn recorded_signature() {
        let keys = Keys::new("alice", SecretString::from("secretKey".to_owned()));
        assert_eq!(
            authorization(&keys, "20260101T000000Z"),
            "MQv2-HMAC-SHA1 Credential=alice, SignedHeaders=x-mq-date-time, \
             Signature=963ABD36AD60920C3F000248E63AD8782DD2A04E"
        );
    }

    #[test]
    fn dates() {
        let text = |seconds: u64| date_time(Timestamp::from_unix_millis(seconds * 1_000 + 999));
        assert_eq!(text(0), "19700101T000000Z");
        assert_eq!(text(951_782_400), "20000229T000000Z");
        assert_eq!(text(1_767_225_600), "20260101T000000Z");
        assert_eq!(text(1_767_225_599), "20251231T235959Z");
        assert_eq!(text(4_107_542_400), "21000301T000000Z");
    }
}
