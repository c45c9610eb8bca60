//! Policies whose answers are too long, or no answers at all. They answer the self-test well.

use crate::Guest;

impl Guest {
    /// Defers every message for a reason of so many bytes.
    #[must_use]
    pub fn deferring_for_a_reason_of(bytes: u32) -> Self {
        let mut guest = Self::answering_messages(&format!(
            "(i32.store8 (i32.const 256) (i32.const 1)) (i64.store (i32.const 264) (i64.const 1000)) \
             (i32.store (i32.const 272) (i32.const 65536)) (i32.store (i32.const 276) (i32.const {bytes}))"
        ));
        guest.memory = format!("(memory (export \"memory\") {})", 2 + bytes / 65_536);
        guest
    }

    /// Defers every message for so many milliseconds.
    #[must_use]
    pub fn deferring_for(millis: u64) -> Self {
        Self::answering_messages(&format!(
            "(i32.store8 (i32.const 256) (i32.const 1)) (i64.store (i32.const 264) (i64.const 0x{millis:x})) \
             (i32.store (i32.const 272) (i32.const 0)) (i32.store (i32.const 276) (i32.const 0))"
        ))
    }

    /// Rejects every message for a reason that is not text.
    #[must_use]
    pub fn rejecting_for_bytes_that_are_no_text() -> Self {
        Self::answering_messages(
            "(i32.store8 (i32.const 256) (i32.const 2)) (i32.store (i32.const 264) (i32.const 1536)) \
             (i32.store (i32.const 268) (i32.const 4)) (i32.store (i32.const 1536) (i32.const -1))",
        )
    }

    /// Rejects every message for a reason that lies outside of its memory.
    #[must_use]
    pub fn rejecting_for_a_reason_elsewhere() -> Self {
        Self::answering_messages(
            "(i32.store8 (i32.const 256) (i32.const 2)) (i32.store (i32.const 264) (i32.const -65536)) \
             (i32.store (i32.const 268) (i32.const 16))",
        )
    }

    /// Answers every message with a verdict that there is not.
    #[must_use]
    pub fn answering_an_unknown_verdict() -> Self {
        Self::answering_messages("(i32.store8 (i32.const 256) (i32.const 77))")
    }

    /// Says that its answer lies outside of its memory.
    #[must_use]
    pub fn answering_from_elsewhere() -> Self {
        Self::default().on_messages("(call $give_back (local.get $message)) (return (i32.const -16))")
    }

    /// Answers `configure` with something that is neither taken nor refused.
    #[must_use]
    pub fn configured_with_an_unknown_result() -> Self {
        Self {
            configure: "(i32.store8 (i32.const 128) (i32.const 9)) (return (i32.const 128))".to_owned(),
            ..Self::default()
        }
    }

    /// Writes an answer with `code` at 256 for every message.
    fn answering_messages(code: &str) -> Self {
        Self::default()
            .on_messages(&format!("{code} (call $give_back (local.get $message)) (return (i32.const 256))"))
    }
}
