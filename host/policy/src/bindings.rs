//! The Rust side of `wit/policy.wit`, generated.

#![allow(missing_docs, reason = "generated from wit/policy.wit, which has the documentation")]
#![allow(unreachable_pub, unused_qualifications, reason = "generated")]
#![allow(
    clippy::needless_pass_by_value,
    clippy::semicolon_if_nothing_returned,
    clippy::use_self,
    clippy::too_many_lines,
    clippy::redundant_clone,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "throttle-policy",
    imports: { "tidegate:policy/state.take": trappable },
    with: { "tidegate:policy/delivery.message": crate::guest::CurrentMessage },
});
