//! Lines that come in whatever pieces.

/// What came after the last whole line.
#[derive(Debug, Default)]
pub(in crate::commands) struct Lines(Vec<u8>);

impl Lines {
    /// Takes what came; gives the lines that are whole now, with their ends.
    pub(in crate::commands) fn note(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.0.extend_from_slice(bytes);
        let end = self.0.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.0.split_off(end);
        std::mem::replace(&mut self.0, rest)
    }
}
