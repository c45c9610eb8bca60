//! The files and command lines of a cluster's processes.

use std::fmt;
use std::path::Path;

use serde_json::json;

use crate::ports::PortBlock;

/// One process of a cluster.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Node {
    /// The name server.
    NameServer,
    /// A broker, from 0.
    Broker(u8),
    /// A proxy, from 0.
    Proxy(u8),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameServer => f.write_str("the name server"),
            Self::Broker(index) => write!(f, "broker {index}"),
            Self::Proxy(index) => write!(f, "proxy {index}"),
        }
    }
}

impl Node {
    /// The name of its directory and log.
    pub(crate) fn slug(self) -> String {
        match self {
            Self::NameServer => "namesrv".into(),
            Self::Broker(index) => format!("broker-{index}"),
            Self::Proxy(index) => format!("proxy-{index}"),
        }
    }

    /// The port that clients of this process use.
    pub(crate) fn port(self, ports: &PortBlock) -> u16 {
        ports.port(match self {
            Self::NameServer => 0,
            // A broker also opens its port minus 2 and, as configured below, plus 1.
            Self::Broker(index) => 3 + u16::from(index) * 4,
            // A proxy also opens the next one, for remoting clients.
            Self::Proxy(index) => 10 + u16::from(index) * 2,
        })
    }
}

/// A super user that the brokers know from their first start.
#[derive(Clone)]
pub struct Credentials {
    /// Its name, the access key.
    pub access_key: String,
    /// Its password, the secret key.
    pub secret_key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// The certificate that the proxies show.
#[derive(Clone)]
pub struct Tls {
    /// PEM, the server's own certificate first.
    pub certificate: String,
    /// PEM, PKCS#8.
    pub key: String,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(..)")
    }
}

/// How much memory each process may use and how it compiles.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Sizes {
    /// Heaps of 64 MiB, 256 MiB and 96 MiB, which carried all functional tests when measured (resident: 190, 560 to
    /// 680 and 320 MB under load), the serial collector and only the quick compiler: least work on two cores.
    #[default]
    Small,
    /// Heaps of 64 MiB and, for brokers, 128 MiB, otherwise as [`Small`](Self::Small): for clusters of many processes
    /// that carry a few hundred messages. In 64 MiB a broker cannot read its own timer wheel of 37 MiB again.
    Tiny,
    /// Heaps of 256 MiB, 1 GiB and 512 MiB and the JVM's own defaults otherwise, for measuring.
    Lab,
}

/// Everything that shapes the files below.
pub(crate) struct Plan<'a> {
    pub(crate) ports: &'a PortBlock,
    pub(crate) sizes: Sizes,
    pub(crate) credentials: Option<&'a Credentials>,
    pub(crate) tls: bool,
    pub(crate) admissions: bool,
    pub(crate) broker_lines: &'a [String],
}

/// Names of the files in a proxy's directory.
pub(crate) const TLS_CERTIFICATE: &str = "tls-certificate.pem";
pub(crate) const TLS_KEY: &str = "tls-key.pem";

/// Where a proxy writes down what it lets in, and what tells it to.
pub(crate) const ADMISSIONS: &str = "admissions.log";
const LOGGING: &str = "conf/logging.xml";

impl Plan<'_> {
    /// The name server's address, as brokers, proxies and tools take it.
    pub(crate) fn name_server(&self) -> String {
        format!("127.0.0.1:{}", Node::NameServer.port(self.ports))
    }

    /// Path inside the node's directory and content of each of its files.
    pub(crate) fn files(&self, node: Node, directory: &Path) -> Vec<(&'static str, String)> {
        match node {
            Node::NameServer => vec![("namesrv.conf", format!("listenPort={}\n", node.port(self.ports)))],
            Node::Broker(index) => vec![("broker.conf", self.broker_conf(node, index, directory))],
            Node::Proxy(_) => {
                let mut files = vec![("conf/rmq-proxy.json", self.proxy_json(node, directory))];
                if let Some(credentials) = self.credentials {
                    // The proxy's own calls to the broker are signed with what this file holds.
                    let Credentials { access_key, secret_key } = credentials;
                    files.push((
                        "conf/tools.yml",
                        format!("accessKey: {access_key}\nsecretKey: {secret_key}\n"),
                    ));
                }
                if self.admissions {
                    files.push((LOGGING, logging_xml(directory)));
                }
                files
            }
        }
    }

    /// Everything after `java`.
    pub(crate) fn java_arguments(&self, node: Node, directory: &Path, class_path: &str) -> Vec<String> {
        let (main, heap, direct): (&[&str], _, _) = match (node, self.sizes) {
            (Node::NameServer, Sizes::Small | Sizes::Tiny) => {
                (&["namesrv.NamesrvStartup", "-c", "namesrv.conf"], 64, 256)
            }
            (Node::NameServer, Sizes::Lab) => (&["namesrv.NamesrvStartup", "-c", "namesrv.conf"], 256, 256),
            (Node::Broker(_), Sizes::Tiny) => (&["broker.BrokerStartup", "-c", "broker.conf"], 128, 256),
            (Node::Broker(_), Sizes::Small) => (&["broker.BrokerStartup", "-c", "broker.conf"], 256, 512),
            (Node::Broker(_), Sizes::Lab) => (&["broker.BrokerStartup", "-c", "broker.conf"], 1024, 1024),
            (Node::Proxy(_), Sizes::Tiny) => {
                (&["proxy.ProxyStartup", "-pm", "cluster", "-pc", "conf/rmq-proxy.json"], 64, 256)
            }
            (Node::Proxy(_), Sizes::Small) => {
                (&["proxy.ProxyStartup", "-pm", "cluster", "-pc", "conf/rmq-proxy.json"], 96, 256)
            }
            (Node::Proxy(_), Sizes::Lab) => {
                (&["proxy.ProxyStartup", "-pm", "cluster", "-pc", "conf/rmq-proxy.json"], 512, 512)
            }
        };
        let mut arguments = vec![
            format!("-Xms{heap}m"),
            format!("-Xmx{heap}m"),
            format!("-XX:MaxDirectMemorySize={direct}m"),
            format!("-Duser.home={}", directory.display()),
            format!("-Drocketmq.home.dir={}", directory.display()),
        ];
        if self.admissions && matches!(node, Node::Proxy(_)) {
            let path = directory.join(LOGGING);
            arguments.push(format!("-Drmq.logback.configurationFile={}", path.display()));
        }
        if self.sizes != Sizes::Lab {
            arguments.extend(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"].map(String::from));
        }
        arguments.extend(["-cp".into(), class_path.into(), format!("org.apache.rocketmq.{}", main[0])]);
        arguments.extend(main[1..].iter().map(|argument| (*argument).to_owned()));
        arguments
    }

    fn broker_conf(&self, node: Node, index: u8, directory: &Path) -> String {
        let port = node.port(self.ports);
        let store = directory.join("store");
        let mut lines = vec![
            "brokerClusterName=DefaultCluster".into(),
            format!("brokerName=broker-{index}"),
            "brokerId=0".into(),
            "brokerIP1=127.0.0.1".into(),
            format!("listenPort={port}"),
            format!("haListenPort={}", port + 1),
            format!("namesrvAddr={}", self.name_server()),
            format!("storePathRootDir={}", store.display()),
            format!("storePathCommitLog={}", store.join("commitlog").display()),
            "mappedFileSizeCommitLog=67108864".into(),
            // A full disk is the machine's business; the brokers would refuse messages at 75 %.
            "diskMaxUsedSpaceRatio=95".into(),
            // Both are off by default and lite topics need them.
            "enableLmq=true".into(),
            "enableMultiDispatch=true".into(),
        ];
        if let Some(Credentials { access_key, secret_key }) = self.credentials {
            const AUTH: &str = "org.apache.rocketmq.auth";
            lines.extend([
                "authenticationEnabled=true".into(),
                format!("authenticationProvider={AUTH}.authentication.provider.DefaultAuthenticationProvider"),
                format!("authenticationMetadataProvider={AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"),
                format!("initAuthenticationUser={}", json!({"username": access_key, "password": secret_key})),
                format!(
                    "innerClientAuthenticationCredentials={}",
                    json!({"accessKey": access_key, "secretKey": secret_key})
                ),
                "authorizationEnabled=true".into(),
                format!("authorizationProvider={AUTH}.authorization.provider.DefaultAuthorizationProvider"),
                format!("authorizationMetadataProvider={AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"),
            ]);
        }
        // Last, so that a test can override any line above.
        lines.extend(self.broker_lines.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn proxy_json(&self, node: Node, directory: &Path) -> String {
        let port = node.port(self.ports);
        let mut document = json!({
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": self.name_server(),
            "grpcServerPort": port,
            "remotingListenPort": port + 1,
            // A route names each proxy by the host that the client used and, by default, the port of the proxy that
            // was asked. Ours are on one host, so that only the client knows the ports of all.
            "useEndpointPortFromRequest": true,
        });
        if self.credentials.is_some() {
            const AUTH: &str = "org.apache.rocketmq.auth";
            const PROXY: &str = "org.apache.rocketmq.proxy.auth";
            merge(
                &mut document,
                json!({
                    "authenticationEnabled": true,
                    "authenticationProvider": format!("{AUTH}.authentication.provider.DefaultAuthenticationProvider"),
                    "authenticationMetadataProvider": format!("{PROXY}.ProxyAuthenticationMetadataProvider"),
                    "authorizationEnabled": true,
                    "authorizationProvider": format!("{AUTH}.authorization.provider.DefaultAuthorizationProvider"),
                    "authorizationMetadataProvider": format!("{PROXY}.ProxyAuthorizationMetadataProvider"),
                    // Without it the proxy's own first call to the broker is refused and it exits.
                    "enableAclRpcHookForClusterMode": true,
                }),
            );
        }
        if self.tls {
            merge(
                &mut document,
                json!({
                    "tlsTestModeEnable": false,
                    "tlsCertPath": directory.join(TLS_CERTIFICATE),
                    "tlsKeyPath": directory.join(TLS_KEY),
                }),
            );
        }
        document.to_string()
    }
}

/// The server's own logging in one file, with what it lets in, which it otherwise leaves out, in another.
fn logging_xml(directory: &Path) -> String {
    let appender = |name: &str, file: &str| {
        let file = directory.join(file);
        format!(
            "<appender name=\"{name}\" class=\"ch.qos.logback.core.FileAppender\"><file>{}</file>\
             <encoder><pattern>%d %p %t - %m%n</pattern></encoder></appender>\n",
            file.display()
        )
    };
    format!(
        "<configuration>\n{}{}<logger name=\"RocketmqAuthAudit\" additivity=\"false\" level=\"DEBUG\">\
         <appender-ref ref=\"admissions\"/></logger>\n\
         <root level=\"INFO\"><appender-ref ref=\"all\"/></root>\n</configuration>\n",
        appender("all", "proxy.log"),
        appender("admissions", ADMISSIONS),
    )
}

fn merge(into: &mut serde_json::Value, from: serde_json::Value) {
    if let (Some(into), serde_json::Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_processes_share_a_port() {
        let ports = PortBlock::claim().unwrap();
        let mut taken = vec![Node::NameServer.port(&ports)];
        for index in 0..2 {
            let broker = Node::Broker(index).port(&ports);
            taken.extend([broker - 2, broker, broker + 1]);
            let proxy = Node::Proxy(index).port(&ports);
            taken.extend([proxy, proxy + 1]);
        }
        taken.sort_unstable();
        let count = taken.len();
        taken.dedup();
        assert_eq!(taken.len(), count, "{taken:?}");
        assert_eq!(taken[0], ports.port(0), "the block begins with the lowest port in use");
    }

    #[test]
    fn a_tests_own_line_comes_after_ours() {
        let ports = PortBlock::claim().unwrap();
        let lines = ["enableLmq=false".to_owned()];
        let plan = Plan {
            ports: &ports,
            sizes: Sizes::Small,
            credentials: None,
            tls: false,
            admissions: false,
            broker_lines: &lines,
        };
        let files = plan.files(Node::Broker(1), Path::new("/d"));
        let text = &files[0].1;
        assert!(text.contains("brokerName=broker-1\n"));
        assert!(text.find("enableLmq=true") < text.find("enableLmq=false"), "{text}");
        assert!(!text.contains("authenticationEnabled"));
    }

    #[test]
    fn secrets_are_quoted_for_json() {
        let ports = PortBlock::claim().unwrap();
        let credentials = Credentials { access_key: "a".into(), secret_key: "\"quoted\"".into() };
        let plan = Plan {
            ports: &ports,
            sizes: Sizes::Small,
            credentials: Some(&credentials),
            tls: true,
            admissions: true,
            broker_lines: &[],
        };
        let broker = &plan.files(Node::Broker(0), Path::new("/d"))[0].1;
        assert!(broker.contains(r#""password":"\"quoted\"""#), "{broker}");
        let proxy = &plan.files(Node::Proxy(0), Path::new("/d"))[0].1;
        assert!(proxy.contains("enableAclRpcHookForClusterMode"), "{proxy}");
        assert!(proxy.contains("/d/tls-key.pem"), "{proxy}");
        let arguments = plan.java_arguments(Node::Proxy(0), Path::new("/d"), "classes");
        let logging = arguments.iter().find(|argument| argument.contains("configurationFile"));
        assert!(logging.is_some_and(|argument| argument.ends_with(LOGGING)), "{arguments:?}");
    }
}
