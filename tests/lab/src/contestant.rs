//! Who consumes: the host, the Java client, and a reader that decides nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tidegate_test_brokers::artifacts::{self, ClassPath};
use tidegate_test_brokers::{Cluster, GroupKind};

use crate::backlog::{Backlogs, LITE_TOPIC, NORMAL_TOPIC};
use crate::configuration::Configuration;
use crate::watch::{Measured, watch};
use crate::{Args, absolute};

/// A way to consume a backlog.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Contestant {
    JavaLitePush,
    HostLite,
    Reader,
    JavaSimple,
    HostNormal,
}

/// Threads of the Java push consumer, its own default.
const JAVA_PUSH_THREADS: u32 = 20;
/// With acknowledgements in flight, more threads brought the Java simple consumer nothing.
const JAVA_SIMPLE_THREADS: u32 = 4;
/// Receives in flight of the host and of the reader.
const RECEIVES: usize = 8;
/// Nothing becomes a dead letter here.
const RETRY_MAX: u32 = 1_000;

impl Contestant {
    pub(crate) const ALL: [Self; 5] =
        [Self::JavaLitePush, Self::HostLite, Self::Reader, Self::JavaSimple, Self::HostNormal];

    /// Who is compared with whom.
    pub(crate) const RATIOS: [(Self, Self); 3] = [
        (Self::HostLite, Self::JavaLitePush),
        (Self::HostLite, Self::Reader),
        (Self::HostNormal, Self::JavaSimple),
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::JavaLitePush => "lite: Java LitePushConsumer, 20 threads",
            Self::HostLite => "lite: tidegate, fair-share, discard",
            Self::Reader => "lite: a reader that decides nothing",
            Self::JavaSimple => "normal: Java SimpleConsumer, 4 threads",
            Self::HostNormal => "normal: tidegate, fair-share, discard",
        }
    }

    const fn is_lite(self) -> bool {
        match self {
            Self::JavaLitePush | Self::HostLite | Self::Reader => true,
            Self::JavaSimple | Self::HostNormal => false,
        }
    }

    const fn topic(self) -> &'static str {
        if self.is_lite() { LITE_TOPIC } else { NORMAL_TOPIC }
    }
}

/// Everything that the runs need besides the broker.
pub(crate) struct Bench {
    java: ClassPath,
    host: PathBuf,
    policies: PathBuf,
    directory: TempDir,
}

impl Bench {
    pub(crate) fn prepare(args: &Args) -> Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let java = artifacts::client(&[here.join("java/ConsumerBench.java")])?;
        let (host, policies) = (absolute(&args.host)?, absolute(&args.policies)?);
        Ok(Self { java, host, policies, directory: tempfile::tempdir()? })
    }

    /// One run: a group of its own, a fresh process, watched until nothing is left.
    pub(crate) async fn run(
        &self,
        contestant: Contestant,
        cluster: &Cluster,
        backlogs: &Backlogs,
        round: u32,
    ) -> Result<Measured> {
        let group = format!("lab-{contestant:?}-{round}");
        let kind = if contestant.is_lite() { GroupKind::wildcard(LITE_TOPIC) } else { GroupKind::Normal };
        cluster.create_group(&group, kind, RETRY_MAX).await?;
        let open = || async {
            if contestant.is_lite() {
                cluster.lite_lag(&group, contestant.topic()).await
            } else {
                cluster.lag(&group, contestant.topic()).await
            }
        };
        let before = open().await?;
        ensure!(before == backlogs.messages, "the backlog holds {before} messages for a new group");
        let process = self.start(contestant, &cluster.endpoint(), &group, backlogs.messages)?;
        Ok(watch(backlogs.messages, process.0.id(), open).await?)
    }

    fn start(&self, contestant: Contestant, endpoint: &str, group: &str, messages: u64) -> Result<Consumer> {
        let topic = contestant.topic();
        let mut command = match contestant {
            Contestant::JavaLitePush => {
                self.java("lite-push", JAVA_PUSH_THREADS, [endpoint, topic, group], messages)
            }
            Contestant::JavaSimple => {
                self.java("simple", JAVA_SIMPLE_THREADS, [endpoint, topic, group], messages)
            }
            Contestant::Reader => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["read", endpoint, topic, group, "--receives", &RECEIVES.to_string()]);
                command
            }
            Contestant::HostLite | Contestant::HostNormal => {
                let path = self.directory.path().join(format!("{group}.toml"));
                fs::write(&path, self.configuration(contestant, endpoint, group))?;
                let mut command = Command::new(&self.host);
                command.arg("run").arg("--config").arg(path);
                command
            }
        };
        let log = fs::File::create(self.directory.path().join(format!("{group}.log")))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", contestant.name()))?;
        Ok(Consumer(child))
    }

    fn java(&self, mode: &str, threads: u32, [endpoint, topic, group]: [&str; 3], messages: u64) -> Command {
        let mut command = Command::new("java");
        command.args(["-cp", &self.java.argument(), "ConsumerBench", endpoint, mode, topic, group]);
        command.args([messages.to_string(), threads.to_string()]);
        command
    }

    fn configuration(&self, contestant: Contestant, endpoint: &str, group: &str) -> String {
        let (component, rules) = Configuration::FAIR_SHARE;
        let configuration = Configuration {
            policies: &self.policies,
            state: &self.directory.path().join(group),
            log_level: "warn",
            component,
            rules,
            endpoint,
            topic: contestant.topic(),
            topic_kind: if contestant.is_lite() { "lite" } else { "normal" },
            group,
            receives: RECEIVES,
            key: "lite-topic",
            sink: Configuration::DISCARD,
        };
        configuration.toml()
    }
}

/// A running consumer; dropping it kills it.
struct Consumer(Child);

impl Drop for Consumer {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
