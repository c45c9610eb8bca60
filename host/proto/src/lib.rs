//! Generated wire types of the protocols spoken, from the definitions in `proto/`.
//!
//! Only a connector and the development broker may use them: no type from here crosses into another crate's public
//! API. The tests pin the bytes of the messages that matter, so that a definition cannot drift unseen.
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

#[cfg(test)]
mod tests;
