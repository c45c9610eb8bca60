//! What the macro needs: a policy's place in the instance, and the exports that reach it.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;
use std::thread::LocalKey;

use crate::bindings::exports::tidegate::policy::{lifecycle, throttle};
use crate::bindings::tidegate::policy::delivery::Message;
use crate::bindings::tidegate::policy::log;
use crate::{Rules, Throttle};

/// A component around a policy. Implemented by [`crate::throttle!`].
pub trait Hosted {
    /// The policy.
    type Policy: Throttle;

    /// Where this instance keeps it.
    fn slot() -> &'static LocalKey<RefCell<Option<Self::Policy>>>;
}

impl<H: Hosted> lifecycle::Guest for H {
    fn describe() -> lifecycle::Description {
        report_panics();
        H::Policy::describe().into_wit()
    }

    fn configure(rules: String) -> Result<(), lifecycle::ConfigError> {
        report_panics();
        let configured = Rules::parse(&rules).and_then(|mut rules| {
            let policy = H::Policy::configure(&mut rules)?;
            rules.finish()?;
            Ok(policy)
        });
        let policy =
            configured.map_err(|error| lifecycle::ConfigError { key: error.key, message: error.message })?;
        H::slot().with_borrow_mut(|slot| *slot = Some(policy));
        Ok(())
    }
}

impl<H: Hosted> throttle::Guest for H {
    fn decide(message: &Message) -> throttle::Verdict {
        H::slot().with_borrow_mut(|slot| match slot {
            Some(policy) => policy.decide(message),
            None => panic!("the host asked for a decision before it gave the rules"),
        })
    }
}

/// Sends the text of a panic to the host's log, which keeps the last lines of a call that failed.
fn report_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| panic::set_hook(Box::new(|info| log::write(log::Level::Error, &info.to_string()))));
}

/// Makes a component of a type that is a [`crate::Throttle`]. Once in a library.
#[macro_export]
macro_rules! throttle {
    ($policy:ty) => {
        struct TidegateComponent;

        impl $crate::hosted::Hosted for TidegateComponent {
            type Policy = $policy;

            fn slot() -> &'static ::std::thread::LocalKey<::std::cell::RefCell<Option<$policy>>> {
                ::std::thread_local! {
                    static POLICY: ::std::cell::RefCell<Option<$policy>> =
                        const { ::std::cell::RefCell::new(None) };
                }
                &POLICY
            }
        }

        $crate::bindings::export!(TidegateComponent with_types_in $crate::bindings);

        /// What was built, for the host's encoder: it takes it from the module's section of this name.
        #[used]
        #[cfg_attr(target_family = "wasm", unsafe(link_section = "tidegate:built"))]
        static TIDEGATE_BUILT: [u8; $crate::hosted::built_len(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
        )] = $crate::hosted::built(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    };
}

/// The parts of the JSON text about a policy's crate, for a section of the module.
const fn built_parts<'a>(name: &'a str, version: &'a str) -> [&'a str; 7] {
    let sdk = concat!("tidegate-guest ", env!("CARGO_PKG_VERSION"));
    ["{\"name\":\"", name, "\",\"version\":\"", version, "\",\"sdk\":\"", sdk, "\"}"]
}

/// Bytes of [`built`].
#[must_use]
pub const fn built_len(name: &str, version: &str) -> usize {
    let parts = built_parts(name, version);
    let (mut len, mut part) = (0, 0);
    while part < parts.len() {
        len += parts[part].len();
        part += 1;
    }
    len
}

/// The JSON text about a policy's crate: its name, its version, and this SDK.
#[must_use]
pub const fn built<const LEN: usize>(name: &str, version: &str) -> [u8; LEN] {
    let parts = built_parts(name, version);
    let mut bytes = [0; LEN];
    let (mut at, mut part) = (0, 0);
    while part < parts.len() {
        let mut byte = 0;
        while byte < parts[part].len() {
            bytes[at] = parts[part].as_bytes()[byte];
            at += 1;
            byte += 1;
        }
        part += 1;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_built_is_json() {
        const BUILT: [u8; built_len("fair", "1.2.3")] = built("fair", "1.2.3");
        let text = std::str::from_utf8(&BUILT).unwrap();
        let sdk = env!("CARGO_PKG_VERSION");
        assert_eq!(text, format!(r#"{{"name":"fair","version":"1.2.3","sdk":"tidegate-guest {sdk}"}}"#));
    }
}
