//! Compiles the definitions in `proto/` with a compiler written in Rust, so that no `protoc` is needed.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());
    let rocketmq = protox::compile(["apache/rocketmq/v2/service.proto"], [&root])?;
    tonic_prost_build::configure()
        // A body is shared between the wire buffer and the message, never copied.
        .bytes(".apache.rocketmq.v2.Message.body")
        .build_transport(true)
        .compile_fds(rocketmq)?;
    let handoff = protox::compile(["tidegate/v1/handoff.proto"], [&root])?;
    // For the reflection service.
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("handoff.bin"), handoff.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".tidegate.v1.Delivery.body")
        .bytes(".tidegate.v1.Property.value")
        .build_transport(true)
        .compile_fds(handoff)?;
    Ok(())
}
