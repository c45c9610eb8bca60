//! Policies that were built for another host than this one.

use crate::{Guest, WIT};

impl Guest {
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

    /// Reads the environment through WASI.
    #[must_use]
    pub fn importing_wasi() -> Self {
        Self::importing("wasi:cli", "environment", "count: func() -> u32;", "count", "(result i32)")
    }

    /// Waits through WASI's clock.
    #[must_use]
    pub fn sleeping_through_wasi() -> Self {
        let wait = "wait: func(nanoseconds: u64);";
        Self::importing("wasi:clocks", "monotonic-clock", wait, "wait", "(param i64)")
            .before_verdict("(call $foreign (i64.const 3600000000000))")
    }

    /// Imports one function of another package.
    fn importing(package: &str, interface: &str, wit: &str, function: &str, signature: &str) -> Self {
        let name = format!("{package}/{interface}@0.2.0");
        let contract =
            WIT.replace("    import clock;\n", &format!("    import clock;\n    import {name};\n"));
        let nested = format!("package {package}@0.2.0 {{ interface {interface} {{ {wit} }} }}\n");
        let mut guest = Self { wit: format!("{contract}\n{nested}"), ..Self::default() };
        guest.imports.push_str(&format!("(import \"{name}\" \"{function}\" (func $foreign {signature}))\n"));
        guest
    }
}
