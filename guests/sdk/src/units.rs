//! Durations and sizes as rules files write them.

/// Reads a duration such as `250ms`, `5s` or `1m30s` into milliseconds; `None` when it is not one.
pub(crate) fn parse_duration(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after) = leading_number(rest)?;
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit_end)?;
        let millis: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(millis)?)?;
        rest = after.trim_start();
    }
    Some(total)
}

/// Reads a size such as `512KiB` or `64MiB` into bytes; `None` when it is not one.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = leading_number(text.trim())?;
    let bytes: u64 = match unit.trim() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(bytes)
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_the_host_reads_them() {
        assert_eq!(parse_duration("250ms"), Some(250));
        assert_eq!(parse_duration("1m30s"), Some(90_000));
        assert_eq!(parse_duration(" 1d 1h "), Some(90_000_000));
        for wrong in
            ["", "5", "s", "5 s", "5 parsecs", "1.5s", "99999999999999999999s", "999999999999999999d"]
        {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_as_the_host_reads_them() {
        assert_eq!(parse_size("64MiB"), Some(64 << 20));
        assert_eq!(parse_size("512 KiB"), Some(512 << 10));
        assert_eq!(parse_size("3B"), Some(3));
        for wrong in ["", "64", "64MB", "KiB", "1.5KiB", "99999999999GiB"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
