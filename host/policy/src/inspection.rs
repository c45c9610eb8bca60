//! What can be known of a policy's file without compiling it: `tidegate policy inspect`.

use std::sync::Arc;

use serde::Serialize;
use wasmparser::{Validator, WasmFeatures};

use crate::files::sha256;
use crate::section::{Kind, Trailer, TrailerState, kind, outline};
use crate::world::{World, contract_version, grants_needed};

/// A component, looked at from outside.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Inspection {
    /// Bytes of the file.
    pub bytes: usize,
    /// Its SHA-256 as 64 hexadecimal digits.
    pub sha256: Arc<str>,
    /// What it is for. `None` when it exports nothing that a host asks for.
    pub world: Option<World>,
    /// The version of the contract that it was built for.
    pub contract: Option<String>,
    /// Whether it wants to know how deliveries end.
    pub observes: bool,
    /// The interfaces that it imports.
    pub imports: Vec<String>,
    /// The interfaces that it exports.
    pub exports: Vec<String>,
    /// Those among the imports that it must be granted something of: `env`, `files`, `http`.
    pub grants_needed: Vec<&'static str>,
    /// The section at its end that proves it complete, when it has one.
    pub trailer: Option<Trailer>,
}

/// Why a file cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It is something else.
    #[error("a core module and not a component; `tidegate policy build` makes a component of it")]
    Module,
    /// It is something else.
    #[error("not WebAssembly")]
    Other,
    /// It is damaged.
    #[error("not a valid component: {0}")]
    Invalid(String),
    /// It is not what was built.
    #[error("not complete: {0}")]
    Trailer(String),
}

/// Reads what a component's bytes say about it.
///
/// # Errors
/// When they are no whole component.
pub fn inspect(component: &[u8]) -> Result<Inspection, InspectError> {
    match kind(component) {
        Kind::Component => {}
        Kind::Module => return Err(InspectError::Module),
        Kind::Other => return Err(InspectError::Other),
    }
    let invalid = |error: wasmparser::BinaryReaderError| InspectError::Invalid(error.to_string());
    Validator::new_with_features(WasmFeatures::default()).validate_all(component).map_err(invalid)?;
    let outline = outline(component).map_err(invalid)?;
    let observes = outline.observes();
    let trailer = match outline.trailer {
        TrailerState::Absent => None,
        TrailerState::Whole(trailer) => Some(trailer),
        TrailerState::Broken(message) => return Err(InspectError::Trailer(message)),
    };
    Ok(Inspection {
        bytes: component.len(),
        sha256: sha256(component),
        world: World::found_in(&outline.exports).first().copied(),
        contract: contract_version(&outline.exports),
        observes,
        grants_needed: grants_needed(&outline.imports),
        imports: outline.imports,
        exports: outline.exports,
        trailer,
    })
}
