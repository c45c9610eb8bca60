//! Write tidegate policies in Rust: a struct, a trait and one macro.
//!
//! # The first policy
//!
//! A library crate whose `Cargo.toml` says
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib"]
//!
//! [dependencies]
//! tidegate-guest = { path = "../sdk" }
//!
//! [profile.release]
//! opt-level = "s"
//! lto = true
//! codegen-units = 1
//! panic = "abort"
//! ```
//!
//! and whose `src/lib.rs` says
//!
//! ```
//! use tidegate_guest::{Description, Message, RuleError, Rules, Throttle, Verdict};
//!
//! struct Calm {
//!     limit: f64,
//! }
//!
//! impl Throttle for Calm {
//!     fn describe() -> Description {
//!         Description::of("calm", env!("CARGO_PKG_VERSION"), "Holds a busy key back.")
//!             .number("limit", "Deliveries of one key a second.", Some(100.0))
//!     }
//!
//!     fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
//!         Ok(Self { limit: rules.number("limit", 1.0..=1e6)?.unwrap_or(100.0) })
//!     }
//!
//!     fn decide(&mut self, message: &Message) -> Verdict {
//!         if message.standing().key_rate > self.limit {
//!             return Verdict::defer(1_000, "busy");
//!         }
//!         Verdict::Deliver
//!     }
//! }
//!
//! tidegate_guest::throttle!(Calm);
//! # fn main() {}
//! ```
//!
//! becomes a component with
//!
//! ```text
//! RUSTFLAGS="-C link-arg=-zstack-size=65536" cargo build --release --target wasm32-unknown-unknown
//! tidegate policy build target/wasm32-unknown-unknown/release/calm.wasm -o calm.wasm
//! tidegate policy check calm.wasm --rules calm.toml
//! ```
//!
//! (A `build.rs` that prints `cargo::rustc-link-arg-cdylib=-zstack-size=65536` does for the stack what the flag does;
//! the default of 1 MiB makes a fresh instance dearer.)
//!
//! # The kinds of policies
//!
//! | what it decides | trait | macro |
//! |---|---|---|
//! | now, later or never, for each message | [`Throttle`] | [`throttle!`] |
//! | whether the lease of a waiting message is kept | [`Renewal`] | [`renewal!`] |
//! | whom the host is to a broker | [`CredentialResolver`] | [`credential_resolver!`] |
//! | which partition a record goes to | [`Partitioner`] | [`partitioner!`] |
//!
//! A throttle or renewal policy may be an [`Observer`] as well, which is told how deliveries ended. Each trait's page has
//! a whole example.
//!
//! # What to know
//!
//! - A policy's own fields are a cache: the host makes fresh instances whenever it likes, several at once, and drops
//!   one that panicked. What must be remembered goes into the host's [`state`].
//! - Time, chance and facts come from the host and are the same for the whole of a call, so that a decision can be
//!   replayed: [`clock`], [`Message`], [`Lease`].
//! - A panic ends the call, the message follows the policy's `on-error`, and the panic's text is in the host's log.
//! - Durations are milliseconds.
//! - Rules are TOML on disk; [`Rules`] takes them key by key, [`Description`] says which there are. Errors name the key.
//! - A component imports only what its code calls. Formatting or parsing a floating-point number with the standard library
//!   costs 40 KB; [`format_number`] does what a message needs. [`json`] reads other JSON than the rules.

#[doc(hidden)]
pub mod bindings;
pub mod credentials;
mod decimal;
mod describe;
pub mod glob;
#[doc(hidden)]
pub mod hosted;
pub mod json;
mod observer;
pub mod pace;
mod partitioner;
mod renewal;
mod rules;
pub mod share;
mod throttle;
mod units;

pub use bindings::given::delivery::{Lease, Message, Standing};
pub use bindings::given::outgoing::Record;
pub use bindings::given::{clock, env, files, http, log, state};
pub use credentials::CredentialResolver;
pub use decimal::{format_number, format_rounded};
pub use describe::Description;
pub use observer::{Ending, Observer, Outcome};
pub use partitioner::Partitioner;
pub use renewal::{Answer, Renewal};
pub use rules::{RuleError, Rules};
pub use throttle::{Deferral, Throttle, Verdict};
