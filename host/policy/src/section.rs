//! From a core module to a component, and the section at its end that proves it complete.
//!
//! A component cut short can still be valid (measured: 136 of 21,713 prefixes of one file compile), so
//! [`encode_component`] ends the file with a custom section that says how many bytes come before it.

use serde::{Deserialize, Serialize};
use wasm_encoder::{ComponentSection as _, CustomSection};
use wasmparser::{Encoding, Parser, Payload};
use wit_component::ComponentEncoder;

use crate::world::{self, World};

/// Name of the trailing section.
const TRAILER: &str = "tidegate:policy";

/// Name of the section that the SDK's macro puts into the core module: a [`Built`] as JSON.
const BUILT: &str = "tidegate:built";

/// What the SDK says about the crate that was built with it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Built {
    /// The policy's crate.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The SDK and its version.
    pub sdk: String,
}

/// The trailing section.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Trailer {
    /// What was built, when the SDK said so.
    pub built: Option<Built>,
    /// The contract that it was encoded for.
    pub wit: String,
    /// Bytes of the file before this section.
    pub bytes: usize,
}

/// Why a module did not become a component.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// It is something else.
    #[error("this is {0}; a core module is needed, as cargo builds it for wasm32-unknown-unknown")]
    NotModule(&'static str),
    /// It is something else.
    #[error("this is {0}, and not a component")]
    NotComponent(&'static str),
    /// It does not carry the contract, or does not fit it.
    #[error("the module does not make a component of {package}: {message}", package = world::PACKAGE)]
    Refused {
        /// What the encoder says.
        message: String,
    },
}

/// Makes a component of a core module that was built with the SDK (or with wit-bindgen), and ends it with the
/// section that proves it complete.
///
/// # Errors
/// When the bytes are no core module, or one that does not fit the contract it carries.
pub fn encode_component(core_module: &[u8]) -> Result<Vec<u8>, EncodeError> {
    match kind(core_module) {
        Kind::Module => {}
        Kind::Component => return Err(EncodeError::NotModule("a component already")),
        Kind::Other => return Err(EncodeError::NotModule("not WebAssembly")),
    }
    let refused = |error: &dyn std::fmt::Display| EncodeError::Refused { message: format!("{error:#}") };
    let component = ComponentEncoder::default()
        .validate(true)
        .module(core_module)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| refused(&error))?;
    seal(component, built(core_module))
}

/// Ends a component of another tool's with the section that proves it complete, and says what it was built from. A
/// component that has that section already gets a new one.
///
/// # Errors
/// When the bytes are no component, or one that is no policy, or not what was sealed before.
pub fn seal_component(component: &[u8], built: Option<Built>) -> Result<Vec<u8>, EncodeError> {
    match kind(component) {
        Kind::Component => {}
        Kind::Module => return Err(EncodeError::NotComponent("a core module")),
        Kind::Other => return Err(EncodeError::NotComponent("not WebAssembly")),
    }
    let refused = |message: String| EncodeError::Refused { message };
    // Its end is not trusted before every byte was looked at.
    wasmparser::Validator::new_with_features(wasmparser::WasmFeatures::default())
        .validate_all(component)
        .map_err(|error| refused(error.to_string()))?;
    match outline(component).map_err(|error| refused(error.to_string()))?.trailer {
        TrailerState::Absent => seal(component.to_vec(), built),
        TrailerState::Whole(trailer) => {
            let unsealed = component.get(..trailer.bytes).unwrap_or(component);
            seal(unsealed.to_vec(), built.or(trailer.built))
        }
        TrailerState::Broken(message) => Err(refused(message)),
    }
}

/// Looks whether a component without the section fits the contract, and adds it.
fn seal(mut component: Vec<u8>, built: Option<Built>) -> Result<Vec<u8>, EncodeError> {
    let refused = |error: &dyn std::fmt::Display| EncodeError::Refused { message: format!("{error:#}") };
    // Better told here than when it is loaded.
    let outline = outline(&component).map_err(|error| refused(&error))?;
    let world = World::found_in(&outline.exports).first().copied().unwrap_or(World::ThrottlePolicy);
    if let Some((export, advice)) = world::missing_export(world, &outline.exports) {
        return Err(EncodeError::Refused { message: format!("it does not export `{export}`: {advice}") });
    }
    for import in &outline.imports {
        if let Some(advice) = world::import_advice(world, import) {
            return Err(EncodeError::Refused { message: format!("it imports `{import}`: {advice}") });
        }
    }
    let trailer = Trailer { built, wit: world::PACKAGE.to_owned(), bytes: component.len() };
    let data = serde_json::to_vec(&trailer).map_err(|error| refused(&error))?;
    CustomSection { name: TRAILER.into(), data: data.into() }.append_to_component(&mut component);
    Ok(component)
}

/// What the first bytes say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Component,
    Module,
    Other,
}

pub(crate) fn kind(bytes: &[u8]) -> Kind {
    match Parser::new(0).parse_all(bytes).next() {
        Some(Ok(Payload::Version { encoding: Encoding::Component, .. })) => Kind::Component,
        Some(Ok(Payload::Version { encoding: Encoding::Module, .. })) => Kind::Module,
        _ => Kind::Other,
    }
}

/// The top level of a valid component: names of its imports and exports, and the trailing section.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Outline {
    pub(crate) imports: Vec<String>,
    pub(crate) exports: Vec<String>,
    pub(crate) trailer: TrailerState,
}

impl Outline {
    /// Whether it exports the optional interface that tells how deliveries ended.
    pub(crate) fn observes(&self) -> bool {
        self.exports.iter().any(|name| world::is_observer(name))
    }
}

/// Whether the file proves that it is complete.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum TrailerState {
    /// It was encoded by another tool, which says nothing about it.
    #[default]
    Absent,
    /// It is complete.
    Whole(Trailer),
    /// It is not what was encoded.
    Broken(String),
}

/// Reads the outline of a component that the validator accepted.
pub(crate) fn outline(component: &[u8]) -> Result<Outline, wasmparser::BinaryReaderError> {
    let mut outline = Outline::default();
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(component) {
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    outline.imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    outline.exports.push(export?.name.name.to_owned());
                }
            }
            Payload::CustomSection(section) if depth == 0 && section.name() == TRAILER => {
                outline.trailer = trailer(component, section.data(), section.range().end);
            }
            _ => {}
        }
    }
    Ok(outline)
}

fn trailer(component: &[u8], data: &[u8], end: usize) -> TrailerState {
    let trailer: Trailer = match serde_json::from_slice(data) {
        Ok(trailer) => trailer,
        Err(error) => return TrailerState::Broken(format!("its trailing section cannot be read: {error}")),
    };
    let mut section = Vec::new();
    CustomSection { name: TRAILER.into(), data: data.into() }.append_to_component(&mut section);
    let begin = end.saturating_sub(section.len());
    if end != component.len() {
        return TrailerState::Broken(format!("{} bytes follow its trailing section", component.len() - end));
    }
    if begin != trailer.bytes {
        return TrailerState::Broken(format!(
            "{begin} bytes come before its trailing section, which counted {}",
            trailer.bytes
        ));
    }
    TrailerState::Whole(trailer)
}

/// What the SDK says about a core module, or about the one in a component.
pub(crate) fn built(bytes: &[u8]) -> Option<Built> {
    Parser::new(0).parse_all(bytes).find_map(|payload| match payload.ok()? {
        Payload::CustomSection(section) if section.name() == BUILT => {
            serde_json::from_slice(section.data()).ok()
        }
        _ => None,
    })
}
