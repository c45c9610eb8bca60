//! The workers: programs in three languages, each of them for each flow.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use tidegate_worker_tests::{Language, Ready};
use tokio::time::Instant;

use super::journal::{Journal, LifeId, Way};
use super::secrets::Secrets;
use crate::process::terminate;
use tidegate_process_tests::Random;

const LANGUAGES: [Language; 3] = [Language::Python, Language::Go, Language::JavaScript];
/// The workers: one of each language for each flow.
pub(crate) const WORKERS: usize = LANGUAGES.len() * FLOWS;
/// Flows that there are workers for.
const FLOWS: usize = 2;
/// Of so many lives of a worker after the first, one settles where it gets its messages.
const LIVES_PER_OWNER: u64 = 4;
/// How long a killed worker stays away at most.
const AWAY_MAX_MILLIS: u64 = 2_000;
/// How long a worker that was told to end may take.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// One worker, running or not.
pub(crate) struct Worker {
    pub(crate) name: String,
    /// What starts it, apart from where it settles.
    ready: Arc<Ready>,
    addresses: [String; 2],
    flow: &'static str,
    token: String,
    credits: u32,
    lives: u64,
    running: Option<Running>,
    back_at: Option<Instant>,
}

struct Running {
    child: Child,
    readers: Vec<JoinHandle<()>>,
    life: LifeId,
}

/// The workers that the hosts at these addresses serve, ready to be started: messages come from the first, of these flows.
pub(crate) async fn workers(
    addresses: [&str; 2],
    flows: [&'static str; FLOWS],
    secrets: &Secrets,
    credits: u32,
) -> Vec<Worker> {
    let mut workers = Vec::with_capacity(WORKERS);
    for language in LANGUAGES {
        let ready = Arc::new(language.ready().await);
        for flow in flows {
            workers.push(Worker {
                name: format!("{}-{flow}", language.name()),
                ready: Arc::clone(&ready),
                addresses: addresses.map(str::to_owned),
                flow,
                token: secrets.tokens[workers.len()].text().to_owned(),
                credits,
                lives: 0,
                running: None,
                back_at: None,
            });
        }
    }
    workers
}

impl Worker {
    /// Starts it. Its first life settles where it gets its messages when it is the first of its flow, and one in so many of
    /// its later ones; all others settle at the other host.
    pub(crate) fn start(
        &mut self,
        journal: &Arc<Mutex<Journal>>,
        is_first_of_flow: bool,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        let at_owner = if self.lives == 0 { is_first_of_flow } else { random.below(LIVES_PER_OWNER) == 0 };
        let way = if at_owner { Way::Owner } else { Way::Other };
        self.lives += 1;
        let mut child =
            self.command(way).spawn().with_context(|| format!("worker {} does not start", self.name))?;
        let life = journal.lock().begin(&self.name, way);
        let stdout = child.stdout.take().context("standard output is not piped")?;
        let stderr = child.stderr.take().context("standard error is not piped")?;
        let readers = vec![read_lines(stdout, journal, life), read_lines(stderr, journal, life)];
        self.running = Some(Running { child, readers, life });
        self.back_at = None;
        Ok(())
    }

    fn command(&self, way: Way) -> Command {
        let [owner, other] = &self.addresses;
        let mut command = self.ready.command(owner, self.flow, &self.token);
        command
            .env("TIDEGATE_WORKER", &self.name)
            .env("TIDEGATE_TRACE", "1")
            .env("TIDEGATE_CREDITS", self.credits.to_string());
        if way == Way::Other {
            command.env("TIDEGATE_SETTLE_ADDRESS", other);
        }
        command
    }

    /// SIGKILL, if it runs; it comes back after a while. Says whether it ran.
    pub(crate) fn kill(&mut self, journal: &Mutex<Journal>, random: &mut Random) -> anyhow::Result<bool> {
        let Some(mut running) = self.running.take() else { return Ok(false) };
        journal.lock().kill(running.life);
        running.child.kill()?;
        running.child.wait()?;
        join(running.readers)?;
        self.back_at = Some(Instant::now() + Duration::from_millis(random.below(AWAY_MAX_MILLIS)));
        Ok(true)
    }

    /// Whether it was killed and has been away for long enough.
    pub(crate) fn is_due(&self) -> bool {
        self.back_at.is_some_and(|at| at <= Instant::now())
    }

    /// Whether it was killed and is away.
    pub(crate) const fn is_away(&self) -> bool {
        self.back_at.is_some()
    }

    /// Fails when it has ended by itself.
    pub(crate) fn check_alive(&mut self) -> anyhow::Result<()> {
        if let Some(running) = &mut self.running
            && let Some(status) = running.child.try_wait()?
        {
            bail!("worker {} ended by itself with {status}", self.name);
        }
        Ok(())
    }

    /// SIGTERM; it must end with 0.
    pub(crate) fn terminate(&mut self) -> anyhow::Result<()> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        let status = terminate(&mut running.child, END_PATIENCE)
            .with_context(|| format!("worker {} does not end", self.name))?;
        join(running.readers)?;
        if !status.success() {
            bail!("worker {} ended with {status}", self.name);
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            // Only when something else went wrong.
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}

fn join(readers: Vec<JoinHandle<()>>) -> anyhow::Result<()> {
    for reader in readers {
        if reader.join().is_err() {
            bail!("a reader of a worker's output panicked");
        }
    }
    Ok(())
}

fn read_lines(
    stream: impl Read + Send + 'static,
    journal: &Arc<Mutex<Journal>>,
    life: LifeId,
) -> JoinHandle<()> {
    let journal = Arc::clone(journal);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            journal.lock().take(life, &String::from_utf8_lossy(&line));
        }
    })
}
