//! Data goes to standard output, talk to standard error.

use std::io::{self, IsTerminal as _, Write as _};

/// How a command speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
    terminal: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, terminal: io::stdout().is_terminal() }
    }

    /// Whether data is to be JSON.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a person watches: only then there is colour and progress.
    pub(crate) const fn is_terminal(&self) -> bool {
        self.terminal && !self.json
    }

    /// Writes a line of data. A reader that has gone away ends the process's interest in writing, not the process.
    pub(crate) fn data(&self, line: &str) {
        let _ = writeln!(io::stdout().lock(), "{line}");
    }

    /// Writes a line of talk.
    pub(crate) fn talk(&self, line: &str) {
        let _ = writeln!(io::stderr().lock(), "{line}");
    }

    /// Rewrites the last line of a terminal.
    pub(crate) fn progress(&self, line: &str) {
        if self.is_terminal() {
            let mut stdout = io::stdout().lock();
            let _ = write!(stdout, "\r\x1b[2K{line}");
            let _ = stdout.flush();
        }
    }

    /// `text` in a colour by its ANSI number, on a terminal.
    pub(crate) fn paint(&self, ansi: u8, text: &str) -> String {
        if self.is_terminal() { format!("\x1b[{ansi}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
