//! Components that misbehave, each in one way, for the tests of the policy engine and of flows.
//!
//! They are written in WebAssembly text and encoded here, so a test has one in a few milliseconds and knows exactly
//! what it does. [`Guest`] is a small policy that delivers every message; the functions change one thing about it.
#![forbid(unsafe_code)]

mod answers;
mod deciding;
mod failing;
mod foreign;
mod several;
mod starting;
mod worlds;

pub use several::{with_composed_part, with_core_instances};
use wasm_encoder::{CustomSection, Section as _};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::worlds::World;

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
    /// The code of a throttle policy's decision; empty for others.
    decide: String,
    /// Functions of the other worlds.
    exports: String,
    /// Code that runs first when the host asks for memory to put something into.
    realloc: String,
    world: World,
    /// What the SDK would say about it.
    built: Option<String>,
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
            exports: String::new(),
            realloc: String::new(),
            world: World::Throttle,
            built: None,
        }
    }
}

/// The verdict `deliver`.
const DELIVER: &str = "(i32.store8 (i32.const 256) (i32.const 0)) (i32.const 256)";

/// Never ends.
const LOOP: &str = "(loop $forever (br $forever))";

impl Guest {
    /// Says that it was built with the SDK, as the SDK's macros do.
    #[must_use]
    pub fn built_with_the_sdk(self) -> Self {
        let built = r#"{"name":"crafted","version":"0.1.0","sdk":"tidegate-guest 0.1.0"}"#;
        Self { built: Some(built.to_owned()), ..self }
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
        let world = resolve.select_world(&[package], Some(self.world.name())).expect("the world");
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("a module");
        if let Some(built) = &self.built {
            CustomSection { name: "tidegate:built".into(), data: built.as_bytes().into() }
                .append_to(&mut module);
        }
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
        let Self { version, imports, memory, fields, describe, configure, decide, exports, realloc, .. } =
            self;
        let give_back = if self.world.has_messages() {
            format!(
                "(import \"tidegate:policy/delivery@{version}\" \"[resource-drop]message\" \
                 (func $give_back (param i32)))"
            )
        } else {
            String::new()
        };
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
               {give_back}
               {imports}
               {memory}
               (global $heap (mut i32) (i32.const 4096))
               (data (i32.const 1024) \"crafted\")
               (data (i32.const 1040) \"A policy for tests.\")
               {fields}
               (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32)
                 (local $begin i32)
                 {realloc}
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
               {throttle}
               {exports})"
        )
    }
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("\\{byte:02x}")).collect()
}
