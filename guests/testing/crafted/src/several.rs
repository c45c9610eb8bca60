//! Components of many parts.

use wasm_encoder::{ComponentSection as _, InstanceSection, RawSection};
use wasmparser::{Parser, Payload};

/// `component` with one more core module, given as text, and so many instances of it.
///
/// # Panics
/// When either is no WebAssembly.
#[must_use]
pub fn with_core_instances(component: &[u8], module: &str, count: u32) -> Vec<u8> {
    /// Of a core module, among the sections of a component.
    const CORE_MODULE: u8 = 1;
    let module = wat::parse_str(module).expect("the text of a module");
    let mut depth = 0_u32;
    let mut modules = 0;
    for payload in Parser::new(0).parse_all(component) {
        match payload.expect("a component") {
            Payload::ModuleSection { .. } => {
                modules += u32::from(depth == 0);
                depth += 1;
            }
            Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    let mut instances = InstanceSection::new();
    for _ in 0..count {
        instances.instantiate::<[(&str, wasm_encoder::ModuleArg); 0], _>(modules, []);
    }
    let mut longer = component.to_vec();
    RawSection { id: CORE_MODULE, data: &module }.append_to_component(&mut longer);
    instances.append_to_component(&mut longer);
    longer
}
