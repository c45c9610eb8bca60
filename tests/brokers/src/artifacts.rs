//! Jars from Maven and our own Java sources, made ready once and shared by all test processes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::{ClusterError, kafka};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const INSTALL_JAVA: &str =
    "install a JDK 17 or newer and put it on the PATH (Debian: `apt-get install openjdk-17-jdk-headless`)";
const INSTALL_MAVEN: &str =
    "install Maven 3.8 or newer and put it on the PATH (Debian: `apt-get install maven`)";
const INSTALL_PYTHON: &str =
    "install Python 3.10 or newer with venv and put it on the PATH (Debian: `apt-get install python3-venv`)";
/// Written last into a complete directory; holds what it was made from.
const STAMP: &str = "made-from";

/// Jars and compiled classes, ready for a Java command line.
#[derive(Clone, Debug)]
pub struct ClassPath {
    lib: PathBuf,
    classes: Option<PathBuf>,
}

impl ClassPath {
    /// The value for Java's `-cp`.
    #[must_use]
    pub fn argument(&self) -> String {
        let lib = format!("{}/*", self.lib.display());
        self.classes.as_ref().map_or(lib.clone(), |classes| format!("{}:{lib}", classes.display()))
    }
}

/// A virtual environment of Python.
#[derive(Clone, Debug)]
pub struct Python {
    environment: PathBuf,
}

impl Python {
    /// Its interpreter.
    #[must_use]
    pub fn interpreter(&self) -> PathBuf {
        self.environment.join("bin/python")
    }

    /// Where the shared libraries of a package are that brings its own.
    ///
    /// # Errors
    /// When the environment has no such place.
    pub fn libraries(&self, package: &str) -> Result<PathBuf, ClusterError> {
        let lib = self.environment.join("lib");
        let versions = fs::read_dir(&lib).map_err(ClusterError::file("read", &lib))?;
        let places = versions
            .flatten()
            .map(|version| version.path().join("site-packages").join(format!("{package}.libs")));
        let missing = || ClusterError::Tool {
            what: format!("looking for the libraries of {package} below {}", lib.display()),
            output: "they are not there".to_owned(),
        };
        places.into_iter().find(|place| place.is_dir()).ok_or_else(missing)
    }
}

/// The RocketMQ servers and our administration tool, fetched and compiled if that was not done yet.
///
/// # Errors
/// When Java or Maven is missing or fails.
pub fn rocketmq() -> Result<ClassPath, ClusterError> {
    let sources = Path::new(HERE).join("rocketmq");
    prepare("rocketmq", &sources.join("pom.xml"), &[], &[sources.join("ClusterAdmin.java")])
}

/// The Kafka broker of `version`, fetched if that was not done yet.
///
/// # Errors
/// When Java or Maven is missing or fails.
pub fn kafka(version: kafka::Version) -> Result<ClassPath, ClusterError> {
    kafka_programs(version, &[])
}

/// The same with our Java programs `sources`, which use Kafka's own clients of that version.
///
/// # Errors
/// When Java or Maven is missing or fails.
pub fn kafka_programs(version: kafka::Version, sources: &[PathBuf]) -> Result<ClassPath, ClusterError> {
    let pom = Path::new(HERE).join("kafka/pom.xml");
    prepare(&format!("kafka-{version}"), &pom, &[format!("-Dkafka.version={version}")], sources)
}

/// librdkafka with its Python package, the only place where this version is built for every Linux; fetched if that was not done
/// yet.
///
/// # Errors
/// When Python is missing or the package cannot be had.
pub fn librdkafka() -> Result<Python, ClusterError> {
    python("librdkafka", &Path::new(HERE).join("librdkafka/requirements.txt"))
}

/// A virtual environment of Python with the packages of a requirements file, made if that was not done yet.
fn python(name: &str, requirements: &Path) -> Result<Python, ClusterError> {
    let place = directory().join(name);
    let _lock = lock(&place)?;
    let environment = place.join("environment");
    once(&environment, &read(requirements)?, |environment| {
        let what = format!("making a Python environment in {}", environment.display());
        let mut venv = Command::new("python3");
        complete(what, venv.args(["-m", "venv"]).arg(environment), "python3", INSTALL_PYTHON)?;
        let what = format!("installing what {} names", requirements.display());
        let mut pip = Command::new(environment.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(requirements);
        complete(what, &mut pip, "python3", INSTALL_PYTHON)
    })?;
    Ok(Python { environment })
}

/// The public RocketMQ Java client and the Java programs `sources` that use it, if any.
///
/// # Errors
/// When Java or Maven is missing or fails.
pub fn client(sources: &[PathBuf]) -> Result<ClassPath, ClusterError> {
    prepare("client", &Path::new(HERE).join("client/pom.xml"), &[], sources)
}

/// Prepares on a thread on which that may take its time.
///
/// # Errors
/// As `prepare` does.
pub async fn in_background<T: Send + 'static>(
    prepare: impl FnOnce() -> Result<T, ClusterError> + Send + 'static,
) -> Result<T, ClusterError> {
    match tokio::task::spawn_blocking(prepare).await {
        Ok(prepared) => prepared,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Everything of this crate under the build directory.
pub(crate) fn directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(HERE).join("../../target"), PathBuf::from);
    target.canonicalize().unwrap_or(target).join("brokers")
}

/// A lock file keeps parallel test processes from fetching at the same time; the stamp, written last, tells a
/// complete directory from one whose making was interrupted or whose sources have changed.
fn prepare(
    name: &str,
    pom: &Path,
    properties: &[String],
    sources: &[PathBuf],
) -> Result<ClassPath, ClusterError> {
    let directory = directory().join(name);
    let _lock = lock(&directory)?;
    let pom_text = read(pom)?;
    let lib = directory.join("lib");
    once(&lib, &pom_text, |lib| fetch(pom, properties, lib))?;
    // One place for each program: another one's classes may be running.
    let program = sources.first().and_then(|source| source.file_stem());
    let classes = program.map(|program| directory.join("programs").join(program));
    if let Some(classes) = &classes {
        let mut made_from = pom_text;
        for source in sources {
            made_from.push_str(&read(source)?);
        }
        once(classes, &made_from, |classes| compile(sources, &lib, classes))?;
    }
    Ok(ClassPath { lib, classes })
}

/// Makes `directory` if it is not there, and keeps other processes from working in it until the file is dropped.
pub(crate) fn lock(directory: &Path) -> Result<File, ClusterError> {
    fs::create_dir_all(directory).map_err(ClusterError::file("create", directory))?;
    let path = directory.join("lock");
    let lock = File::create(&path).map_err(ClusterError::file("create", &path))?;
    lock.lock().map_err(ClusterError::file("lock", path))?;
    Ok(lock)
}

/// Makes `directory` with `make`, unless it is there and was made from the same text.
pub(crate) fn once(
    directory: &Path,
    made_from: &str,
    make: impl FnOnce(&Path) -> Result<(), ClusterError>,
) -> Result<(), ClusterError> {
    let stamp = directory.join(STAMP);
    if fs::read_to_string(&stamp).is_ok_and(|text| text == made_from) {
        return Ok(());
    }
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(ClusterError::file("remove", directory))?;
    }
    fs::create_dir_all(directory).map_err(ClusterError::file("create", directory))?;
    make(directory)?;
    fs::write(&stamp, made_from).map_err(ClusterError::file("write", stamp))
}

fn fetch(pom: &Path, properties: &[String], lib: &Path) -> Result<(), ClusterError> {
    let what = format!("fetching the jars of {} with Maven", pom.display());
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "--file"]).arg(pom).args(properties);
    maven.arg("dependency:copy-dependencies").arg(format!("-DoutputDirectory={}", lib.display()));
    complete(what, &mut maven, "mvn", INSTALL_MAVEN)
}

fn compile(sources: &[PathBuf], lib: &Path, classes: &Path) -> Result<(), ClusterError> {
    let what = format!("compiling {} Java source files into {}", sources.len(), classes.display());
    let mut compiler = Command::new("javac");
    compiler.args(["-Xlint:all,-processing", "-Werror", "-proc:none", "--release", "17", "-cp"]);
    compiler.arg(format!("{}/*", lib.display())).arg("-d").arg(classes).args(sources);
    complete(what, &mut compiler, "javac", INSTALL_JAVA)
}

/// Runs the class `main` of a class path to its end.
pub(crate) fn run(what: String, class_path: &ClassPath, main: &[&str]) -> Result<(), ClusterError> {
    let mut java = Command::new("java");
    java.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]);
    java.arg(class_path.argument()).args(main);
    complete(what, &mut java, "java", INSTALL_JAVA)
}

/// Runs a tool to its end, which must be a good one.
fn complete(
    what: String,
    command: &mut Command,
    program: &'static str,
    install: &'static str,
) -> Result<(), ClusterError> {
    let output = command.output().map_err(|source| ClusterError::Missing { program, install, source })?;
    succeeded(what, &output)
}

fn succeeded(what: String, output: &Output) -> Result<(), ClusterError> {
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    Err(ClusterError::Tool { what, output: tail(&String::from_utf8_lossy(&printed)) })
}

/// The last lines of `text`, enough to show a cause.
pub(crate) fn tail(text: &str) -> String {
    const LINES: usize = 15;
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

fn read(path: &Path) -> Result<String, ClusterError> {
    fs::read_to_string(path).map_err(ClusterError::file("read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_again_only_when_interrupted_or_changed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("thing");
        let make = |content: &str| {
            let content = content.to_owned();
            move |at: &Path| fs::write(at.join("thing"), content).map_err(ClusterError::file("write", at))
        };
        let thing = || fs::read_to_string(directory.join("thing")).unwrap();

        once(&directory, "v1", make("first")).unwrap();
        once(&directory, "v1", make("never made")).unwrap();
        assert_eq!(thing(), "first");

        once(&directory, "v2", make("second")).unwrap();
        assert_eq!(thing(), "second");

        let interrupted = |_: &Path| Err(ClusterError::Ports(1, 2, 3));
        once(&directory, "v3", interrupted).unwrap_err();
        once(&directory, "v3", make("third")).unwrap();
        assert_eq!(thing(), "third");
    }

    #[test]
    fn a_tail_is_the_end() {
        let text: String = (0..40).map(|line| format!("{line}\n")).collect();
        assert!(tail(&text).starts_with("25\n"));
        assert!(tail(&text).ends_with("39"));
        assert_eq!(tail("one"), "one");
    }
}
