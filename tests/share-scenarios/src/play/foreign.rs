//! Members of other clients, each a process of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_test_brokers::artifacts;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{PATIENCE, Play};
use crate::stage::Door;

/// Lines of what a process says beside its records, kept for a failure's report.
const REMARKS_MAX: usize = 30;

/// Whose client a member is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Client {
    /// `KafkaShareConsumer` of the brokers' own release.
    Java,
    /// librdkafka 2.15.0 through its Python package. It speaks version 1 of ShareFetch and ShareAcknowledge only, so it can
    /// neither renew a lock nor ask for an exact number of records; nothing else is left out for it.
    Librdkafka,
}

/// What a member does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Does {
    /// Accepts what comes.
    Accept,
    /// Gives back what comes first, and asks for nothing more.
    Release,
    /// Keeps what comes first, and says nothing about it.
    Hold,
}

/// A record in another's hands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Line {
    /// What was done: `accepted`, `released`, `held`, or `refused` by the broker.
    pub(crate) what: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) count: i16,
    pub(crate) number: usize,
}

/// A member that is a process of its own. Dropping it is its death.
pub(crate) struct Foreign {
    child: Child,
    /// It takes leave when this ends.
    input: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<Line>>>,
    remarks: Arc<Mutex<Vec<String>>>,
    reading: JoinHandle<()>,
    listening: JoinHandle<()>,
}

impl Client {
    /// What starts it, up to its arguments; got and compiled first if that was not done yet.
    async fn command(self, play: &Play) -> Command {
        let version = play.stage.version().expect("a real cluster");
        let made = artifacts::in_background(move || match self {
            Self::Java => {
                let class_path = artifacts::kafka_programs(version, &[source("ShareMember.java")])?;
                let mut java = Command::new("java");
                java.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
                java.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
                java.arg("-cp").arg(class_path.argument()).arg("ShareMember");
                Ok(java)
            }
            Self::Librdkafka => {
                let mut python = Command::new(artifacts::librdkafka()?.interpreter());
                python.arg(source("share_member.py"));
                Ok(python)
            }
        });
        made.await.expect("the other client")
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign").join(name)
}

impl Play {
    /// A member of another client that takes at most about so many records at a time.
    pub(crate) async fn foreign(
        &self,
        client: Client,
        does: Does,
        group: &str,
        topic: &str,
        records: usize,
    ) -> Foreign {
        let does = match does {
            Does::Accept => "accept",
            Does::Release => "release",
            Does::Hold => "hold",
        };
        let mut command = client.command(self).await;
        command.args([does, &self.stage.bootstrap(Door::Plain), topic, group, &records.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("a process");
        let (lines, remarks) = (Arc::default(), Arc::default());
        let output = child.stdout.take().expect("it is ours");
        let errors = child.stderr.take().expect("it is ours");
        let reading = tokio::spawn(read(output, Arc::clone(&lines), Arc::clone(&remarks)));
        let listening = tokio::spawn(listen(errors, Arc::clone(&remarks)));
        Foreign { input: child.stdin.take(), child, lines, remarks, reading, listening }
    }
}

/// Notes each record; what is no record is a remark.
async fn read(
    output: impl AsyncRead + Unpin,
    lines: Arc<Mutex<Vec<Line>>>,
    remarks: Arc<Mutex<Vec<String>>>,
) {
    let mut output = BufReader::new(output).lines();
    while let Ok(Some(text)) = output.next_line().await {
        match parse(&text) {
            Some(line) => lines.lock().push(line),
            None => remark(&remarks, text),
        }
    }
}

async fn listen(errors: impl AsyncRead + Unpin, remarks: Arc<Mutex<Vec<String>>>) {
    let mut errors = BufReader::new(errors).lines();
    while let Ok(Some(text)) = errors.next_line().await {
        remark(&remarks, text);
    }
}

fn remark(remarks: &Mutex<Vec<String>>, text: String) {
    let mut remarks = remarks.lock();
    if remarks.len() < REMARKS_MAX {
        remarks.push(text);
    }
}

fn parse(text: &str) -> Option<Line> {
    let mut words = text.split(' ');
    let line = Line {
        what: words.next()?.to_owned(),
        partition: words.next()?.parse().ok()?,
        offset: words.next()?.parse().ok()?,
        count: words.next()?.parse().ok()?,
        number: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(line)
}

impl Foreign {
    /// The records so far.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.lines.lock().clone()
    }

    /// Waits for so many records of which it has said this.
    pub(crate) async fn gather(&self, what: &str, count: usize) -> Vec<Line> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lines: Vec<Line> = self.lines().into_iter().filter(|line| line.what == what).collect();
            if lines.len() >= count {
                return lines;
            }
            assert!(Instant::now() < deadline, "{} of {count} {what}; {}", lines.len(), self.account());
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends it with SIGKILL.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Has it take leave, and gives all its records.
    pub(crate) async fn leave(mut self) -> Vec<Line> {
        drop(self.input.take());
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let status =
            ended.unwrap_or_else(|_| panic!("it does not end; {}", self.account())).expect("a child");
        assert!(status.success(), "{status}; {}", self.account());
        (&mut self.reading).await.expect("reading does not fail");
        (&mut self.listening).await.expect("reading does not fail");
        self.lines()
    }

    /// What it says beside its records.
    fn account(&self) -> String {
        format!("it says: {:#?}", self.remarks.lock())
    }
}
