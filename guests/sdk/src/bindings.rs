//! The guest's side of `wit/policy.wit`, generated.
#![allow(missing_docs, reason = "generated from wit/policy.wit, which has the documentation")]
#![allow(unreachable_pub, clippy::use_self, clippy::allow_attributes_without_reason, reason = "generated")]

wit_bindgen::generate!({
    path: "../../wit",
    world: "throttle-policy",
    pub_export_macro: true,
    default_bindings_module: "tidegate_guest::bindings",
});
