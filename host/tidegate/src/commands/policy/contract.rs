//! The contract, for tools that want it as a file.

use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// The contract of this program.
pub(super) const TEXT: &str = include_str!("../../../../../wit/policy.wit");

/// The directory that a policy has it in, if it has it.
const DIRECTORY: &str = "wit";

/// Where the contract is: in the policy's own directory, else written to `scratch`.
pub(super) fn write(directory: &Path, scratch: &Path) -> Result<PathBuf, Failure> {
    let own = directory.join(DIRECTORY);
    if own.is_dir() {
        return std::path::absolute(own).map_err(Failure::environment);
    }
    let written = scratch.join(DIRECTORY);
    std::fs::create_dir(&written).map_err(Failure::environment)?;
    std::fs::write(written.join("policy.wit"), TEXT).map_err(Failure::environment)?;
    Ok(written)
}
