//! Components that misbehave, each in one way, for the tests of the policy engine and of flows.
//!
//! They are written in WebAssembly text and encoded here, so a test has one in a few milliseconds and knows exactly
//! what it does. [`Guest`] is a small policy that delivers every message; the functions change one thing about it.
#![forbid(unsafe_code)]

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The contract.
const WIT: &str = include_str!("../../../../wit/policy.wit");

/// A policy, part by part. Memory: 0 to 1023 for answers, 1024 to 2047 for texts, and a heap from 4096 on that begins
/// anew at each decision.
#[derive(Clone, Debug)]
pub struct Guest {
    wit: String,
    version: String,
    imports: String,
    memory: String,
    fields: String,
    describe: String,
    configure: String,
    decide: String,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            wit: WIT.to_owned(),
            version: "1.0.0".to_owned(),
            imports: String::new(),
            memory: "(memory (export \"memory\") 1)".to_owned(),
            fields: String::new(),
            describe: String::new(),
            configure: String::new(),
            decide: DELIVER.to_owned(),
        }
    }
}

/// The verdict `deliver`.
const DELIVER: &str = "(i32.store8 (i32.const 256) (i32.const 0)) (i32.const 256)";

/// Never ends.
const LOOP: &str = "(loop $forever (br $forever))";

impl Guest {
    /// A policy that rejects every message for `reason`, so that a test sees which one decided.
    #[must_use]
    pub fn rejecting(reason: &str) -> Self {
        let text = escaped(reason);
        Self {
            fields: format!("(data (i32.const 1536) \"{text}\")"),
            decide: format!(
                "(i32.store8 (i32.const 256) (i32.const 2)) (i32.store (i32.const 264) (i32.const 1536)) \
                 (i32.store (i32.const 268) (i32.const {})) (i32.const 256)",
                reason.len()
            ),
            ..Self::default()
        }
    }

    /// Reads the attempt, the size of the body and the key of each message, and delivers it.
    #[must_use]
    pub fn reading_three_fields() -> Self {
        Self::default()
            .import("delivery", "[method]message.attempt", "$attempt", "(param i32) (result i32)")
            .import("delivery", "[method]message.body-size", "$body_size", "(param i32) (result i32)")
            .import("delivery", "[method]message.key", "$key", "(param i32 i32)")
            .before_verdict(
                "(drop (call $attempt (local.get $message))) (drop (call $body_size (local.get $message))) \
                 (call $key (local.get $message) (i32.const 512))",
            )
    }

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
        Self {
            fields: "(data (i32.const 1536) \"rule[1].ratesno such key\")".to_owned(),
            configure: "(i32.store8 (i32.const 128) (i32.const 1)) (i32.store (i32.const 132) (i32.const 1536)) \
                        (i32.store (i32.const 136) (i32.const 13)) (i32.store (i32.const 140) (i32.const 1549)) \
                        (i32.store (i32.const 144) (i32.const 11)) (return (i32.const 128))"
                .to_owned(),
            ..Self::default()
        }
    }

    /// Logs so many lines of so many bytes in each decision.
    #[must_use]
    pub fn logging(lines: u32, bytes: u32) -> Self {
        Self {
            memory: format!("(memory (export \"memory\") {})", 2 + bytes / 65_536),
            ..Self::default()
        }
        .import("log", "write", "$log", "(param i32 i32 i32)")
        .before_verdict(&format!(
            "(memory.fill (i32.const 4096) (i32.const 120) (i32.const {bytes})) (local.set $n (i32.const {lines})) \
             (loop $more (call $log (i32.const 1) (i32.const 4096) (i32.const {bytes})) \
             (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $more (local.get $n)))"
        ))
    }

    /// Takes a token from a bucket that holds three and never fills: delivers what has one, rejects the others.
    #[must_use]
    pub fn with_three_tokens() -> Self {
        Self::with_bucket("0", "3")
    }

    /// Takes a token from a bucket with a burst that is no number.
    #[must_use]
    pub fn with_a_bucket_of_nan() -> Self {
        Self::with_bucket("1", "nan")
    }

    /// Delivers a message when the time that it sees is the same twice, and its random numbers differ.
    #[must_use]
    pub fn looking_at_its_clock() -> Self {
        Self::default()
            .import("clock", "now", "$now", "(result i64)")
            .import("clock", "elapsed", "$elapsed", "(result i64)")
            .import("clock", "random", "$random", "(result i64)")
            .before_verdict(
                "(if (i64.ne (call $now) (call $now)) (then unreachable)) \
                 (if (i64.ne (call $elapsed) (call $elapsed)) (then unreachable)) \
                 (if (i64.eq (call $random) (call $random)) (then unreachable))",
            )
    }

    /// The same policy built for another version of the contract.
    #[must_use]
    pub fn of_version(version: &str) -> Self {
        Self {
            wit: WIT.replace("@1.0.0", &format!("@{version}")),
            version: version.to_owned(),
            ..Self::default()
        }
    }

    /// Built for a contract whose deferral has one more field.
    #[must_use]
    pub fn with_another_shape() -> Self {
        Self {
            wit: WIT.replace("reason: string,\n    }", "reason: string, until: u64,\n    }"),
            ..Self::default()
        }
    }

    /// Built for a contract with a function that the host does not have.
    #[must_use]
    pub fn calling_a_newer_function() -> Self {
        let wit = WIT.replace("random: func() -> u64;", "random: func() -> u64;\n    zone: func() -> u64;");
        Self { wit, ..Self::default() }.import("clock", "zone", "$zone", "(result i64)")
    }

    /// Exports no `throttle`.
    #[must_use]
    pub fn without_throttle() -> Self {
        Self { wit: WIT.replace("    export throttle;\n", ""), decide: String::new(), ..Self::default() }
    }

    /// Imports an interface of WASI.
    #[must_use]
    pub fn importing_wasi() -> Self {
        let wit =
            WIT.replace("    import clock;\n", "    import clock;\n    import wasi:cli/environment@0.2.0;\n");
        let nested = "package wasi:cli@0.2.0 { interface environment { count: func() -> u32; } }\n";
        let mut guest = Self { wit: format!("{wit}\n{nested}"), ..Self::default() };
        guest
            .imports
            .push_str("(import \"wasi:cli/environment@0.2.0\" \"count\" (func $environment (result i32)))\n");
        guest
    }

    /// The core module, with the contract in a section as wit-bindgen leaves it.
    ///
    /// # Panics
    /// When this crate's text is wrong.
    #[must_use]
    pub fn module(&self) -> Vec<u8> {
        let mut module = wat::parse_str(self.text()).expect("the text of a guest");
        let mut resolve = Resolve::default();
        let package = resolve.push_str("policy.wit", &self.wit).expect("the contract");
        let world = resolve.select_world(&[package], Some("throttle-policy")).expect("the world");
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("a module");
        module
    }

    /// The component, as another tool than the project's own encodes it: without a trailing section.
    ///
    /// # Panics
    /// When this crate's text is wrong.
    #[must_use]
    pub fn component(&self) -> Vec<u8> {
        let encoder = ComponentEncoder::default().validate(true).module(&self.module());
        encoder.and_then(|mut encoder| encoder.encode()).expect("a component")
    }

    fn with_bucket(rate: &str, burst: &str) -> Self {
        let take = "(param i32 i32 i32 i32 f64 f64 f64) (result i64)";
        Self::rejecting("no token").import("state", "take", "$take", take).before_verdict(&format!(
            "(if (i64.eqz (call $take (i32.const 1536) (i32.const 2) (i32.const 1536) (i32.const 2) (f64.const 1) \
             (f64.const {rate}) (f64.const {burst}))) (then (call $give_back (local.get $message)) (return {DELIVER})))"
        ))
    }

    fn import(mut self, interface: &str, name: &str, function: &str, signature: &str) -> Self {
        let version = &self.version;
        self.imports.push_str(&format!(
            "(import \"tidegate:policy/{interface}@{version}\" \"{name}\" (func {function} {signature}))\n"
        ));
        self
    }

    fn before_verdict(mut self, code: &str) -> Self {
        self.decide = format!("{code} {}", self.decide);
        self
    }

    /// Runs `code` unless the key has nine bytes, as that of the self-test's message has.
    fn on_messages(self, code: &str) -> Self {
        self.import("delivery", "[method]message.key", "$key", "(param i32 i32)").before_verdict(&format!(
            "(call $key (local.get $message) (i32.const 512)) \
             (if (i32.ne (i32.load (i32.const 516)) (i32.const 9)) (then {code}))"
        ))
    }

    fn text(&self) -> String {
        let Self { version, imports, memory, fields, describe, configure, decide, .. } = self;
        let throttle = if decide.is_empty() {
            String::new()
        } else {
            format!(
                "(func (export \"tidegate:policy/throttle@{version}#decide\") (param $message i32) (result i32)
                   (local $n i32)
                   (global.set $heap (i32.const 4096))
                   {decide}
                   (call $give_back (local.get $message)))"
            )
        };
        format!(
            "(module
               (import \"tidegate:policy/delivery@{version}\" \"[resource-drop]message\" (func $give_back (param i32)))
               {imports}
               {memory}
               (global $heap (mut i32) (i32.const 4096))
               (data (i32.const 1024) \"crafted\")
               (data (i32.const 1040) \"A policy for tests.\")
               {fields}
               (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32)
                 (local $begin i32)
                 (local.set $begin (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
                 (global.set $heap (i32.add (local.get $begin) (local.get 3)))
                 (local.get $begin))
               (func (export \"tidegate:policy/lifecycle@{version}#describe\") (result i32)
                 {describe}
                 (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 7))
                 (i32.store (i32.const 8) (i32.const 1024)) (i32.store (i32.const 12) (i32.const 0))
                 (i32.store (i32.const 16) (i32.const 1040)) (i32.store (i32.const 20) (i32.const 19))
                 (i32.store (i32.const 24) (i32.const 1024)) (i32.store (i32.const 28) (i32.const 0))
                 (i32.const 0))
               (func (export \"tidegate:policy/lifecycle@{version}#configure\") (param i32 i32) (result i32)
                 {configure}
                 (i32.store8 (i32.const 128) (i32.const 0))
                 (i32.const 128))
               {throttle})"
        )
    }
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("\\{byte:02x}")).collect()
}
