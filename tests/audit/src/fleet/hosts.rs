//! The two hosts: one takes messages and hands them to workers, the other only settles.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tempfile::TempDir;
use tidegate_process_tests::secrets::Haul;
use tidegate_process_tests::{Configuration, http_ask};
use tokio::time::{Instant, sleep};

use super::brokers::{LOGIN, Outfit};
use super::secrets::Secrets;
use crate::process::terminate;

/// How long a host may take to serve. Generous: it is only waited for when something is wrong.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// How long a host that was told to end may take.
const END_PATIENCE: Duration = Duration::from_secs(60);
const LOG: &str = "host.log";
const CONFIG: &str = "tidegate.toml";
/// Files that hold a secret because this program put it there.
const SECRET_FILES: [&str; 3] = ["fleet.key", TOKENS, LOGIN];
const TOKENS: &str = "tokens.toml";

/// A host, running or not.
pub(crate) struct Host {
    pub(crate) name: &'static str,
    program: PathBuf,
    home: TempDir,
    flows: [&'static str; 2],
    variables: Vec<(&'static str, String)>,
    /// Where workers come to.
    pub(crate) address: String,
    child: Option<Child>,
    /// Where its admin API listens.
    admin: String,
}

impl Host {
    /// One that is not fitted out yet, with an address of its own and a token for each worker.
    pub(crate) fn new(
        name: &'static str,
        program: &Path,
        flows: [&'static str; 2],
        secrets: &Secrets,
    ) -> anyhow::Result<Self> {
        let program = program.canonicalize().with_context(|| {
            format!("there is no host at `{}`; build it with `cargo build --release`", program.display())
        })?;
        let home = tempfile::tempdir()?;
        fs::write(home.path().join("fleet.key"), secrets.key_file())?;
        let tokens = secrets.tokens.iter().enumerate().map(|(worker, token)| {
            let flow = flows[worker % flows.len()];
            format!("[tokens.worker-{worker}]\ntoken = \"{}\"\nflows = [\"{flow}\"]\n", token.text())
        });
        fs::write(home.path().join(TOKENS), tokens.collect::<String>())?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?.to_string();
        let (variables, admin) = (Vec::new(), String::new());
        Ok(Self { name, program, home, flows, variables, address, child: None, admin })
    }

    /// Gives it what it has of its own. `policies` is where the shipped ones are.
    pub(crate) fn fit_out(&mut self, outfit: Outfit, policies: &Path) -> anyhow::Result<()> {
        let home = self.home.path();
        let own = home.join("policies");
        fs::create_dir(&own)?;
        for name in outfit.policies {
            for file in [format!("{name}.wasm"), format!("{name}.toml")] {
                let from = policies.join(&file);
                fs::copy(&from, own.join(&file))
                    .with_context(|| format!("cannot copy `{}`", from.display()))?;
            }
        }
        for (name, rules) in outfit.rules {
            fs::write(own.join(format!("{name}.toml")), rules)?;
        }
        if let Some(login) = outfit.login {
            fs::write(home.join(LOGIN), format!("{login}\n"))?;
        }
        let tokens = File::options().append(true).open(home.join(TOKENS));
        tokens?.write_all(outfit.tokens.as_bytes())?;
        fs::write(home.join(CONFIG), outfit.configuration.toml())?;
        self.variables = outfit.variables;
        Ok(())
    }

    /// What the configurations of all hosts have in common.
    pub(crate) fn common(&self, log_format: &str) -> Configuration {
        let host = format!(
            "drain-timeout = \"20s\"\n\
             receipt-key-file = \"fleet.key\"\n\
             log-level = \"debug\"\n\
             log-format = \"{log_format}\""
        );
        Configuration::new(&host).workers("workers", &self.address, "tokens-file = \"tokens.toml\"")
    }

    /// Starts it, and waits until workers are served.
    pub(crate) async fn start(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let before = usize::try_from(log.metadata()?.len())?;
        let child = Command::new(&self.program)
            .args(["run", "--config", CONFIG])
            .current_dir(self.home.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("{} does not start", self.name))?;
        self.child = Some(child);
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let log = self.log()?;
            let log = log.get(before..).unwrap_or_default();
            if log.contains("workers are served")
                && let Some(admin) = admin_address(log)
            {
                self.admin = admin;
                return Ok(());
            }
            self.check_alive()?;
            if Instant::now() > deadline {
                bail!("{} serves no workers {} s after its start", self.name, START_PATIENCE.as_secs());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) const fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Fails when it has ended by itself.
    pub(crate) fn check_alive(&mut self) -> anyhow::Result<()> {
        if let Some(child) = &mut self.child
            && let Some(status) = child.try_wait()?
        {
            let log = self.log()?;
            let lines: Vec<&str> = log.lines().rev().take(20).collect();
            bail!(
                "{} ended by itself with {status}; the end of its log, backwards:\n{}",
                self.name,
                lines.join("\n")
            );
        }
        Ok(())
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// SIGTERM; it must end with 0.
    pub(crate) fn terminate(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let status =
            terminate(&mut child, END_PATIENCE).with_context(|| format!("{} does not end", self.name))?;
        if !status.success() {
            bail!("{} ended with {status}", self.name);
        }
        Ok(())
    }

    /// Runs the program beside the host, in its directory; its output goes to a file there.
    pub(crate) fn run_beside(
        &self,
        arguments: &[&str],
        input: Option<&Path>,
        output: &str,
    ) -> anyhow::Result<Child> {
        let output = File::create(self.home.path().join(output))?;
        let stdin = input.map(File::open).transpose()?;
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(self.home.path());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(stdin.map_or_else(Stdio::null, Stdio::from));
        command.stdout(output.try_clone()?).stderr(output);
        command.spawn().with_context(|| format!("`tidegate {}` does not start", arguments.join(" ")))
    }

    pub(crate) fn admin(&self) -> &str {
        &self.admin
    }

    /// Asks everything that the host's two servers answer to a GET. What has no end of its own is left out.
    pub(crate) async fn ask_all(&self, names: &[String], haul: &mut Haul) -> anyhow::Result<()> {
        let openapi: Value = serde_json::from_str(&ask(&self.admin, "/openapi.json").await?)?;
        let endless = |path: &str| path.ends_with("/recording") || path.ends_with("/tap");
        let paths = openapi["paths"].as_object().context("the admin API has no paths")?;
        let mut asked = 0;
        for (path, methods) in paths {
            if methods.get("get").is_none() || endless(path) {
                continue;
            }
            let names: Vec<&str> = if path.contains("/flows/") {
                self.flows.to_vec()
            } else {
                names.iter().map(String::as_str).collect()
            };
            let each = names.iter().map(|name| path.replace("{name}", name));
            for path in each.take(if path.contains("{name}") { names.len() } else { 1 }) {
                haul.add(format!("{}: GET {path}", self.name), ask(&self.admin, &path).await?);
                asked += 1;
            }
        }
        if asked < 8 {
            bail!("{} has only {asked} things to ask", self.name);
        }
        for path in ["/openapi.json", "/healthz", "/v1/flows"] {
            haul.add(format!("{}: its workers' GET {path}", self.name), ask(&self.address, path).await?);
        }
        Ok(())
    }

    /// One answer of the admin API.
    pub(crate) async fn ask(&self, path: &str) -> anyhow::Result<String> {
        ask(&self.admin, path).await
    }

    /// Its whole log, of all its lives.
    pub(crate) fn log(&self) -> anyhow::Result<String> {
        let bytes = fs::read(self.log_path())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Adds all that it left behind.
    pub(crate) fn collect(&self, haul: &mut Haul) {
        let secrets = SECRET_FILES.map(|name| self.home.path().join(name));
        haul.add_files(self.home.path(), &secrets.each_ref().map(PathBuf::as_path));
    }

    /// A file in its directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join(LOG)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Over already in the good case.
        let _ = self.kill();
    }
}

/// Asks for a path. The helper panics when nobody is there.
async fn ask(address: &str, path: &str) -> anyhow::Result<String> {
    let (address, path) = (address.to_owned(), path.to_owned());
    let asked = tokio::task::spawn_blocking(move || http_ask(&address, "GET", &path));
    let (_, body) = asked.await.context("a host does not answer")?;
    Ok(body)
}

fn admin_address(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.contains("admin API listens"))?;
    if let Ok(line) = serde_json::from_str::<Value>(line) {
        return line["address"].as_str().map(str::to_owned);
    }
    let (_, address) = line.split_once("address=")?;
    Some(address.split_whitespace().next()?.to_owned())
}
