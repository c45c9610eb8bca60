//! Takes out of texts what a policy was given: no log may hold it, whatever the policy writes there.

mod values;
mod writings;

use std::collections::VecDeque;
use std::ops::Range;

use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};

/// Values that are looked for, and bytes of all of them; the one learnt longest ago goes first.
const VALUES_MAX: usize = 1_024;
const VALUE_BYTES_MAX: usize = 1 << 20;

/// Lines of one text, and with them as many values as there is room for: a text that has more is no secret as a whole,
/// and learning it must not take long.
const LINES_MAX: usize = VALUES_MAX / 2;

/// Shorter ones are left: they would be found in every other word.
const BYTES_MIN: usize = 6;

/// Longer lines of a file are no secrets of a kind that anybody logs whole.
const BYTES_MAX: usize = 8 << 10;

/// What stands in their place.
const MARK: &str = "[redacted]";

/// Secret values, and how to take them out of texts. It finds them as they are, as URLs, headers and quotes write them
/// ([`writings`]), and when a line was cut in the middle of one; what a policy hides on purpose is not found.
#[derive(Default)]
pub(crate) struct Scrubber {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    values: VecDeque<Value>,
    /// Of all values.
    bytes: usize,
}

struct Value {
    plain: SecretString,
    written: Vec<SecretString>,
}

impl Scrubber {
    /// Looks for this value from now on: each line by itself, because texts of several lines are escaped in logs.
    pub(crate) fn learn(&self, value: &str) {
        let mut known = self.known.lock();
        for line in value.lines() {
            known.learn(line.trim());
        }
    }

    /// Looks for the lines of this text and for everything in it that may be a value: a policy that takes it apart may
    /// say a part of it.
    pub(crate) fn learn_all_of(&self, text: &str) {
        let mut known = self.known.lock();
        text.lines().take(LINES_MAX).for_each(|line| known.learn(line.trim()));
        for value in values::values(text).iter().take(VALUES_MAX - LINES_MAX) {
            value.lines().for_each(|line| known.learn(line.trim()));
        }
    }

    /// `text` without any of the values.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let known = self.known.lock();
        let mut found: Vec<Range<usize>> = Vec::new();
        for value in &known.values {
            let plain = value.plain.expose_secret();
            find_all(text, plain, &mut found);
            find_cut(text, plain, &mut found);
            for written in &value.written {
                find_all(text, written.expose_secret(), &mut found);
            }
        }
        drop(known);
        without(text, found)
    }
}

impl Known {
    fn learn(&mut self, value: &str) {
        if !(BYTES_MIN..=BYTES_MAX).contains(&value.len()) {
            return;
        }
        // Learnt again, it is among the newest.
        let before = self.values.iter().position(|known| known.plain.expose_secret() == value);
        let learnt = before.and_then(|at| self.values.remove(at)).unwrap_or_else(|| {
            self.bytes += value.len();
            Value {
                plain: SecretString::from(value.to_owned()),
                written: writings::writings(value).into_iter().map(SecretString::from).collect(),
            }
        });
        self.values.push_back(learnt);
        while self.values.len() > VALUES_MAX || self.bytes > VALUE_BYTES_MAX {
            let Some(oldest) = self.values.pop_front() else { break };
            self.bytes -= oldest.plain.expose_secret().len();
        }
    }
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrubber").field("values", &self.known.lock().values.len()).finish()
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
    let longest = (BYTES_MIN..value.len().min(text.len() + 1))
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
        for n in 2..VALUES_MAX {
            scrubber.learn(&format!("value-{n:04}"));
        }
        scrubber.learn("the-first");
        scrubber.learn("one-more");
        assert_eq!(scrubber.scrub("the-first"), "[redacted]");
        assert_eq!(scrubber.scrub("the-second"), "the-second");
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let scrubber = Scrubber::default();
        for n in 0..1_000 {
            scrubber.learn(&format!("{n:08}").repeat(1_000));
        }
        assert!(scrubber.known.lock().values.len() <= VALUE_BYTES_MAX / 8_000);
        assert!(scrubber.scrub(&"00000999".repeat(1_000)).starts_with(MARK));
    }

    #[test]
    fn the_beginning_of_a_long_text_is_learnt() {
        let scrubber = Scrubber::default();
        let text: String = (0..20_000).map(|n| format!("{{\"key-{n}\": \"value-{n:05}\"}}\n")).collect();
        scrubber.learn_all_of(&text);
        assert_eq!(scrubber.scrub("value-00000, value-00100"), "[redacted], [redacted]");
        assert!(scrubber.known.lock().values.len() <= VALUES_MAX);
    }

    #[test]
    fn parts_of_a_text_are_found_without_the_rest() {
        let scrubber = Scrubber::default();
        scrubber
            .learn_all_of(r#"{"user": "alice", "password": "correct \"horse\"", "token": "Y29ycmVjdA=="}"#);
        assert_eq!(scrubber.scrub("the password is correct \"horse\""), "the password is [redacted]");
        assert_eq!(scrubber.scrub("no text at `data.password`"), "no text at `data.password`");
        assert_eq!(scrubber.scrub("token=Y29ycmVjdA=="), "token=[redacted]");
        assert_eq!(scrubber.scrub("/?password=correct%20%22horse%22&a=b"), "/?password=[redacted]&a=b");
        // Of `alice:` and the password in base64 the password.
        assert_eq!(scrubber.scrub("Basic YWxpY2U6Y29ycmVjdCAiaG9yc2Ui"), "Basic YWxpY2U6[redacted]");
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
