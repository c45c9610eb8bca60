//! The program, running, and what its admin API says.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// From the start of the process to its open admin port, with compiling the policy in between.
const START_WITHIN: Duration = Duration::from_secs(30);
/// For one answer of the admin API.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A running `tidegate run`; dropping it kills it.
pub(crate) struct Program {
    child: Child,
    log: PathBuf,
    admin: String,
}

/// What is looked at of a flow's totals.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct FlowTotals {
    pub(crate) deferred: u64,
    pub(crate) on_error: u64,
    pub(crate) accepted: u64,
    pub(crate) redelivered: u64,
}

#[derive(Deserialize)]
struct Flows {
    flows: Vec<Flow>,
}

#[derive(Deserialize)]
struct Flow {
    totals: FlowTotals,
}

#[derive(Deserialize)]
struct Policies {
    policies: Vec<Policy>,
}

#[derive(Deserialize)]
struct Policy {
    failures: BTreeMap<String, u64>,
}

impl Program {
    /// Starts the program in `directory` with this configuration, whose `admin-listen` is a free port of the loopback
    /// interface and whose log has the level `info`.
    pub(crate) async fn start(host: &Path, directory: &Path, configuration: &str) -> Result<Self> {
        let (config, log) = (directory.join("tidegate.toml"), directory.join("tidegate.log"));
        fs::write(&config, configuration)?;
        let file = File::create(&log)?;
        let child = Command::new(host)
            .args(["run", "--strict", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {}", host.display()))?;
        let mut program = Self { child, log, admin: String::new() };
        let deadline = Instant::now() + START_WITHIN;
        while program.admin.is_empty() {
            let log = fs::read_to_string(&program.log)?;
            ensure!(
                Instant::now() < deadline && program.child.try_wait()?.is_none(),
                "the host did not start:\n{log}"
            );
            match address_in(&log, "admin API listens") {
                Some(address) => address.clone_into(&mut program.admin),
                None => sleep(Duration::from_millis(10)).await,
            }
        }
        Ok(program)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) async fn totals(&self) -> Result<FlowTotals> {
        let answer: Flows = self.get("/api/flows").await?;
        Ok(answer.flows.first().context("the host has no flow")?.totals)
    }

    /// Messages that followed `on-error`, by cause, whose number is not zero.
    pub(crate) async fn failures(&self) -> Result<BTreeMap<String, u64>> {
        let answer: Policies = self.get("/api/policies").await?;
        let policy = answer.policies.into_iter().next().context("the host has no policy")?;
        Ok(policy.failures.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    /// Where workers come to, once the host has said so.
    pub(crate) async fn worker_address(&self) -> Result<SocketAddr> {
        let deadline = Instant::now() + START_WITHIN;
        loop {
            let log = fs::read_to_string(&self.log)?;
            if let Some(address) = address_in(&log, "workers are served") {
                return Ok(address.parse()?);
            }
            ensure!(Instant::now() < deadline, "the host serves no workers:\n{log}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let exchange = async {
            let mut stream = TcpStream::connect(&self.admin).await?;
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer =
            timeout(ANSWER_WITHIN, exchange).await.with_context(|| format!("asking for {path}"))??;
        let (_, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
        serde_json::from_str(body).with_context(|| format!("{path} answered {body}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in the line of the log that has this text.
fn address_in<'l>(log: &'l str, text: &str) -> Option<&'l str> {
    let (_, rest) = log.split_once(text)?;
    let (line, _) = rest.split_once('\n')?;
    let (_, address) = line.split_once("address=")?;
    address.split_whitespace().next()
}
