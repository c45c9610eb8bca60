//! What a guest writes to its log: capped per call, with the last lines kept for the report of a trap.

use std::collections::VecDeque;
use std::mem;

use tidegate_telemetry::events::policy::LogLevel;

use crate::bindings::v1::given::log;

/// Lines kept for a report.
const LINES_KEPT: usize = 8;

impl From<log::Level> for LogLevel {
    fn from(level: log::Level) -> Self {
        match level {
            log::Level::Debug => Self::Debug,
            log::Level::Info => Self::Info,
            log::Level::Warn => Self::Warn,
            log::Level::Error => Self::Error,
        }
    }
}

/// One line, fit for a log: one line, no control characters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Line {
    pub(crate) level: LogLevel,
    pub(crate) text: String,
}

/// The log of one instance.
#[derive(Debug)]
pub(crate) struct LogTail {
    bytes_per_call: usize,
    left: usize,
    /// Written in this call.
    fresh: VecDeque<Line>,
    /// Written but not kept in this call.
    dropped: u64,
}

impl LogTail {
    pub(crate) const fn new(bytes_per_call: usize) -> Self {
        Self { bytes_per_call, left: bytes_per_call, fresh: VecDeque::new(), dropped: 0 }
    }

    /// Begins a call.
    pub(crate) fn begin(&mut self) {
        self.left = self.bytes_per_call;
        self.fresh.clear();
        self.dropped = 0;
    }

    /// Takes a line. One that is too long is cut. When a call writes more than it may, its oldest lines go, because
    /// the last ones tell why it ended.
    pub(crate) fn write(&mut self, level: LogLevel, text: &str) {
        let text = printable(text, self.bytes_per_call);
        while self.left < text.len() || self.fresh.len() >= LINES_KEPT {
            let Some(oldest) = self.fresh.pop_front() else { break };
            self.left += oldest.text.len();
            self.dropped += 1;
        }
        self.left = self.left.saturating_sub(text.len());
        self.fresh.push_back(Line { level, text });
    }

    /// Whether the call wrote anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.fresh.is_empty()
    }

    /// The lines of this call and how many more there were.
    pub(crate) fn take(&mut self) -> (Vec<Line>, u64) {
        (mem::take(&mut self.fresh).into(), mem::take(&mut self.dropped))
    }
}

/// `text` on one line and cut to `bytes_max`, with control characters as their escapes, so that a guest cannot forge
/// lines of the host's log or move a terminal's cursor.
pub(crate) fn printable(text: &str, bytes_max: usize) -> String {
    /// Marks that something is missing; three bytes.
    const CUT: char = '…';
    let mut line = String::new();
    for c in text.trim_end().chars() {
        if line.len() > bytes_max {
            break;
        }
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    if line.len() > bytes_max {
        line.truncate(line.floor_char_boundary(bytes_max.saturating_sub(CUT.len_utf8())));
        line.push(CUT);
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let mut log = LogTail::new(64);
        log.begin();
        for n in 0..100 {
            log.write(LogLevel::Info, &format!("line {n}"));
        }
        let (lines, dropped) = log.take();
        assert_eq!(lines.last().unwrap().text, "line 99");
        assert_eq!(lines.len() as u64 + dropped, 100);
        assert!(lines.iter().map(|line| line.text.len()).sum::<usize>() <= 64);
    }

    #[test]
    fn a_line_cannot_forge_another() {
        assert_eq!(printable("a\nWARN b\x1b[2J\n", 100), "a\\nWARN b\\u{1b}[2J");
    }

    proptest! {
        #[test]
        fn lines_are_cut_at_their_cap(text in "\\PC{0,40}", cap in 8_usize..40) {
            let line = printable(&text, cap);
            prop_assert!(line.len() <= cap);
            let whole = text.trim_end();
            if !whole.chars().any(char::is_control) {
                prop_assert_eq!(line == whole, whole.len() <= cap);
                prop_assert!(line == whole || line.ends_with('…'));
            }
        }
    }
}
