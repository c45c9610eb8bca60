//! The Rust side of `wit/policy.wit`, generated, one module for each major version of the contract.
//!
//! A component is not bound to a world as a whole. What it may import is linked interface by interface, as its world
//! and its grants say, and what it exports is looked at through one *view* for each interface: that is how an optional
//! interface is found, and how worlds share the types of those that they have in common.

/// Version 1 of the contract.
#[allow(missing_docs, reason = "generated from wit/policy.wit, which has the documentation")]
#[allow(unreachable_pub, unused_qualifications, reason = "generated")]
#[allow(
    clippy::allow_attributes_without_reason,
    clippy::large_types_passed_by_value,
    clippy::needless_pass_by_value,
    clippy::redundant_clone,
    clippy::semicolon_if_nothing_returned,
    clippy::too_many_lines,
    clippy::use_self,
    reason = "generated"
)]
pub(crate) mod v1 {
    /// What the host gives.
    pub mod given {
        wasmtime::component::bindgen!({
            path: "../../wit",
            inline: "
                package tidegate:views;
                world given {
                    import tidegate:policy/delivery@1.0.0;
                    import tidegate:policy/outgoing@1.0.0;
                    import tidegate:policy/state@1.0.0;
                    import tidegate:policy/clock@1.0.0;
                    import tidegate:policy/log@1.0.0;
                    import tidegate:policy/env@1.0.0;
                    import tidegate:policy/files@1.0.0;
                    import tidegate:policy/http@1.0.0;
                }
            ",
            world: "tidegate:views/given",
            imports: { "tidegate:policy/state.take": trappable },
            with: {
                "tidegate:policy/delivery.message": crate::guest::CurrentMessage,
                "tidegate:policy/delivery.lease": crate::guest::CurrentLease,
                "tidegate:policy/outgoing.record": crate::guest::CurrentRecord,
            },
        });
        pub use tidegate::policy::*;
    }

    /// What every policy exports.
    pub(crate) mod lifecycle {
        wasmtime::component::bindgen!({
            path: "../../wit",
            inline: "package tidegate:views; world lifecycle-view { export tidegate:policy/lifecycle@1.0.0; }",
            world: "tidegate:views/lifecycle-view",
        });
        pub(crate) use exports::tidegate::policy::lifecycle::*;
    }

    /// What a throttle policy exports.
    pub(crate) mod throttle {
        wasmtime::component::bindgen!({
            path: "../../wit",
            inline: "package tidegate:views; world throttle-view { export tidegate:policy/throttle@1.0.0; }",
            world: "tidegate:views/throttle-view",
            with: { "tidegate:policy/delivery": super::given::delivery },
        });
        pub(crate) use exports::tidegate::policy::throttle::*;
    }

    /// What a renewal policy exports.
    pub(crate) mod renewal {
        wasmtime::component::bindgen!({
            path: "../../wit",
            inline: "package tidegate:views; world renewal-view { export tidegate:policy/renewal@1.0.0; }",
            world: "tidegate:views/renewal-view",
            with: { "tidegate:policy/delivery": super::given::delivery },
        });
        pub(crate) use exports::tidegate::policy::renewal::*;
    }

    /// What a credential resolver exports.
    pub(crate) mod credentials {
        wasmtime::component::bindgen!({
            path: "../../wit",
            inline: "package tidegate:views; world credentials-view { export tidegate:policy/credentials@1.0.0; }",
            world: "tidegate:views/credentials-view",
        });
        pub(crate) use exports::tidegate::policy::credentials::*;
    }

    /// What a partitioner exports.
    pub(crate) mod partitioner {
        wasmtime::component::bindgen!({
            path: "../../wit",
            inline: "package tidegate:views; world partitioner-view { export tidegate:policy/partitioner@1.0.0; }",
            world: "tidegate:views/partitioner-view",
            with: { "tidegate:policy/outgoing": super::given::outgoing },
        });
    }

    /// What a policy that is told about endings exports.
    pub(crate) mod observer {
        wasmtime::component::bindgen!({
            path: "../../wit",
            inline: "package tidegate:views; world observer-view { export tidegate:policy/observer@1.0.0; }",
            world: "tidegate:views/observer-view",
        });
        pub(crate) use exports::tidegate::policy::observer::*;
    }
}
