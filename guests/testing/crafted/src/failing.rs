//! Policies that pass every check and fail when they are asked.

use crate::{DELIVER, Guest, LOOP};

impl Guest {
    /// Traps on the last of each `n` decisions of an instance.
    #[must_use]
    pub fn trapping_every(n: u32) -> Self {
        let mut guest = Self::default().before_verdict(&format!(
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1))) \
             (if (i32.ge_u (global.get $calls) (i32.const {n})) (then unreachable))"
        ));
        guest.fields = "(global $calls (mut i32) (i32.const 0))".to_owned();
        guest
    }

    /// Loops for ever on the last of each `n` decisions of an instance.
    #[must_use]
    pub fn looping_every(n: u32) -> Self {
        let mut guest = Self::default().before_verdict(&format!(
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1))) \
             (if (i32.ge_u (global.get $calls) (i32.const {n})) (then {LOOP}))"
        ));
        guest.fields = "(global $calls (mut i32) (i32.const 0))".to_owned();
        guest
    }

    /// Loops for ever on every message but the self-test's.
    #[must_use]
    pub fn looping_on_messages() -> Self {
        Self::default().on_messages(LOOP)
    }

    /// Traps on every message but the self-test's.
    #[must_use]
    pub fn trapping_on_messages() -> Self {
        Self::default().on_messages("unreachable")
    }

    /// Grows its memory on every message but the self-test's until it may not.
    #[must_use]
    pub fn growing_on_messages() -> Self {
        Self::default().on_messages("(loop $more (drop (memory.grow (i32.const 16))) (br $more))")
    }

    /// Grows a table on every message but the self-test's until it may not.
    #[must_use]
    pub fn growing_a_table_on_messages() -> Self {
        let mut guest = Self::default().on_messages(
            "(loop $more (drop (table.grow $functions (ref.null func) (i32.const 65536))) (br $more))",
        );
        guest.fields = "(table $functions 1 funcref)".to_owned();
        guest
    }

    /// Calls itself on every message but the self-test's until its stack ends.
    #[must_use]
    pub fn recursing_on_messages() -> Self {
        let mut guest = Self::default().on_messages("(drop (call $deeper (i32.const 1)))");
        guest.fields = "(func $deeper (param i32) (result i32) \
                        (i32.add (i32.const 1) (call $deeper (i32.add (local.get 0) (i32.const 1)))))"
            .to_owned();
        guest
    }

    /// Does not give back the handle that it was lent, on every message but the self-test's.
    #[must_use]
    pub fn keeping_its_handle_on_messages() -> Self {
        Self::default().on_messages(&format!("(return {DELIVER})"))
    }

    /// Grows its memory on every message but the self-test's and writes into all of it, until it may not.
    #[must_use]
    pub fn filling_its_memory_on_messages() -> Self {
        Self::default().on_messages(
            "(loop $more (local.set $n (memory.grow (i32.const 16))) \
             (memory.fill (i32.mul (local.get $n) (i32.const 65536)) (i32.const 1) (i32.const 1048576)) (br $more))",
        )
    }

    /// Gives the host an address outside of its memory to put a message's key at.
    #[must_use]
    pub fn giving_no_memory_on_messages() -> Self {
        Self::asked_for_memory_on_messages("(return (i32.const -65536))")
    }

    /// Traps when the host asks for memory to put a message's key into.
    #[must_use]
    pub fn trapping_when_asked_for_memory() -> Self {
        Self::asked_for_memory_on_messages("unreachable")
    }

    /// Loops for ever when the host asks for memory to put a message's key into.
    #[must_use]
    pub fn looping_when_asked_for_memory() -> Self {
        Self::asked_for_memory_on_messages(LOOP)
    }

    /// Asks for the key once more when the host asks for memory to put it into.
    #[must_use]
    pub fn asking_when_asked_for_memory() -> Self {
        Self::asked_for_memory_on_messages("(call $key (i32.const 1) (i32.const 512))")
    }

    /// Decides about a message, and traps when the host has read the verdict.
    #[must_use]
    pub fn trapping_after_its_answer() -> Self {
        Self::after_its_answer("unreachable")
    }

    /// Decides about a message, and loops for ever when the host has read the verdict.
    #[must_use]
    pub fn looping_after_its_answer() -> Self {
        Self::after_its_answer(LOOP)
    }

    fn asked_for_memory_on_messages(code: &str) -> Self {
        let mut guest =
            Self::default().on_messages(&format!("{ARM} (call $key (local.get $message) (i32.const 512))"));
        guest.fields = ARMED.to_owned();
        guest.realloc = format!("(if (global.get $armed) (then {code}))");
        guest
    }

    fn after_its_answer(code: &str) -> Self {
        let mut guest = Self::default().on_messages(ARM);
        guest.fields = ARMED.to_owned();
        let version = &guest.version;
        guest.exports = format!(
            "(func (export \"cabi_post_tidegate:policy/throttle@{version}#decide\") (param i32)
               (if (global.get $armed) (then {code})))"
        );
        guest
    }
}

/// Whether it misbehaves from now on: not before the first message.
const ARMED: &str = "(global $armed (mut i32) (i32.const 0))";
const ARM: &str = "(global.set $armed (i32.const 1))";
