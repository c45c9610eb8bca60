//! A whole RocketMQ cluster: name server, brokers, proxies.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;

use super::admin::Admin;
use super::configuration::{ADMISSIONS, Credentials, Node, Plan, Sizes, TLS_CERTIFICATE, TLS_KEY, Tls};
use super::gateway::Gateway;
use crate::ClusterError;
use crate::artifacts::{self, ClassPath};
use crate::ports::PortBlock;
use crate::process::{Launch, Usage};
use crate::processes::Processes;
use crate::run_directory::RunDirectory;
use crate::watchdog::Watchdog;

mod administration;

pub use administration::{GroupKind, TopicType};

/// The topic by which readiness is checked.
const READY_TOPIC: &str = "tidegate-ready";

/// What to start.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Brokers with separate topics' queues (not replicas of each other), 1 or 2.
    pub brokers: u8,
    /// Proxies in front of all brokers, 1 or 2.
    pub proxies: u8,
    /// Turns authentication and authorization on, with this super user.
    pub credentials: Option<Credentials>,
    /// The proxies' certificate. Without one they show a self-signed one of their own to who asks for TLS.
    /// Plaintext is served on the same port either way.
    pub tls: Option<Tls>,
    /// Whether the proxies write down each request that they let in, and of whom; see
    /// [`Cluster::admissions`]. Only with `credentials`.
    pub admissions: bool,
    /// Lines appended to each `broker.conf`; the last one of a name wins.
    pub broker_conf: Vec<String>,
    /// Memory and compiler settings.
    pub sizes: Sizes,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            brokers: 1,
            proxies: 1,
            credentials: None,
            tls: None,
            admissions: false,
            broker_conf: Vec::new(),
            sizes: Sizes::default(),
        }
    }
}

/// A running cluster; dropping it ends all its processes and, unless the thread is panicking, removes its files.
///
/// Bound to no runtime, so one cluster in a static serves all tests of a binary; the watchdog ends its processes
/// together with the test process.
#[derive(Debug)]
pub struct Cluster {
    // Fields are dropped in this order: processes first, their directory and ports last.
    admin: Admin,
    processes: Processes<Node>,
    directory: RunDirectory,
    ports: PortBlock,
    class_path: ClassPath,
    options: ClusterOptions,
}

impl Cluster {
    /// Starts one and waits until messages can be sent through every proxy to every broker.
    ///
    /// # Errors
    /// When Java or Maven is missing, a port or file cannot be had, or a process ends or takes more than two minutes.
    pub async fn start(options: ClusterOptions) -> Result<Self, ClusterError> {
        assert!((1..=2).contains(&options.brokers), "one or two brokers, not {}", options.brokers);
        assert!((1..=2).contains(&options.proxies), "one or two proxies, not {}", options.proxies);
        let class_path = artifacts::in_background(artifacts::rocketmq).await?;
        let directory = RunDirectory::create()?;
        let ports = PortBlock::claim()?;
        let nodes: Vec<Node> = nodes(&options).collect();
        let stores: Vec<PathBuf> =
            nodes.iter().map(|node| directory.path().join(node.slug()).join("store")).collect();
        let watchdog = Arc::new(Watchdog::start(&stores.iter().map(PathBuf::as_path).collect::<Vec<_>>())?);
        let plan = plan(&options, &ports);
        for node in nodes {
            write_files(&plan, node, directory.path(), options.tls.as_ref())?;
        }
        let admin = Admin::start(&admin_launch(&plan, directory.path(), &class_path), &watchdog)?;
        let processes = Processes::new(watchdog, directory.path().to_owned());
        let cluster = Self { admin, processes, directory, ports, class_path, options };
        cluster.start_in_order().await?;
        Ok(cluster)
    }

    /// Where clients connect: `host:port` of the first proxy's gRPC port.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.address(Node::Proxy(0))
    }

    /// The same of every proxy, with `;` between them, as one access point.
    #[must_use]
    pub fn endpoints(&self) -> String {
        let proxies = (0..self.options.proxies).map(|index| self.address(Node::Proxy(index)));
        proxies.collect::<Vec<_>>().join(";")
    }

    /// `host:port` of any process.
    #[must_use]
    pub fn address(&self, node: Node) -> String {
        format!("127.0.0.1:{}", node.port(&self.ports))
    }

    /// Where configuration and logs of the processes are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What a proxy has written down of the requests that it let in, a line each with the user and the request's kind;
    /// requests of the super user are not among them. Nothing unless [`ClusterOptions::admissions`] is on.
    #[must_use]
    pub fn admissions(&self, proxy: u8) -> PathBuf {
        self.directory.path().join(Node::Proxy(proxy).slug()).join(ADMISSIONS)
    }

    /// Kills a process with SIGKILL and waits for its end. No effect on one that is not running.
    pub fn kill(&self, node: Node) {
        self.processes.kill(node);
    }

    /// Starts a killed process on its old port and data, and waits until the port is open and, for a broker, the
    /// name server knows it. The proxies may take up to a minute more to notice a broker that came back.
    ///
    /// # Errors
    /// When it ends at once or takes more than two minutes.
    pub async fn revive(&self, node: Node) -> Result<(), ClusterError> {
        self.launch(node)?;
        self.wait_for_port(node).await?;
        match node {
            Node::Broker(_) => self.wait_for_registration().await,
            Node::NameServer | Node::Proxy(_) => Ok(()),
        }
    }

    /// Freezes a process with SIGSTOP: its connections stay open and nothing answers.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self, node: Node) -> Result<(), ClusterError> {
        self.processes.pause(node)
    }

    /// Lets a frozen process run on.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self, node: Node) -> Result<(), ClusterError> {
        self.processes.resume(node)
    }

    /// Memory and processor time of a process.
    ///
    /// # Errors
    /// When it is not running.
    pub fn usage(&self, node: Node) -> Result<Usage, ClusterError> {
        self.processes.usage(node)
    }

    /// Ends everything and waits for it. The same as dropping, off the runtime's threads.
    pub async fn stop(self) {
        // Fails only when the closure panics, which dropping does not.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

// === starting ===

impl Cluster {
    /// A broker without a name server registers late, and a proxy without a broker exits: hence the order.
    async fn start_in_order(&self) -> Result<(), ClusterError> {
        self.launch(Node::NameServer)?;
        self.wait_for_port(Node::NameServer).await?;
        for index in 0..self.options.brokers {
            self.launch(Node::Broker(index))?;
        }
        for index in 0..self.options.brokers {
            self.wait_for_port(Node::Broker(index)).await?;
        }
        self.wait_for_registration().await?;
        self.create_topic(READY_TOPIC, TopicType::Normal).await?;
        for index in 0..self.options.proxies {
            self.launch(Node::Proxy(index))?;
        }
        for index in 0..self.options.proxies {
            self.wait_for_port(Node::Proxy(index)).await?;
            self.wait_for_service(Node::Proxy(index)).await?;
        }
        Ok(())
    }

    fn launch(&self, node: Node) -> Result<(), ClusterError> {
        let directory = self.directory.path().join(node.slug());
        let plan = plan(&self.options, &self.ports);
        let launch = Launch {
            name: node.to_string(),
            arguments: plan.java_arguments(node, &directory, &self.class_path.argument()),
            environment: Vec::new(),
            log: directory.join("output.log"),
            directory,
            talks: false,
        };
        self.processes.start(node, &launch)
    }

    async fn wait_for_port(&self, node: Node) -> Result<(), ClusterError> {
        let port = node.port(&self.ports);
        self.processes
            .wait(node, &format!("{node} opening its port {port}"), || async move {
                TcpStream::connect((Ipv4Addr::LOCALHOST, port))
                    .await
                    .map(drop)
                    .map_err(|error| error.to_string())
            })
            .await
    }

    async fn wait_for_registration(&self) -> Result<(), ClusterError> {
        let expected = usize::from(self.options.brokers);
        self.processes
            .wait(Node::NameServer, "the brokers registering with the name server", || async move {
                let names = self.admin.call("brokers", &[]).await.map_err(|error| error.to_string())?;
                let known = names.split(',').filter(|name| !name.is_empty()).count();
                if known >= expected { Ok(()) } else { Err(format!("{known} of {expected} are known")) }
            })
            .await
    }

    async fn wait_for_service(&self, node: Node) -> Result<(), ClusterError> {
        let port = node.port(&self.ports);
        let expected = usize::from(self.options.brokers);
        self.processes
            .wait(node, &format!("{node} serving every broker"), || async move {
                let mut gateway = Gateway::connect(port, self.options.credentials.as_ref()).await?;
                let brokers = gateway.brokers_of(READY_TOPIC).await?;
                if brokers.len() < expected {
                    return Err(format!("it routes to {brokers:?} only"));
                }
                gateway.send(READY_TOPIC).await
            })
            .await
    }
}

fn nodes(options: &ClusterOptions) -> impl Iterator<Item = Node> {
    let brokers = (0..options.brokers).map(Node::Broker);
    let proxies = (0..options.proxies).map(Node::Proxy);
    std::iter::once(Node::NameServer).chain(brokers).chain(proxies)
}

fn plan<'a>(options: &'a ClusterOptions, ports: &'a PortBlock) -> Plan<'a> {
    Plan {
        ports,
        sizes: options.sizes,
        credentials: options.credentials.as_ref(),
        tls: options.tls.is_some(),
        admissions: options.admissions,
        broker_lines: &options.broker_conf,
    }
}

fn write_files(plan: &Plan<'_>, node: Node, run: &Path, tls: Option<&Tls>) -> Result<(), ClusterError> {
    let directory = run.join(node.slug());
    let configuration = directory.join("conf");
    fs::create_dir_all(&configuration).map_err(ClusterError::file("create", &configuration))?;
    let mut files = plan.files(node, &directory);
    if let (Node::Proxy(_), Some(tls)) = (node, tls) {
        files.extend([(TLS_CERTIFICATE, tls.certificate.clone()), (TLS_KEY, tls.key.clone())]);
    }
    for (name, content) in files {
        let path = directory.join(name);
        fs::write(&path, content).map_err(ClusterError::file("write", path))?;
    }
    Ok(())
}

fn admin_launch(plan: &Plan<'_>, run: &Path, class_path: &ClassPath) -> Launch {
    let mut arguments: Vec<String> =
        ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"].map(String::from).to_vec();
    arguments.extend([
        format!("-Duser.home={}", run.display()),
        "-cp".into(),
        class_path.argument(),
        "ClusterAdmin".into(),
        plan.name_server(),
    ]);
    let mut environment = Vec::new();
    if let Some(Credentials { access_key, secret_key }) = plan.credentials {
        environment.push(("TIDEGATE_TEST_ACCESS_KEY", access_key.clone()));
        environment.push(("TIDEGATE_TEST_SECRET_KEY", secret_key.clone()));
    }
    Launch {
        name: "the administration tool".into(),
        arguments,
        environment,
        directory: run.to_owned(),
        log: run.join("admin.log"),
        talks: true,
    }
}
