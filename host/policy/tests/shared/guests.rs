//! The guests of this repository, built from their sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tidegate_policy::encode_component;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds all guests once, as the project's own command does; answers where the core modules are.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let guests = root().join("guests");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--release", "--locked", "--target", "wasm32-unknown-unknown"])
            .arg("--manifest-path")
            .arg(guests.join("Cargo.toml"))
            .env_remove("CARGO_TARGET_DIR")
            .status()
            .expect("cargo");
        assert!(status.success(), "the guests do not build");
        guests.join("target/wasm32-unknown-unknown/release")
    })
}

/// A component as `cargo xtask guests` makes it.
pub(crate) fn rebuilt(name: &str) -> Vec<u8> {
    let module = fs::read(built().join(format!("{}.wasm", name.replace('-', "_")))).unwrap();
    encode_component(&module).unwrap()
}
