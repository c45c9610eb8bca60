//! The long-running Java administration tool, as async calls.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::ClusterError;
use crate::process::{JavaProcess, Launch};
use crate::watchdog::Watchdog;

/// The tool gives up on a broker after 10 s by itself; the rest is for a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(45);

/// The running tool. Its pipes are served by a thread, not by a runtime, so that one cluster can serve tests that
/// each have a runtime of their own.
#[derive(Debug)]
pub(crate) struct Admin {
    process: Mutex<JavaProcess>,
    requests: Mutex<ChildStdin>,
    waiting: Arc<Mutex<Waiting>>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    answers: HashMap<u64, oneshot::Sender<Answer>>,
    /// The tool's output has ended: nobody will answer any more.
    ended: bool,
}

type Answer = Result<String, String>;

impl Admin {
    /// Starts it; the first call waits until it is up.
    pub(crate) fn start(launch: &Launch, watchdog: &Arc<Watchdog>) -> Result<Self, ClusterError> {
        let mut process = JavaProcess::start(launch, watchdog)?;
        let failure =
            |source| ClusterError::Process { what: "talk to", process: launch.name.clone(), source };
        let (requests, answers) =
            process.take_pipes().ok_or_else(|| failure(std::io::ErrorKind::BrokenPipe.into()))?;
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let shared = Arc::clone(&waiting);
        // Ends with the tool's output, that is with the process, which dies with us.
        thread::Builder::new()
            .name("cluster-admin".into())
            .spawn(move || serve(answers, &shared))
            .map_err(failure)?;
        Ok(Self {
            process: Mutex::new(process),
            requests: Mutex::new(requests),
            waiting,
            next: AtomicU64::new(1),
        })
    }

    /// Sends one request and waits for its answer.
    pub(crate) async fn call(&self, verb: &str, arguments: &[&str]) -> Result<String, ClusterError> {
        let request = format!("{verb} {}", arguments.join(" "));
        let refused = |answer: String| ClusterError::Refused { request: request.clone(), answer };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock();
            if waiting.ended {
                drop(waiting);
                self.process.lock().check_alive()?;
                return Err(refused("the administration tool closed its output".into()));
            }
            waiting.answers.insert(id, sender);
        }
        let line = encode(id, verb, arguments);
        self.requests.lock().write_all(line.as_bytes()).map_err(|error| refused(error.to_string()))?;
        match timeout(ANSWER_TIMEOUT, receiver).await {
            Ok(Ok(answer)) => answer.map_err(refused),
            Ok(Err(_)) => {
                self.process.lock().check_alive()?;
                Err(refused("the administration tool closed its output".into()))
            }
            Err(_) => {
                self.waiting.lock().answers.remove(&id);
                Err(refused(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())))
            }
        }
    }
}

fn serve(output: ChildStdout, waiting: &Mutex<Waiting>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if let Some((id, answer)) = decode(&line)
            && let Some(sender) = waiting.lock().answers.remove(&id)
        {
            // Nobody waits any more after a timeout.
            let _ = sender.send(answer);
        }
    }
    let mut waiting = waiting.lock();
    waiting.ended = true;
    waiting.answers.clear();
}

/// `ID TAB VERB TAB ARGUMENT...`, see `ClusterAdmin.java`.
fn encode(id: u64, verb: &str, arguments: &[&str]) -> String {
    let mut line = format!("{id}\t{verb}");
    for argument in arguments {
        line.push('\t');
        line.push_str(&argument.replace('\\', r"\\").replace('\t', r"\t").replace('\n', r"\n"));
    }
    line.push('\n');
    line
}

/// `@ID TAB ok|error TAB TEXT`; everything else is chatter.
fn decode(line: &str) -> Option<(u64, Answer)> {
    let mut fields = line.strip_prefix('@')?.splitn(3, '\t');
    let id = fields.next()?.parse().ok()?;
    let ok = fields.next()? == "ok";
    let text = unescape(fields.next()?);
    Some((id, if ok { Ok(text) } else { Err(text) }))
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        match next {
            '\\' => match rest.next() {
                Some('t') => plain.push('\t'),
                Some('n') => plain.push('\n'),
                Some(escaped) => plain.push(escaped),
                None => plain.push('\\'),
            },
            _ => plain.push(next),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_line() {
        assert_eq!(encode(7, "create-user", &["a\tb", "c\nd\\"]), "7\tcreate-user\ta\\tb\tc\\nd\\\\\n");
    }

    #[test]
    fn answers_and_chatter() {
        assert_eq!(decode("@7\tok\tx\\ty\\nz\\\\"), Some((7, Ok("x\ty\nz\\".into()))));
        assert_eq!(decode("@8\terror\tno"), Some((8, Err("no".into()))));
        assert_eq!(decode("@ready"), None);
        assert_eq!(decode("7\tok\tx"), None);
    }
}
