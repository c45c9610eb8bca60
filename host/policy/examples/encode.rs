//! Makes a component of a core module: `encode CORE.wasm COMPONENT.wasm`. `tidegate policy build` does the same.

use std::error::Error;
use std::fs;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(core), Some(component)) = (arguments.next(), arguments.next()) else {
        return Err("usage: encode CORE.wasm COMPONENT.wasm".into());
    };
    let bytes = tidegate_policy::encode_component(&fs::read(&core)?)?;
    fs::write(&component, bytes)?;
    Ok(())
}
