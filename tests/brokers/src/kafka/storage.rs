//! Formatted data directories: what a node must find in its own before its first start.
//!
//! Formatting is a Java program of its own that takes most of a second. What it writes depends on the release, the
//! node's id, the features and the SCRAM users, not on ports or other configuration, so that one copy serves every
//! cluster with the same of these.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use super::configuration::{PROPERTIES, STORE, format_properties};
use super::options::{ClusterOptions, Mechanism, NodeId};
use crate::ClusterError;
use crate::artifacts::{self, ClassPath};

/// 16 bytes in base64url; clusters of tests never meet, so that one name does for all.
const CLUSTER_ID: &str = "dGlkZWdhdGUtdGVzdHMtMQ";

/// Puts a formatted store into `directory` of `node`.
pub(crate) fn provide(
    options: &ClusterOptions,
    node: NodeId,
    class_path: &ClassPath,
    directory: &Path,
) -> Result<(), ClusterError> {
    let arguments = arguments(options);
    let made_from = format!("{node} of {} {}", options.version, arguments.join(" "));
    let mut hasher = DefaultHasher::new();
    made_from.hash(&mut hasher);
    let formatted = artifacts::directory().join("kafka-formatted");
    let template = formatted.join(format!("{:016x}", hasher.finish()));
    let lock = artifacts::lock(&formatted)?;
    artifacts::once(&template, &made_from, |template| {
        let properties = template.join(PROPERTIES);
        fs::write(&properties, format_properties(node, &template.join(STORE)))
            .map_err(ClusterError::file("write", &properties))?;
        let properties = properties.display().to_string();
        let mut main = vec!["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", &properties];
        main.extend(arguments.iter().map(String::as_str));
        artifacts::run(format!("formatting the data directory of {node}"), class_path, &main)
    })?;
    drop(lock);
    copy(&template.join(STORE), &directory.join(STORE))
}

fn arguments(options: &ClusterOptions) -> Vec<String> {
    let mut arguments = Vec::new();
    for (feature, level) in &options.features {
        arguments.extend(["--feature".into(), format!("{feature}={level}")]);
    }
    for user in options.sasl.iter().flat_map(|sasl| &sasl.users) {
        let mechanism = match user.mechanism {
            Mechanism::Plain => continue,
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        arguments.extend([
            "--add-scram".into(),
            format!("{mechanism}=[name={},password={}]", user.name, user.password),
        ]);
    }
    arguments
}

fn copy(from: &Path, to: &Path) -> Result<(), ClusterError> {
    fs::create_dir_all(to).map_err(ClusterError::file("create", to))?;
    for entry in fs::read_dir(from).map_err(ClusterError::file("read", from))? {
        let entry = entry.map_err(ClusterError::file("read", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(ClusterError::file("copy", source))?;
        }
    }
    Ok(())
}
