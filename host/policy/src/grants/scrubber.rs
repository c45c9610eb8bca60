//! Takes out of texts what a policy was given: no log may hold it, whatever the policy writes there.

use std::collections::VecDeque;
use std::ops::Range;

use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};

/// Values that are looked for; the one learnt longest ago goes first.
const VALUES_MAX: usize = 256;

/// Shorter ones are left: they would be found in every other word.
const BYTES_MIN: usize = 6;

/// Longer lines of a file are no secrets of a kind that anybody logs whole.
const BYTES_MAX: usize = 8 << 10;

/// What stands in their place.
const MARK: &str = "[redacted]";

/// Secret values, and how to take them out of texts. It finds them as they are, also when a line was cut in the
/// middle of one; what a policy encodes or takes apart before it logs it is not found.
#[derive(Default)]
pub(crate) struct Scrubber {
    values: Mutex<VecDeque<SecretString>>,
}

impl Scrubber {
    /// Looks for this value from now on: each line by itself, because texts of several lines are escaped in logs.
    pub(crate) fn learn(&self, value: &str) {
        let lines = value.lines().map(str::trim);
        let mut values = self.values.lock();
        for line in lines.filter(|line| (BYTES_MIN..=BYTES_MAX).contains(&line.len())) {
            if let Some(at) = values.iter().position(|known| known.expose_secret() == line) {
                // Learnt again: it is among the newest.
                if let Some(known) = values.remove(at) {
                    values.push_back(known);
                }
                continue;
            }
            if values.len() >= VALUES_MAX {
                values.pop_front();
            }
            values.push_back(SecretString::from(line.to_owned()));
        }
    }

    /// `text` without any of the values.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let values = self.values.lock();
        let mut found: Vec<Range<usize>> = Vec::new();
        for value in values.iter().map(SecretString::expose_secret) {
            find_all(text, value, &mut found);
            find_cut(text, value, &mut found);
        }
        drop(values);
        without(text, found)
    }
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrubber").field("values", &self.values.lock().len()).finish()
    }
}

/// Every place of `value`, overlapping ones too.
fn find_all(text: &str, value: &str, found: &mut Vec<Range<usize>>) {
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(value)) {
        let start = from + at;
        found.push(start..start + value.len());
        from = start + value.chars().next().map_or(1, char::len_utf8);
    }
}

/// The beginning of `value` at the end of a text that was cut.
fn find_cut(text: &str, value: &str, found: &mut Vec<Range<usize>>) {
    let text = text.trim_end_matches('…');
    let longest = (BYTES_MIN..value.len())
        .rev()
        .find(|&bytes| value.get(..bytes).is_some_and(|start| text.ends_with(start)));
    if let Some(bytes) = longest {
        found.push(text.len() - bytes..text.len());
    }
}

/// `text` with a mark in the place of these ranges.
fn without(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    if ranges.is_empty() {
        return text.to_owned();
    }
    ranges.sort_unstable_by_key(|range| range.start);
    let mut clean = String::with_capacity(text.len());
    let mut done = 0;
    for range in ranges {
        if range.start >= done {
            clean.push_str(&text[done..range.start]);
            clean.push_str(MARK);
        }
        done = done.max(range.end);
    }
    clean.push_str(&text[done..]);
    clean
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn knowing(values: &[&str]) -> Scrubber {
        let scrubber = Scrubber::default();
        values.iter().for_each(|value| scrubber.learn(value));
        scrubber
    }

    #[test]
    fn values_are_taken_out_wherever_they_are() {
        let scrubber = knowing(&["hunter2", "correct horse"]);
        assert_eq!(
            scrubber.scrub("hunter2 and hunter2, correct horse!"),
            "[redacted] and [redacted], [redacted]!"
        );
        assert_eq!(scrubber.scrub("nothing here"), "nothing here");
        assert!(!format!("{scrubber:?}").contains("hunter2"));
    }

    #[test]
    fn values_that_overlap_leave_nothing_of_each_other() {
        let scrubber = knowing(&["abcdefgh", "efghijkl", "aaaaaa"]);
        assert_eq!(scrubber.scrub("x abcdefghijkl y"), "x [redacted] y");
        assert_eq!(scrubber.scrub("aaaaaaaa"), "[redacted]");
    }

    #[test]
    fn a_value_that_was_cut_is_found() {
        let scrubber = knowing(&["correct horse"]);
        assert_eq!(scrubber.scrub("the key is correct ho…"), "the key is [redacted]…");
        assert_eq!(scrubber.scrub("this is correct"), "this is [redacted]");
        assert_eq!(scrubber.scrub("corre"), "corre", "too little of it to be told from a word");
    }

    #[test]
    fn the_lines_of_a_file_are_values_and_short_ones_are_not() {
        let scrubber = knowing(&["-----BEGIN KEY-----\nMIIEvQIBADAN\nxyz\n", "abc", ""]);
        assert_eq!(scrubber.scrub("MIIEvQIBADAN\\nxyz"), "[redacted]\\nxyz");
        assert_eq!(scrubber.scrub("abc"), "abc");
    }

    #[test]
    fn what_was_learnt_longest_ago_goes_first() {
        let scrubber = knowing(&["the-first", "the-second"]);
        for n in 0..VALUES_MAX - 2 {
            scrubber.learn(&format!("value-{n:04}"));
        }
        scrubber.learn("the-first");
        scrubber.learn("one-more");
        assert_eq!(scrubber.scrub("the-first"), "[redacted]");
        assert_eq!(scrubber.scrub("the-second"), "the-second");
    }

    proptest! {
        #[test]
        fn no_value_is_left(
            values in prop::collection::vec("[abü]{6,9}", 1..5),
            parts in prop::collection::vec("[abü ]{0,8}", 0..6),
        ) {
            let scrubber = Scrubber::default();
            let mut text = String::new();
            for (n, part) in parts.iter().enumerate() {
                text.push_str(part);
                text.push_str(&values[n % values.len()]);
            }
            values.iter().for_each(|value| scrubber.learn(value));
            let clean = scrubber.scrub(&text);
            prop_assert!(values.iter().all(|value| !clean.contains(value.as_str())), "{clean}");
        }
    }
}
