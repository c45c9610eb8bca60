//! A policy's stack is 64 KiB instead of 1 MiB: a fresh instance then touches two pages and not seventeen.

#[allow(clippy::print_stdout, reason = "how a build script speaks to cargo")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_FAMILY").is_ok_and(|family| family == "wasm") {
        println!("cargo::rustc-link-arg-cdylib=-zstack-size=65536");
    }
}
