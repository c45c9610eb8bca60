//! Components of many parts.

use wasm_encoder::{
    ComponentExportKind, ComponentInstanceSection, ComponentSection as _, InstanceSection, RawSection,
};
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
    let modules = own_parts(component, |payload| matches!(payload, Payload::ModuleSection { .. }));
    let mut instances = InstanceSection::new();
    for _ in 0..count {
        instances.instantiate::<[(&str, wasm_encoder::ModuleArg); 0], _>(modules, []);
    }
    let mut longer = component.to_vec();
    RawSection { id: CORE_MODULE, data: &module }.append_to_component(&mut longer);
    instances.append_to_component(&mut longer);
    longer
}

/// `component` with one more part, composed of two that call each other and have a memory each.
///
/// # Panics
/// When it is no WebAssembly.
#[must_use]
pub fn with_composed_part(component: &[u8]) -> Vec<u8> {
    /// Of a component, among the sections of a component.
    const COMPONENT: u8 = 4;
    let part = wat::parse_str(COMPOSED).expect("the text of a component");
    let components = own_parts(component, |payload| matches!(payload, Payload::ComponentSection { .. }));
    let mut instances = ComponentInstanceSection::new();
    instances.instantiate::<[(&str, ComponentExportKind, u32); 0], _>(components, []);
    let mut longer = component.to_vec();
    RawSection { id: COMPONENT, data: &part }.append_to_component(&mut longer);
    instances.append_to_component(&mut longer);
    longer
}

/// How many parts of that kind `component` has itself, those within its parts left out.
fn own_parts(component: &[u8], is: impl Fn(&Payload<'_>) -> bool) -> u32 {
    let (mut depth, mut found) = (0_u32, 0);
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload.expect("a component");
        found += u32::from(depth == 0 && is(&payload));
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    found
}

const COMPOSED: &str = r#"
(component
  (component $callee
    (core module $code
      (memory (export "memory") 1)
      (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0))
      (func (export "take") (param i32 i32)))
    (core instance $code (instantiate $code))
    (func (export "take") (param "text" string)
      (canon lift (core func $code "take") (memory $code "memory") (realloc (func $code "realloc")))))
  (component $caller
    (import "take" (func $take (param "text" string)))
    (core module $memory (memory (export "memory") 1))
    (core instance $memory (instantiate $memory))
    (core func $take (canon lower (func $take) (memory $memory "memory")))
    (core module $code (import "" "take" (func (param i32 i32))))
    (core instance (instantiate $code (with "" (instance (export "take" (func $take)))))))
  (instance $callee (instantiate $callee))
  (instance (instantiate $caller (with "take" (func $callee "take")))))
"#;
