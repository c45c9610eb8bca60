//! Puts the files of `templates`, and the SDK, into the program, each under its path.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    // A Rust policy has the SDK beside it, until the SDK is where cargo finds it.
    let roots =
        [("", package.join("templates")), ("rust/sdk/guest/src/", package.join("../../guests/sdk/src"))];
    let mut table = String::from("&[\n");
    for (prefix, root) in roots {
        let root = root.canonicalize()?;
        let mut files = Vec::new();
        collect(&root, &mut files)?;
        files.sort();
        for file in &files {
            let name = file.strip_prefix(&root).unwrap_or(file).to_string_lossy().replace('\\', "/");
            let name = format!("{prefix}{name}");
            // Writing to a string has no way to fail.
            let _ = writeln!(table, "    ({name:?}, include_str!({:?})),", file.to_string_lossy());
        }
        tell(&format!("cargo::rerun-if-changed={}", root.display()));
    }
    table.push_str("]\n");
    tell("cargo::rerun-if-changed=build.rs");
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("templates.rs"), table)
}

/// Every file below a directory, except what builds of the templates themselves leave behind.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    const LEFT_BEHIND: [&str; 4] = ["target", "node_modules", ".venv", "__pycache__"];
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !LEFT_BEHIND.contains(&&*name) {
                collect(&path, files)?;
            }
        } else if !name.ends_with(".wasm") {
            files.push(path);
        }
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "how a build script speaks to cargo")]
fn tell(line: &str) {
    println!("{line}");
}
