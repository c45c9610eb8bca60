//! Data goes to standard output, talk to standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::OnceLock;

use anyhow::anyhow;

use crate::exit::Failure;

/// How a command speaks.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    terminal: bool,
    /// Why data could not be written, the first time.
    unwritten: OnceLock<io::Error>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, terminal: io::stdout().is_terminal(), unwritten: OnceLock::new() }
    }

    /// Whether data is to be JSON.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a person watches: only then there is colour and progress.
    pub(crate) const fn is_terminal(&self) -> bool {
        self.terminal && !self.json
    }

    /// Writes a line of data. What goes wrong is remembered for [`written`](Self::written).
    pub(crate) fn data(&self, line: &str) {
        if let Err(error) = writeln!(io::stdout().lock(), "{line}") {
            self.note(error);
        }
    }

    /// Whether all data so far was written: asked at the end of every command, and by those that better stop.
    pub(crate) fn written(&self) -> Result<(), Failure> {
        if let Err(error) = io::stdout().flush() {
            self.note(error);
        }
        match self.unwritten.get() {
            None => Ok(()),
            Some(error) => Err(Failure::Environment(anyhow!("standard output cannot be written: {error}"))),
        }
    }

    /// A reader that has gone away has read what it wanted, and is no failure.
    fn note(&self, error: io::Error) {
        if error.kind() != io::ErrorKind::BrokenPipe {
            // The first one counts.
            let _ = self.unwritten.set(error);
        }
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

/// How often one verdict was followed and another would have been, on one line; a star where they are not the same.
pub(crate) fn pair_line(was: &str, is: &str, count: u64) -> String {
    let mark = if was == is { ' ' } else { '*' };
    format!("{mark} {was:<9}  ->  {is:<9}  {count:>8}")
}

/// Writes a line of talk. There is nobody to tell when that fails.
pub(crate) fn talk(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
