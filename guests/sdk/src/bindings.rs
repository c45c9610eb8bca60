//! The guest's side of `wit/policy.wit`, generated: what the host gives, and one view for each interface that a policy
//! may export.
//!
//! A component says what it is by what it exports, and [`hosted`](crate::hosted) puts together the views that a macro
//! names. That is how all worlds have one set of types for the interfaces that they share, and how an optional
//! interface is exported by those only that want it. What a policy does not call it does not import: the encoder leaves
//! out imports that no code refers to.
#![allow(missing_docs, reason = "generated from wit/policy.wit, which has the documentation")]
#![allow(unreachable_pub, clippy::use_self, clippy::allow_attributes_without_reason, reason = "generated")]

/// What the host gives.
pub mod given {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package tidegate:guest-given;
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
        world: "tidegate:guest-given/given",
        generate_all,
        pub_export_macro: true,
        additional_derives: [PartialEq],
    });
    pub use tidegate::policy::*;
}

/// What every policy exports.
pub mod lifecycle {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package tidegate:guest-lifecycle; world lifecycle-view { export tidegate:policy/lifecycle@1.0.0; }",
        world: "tidegate:guest-lifecycle/lifecycle-view",
        generate_all,
        pub_export_macro: true,
        additional_derives: [PartialEq],
    });
    pub use exports::tidegate::policy::lifecycle::*;
}

/// What a throttle policy exports.
pub mod throttle {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package tidegate:guest-throttle; world throttle-view { export tidegate:policy/throttle@1.0.0; }",
        world: "tidegate:guest-throttle/throttle-view",
        with: { "tidegate:policy/delivery@1.0.0": crate::bindings::given::delivery },
        pub_export_macro: true,
        generate_all,
        additional_derives: [PartialEq],
    });
    pub use exports::tidegate::policy::throttle::*;
}

/// What a policy that is told about endings exports.
pub mod observer {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package tidegate:guest-observer; world observer-view { export tidegate:policy/observer@1.0.0; }",
        world: "tidegate:guest-observer/observer-view",
        generate_all,
        pub_export_macro: true,
        additional_derives: [PartialEq],
    });
    pub use exports::tidegate::policy::observer::*;
}

/// What a renewal policy exports.
pub mod renewal {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package tidegate:guest-renewal; world renewal-view { export tidegate:policy/renewal@1.0.0; }",
        world: "tidegate:guest-renewal/renewal-view",
        with: { "tidegate:policy/delivery@1.0.0": crate::bindings::given::delivery },
        generate_all,
        pub_export_macro: true,
        additional_derives: [PartialEq],
    });
    pub use exports::tidegate::policy::renewal::*;
}

/// What a credential resolver exports.
pub mod credentials {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package tidegate:guest-credentials; world credentials-view { export tidegate:policy/credentials@1.0.0; }",
        world: "tidegate:guest-credentials/credentials-view",
        generate_all,
        pub_export_macro: true,
        additional_derives: [PartialEq],
    });
    pub use exports::tidegate::policy::credentials::*;
}

/// What a partitioner exports.
pub mod partitioner {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "package tidegate:guest-partitioner; world partitioner-view { export tidegate:policy/partitioner@1.0.0; }",
        world: "tidegate:guest-partitioner/partitioner-view",
        with: { "tidegate:policy/outgoing@1.0.0": crate::bindings::given::outgoing },
        generate_all,
        pub_export_macro: true,
        additional_derives: [PartialEq],
    });
    pub use exports::tidegate::policy::partitioner::*;
}
