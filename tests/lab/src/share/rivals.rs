//! The programs of the contestants, made when one of them is wanted.
//!
//! Java's client comes with the broker. librdkafka comes out of the Python package confluent-kafka; the program that uses it is
//! C, so that Python is not what is measured.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use tidegate_test_brokers::artifacts;
use tidegate_test_brokers::kafka::Version;
use tokio::process::Command as AsyncCommand;

use super::contestant::{Contestant, Runner};
use super::{Subject, TOPIC};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const WITHOUT: &str = "`--only` does without";

/// The programs, as far as they are wanted.
pub(super) struct Rivals {
    java_class_path: Option<String>,
    librdkafka: Option<PathBuf>,
    krafka: Option<PathBuf>,
    /// Where the program in C is.
    _directory: TempDir,
}

impl Rivals {
    pub(super) fn prepare(contestants: &[&Contestant]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let is_wanted = |runner| contestants.iter().any(|one| one.runner == runner);
        let java_class_path = is_wanted(Runner::Java).then(java);
        let librdkafka = is_wanted(Runner::Librdkafka).then(|| librdkafka(directory.path()));
        let krafka = is_wanted(Runner::Krafka).then(krafka);
        Ok(Self {
            java_class_path: java_class_path.transpose().context("making the program of Java's client")?,
            librdkafka: librdkafka.transpose().context("making the program of librdkafka")?,
            krafka: krafka.transpose().context("making the program of krafka")?,
            _directory: directory,
        })
    }

    /// The command of one run, for all but the host.
    pub(super) fn command(&self, contestant: &Contestant, subject: Subject<'_>) -> Result<AsyncCommand> {
        let mut command = match contestant.runner {
            Runner::Java => {
                let class_path = self.java_class_path.as_deref().context("Java was not wanted")?;
                let mut command = AsyncCommand::new("java");
                command.args(["-cp", class_path, "ShareConsumerBench"]);
                command
            }
            Runner::Librdkafka => {
                AsyncCommand::new(self.librdkafka.as_ref().context("librdkafka was not wanted")?)
            }
            Runner::Krafka => AsyncCommand::new(self.krafka.as_ref().context("krafka was not wanted")?),
            Runner::Client => {
                let mut command = AsyncCommand::new(std::env::current_exe()?);
                command.arg("share-read");
                command
            }
            Runner::Host => bail!("the host does not talk"),
        };
        command.args([subject.bootstrap, TOPIC, subject.group, &subject.records.to_string()]);
        command.args(contestant.settings);
        Ok(command)
    }
}

/// Compiled, so that no compiler runs beside it.
fn java() -> Result<String> {
    let source = Path::new(HERE).join("java/ShareConsumerBench.java");
    let class_path = artifacts::kafka_programs(Version::default(), &[source]).context(WITHOUT)?;
    Ok(class_path.argument())
}

fn librdkafka(directory: &Path) -> Result<PathBuf> {
    let libraries =
        artifacts::librdkafka().and_then(|python| python.libraries("confluent_kafka")).context(WITHOUT)?;
    let program = directory.join("share-consumer-bench");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-o"]).arg(&program);
    compiler.arg(Path::new(HERE).join("librdkafka/share_consumer_bench.c"));
    compiler.arg(only_file(&libraries, "librdkafka")?);
    compiler.arg(format!("-Wl,-rpath,{}", libraries.display()));
    done(&mut compiler, "it is the C compiler that Rust links with")?;
    Ok(program)
}

/// A package of its own, so that what it depends on is nobody else's.
fn krafka() -> Result<PathBuf> {
    let manifest = Path::new(HERE).join("krafka/Cargo.toml");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(HERE).join("../../target"), PathBuf::from)
        .join("lab-krafka");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(manifest);
    cargo.arg("--target-dir").arg(&target);
    done(&mut cargo, "it comes with Rust")?;
    Ok(target.join("release/tidegate-lab-krafka"))
}

/// The file in a directory whose name begins so.
fn only_file(directory: &Path, beginning: &str) -> Result<PathBuf> {
    let begins = |path: &PathBuf| {
        path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(beginning))
    };
    let entries = fs::read_dir(directory).with_context(|| format!("looking into {}", directory.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let found = paths.into_iter().find(begins);
    found.with_context(|| format!("{} has nothing that begins with `{beginning}`", directory.display()))
}

fn done(command: &mut Command, advice: &str) -> Result<()> {
    let status = command.status().with_context(|| {
        format!("starting {}; {advice}; `--only` does without", command.get_program().display())
    })?;
    ensure!(status.success(), "{} failed; {advice}; `--only` does without", command.get_program().display());
    Ok(())
}
