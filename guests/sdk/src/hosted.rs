//! What the macros need: a policy's place in the instance, and the exports that reach it.

use std::cell::RefCell;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;
use std::thread::LocalKey;

use crate::bindings::given::delivery::{Lease, Message};
use crate::bindings::given::outgoing::Record;
use crate::bindings::{credentials, lifecycle, observer, partitioner, renewal, throttle};
use crate::log;
use crate::{CredentialResolver, Description, Observer, Partitioner, Renewal, RuleError, Rules, Throttle};

/// A component around a policy. Implemented by the macros.
pub trait Hosted {
    /// The policy.
    type Policy: 'static;

    /// What the policy says about itself.
    fn describe() -> Description;

    /// Makes the policy from its rules.
    ///
    /// # Errors
    /// When a rule makes no sense.
    fn configure(rules: &mut Rules) -> Result<Self::Policy, RuleError>;

    /// Where this instance keeps it.
    fn slot() -> &'static LocalKey<RefCell<Option<Self::Policy>>>;
}

impl<H: Hosted> lifecycle::Guest for H {
    fn describe() -> lifecycle::Description {
        report_panics();
        H::describe().into_wit()
    }

    fn configure(rules: String) -> Result<(), lifecycle::ConfigError> {
        report_panics();
        let configured = Rules::parse(&rules).and_then(|mut rules| {
            let policy = H::configure(&mut rules)?;
            rules.finish()?;
            Ok(policy)
        });
        let policy =
            configured.map_err(|error| lifecycle::ConfigError { key: error.key, message: error.message })?;
        H::slot().with_borrow_mut(|slot| *slot = Some(policy));
        Ok(())
    }
}

impl<H: Hosted<Policy: Throttle>> throttle::Guest for H {
    fn decide(message: &Message) -> throttle::Verdict {
        with_policy::<H, _>(|policy| policy.decide(message))
    }
}

impl<H: Hosted<Policy: Observer>> observer::Guest for H {
    fn observe(outcomes: Vec<observer::Outcome>) {
        with_policy::<H, _>(|policy| policy.observe(&outcomes));
    }
}

impl<H: Hosted<Policy: Renewal>> renewal::Guest for H {
    fn decide(lease: &Lease) -> renewal::Answer {
        with_policy::<H, _>(|policy| policy.decide(lease))
    }
}

impl<H: Hosted<Policy: CredentialResolver>> credentials::Guest for H {
    fn resolve(request: credentials::Request) -> Result<credentials::Resolved, credentials::Failure> {
        with_policy::<H, _>(|policy| policy.resolve(&request))
    }
}

impl<H: Hosted<Policy: Partitioner>> partitioner::Guest for H {
    fn partition(record: &Record, partitions: u32) -> u32 {
        with_policy::<H, _>(|policy| policy.partition(record, partitions))
    }
}

fn with_policy<H: Hosted, T>(call: impl FnOnce(&mut H::Policy) -> T) -> T {
    H::slot().with_borrow_mut(|slot| match slot {
        Some(policy) => call(policy),
        None => panic!("the host called the policy before it gave the rules"),
    })
}

/// Sends the text of a panic to the host's log, which keeps the last lines of a call that failed.
fn report_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| panic::set_hook(Box::new(|info| log::write(log::Level::Error, &panic_text(info)))));
}

/// Where and why, as the standard library says it: put together by hand, which costs a policy less than formatting.
fn panic_text(info: &PanicHookInfo<'_>) -> String {
    let mut text = "panicked".to_owned();
    if let Some(location) = info.location() {
        text.extend([" at ", location.file(), ":", &location.line().to_string()]);
    }
    text.extend([": ", info.payload_as_str().unwrap_or("with something that is no text")]);
    text
}

/// Makes a component of a type that is a [`Throttle`](crate::Throttle). Once in a library.
///
/// `throttle!(Policy)` makes one that decides, `throttle!(Policy, observer)` one that is an
/// [`Observer`](crate::Observer) too.
#[macro_export]
macro_rules! throttle {
    ($policy:ty) => {
        $crate::__component!($policy, Throttle, [lifecycle, throttle]);
    };
    ($policy:ty, observer) => {
        $crate::__component!($policy, Throttle, [lifecycle, throttle, observer]);
    };
}

/// Makes a component of a type that is a [`Renewal`](crate::Renewal). Once in a library.
///
/// `renewal!(Policy)` makes one that decides, `renewal!(Policy, observer)` one that is an
/// [`Observer`](crate::Observer) too.
#[macro_export]
macro_rules! renewal {
    ($policy:ty) => {
        $crate::__component!($policy, Renewal, [lifecycle, renewal]);
    };
    ($policy:ty, observer) => {
        $crate::__component!($policy, Renewal, [lifecycle, renewal, observer]);
    };
}

/// Makes a component of a type that is a [`CredentialResolver`](crate::CredentialResolver). Once in a library.
#[macro_export]
macro_rules! credential_resolver {
    ($policy:ty) => {
        $crate::__component!($policy, CredentialResolver, [lifecycle, credentials]);
    };
}

/// Makes a component of a type that is a [`Partitioner`](crate::Partitioner). Once in a library.
#[macro_export]
macro_rules! partitioner {
    ($policy:ty) => {
        $crate::__component!($policy, Partitioner, [lifecycle, partitioner]);
    };
}

/// A component around `$policy`, which implements `$kind`, with the exports named.
#[doc(hidden)]
#[macro_export]
macro_rules! __component {
    ($policy:ty, $kind:ident, [$($export:ident),*]) => {
        struct TidegateComponent;

        impl $crate::hosted::Hosted for TidegateComponent {
            type Policy = $policy;

            fn describe() -> $crate::Description {
                <$policy as $crate::$kind>::describe()
            }

            fn configure(
                rules: &mut $crate::Rules,
            ) -> ::std::result::Result<$policy, $crate::RuleError> {
                <$policy as $crate::$kind>::configure(rules)
            }

            fn slot() -> &'static ::std::thread::LocalKey<::std::cell::RefCell<Option<$policy>>> {
                ::std::thread_local! {
                    static POLICY: ::std::cell::RefCell<Option<$policy>> =
                        const { ::std::cell::RefCell::new(None) };
                }
                &POLICY
            }
        }

        $($crate::bindings::$export::export!(
            TidegateComponent with_types_in $crate::bindings::$export
        );)*

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
