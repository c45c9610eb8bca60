//! Policies that do not come into force: something about their start is wrong.

use crate::{Guest, LOOP, escaped};

impl Guest {
    /// Begins with so many pages of memory.
    #[must_use]
    pub fn beginning_with_pages(pages: u32) -> Self {
        Self { memory: format!("(memory (export \"memory\") {pages})"), ..Self::default() }
    }

    /// Loops for ever when it is instantiated.
    #[must_use]
    pub fn looping_in_start() -> Self {
        Self { fields: format!("(func $start {LOOP}) (start $start)"), ..Self::default() }
    }

    /// Loops for ever in `describe`.
    #[must_use]
    pub fn looping_in_describe() -> Self {
        Self { describe: LOOP.to_owned(), ..Self::default() }
    }

    /// Loops for ever in `configure`.
    #[must_use]
    pub fn looping_in_configure() -> Self {
        Self { configure: LOOP.to_owned(), ..Self::default() }
    }

    /// Refuses all rules: the key `rule[1].rates`, with a sentence.
    #[must_use]
    pub fn refusing_its_rules() -> Self {
        Self::refusing_its_rules_with("rule[1].rates", "no such key")
    }

    /// Refuses all rules: a key, with a sentence.
    #[must_use]
    pub fn refusing_its_rules_with(key: &str, message: &str) -> Self {
        let (text, key) = (escaped(&format!("{key}{message}")), key.len());
        Self {
            fields: format!("(data (i32.const {TEXTS}) \"{text}\")"),
            configure: format!(
                "(i32.store8 (i32.const 128) (i32.const 1)) (i32.store (i32.const 132) (i32.const {TEXTS})) \
                 (i32.store (i32.const 136) (i32.const {key})) (i32.store (i32.const 140) (i32.const {})) \
                 (i32.store (i32.const 144) (i32.const {})) (return (i32.const 128))",
                TEXTS + key,
                message.len()
            ),
            ..Self::default()
        }
    }

    /// Calls itself `name` in a version, and says what it does.
    #[must_use]
    pub fn described_as(name: &str, version: &str, summary: &str) -> Self {
        let text = |at: usize, text: &str| (at, text.len());
        let (name_at, name_bytes) = text(TEXTS, name);
        let (version_at, version_bytes) = text(name_at + name_bytes, version);
        let (summary_at, summary_bytes) = text(version_at + version_bytes, summary);
        Self {
            fields: format!(
                "(data (i32.const {TEXTS}) \"{}\")",
                escaped(&format!("{name}{version}{summary}"))
            ),
            describe: format!(
                "(i32.store (i32.const 0) (i32.const {name_at})) (i32.store (i32.const 4) (i32.const {name_bytes})) \
                 (i32.store (i32.const 8) (i32.const {version_at})) \
                 (i32.store (i32.const 12) (i32.const {version_bytes})) \
                 (i32.store (i32.const 16) (i32.const {summary_at})) \
                 (i32.store (i32.const 20) (i32.const {summary_bytes})) \
                 (i32.store (i32.const 24) (i32.const 0)) (i32.store (i32.const 28) (i32.const 0)) \
                 (return (i32.const 0))"
            ),
            ..Self::default()
        }
    }

    /// Begins with a table of so many elements.
    #[must_use]
    pub fn beginning_with_a_table_of(elements: u32) -> Self {
        Self { fields: format!("(table {elements} funcref)"), ..Self::default() }
    }

    /// Traps when it is instantiated.
    #[must_use]
    pub fn trapping_in_start() -> Self {
        Self { fields: "(func $start unreachable) (start $start)".to_owned(), ..Self::default() }
    }

    /// Traps in `describe`.
    #[must_use]
    pub fn trapping_in_describe() -> Self {
        Self { describe: "unreachable".to_owned(), ..Self::default() }
    }

    /// Traps in `configure`.
    #[must_use]
    pub fn trapping_in_configure() -> Self {
        Self { configure: "unreachable".to_owned(), ..Self::default() }
    }

    /// Says nothing about itself, not even a name.
    #[must_use]
    pub fn without_a_name() -> Self {
        Self { describe: describing(0, 0, 0), ..Self::default() }
    }

    /// Describes itself in so many bytes.
    #[must_use]
    pub fn describing_itself_in(bytes: u32) -> Self {
        Self {
            memory: format!("(memory (export \"memory\") {})", 2 + bytes / 65_536),
            describe: describing(NAME_BYTES, bytes, 0),
            ..Self::default()
        }
    }

    /// Describes so many parameters, all without a name.
    #[must_use]
    pub fn with_parameters(count: u32) -> Self {
        Self {
            memory: format!("(memory (export \"memory\") {})", 2 + count / (65_536 / PARAMETER_BYTES)),
            describe: describing(NAME_BYTES, 0, count),
            ..Self::default()
        }
    }
}

/// Where texts lie that may be longer than those of other guests: above a heap that holds little.
const TEXTS: usize = 32_768;

/// Bytes of its name.
const NAME_BYTES: u32 = 7;

/// Bytes of one described parameter in a guest's memory.
const PARAMETER_BYTES: u32 = 32;

/// Answers a description: so many bytes of the name, a summary of so many bytes and so many parameters, which lie in
/// memory that nobody wrote to.
fn describing(name_bytes: u32, summary_bytes: u32, parameters: u32) -> String {
    format!(
        "(i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const {name_bytes})) \
         (i32.store (i32.const 8) (i32.const 1024)) (i32.store (i32.const 12) (i32.const 0)) \
         (i32.store (i32.const 16) (i32.const 65536)) (i32.store (i32.const 20) (i32.const {summary_bytes})) \
         (i32.store (i32.const 24) (i32.const 65536)) (i32.store (i32.const 28) (i32.const {parameters})) \
         (return (i32.const 0))"
    )
}
