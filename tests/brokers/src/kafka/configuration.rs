//! The files and command line of a node.

use std::fmt::Write as _;
use std::path::Path;

use super::options::{ClusterOptions, Listener, Mechanism, NodeId, Pace, Sizes};
use crate::ports::PortBlock;

/// Names of the files in a node's directory.
pub(crate) const PROPERTIES: &str = "server.properties";
const SERVER_PEM: &str = "server.pem";
const AUTHORITY_PEM: &str = "authority.pem";
/// A node's data, under its directory.
pub(crate) const STORE: &str = "store";

/// Ports of one node in a block: its controller's and one for each listener.
const PORTS: u16 = 5;
const CONTROLLER: &str = "CONTROLLER";
const MODULES: &str = "org.apache.kafka.common.security";

impl NodeId {
    /// The name of its directory.
    pub(crate) fn slug(self) -> String {
        format!("kafka-{}", self.0)
    }

    pub(crate) fn port(self, listener: Listener, ports: &PortBlock) -> u16 {
        self.nth_port(
            ports,
            match listener {
                Listener::Plaintext => 1,
                Listener::SaslPlaintext => 2,
                Listener::SaslSsl => 3,
                Listener::Ssl => 4,
            },
        )
    }

    fn nth_port(self, ports: &PortBlock, nth: u16) -> u16 {
        let before = u16::try_from(self.0 - 1).unwrap_or(u16::MAX);
        ports.port(before.saturating_mul(PORTS).saturating_add(nth))
    }
}

impl Listener {
    /// Its name in the configuration, which is its protocol's.
    fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
            Self::Ssl => "SSL",
        }
    }

    fn has_sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }
}

/// The name and content of each file in the directory of `node`.
pub(crate) fn files(
    options: &ClusterOptions,
    ports: &PortBlock,
    node: NodeId,
    directory: &Path,
) -> Vec<(&'static str, String)> {
    let mut files = vec![(PROPERTIES, properties(options, ports, node, directory))];
    if let Some(tls) = &options.tls {
        files.push((SERVER_PEM, format!("{}{}", tls.server.key, tls.server.certificate)));
        files.push((AUTHORITY_PEM, tls.authority.clone()));
    }
    files
}

/// Everything after `java`.
pub(crate) fn java_arguments(sizes: Sizes, class_path: &str) -> Vec<String> {
    let flags: &[&str] = match sizes {
        Sizes::Small => &["-Xms16m", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        Sizes::Lab => &["-Xms512m", "-Xmx512m"],
    };
    let mut arguments: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    arguments.extend(
        [
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        ]
        .map(String::from),
    );
    arguments.extend(["-cp".into(), class_path.into(), "kafka.Kafka".into(), PROPERTIES.into()]);
    arguments
}

/// What of a node's configuration decides how its data directory is formatted.
pub(crate) fn format_properties(node: NodeId, store: &Path) -> String {
    let id = node.0.to_string();
    text(&[
        ("process.roles".into(), "broker,controller".into()),
        ("node.id".into(), id.clone()),
        // Not kept in what is formatted: a running node takes both from its own configuration.
        ("controller.quorum.voters".into(), format!("{id}@127.0.0.1:9093")),
        ("listeners".into(), "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093".into()),
        ("controller.listener.names".into(), CONTROLLER.into()),
        ("log.dirs".into(), store.display().to_string()),
    ])
}

fn properties(options: &ClusterOptions, ports: &PortBlock, node: NodeId, directory: &Path) -> String {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: String| lines.push((name.to_owned(), value));
    let opened = options.listeners();
    let advertised: Vec<String> = opened
        .iter()
        .map(|listener| format!("{}://127.0.0.1:{}", listener.name(), node.port(*listener, ports)))
        .collect();
    let voters: Vec<String> =
        options.node_ids().map(|id| format!("{}@127.0.0.1:{}", id.0, id.nth_port(ports, 0))).collect();

    set("process.roles", "broker,controller".into());
    set("node.id", node.0.to_string());
    set("controller.quorum.voters", voters.join(","));
    set("controller.listener.names", CONTROLLER.into());
    let controller = format!("{CONTROLLER}://127.0.0.1:{}", node.nth_port(ports, 0));
    set("listeners", format!("{controller},{}", advertised.join(",")));
    set("advertised.listeners", advertised.join(","));
    set("inter.broker.listener.name", Listener::Plaintext.name().into());
    let protocols: Vec<String> = opened.iter().map(|at| format!("{0}:{0}", at.name())).collect();
    set("listener.security.protocol.map", format!("{CONTROLLER}:PLAINTEXT,{}", protocols.join(",")));
    set("log.dirs", directory.join(STORE).display().to_string());

    // A topic that nobody created is a mistake of the test.
    set("auto.create.topics.enable", "false".into());
    // Leaders move when a test moves them.
    set("auto.leader.rebalance.enable", "false".into());
    let (replicas, in_sync) = if options.nodes > 1 { (options.nodes, 2) } else { (1, 1) };
    for topic in ["offsets.topic", "transaction.state.log", "share.coordinator.state.topic"] {
        set(&format!("{topic}.replication.factor"), replicas.to_string());
        // The first group pays for making them: 50 each by default.
        set(&format!("{topic}.num.partitions"), "3".into());
    }
    set("transaction.state.log.min.isr", in_sync.to_string());
    set("share.coordinator.state.topic.min.isr", in_sync.to_string());
    set("min.insync.replicas", in_sync.to_string());
    set("default.replication.factor", replicas.to_string());
    // A node is missed after three seconds instead of nine.
    set("broker.session.timeout.ms", "3000".into());
    set("broker.heartbeat.interval.ms", "500".into());
    if options.sizes == Sizes::Small {
        // 128 MiB by default, twice the heap.
        set("log.cleaner.dedupe.buffer.size", "2097152".into());
    }
    if options.pace == Pace::Quick {
        for (name, value) in QUICK {
            set(name, (*value).to_owned());
        }
    }
    if options.authorizer {
        set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer".into());
        set("super.users", "User:ANONYMOUS;User:admin".into());
    }
    if options.tls.is_some() {
        set("ssl.keystore.type", "PEM".into());
        set("ssl.keystore.location", directory.join(SERVER_PEM).display().to_string());
        set("ssl.truststore.type", "PEM".into());
        set("ssl.truststore.location", directory.join(AUTHORITY_PEM).display().to_string());
        set("listener.name.ssl.ssl.client.auth", "required".into());
    }
    lines.extend(sasl(options, &opened));
    // Last, so that a test can override any line above.
    lines.extend(options.properties.iter().cloned());
    text(&lines)
}

/// Share groups' times for tests; a group can set its own within the smaller minima.
const QUICK: &[(&str, &str)] = &[
    ("group.share.min.record.lock.duration.ms", "1000"),
    ("group.share.record.lock.duration.ms", "2000"),
    ("group.share.min.heartbeat.interval.ms", "500"),
    ("group.share.heartbeat.interval.ms", "500"),
    ("group.share.min.session.timeout.ms", "5000"),
    ("group.share.session.timeout.ms", "5000"),
    ("group.share.assignment.interval.ms", "0"),
    // Classic groups, which tests use beside: no three seconds of waiting for more members.
    ("group.initial.rebalance.delay.ms", "0"),
];

fn sasl(options: &ClusterOptions, opened: &[Listener]) -> Vec<(String, String)> {
    let Some(sasl) = &options.sasl else { return Vec::new() };
    let mut plain = format!("{MODULES}.plain.PlainLoginModule required");
    for user in sasl.users.iter().filter(|user| user.mechanism == Mechanism::Plain) {
        let _ = write!(plain, " user_{}=\"{}\"", user.name, jaas_escaped(&user.password));
    }
    let scram = format!("{MODULES}.scram.ScramLoginModule required;");
    let modules = [
        ("plain", plain + ";"),
        ("scram-sha-256", scram.clone()),
        ("scram-sha-512", scram),
        (
            "oauthbearer",
            format!(
                "{MODULES}.oauthbearer.OAuthBearerLoginModule required \
                 unsecuredLoginStringClaim_sub=\"broker\";"
            ),
        ),
    ];
    let mut lines = vec![(
        "sasl.enabled.mechanisms".to_owned(),
        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER".to_owned(),
    )];
    for listener in opened.iter().filter(|listener| listener.has_sasl()) {
        for (mechanism, module) in &modules {
            let listener = listener.name().to_lowercase();
            lines.push((format!("listener.name.{listener}.{mechanism}.sasl.jaas.config"), module.clone()));
        }
    }
    lines
}

fn jaas_escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#)
}

/// Java's properties are ISO 8859-1 with escapes; the last line of a name wins.
fn text(lines: &[(String, String)]) -> String {
    let mut text = String::new();
    for (name, value) in lines {
        text.push_str(name);
        text.push('=');
        for unit in value.encode_utf16() {
            match unit {
                0x5c => text.push_str(r"\\"),
                0x20..=0x7e => text.push(char::from(unit.to_le_bytes()[0])),
                _ => {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::options::Sasl;
    use super::*;
    use crate::kafka::Certificates;

    #[test]
    fn no_two_listeners_share_a_port() {
        let ports = PortBlock::claim().unwrap();
        let options = ClusterOptions { nodes: 3, ..ClusterOptions::default() };
        let mut taken = Vec::new();
        for node in options.node_ids() {
            taken.push(node.nth_port(&ports, 0));
            for listener in [Listener::Plaintext, Listener::SaslPlaintext, Listener::SaslSsl, Listener::Ssl] {
                taken.push(node.port(listener, &ports));
            }
        }
        let count = taken.len();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), count, "{taken:?}");
    }

    #[test]
    fn a_tests_own_line_comes_after_ours() {
        let ports = PortBlock::claim().unwrap();
        let options = ClusterOptions::default().property("min.insync.replicas", "7");
        let text = properties(&options, &ports, NodeId(1), Path::new("/d"));
        assert!(text.ends_with("min.insync.replicas=7\n"), "{text}");
        assert!(!text.contains("sasl") && !text.contains("ssl") && !text.contains("authorizer"), "{text}");
    }

    #[test]
    fn passwords_are_quoted_for_jaas_and_for_java() {
        let ports = PortBlock::claim().unwrap();
        let sasl = Sasl::default().user(Mechanism::Plain, "ann", "a\"\\é").user(
            Mechanism::ScramSha256,
            "bob",
            "kept out",
        );
        let options = ClusterOptions { sasl: Some(sasl), ..ClusterOptions::default() };
        let text = properties(&options, &ports, NodeId(1), Path::new("/d"));
        assert!(text.contains(r#"user_ann="a\\"\\\\\u00e9""#), "{text}");
        assert!(!text.contains("kept out"), "{text}");
        assert!(!text.contains("sasl_ssl"), "no TLS without certificates: {text}");
    }

    #[test]
    fn with_both_there_are_four_listeners() {
        let ports = PortBlock::claim().unwrap();
        let options = ClusterOptions {
            sasl: Some(Sasl::default()),
            tls: Some(Certificates::generate().unwrap()),
            ..ClusterOptions::default()
        };
        let files = files(&options, &ports, NodeId(1), Path::new("/d"));
        let advertised = files[0].1.lines().find(|line| line.starts_with("advertised")).unwrap();
        assert_eq!(advertised.matches("127.0.0.1").count(), 4, "{advertised}");
        assert!(files[1].1.contains("PRIVATE KEY") && files[1].1.contains("BEGIN CERTIFICATE"));
        assert!(!files[2].1.contains("PRIVATE KEY"));
    }
}
