//! A running cluster.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kafka_wire::{ApiVersionsRequest, MetadataRequest};

use super::configuration::{STORE, files, java_arguments};
use super::connection::{CallError, Connection};
use super::driver::{API_VERSIONS, Driver, METADATA};
use super::options::{ClusterOptions, Listener, NodeId};
use super::storage;
use crate::ClusterError;
use crate::artifacts::{self, ClassPath};
use crate::ports::PortBlock;
use crate::process::{Launch, Usage};
use crate::processes::Processes;
use crate::run_directory::RunDirectory;
use crate::watchdog::Watchdog;

/// A running Kafka cluster; dropping it ends all its processes and, unless the thread is panicking, removes its files.
///
/// Bound to no runtime, so one cluster in a static serves all tests of a binary; the watchdog ends its processes
/// together with the test process.
#[derive(Debug)]
pub struct Cluster {
    // Fields are dropped in this order: processes first, their directory and ports last.
    processes: Processes<NodeId>,
    lives: Arc<Lives>,
    directory: RunDirectory,
    ports: PortBlock,
    class_path: ClassPath,
    options: ClusterOptions,
}

/// What the cluster has done to its nodes, for its drivers.
#[derive(Debug)]
pub(crate) struct Lives(BTreeMap<NodeId, Life>);

#[derive(Debug, Default)]
struct Life {
    /// How often the node was started.
    count: AtomicU32,
    running: AtomicBool,
}

impl Lives {
    /// A connection to an earlier life of a node leads nowhere.
    pub(crate) fn count(&self, node: NodeId) -> u32 {
        self.0.get(&node).map_or(0, |life| life.count.load(Ordering::Acquire))
    }

    /// Neither stopped nor frozen.
    pub(crate) fn is_running(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|life| life.running.load(Ordering::Acquire))
    }

    fn begin(&self, node: NodeId) {
        if let Some(life) = self.0.get(&node) {
            life.count.fetch_add(1, Ordering::AcqRel);
        }
        self.set_running(node, true);
    }

    fn set_running(&self, node: NodeId, running: bool) {
        if let Some(life) = self.0.get(&node) {
            life.running.store(running, Ordering::Release);
        }
    }
}

impl Cluster {
    /// Starts one and waits until every node answers clients and knows all others.
    ///
    /// # Errors
    /// When Java or Maven is missing, a port or file cannot be had, or a process ends or takes more than two minutes.
    pub async fn start(options: ClusterOptions) -> Result<Self, ClusterError> {
        assert!(matches!(options.nodes, 1 | 3), "one or three nodes, not {}", options.nodes);
        let version = options.version;
        let class_path = artifacts::in_background(move || artifacts::kafka(version)).await?;
        let directory = RunDirectory::create()?;
        let ports = PortBlock::claim()?;
        let stores: Vec<_> =
            options.node_ids().map(|node| directory.path().join(node.slug()).join(STORE)).collect();
        let watchdog = Arc::new(Watchdog::start(&stores.iter().map(PathBuf::as_path).collect::<Vec<_>>())?);
        let lives = Lives(options.node_ids().map(|node| (node, Life::default())).collect());
        let processes = Processes::new(watchdog, directory.path().to_owned());
        let cluster = Self { processes, lives: Arc::new(lives), directory, ports, class_path, options };
        for node in cluster.nodes() {
            cluster.write_files(node).await?;
        }
        for node in cluster.nodes() {
            cluster.launch(node)?;
        }
        for node in cluster.nodes() {
            cluster.wait_for_service(node, usize::from(cluster.options.nodes)).await?;
        }
        Ok(cluster)
    }

    /// All nodes, running or not.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        self.options.node_ids()
    }

    /// `host:port` of a node; nothing listens there unless the options opened that listener.
    #[must_use]
    pub fn address(&self, node: NodeId, listener: Listener) -> String {
        format!("127.0.0.1:{}", node.port(listener, &self.ports))
    }

    /// The same of every node, with commas between them, as clients take their bootstrap servers.
    #[must_use]
    pub fn bootstrap(&self, listener: Listener) -> String {
        self.nodes().map(|node| self.address(node, listener)).collect::<Vec<_>>().join(",")
    }

    /// What a test does to the cluster beside the client under test. One belongs to the runtime that it is first used
    /// on; making one costs nothing.
    #[must_use]
    pub fn driver(&self) -> Driver {
        let addresses = self.nodes().map(|node| (node, self.address(node, Listener::Plaintext)));
        Driver::new(addresses, Arc::clone(&self.lives))
    }

    /// Where configuration and logs of the nodes are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills a node with SIGKILL and waits for its end. No effect on one that is not running.
    pub fn kill(&self, node: NodeId) {
        self.lives.set_running(node, false);
        self.processes.kill(node);
    }

    /// Stops a node with SIGTERM, so that it hands over its leaderships first, and waits for its end.
    ///
    /// # Errors
    /// When it is not running, or takes more than a minute, after which it is killed.
    pub async fn terminate(&self, node: NodeId) -> Result<(), ClusterError> {
        self.lives.set_running(node, false);
        self.processes.terminate(node).await
    }

    /// Starts a stopped node on its old ports and data, and waits until it answers clients and names itself among the
    /// nodes. Its leaderships do not come back by themselves.
    ///
    /// # Errors
    /// When it ends at once or takes more than two minutes.
    pub async fn revive(&self, node: NodeId) -> Result<(), ClusterError> {
        self.launch(node)?;
        self.wait_for_service(node, 1).await
    }

    /// Freezes a node with SIGSTOP: its connections stay open and nothing answers.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self, node: NodeId) -> Result<(), ClusterError> {
        self.processes.pause(node)?;
        self.lives.set_running(node, false);
        Ok(())
    }

    /// Lets a frozen node run on.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resume(&self, node: NodeId) -> Result<(), ClusterError> {
        self.processes.resume(node)?;
        self.lives.set_running(node, true);
        Ok(())
    }

    /// Memory and processor time of a node.
    ///
    /// # Errors
    /// When it is not running.
    pub fn usage(&self, node: NodeId) -> Result<Usage, ClusterError> {
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
    async fn write_files(&self, node: NodeId) -> Result<(), ClusterError> {
        let directory = self.directory.path().join(node.slug());
        fs::create_dir_all(&directory).map_err(ClusterError::file("create", &directory))?;
        for (name, content) in files(&self.options, &self.ports, node, &directory) {
            let path = directory.join(name);
            fs::write(&path, content).map_err(ClusterError::file("write", path))?;
        }
        let (options, class_path) = (self.options.clone(), self.class_path.clone());
        artifacts::in_background(move || storage::provide(&options, node, &class_path, &directory)).await
    }

    fn launch(&self, node: NodeId) -> Result<(), ClusterError> {
        let directory = self.directory.path().join(node.slug());
        self.lives.begin(node);
        self.processes.start(
            node,
            &Launch {
                name: node.to_string(),
                arguments: java_arguments(self.options.sizes, &self.class_path.argument()),
                environment: Vec::new(),
                log: directory.join("output.log"),
                directory,
                talks: false,
            },
        )
    }

    /// Answers clients, and counts itself and at least `others - 1` more among the living.
    async fn wait_for_service(&self, node: NodeId, living: usize) -> Result<(), ClusterError> {
        let address = self.address(node, Listener::Plaintext);
        let address = address.as_str();
        self.processes
            .wait(node, &format!("{node} serving clients at {address}"), || async move {
                let known = known_nodes(address).await.map_err(|error| error.to_string())?;
                if known.contains(&node.0) && known.len() >= living {
                    Ok(())
                } else {
                    Err(format!("it knows the nodes {known:?}"))
                }
            })
            .await
    }
}

async fn known_nodes(address: &str) -> Result<Vec<i32>, CallError> {
    let mut connection = Connection::open(address).await?;
    let mut versions = ApiVersionsRequest::default();
    versions.client_software_name = "tidegate-tests".into();
    versions.client_software_version = "1".into();
    connection.call(&versions, API_VERSIONS).await?;
    let mut request = MetadataRequest::default();
    // None of the topics; left out, it would mean all.
    request.topics = Some(Vec::new());
    let metadata = connection.call(&request, METADATA).await?;
    Ok(metadata.brokers.iter().map(|broker| broker.node_id).collect())
}
