//! Compiles the definitions in `proto/` with a compiler written in Rust, so that no `protoc` is needed.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());
    let descriptors = protox::compile(["apache/rocketmq/v2/service.proto"], [root])?;
    tonic_prost_build::configure()
        // A body is shared between the wire buffer and the message, never copied.
        .bytes(".apache.rocketmq.v2.Message.body")
        .build_transport(true)
        .compile_fds(descriptors)?;
    Ok(())
}
