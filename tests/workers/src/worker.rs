//! A worker, running.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tidegate_process_tests::eventually;

use crate::Language;
use crate::language::Launch;

/// A worker, ready to be started.
#[derive(Debug)]
pub struct Ready(Launch);

/// A worker, running.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Language {
    /// Gets and builds what its worker needs.
    pub async fn ready(self) -> Ready {
        Ready(self.prepare().await)
    }
}

impl Ready {
    /// Starts the worker for a flow of the host at `address`.
    #[must_use]
    pub fn start(&self, address: &str, flow: &str, token: &str) -> Worker {
        Worker::start(self.command(address, flow, token))
    }

    /// The same for a worker that settles at the host at `other`.
    #[must_use]
    pub fn start_settling_at(&self, other: &str, address: &str, flow: &str, token: &str) -> Worker {
        let mut command = self.command(address, flow, token);
        command.env("TIDEGATE_SETTLE_ADDRESS", other);
        Worker::start(command)
    }

    /// What starts the worker for a flow of the host at `address`, with its output piped.
    #[must_use]
    pub fn command(&self, address: &str, flow: &str, token: &str) -> Command {
        let Launch { program, arguments, variables, scheme } = &self.0;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .env("TIDEGATE_ADDRESS", format!("{scheme}{address}"))
            .env("TIDEGATE_FLOW", flow)
            .env("TIDEGATE_TOKEN", token)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // What people may have set for themselves.
        for name in ["WORKER", "CREDITS", "SETTLE_ADDRESS", "TRACE"] {
            command.env_remove(format!("TIDEGATE_{name}"));
        }
        command
    }
}

impl Worker {
    fn start(mut command: Command) -> Self {
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
        let lines = Arc::default();
        let readers = vec![
            read_lines(child.stdout.take().expect("piped"), &lines),
            read_lines(child.stderr.take().expect("piped"), &lines),
        ];
        Self { child, lines, readers }
    }

    /// Lines that it has written so far, to standard output and standard error.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// How many of them begin so.
    #[must_use]
    pub fn count(&self, beginning: &str) -> usize {
        self.lines.lock().iter().filter(|line| line.starts_with(beginning)).count()
    }

    /// Waits until so many lines begin so.
    pub async fn wait_for(&self, count: usize, beginning: &str) {
        let what = format!("{count} lines that begin with `{beginning}`");
        let enough = || (self.count(beginning) >= count).then_some(());
        eventually(&what, enough).await;
    }

    /// Kills it.
    pub async fn kill(mut self) -> Vec<String> {
        self.child.kill().expect("kill");
        self.end().await.1
    }

    /// Sends SIGTERM, and waits for the end. Gives how it ended, and all that it wrote.
    pub async fn terminate(self) -> (ExitStatus, Vec<String>) {
        let status = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(status.expect("kill").success());
        self.end().await
    }

    async fn end(mut self) -> (ExitStatus, Vec<String>) {
        let status = eventually("the end of the worker", || self.child.try_wait().expect("wait")).await;
        for reader in self.readers.drain(..) {
            reader.join().expect("reader");
        }
        (status, self.lines())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("--- the worker:\n{}", self.lines().join("\n"));
        }
        // Over already in the good case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(stream: impl Read + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            lines.lock().push(line);
        }
    })
}
