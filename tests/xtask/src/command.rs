//! Commands as data: shown, run, or run into a log.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Failure, root};

/// How often a running command is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A program with its arguments, to be run at the repository's root.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
}

/// `cargo` with these arguments: the very cargo that runs us.
pub(crate) fn cargo(arguments: &[&str]) -> Line {
    program("cargo").with(arguments)
}

pub(crate) fn program(name: &str) -> Line {
    Line { program: name.into(), arguments: Vec::new(), environment: Vec::new() }
}

impl Line {
    pub(crate) fn with<S: AsRef<str>>(mut self, arguments: &[S]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    pub(crate) fn environment(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    /// Runs it on our terminal.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let status = self.command().status().map_err(|error| self.not_started(&error))?;
        if status.success() { Ok(()) } else { Err(Failure::Shown) }
    }

    /// Whether it can be started and ends well; what it prints goes nowhere.
    pub(crate) fn succeeds(&self) -> bool {
        let quiet = self.command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|status| status.success())
    }

    /// What it prints, when it ends well.
    pub(crate) fn output(&self) -> Result<String, Failure> {
        let output =
            self.command().stderr(Stdio::inherit()).output().map_err(|error| self.not_started(&error))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(Failure::Environment(format!("`{self}` ended with {}", output.status)))
        }
    }

    /// Runs it with all output appended to `log`. `Ok(None)` when it was still running after `limit` and was killed.
    pub(crate) fn run_into(&self, log: &mut File, limit: Duration) -> io::Result<Option<ExitStatus>> {
        writeln!(log, "$ {self}")?;
        let mut child =
            self.command().stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?).spawn()?;
        let deadline = now() + limit;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if now() >= deadline {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            thread::park_timeout(POLL_INTERVAL);
        }
    }

    fn command(&self) -> Command {
        let program = match self.program.as_str() {
            "cargo" => std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()),
            other => other.into(),
        };
        let mut command = Command::new(program);
        command.args(&self.arguments).envs(self.environment.iter().copied()).current_dir(root());
        command
    }

    fn not_started(&self, error: &io::Error) -> Failure {
        Failure::Environment(format!(
            "cannot start `{}`: {error}; is it installed and on the PATH?",
            self.program
        ))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={value:?} ")?;
        }
        f.write_str(&self.program)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// The monotonic clock.
#[allow(clippy::disallowed_methods, reason = "a task runner measures real time and has no runtime's clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A place of our own; the test's name keeps parallel tests apart.
    fn log(name: &str) -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("tidegate-xtask-{}-{name}", std::process::id()));
        let file = File::options().create(true).append(true).open(&path).unwrap();
        (path, file)
    }

    #[test]
    fn a_log_has_the_command_and_all_it_printed() {
        let (path, mut file) = log("both");
        let line = program("sh").with(&["-c", "echo out; echo err >&2; exit 3"]);
        let status = line.run_into(&mut file, Duration::from_secs(60)).unwrap().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(path).unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(text.starts_with("$ sh -c echo out"), "{text}");
        assert!(text.contains("\nout\n") && text.contains("\nerr\n"), "{text}");
    }

    #[test]
    fn a_command_past_its_limit_is_killed() {
        let (path, mut file) = log("limit");
        let endless = program("sleep").with(&["600"]);
        assert_eq!(endless.run_into(&mut file, Duration::from_millis(1)).unwrap(), None);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn shown_as_it_would_be_typed() {
        let line = cargo(&["doc", "--no-deps"]).environment("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(line.to_string(), r#"RUSTDOCFLAGS="-D warnings" cargo doc --no-deps"#);
    }
}
