//! Generated wire types of the protocols spoken, from the definitions in `proto/`.
//!
//! Of RocketMQ's only the connector and the development broker make use, of `tidegate.v1` only the hand-off service
//! and the workers' client: no type from here crosses into another crate's public API. The tests pin the bytes of the messages that matter, so that a definition cannot drift unseen.
#![forbid(unsafe_code)]

/// RocketMQ 5, package `apache.rocketmq.v2`: client and server.
pub mod rocketmq {
    #![allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::allow_attributes_without_reason,
        clippy::disallowed_types,
        clippy::missing_const_for_fn,
        clippy::semicolon_if_nothing_returned,
        clippy::unwrap_used,
        clippy::use_self,
        clippy::needless_pass_by_value,
        clippy::large_types_passed_by_value,
        clippy::too_many_lines,
        reason = "generated"
    )]
    tonic::include_proto!("apache.rocketmq.v2");
}

/// The hand-off to workers, package `tidegate.v1`: client and server.
pub mod handoff {
    #![allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::allow_attributes_without_reason,
        clippy::disallowed_types,
        clippy::missing_const_for_fn,
        clippy::semicolon_if_nothing_returned,
        clippy::unwrap_used,
        clippy::use_self,
        clippy::needless_pass_by_value,
        clippy::large_types_passed_by_value,
        clippy::too_many_lines,
        reason = "generated"
    )]
    tonic::include_proto!("tidegate.v1");

    /// The definitions themselves, for the reflection service.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/handoff.bin"));
}

#[cfg(test)]
mod tests;
