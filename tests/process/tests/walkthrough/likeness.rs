//! Whether a command has written what the README shows.
//!
//! `…` stands for whatever varies: alone on a line for any lines, or none, and within a line for any text. Columns may be
//! as wide as they like.

const ANYTHING: &str = "…";

/// Whether `written` is as `shown`.
pub(crate) fn is_like(shown: &str, written: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        text.trim_end().lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    lines_are_like(&lines(shown), &lines(written))
}

fn lines_are_like(shown: &[String], written: &[String]) -> bool {
    match shown.split_first() {
        None => written.is_empty(),
        Some((first, rest)) if first == ANYTHING => {
            (0..=written.len()).any(|skipped| lines_are_like(rest, &written[skipped..]))
        }
        Some((first, rest)) => written
            .split_first()
            .is_some_and(|(line, others)| line_is_like(first, line) && lines_are_like(rest, others)),
    }
}

fn line_is_like(shown: &str, written: &str) -> bool {
    let Some((first, others)) = shown.split_once(ANYTHING) else { return shown == written };
    let Some(mut rest) = written.strip_prefix(first) else { return false };
    let (between, last) = others.rsplit_once(ANYTHING).unwrap_or(("", others));
    for part in between.split(ANYTHING) {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_may_vary_and_nothing_else() {
        for (shown, written) in [
            ("a b", "a    b\n"),
            ("a\n…\nd", "a\nb\nc\nd"),
            ("a\n…\nd", "a\nd"),
            ("a\n…", "a"),
            ("3, since …, an earlier one", "3, since 2 s ago, an earlier one"),
            ("… compared, … differ (… %)", "150 compared, 50 differ (33.33 %)"),
            ("x …", "x y"),
        ] {
            assert!(is_like(shown, written), "{shown:?} {written:?}");
        }
        for (shown, written) in [
            ("a", "a\nb"),
            ("a\nb", "a"),
            ("a b", "ab"),
            ("a\n…\nd", "a\nb"),
            ("150 compared, … differ", "150 compared, none differs"),
            ("5 cases passed", "4 cases passed"),
            ("a…a", "a"),
            ("", "a"),
        ] {
            assert!(!is_like(shown, written), "{shown:?} {written:?}");
        }
    }
}
