//! The program, running.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::{PATIENCE, eventually, program_path};

/// A run that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// All that it wrote to standard output.
    pub stdout: String,
    /// All that it wrote to standard error.
    pub stderr: String,
}

impl Ended {
    /// The bodies that the sink `stdout` has written. A kill may have cut the last line short: it is left out.
    #[must_use]
    pub fn values(&self) -> Vec<String> {
        self.stdout.lines().filter_map(value).collect()
    }
}

/// Runs the program with these arguments in `directory` and waits for its end.
#[must_use]
pub fn run_to_end(directory: &Path, arguments: &[&str]) -> Ended {
    run_with_input(directory, arguments, b"")
}

/// The same with something on standard input.
#[must_use]
pub fn run_with_input(directory: &Path, arguments: &[&str], input: &[u8]) -> Ended {
    run_with(command(directory, arguments, &[]), input)
}

/// Runs the program with these variables in its environment and waits for its end.
#[must_use]
pub fn run_with_variables(directory: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    run_with(command(directory, arguments, variables), b"")
}

/// The program with these arguments and variables, in `directory`.
fn command(directory: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program_path());
    command.args(arguments).envs(variables.iter().copied());
    placed(command, directory)
}

/// A command in `directory`, without what people may have set for themselves.
fn placed(mut command: Command, directory: &Path) -> Command {
    command.current_dir(directory).env_remove("TIDEGATE_CONFIG").env_remove("TIDEGATE_ADMIN");
    command
}

fn run_with(mut command: Command, input: &[u8]) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A program that ends before it has read everything has had enough.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().expect("the end")
    });
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// The whole of a small disk. It is in memory, so it is small indeed; and what is on it while it is full.
const DISK_KIBIBYTES: u64 = 48 << 10;
const FILLER: &str = "filler";

/// A run that goes on.
#[derive(Debug)]
pub struct Program {
    child: Child,
    stdout: Arc<Mutex<Vec<String>>>,
    stderr: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Program {
    /// Starts the program with these arguments in `directory`.
    #[must_use]
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::start_with_variables(directory, arguments, &[])
    }

    /// The same with these variables in its environment.
    #[must_use]
    pub fn start_with_variables(directory: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::spawn(command(directory, arguments, variables))
    }

    /// The same with so much address space and no more.
    #[must_use]
    pub fn start_with_address_space(directory: &Path, arguments: &[&str], kibibytes: u64) -> Self {
        Self::start_with_limits(directory, arguments, &format!("ulimit -v {kibibytes}"))
    }

    /// The same with limits that a shell sets before.
    #[must_use]
    pub fn start_with_limits(directory: &Path, arguments: &[&str], limits: &str) -> Self {
        let limited = format!("{limits} && exec \"$0\" \"$@\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &limited]).arg(program_path()).args(arguments);
        Self::spawn(placed(shell, directory))
    }

    /// The same with a disk of its own at `disk`, on which so many kibibytes are free until
    /// [`make_room`](Self::make_room). Takes the right to mount in a namespace of our own.
    #[must_use]
    pub fn start_on_a_small_disk(directory: &Path, arguments: &[&str], disk: &Path, kibibytes: u64) -> Self {
        let script = format!(
            "mount -t tmpfs -o size={}k none \"$0\" && head -c {}k /dev/zero > \"$0/{FILLER}\" && exec \"$@\"",
            DISK_KIBIBYTES,
            DISK_KIBIBYTES - kibibytes,
        );
        let mut unshared = Command::new("unshare");
        unshared.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
        unshared.arg(disk).arg(program_path()).args(arguments);
        Self::spawn(placed(unshared, directory))
    }

    /// Frees the disk that [`start_on_a_small_disk`](Self::start_on_a_small_disk) has filled.
    pub fn make_room(&self, disk: &Path) {
        std::fs::remove_file(self.seen_from_outside(&disk.join(FILLER))).expect("the disk is full of it");
    }

    /// The path by which others than the program find a file that it sees as `path`.
    #[must_use]
    pub fn seen_from_outside(&self, path: &Path) -> PathBuf {
        let root = format!("/proc/{}/root", self.child.id());
        Path::new(&root).join(path.strip_prefix("/").expect("a whole path"))
    }

    /// The soft limit of its open files and connections.
    #[must_use]
    pub fn open_files_max(&self) -> u64 {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).expect("it runs");
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("proc(5)");
        line.split_whitespace().next().expect("a number").parse().expect("a limit")
    }

    /// Memory that it has in RAM now, in bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("proc(5)");
        let kibibytes = line.split_whitespace().next().expect("a number");
        kibibytes.parse::<u64>().expect("a number") * 1024
    }

    /// The value of a metric with its labels, such as `flow_in_flight{flow="tenants"}`; 0 when it is not there.
    pub async fn metric(&self, sample: &str) -> u64 {
        let (_, text) = self.ask_as("GET", "/metrics").await;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("tidegate_")?.strip_prefix(sample)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().expect("a number"))
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let (stdout, stderr) = (Arc::default(), Arc::default());
        let readers = vec![
            read_lines(child.stdout.take().expect("piped"), &stdout),
            read_lines(child.stderr.take().expect("piped"), &stderr),
        ];
        Self { child, stdout, stderr, readers }
    }

    /// Lines of standard output so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.stdout.lock().clone()
    }

    /// Everything logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.stderr.lock().join("\n")
    }

    /// Waits until the log has `text` in it.
    pub async fn wait_for_log(&self, text: &str) {
        eventually(&format!("`{text}` in the log"), || self.log().contains(text).then_some(())).await;
    }

    /// The address of the admin API, which is in the log.
    pub async fn admin(&self) -> String {
        eventually("the admin API's address in the log", || admin_address(&self.log())).await
    }

    /// Asks the admin API.
    pub async fn get(&self, path: &str) -> Value {
        self.ask(path).await.1
    }

    /// The same with the answer's status.
    pub async fn ask(&self, path: &str) -> (u16, Value) {
        let (status, body) = self.ask_as("GET", path).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// The same with a method of HTTP, and the answer's body as it came.
    pub async fn ask_as(&self, method: &str, path: &str) -> (u16, String) {
        http_ask(&self.admin().await, method, path)
    }

    /// The counts of its first flow.
    pub async fn totals(&self) -> Value {
        self.get("/api/flows").await["flows"][0]["totals"].clone()
    }

    /// Waits until one of them is so much.
    pub async fn wait_for_total(&self, name: &str, count: u64) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let totals = self.totals().await;
            if totals[name] == count {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "waited in vain for {count} {name}: {totals}\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    /// Sends SIGTERM and waits for the end.
    pub async fn terminate(self) -> Ended {
        self.signal("TERM");
        self.wait().await
    }

    /// Kills the program.
    pub async fn kill(mut self) -> Ended {
        self.child.kill().expect("kill");
        self.wait().await
    }

    /// Waits for the end.
    pub async fn wait(mut self) -> Ended {
        let status = eventually("the end of the program", || self.child.try_wait().expect("wait")).await;
        for reader in self.readers.drain(..) {
            reader.join().expect("reader");
        }
        Ended {
            code: status.code(),
            stdout: self.stdout.lock().join("\n"),
            stderr: self.stderr.lock().join("\n"),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Over already in the good case.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "--- the program's log\n{}", self.log());
        }
    }
}

fn read_lines(
    stream: impl std::io::Read + Send + 'static,
    lines: &Arc<Mutex<Vec<String>>>,
) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            lines.lock().push(line.expect("text"));
        }
    })
}

fn value(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).ok()?;
    Some(line["value"].as_str().expect("a value").to_owned())
}

fn admin_address(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains("admin API listens"))?;
    if let Ok(line) = serde_json::from_str::<Value>(line) {
        return line["address"].as_str().map(str::to_owned);
    }
    let (_, address) = line.split_once("address=")?;
    Some(address.split_whitespace().next()?.to_owned())
}

/// Asks an admin API for the status and body of its answer.
#[must_use]
pub fn http_ask(address: &str, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the admin API is there");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (status, body)
}
