//! Durations as rules files write them.

/// Reads a duration such as `250ms`, `5s` or `1m30s` into milliseconds; `None` when it is not one.
pub(crate) fn parse_duration(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total = 0_u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let (unit, after) =
            after.split_at(after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len()));
        let millis: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(millis)?)?;
        rest = after.trim_start();
    }
    Some(total)
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
}
