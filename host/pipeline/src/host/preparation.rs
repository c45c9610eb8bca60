//! Everything that a configuration names on this machine, looked at before anything runs: what a host cannot start
//! with is found here, all of it at once, by `tidegate check` as by the host itself. Nothing is made, locked, bound or
//! asked.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_config::{AckMode, Config, Flow, Peer, Settler, Sink as SinkConfig, Source};
use tidegate_connector::options::{OptionError, nearest};
use tidegate_connector::tls::{self, Identity as ClientIdentity, Pem, Trust};
use tidegate_handoff::{PeerOptions, ServiceOptions};
use tidegate_rocketmq::{AckClient, AckScope, ClientOptions, SinkOptions};
use tidegate_sinks::{FileOptions, HttpOptions};
use tidegate_spool::Spool;

use super::source::SourceOptions;
use super::{Extras, SPOOLS, list};
use crate::identity::Identity;

/// What a configuration comes to: the typed options of its connectors, each found to be right.
#[derive(Debug, Default)]
pub struct Preparation {
    pub(super) sources: BTreeMap<Arc<str>, SourceOptions>,
    pub(super) settlers: BTreeMap<Arc<str>, ClientOptions>,
    pub(super) sinks: BTreeMap<Arc<str>, Prepared>,
    pub(super) peers: Vec<PeerOptions>,
    remarks: Vec<String>,
}

/// The options of a sink.
#[derive(Clone, Debug)]
pub(super) enum Prepared {
    Stdout,
    Discard,
    File(FileOptions),
    Http(Box<HttpOptions>),
    RocketMq(Box<SinkOptions>),
    Handoff(ServiceOptions),
}

/// Something that a host cannot start with.
#[derive(Debug)]
pub struct Mistake {
    /// The section that it is in, such as `sinks.out`.
    pub section: String,
    /// What is wrong, with what to do.
    pub problem: String,
}

/// Every mistake. Never empty.
#[derive(Debug)]
pub struct Mistakes(Vec<Mistake>);

impl Preparation {
    /// Prepares what a host of this configuration needs. Secrets have been looked up.
    ///
    /// # Errors
    /// Everything that such a host could not start with.
    pub fn of(config: &Config) -> Result<Self, Mistakes> {
        Self::beside(config, &Extras::default())
    }

    /// What is wrong with the valid part of a configuration that has mistakes elsewhere.
    #[must_use]
    pub fn mistakes_in_part(config: &Config) -> Vec<Mistake> {
        Desk::look(config, &Extras::default()).mistakes
    }

    /// The same, apart from what an embedding program brings along.
    pub(super) fn beside(config: &Config, extras: &Extras) -> Result<Self, Mistakes> {
        let mut desk = Desk::look(config, extras);
        desk.look_for_work(config);
        if desk.mistakes.is_empty() { Ok(desk.prepared) } else { Err(Mistakes(desk.mistakes)) }
    }

    /// What is odd, in sentences.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// The typed options of the sources, by name. Keys of resolvers are not in them yet.
    #[must_use]
    pub const fn sources(&self) -> &BTreeMap<Arc<str>, SourceOptions> {
        &self.sources
    }

    /// How settlers reach their brokers, by name. Keys of resolvers are not in them yet.
    #[must_use]
    pub const fn settlers(&self) -> &BTreeMap<Arc<str>, ClientOptions> {
        &self.settlers
    }

    /// How other hosts of the fleet are reached, in the order of their names.
    #[must_use]
    pub fn peers(&self) -> &[PeerOptions] {
        &self.peers
    }

    /// Who can settle receipts: the configured settlers for all of their namespaces, and each source for its own group.
    /// Keys of resolvers are not in it yet.
    pub(super) fn ack_clients(&self) -> Vec<AckClient> {
        let settlers = self.settlers.iter().map(|(name, client)| AckClient {
            name: Arc::clone(name),
            client: client.clone(),
            scope: AckScope::Namespace,
            endpoint: None,
        });
        // A Kafka lock belongs to the member that took it: nobody else can settle it.
        let sources = self.sources.iter().filter_map(|(name, options)| {
            let options = options.rocketmq()?;
            let group = (Arc::clone(&options.client.namespace), Arc::clone(&options.group));
            Some(AckClient {
                name: Arc::clone(name),
                client: options.client.clone(),
                scope: AckScope::Groups(vec![group]),
                endpoint: None,
            })
        });
        settlers.chain(sources).collect()
    }

    /// Prepares what settles receipts, and nothing else: for those who run no host.
    ///
    /// # Errors
    /// Everything that is wrong with sources, settlers and peers.
    pub fn of_clients(config: &Config) -> Result<Self, Mistakes> {
        let mut desk = Desk::default();
        desk.look_at_clients(config);
        if desk.mistakes.is_empty() { Ok(desk.prepared) } else { Err(Mistakes(desk.mistakes)) }
    }
}

/// What has been looked at so far.
#[derive(Debug, Default)]
struct Desk {
    prepared: Preparation,
    mistakes: Vec<Mistake>,
    /// Where file sinks write.
    places: Vec<Place>,
}

/// Where a file sink writes.
#[derive(Debug)]
struct Place {
    /// As it was found on this machine.
    found: PathBuf,
    /// As it was written.
    written: PathBuf,
    sink: Arc<str>,
}

impl Desk {
    fn look(config: &Config, extras: &Extras) -> Self {
        let mut desk = Self::default();
        if extras.identity.is_none() {
            let host = &config.host;
            for error in Identity::look(&host.state_dir, host.receipt_key_file.as_deref()) {
                desk.wrong("host".to_owned(), &error);
            }
        }
        desk.look_at_clients(config);
        desk.look_at_spools(config);
        for (name, sink) in &config.sinks {
            if !extras.sinks.contains_key(name) {
                desk.look_at_sink(name, sink);
            }
        }
        desk.compare_files();
        desk.compare_addresses(config.host.admin_listen);
        desk.look_at_tokens(config);
        for (name, flow) in &config.flows {
            desk.look_at_flow(name, flow, extras);
        }
        desk
    }

    fn look_at_clients(&mut self, config: &Config) {
        for (name, source) in &config.sources {
            match source_options(source) {
                Ok(options) => {
                    for problem in options.check_files() {
                        self.say(format!("sources.{name}"), problem);
                    }
                    self.prepared.sources.insert(Arc::clone(name), options);
                }
                Err(problem) => self.say(format!("sources.{name}"), problem),
            }
        }
        for (name, settler) in &config.settlers {
            match settler_options(settler) {
                Ok(options) => {
                    self.look_at_tls("settlers", name, &options);
                    self.prepared.settlers.insert(Arc::clone(name), options);
                }
                Err(problem) => self.say(format!("settlers.{name}"), problem),
            }
        }
        for (name, peer) in &config.peers {
            let options = peer_options(name, peer);
            for error in options.check() {
                self.wrong(format!("peers.{name}"), &error);
            }
            self.prepared.peers.push(options);
        }
    }

    /// Sources that keep what they receive on this machine need a place for it; and what one of them left there waits for its
    /// name.
    fn look_at_spools(&mut self, config: &Config) {
        let directory = config.host.state_dir.join(SPOOLS);
        let has_spool =
            |(name, options): (&Arc<str>, &SourceOptions)| options.has_spool().then(|| Arc::clone(name));
        let names: Vec<_> = self.prepared.sources.iter().filter_map(has_spool).collect();
        if !names.is_empty()
            && let Err(error) = Spool::check_place(&directory)
        {
            for name in &names {
                self.wrong(format!("sources.{name}"), &error);
            }
        }
        let strays = Spool::strays(&directory, |name| names.iter().any(|known| **known == *name));
        self.prepared.remarks.extend(strays.iter().map(|path| {
            format!(
                "host: the spool `{}` belongs to no source with `ack = \"implicit\"`, so that what is in it is not handed out; \
                 give it its source back, or delete it",
                path.display()
            )
        }));
    }

    fn look_at_tls(&mut self, section: &str, name: &str, client: &ClientOptions) {
        for error in tidegate_rocketmq::check_tls_files(client) {
            self.wrong(format!("{section}.{name}"), &error);
        }
    }

    fn look_at_sink(&mut self, name: &Arc<str>, sink: &SinkConfig) {
        let section = format!("sinks.{name}");
        let prepared = match sink_options(sink) {
            Ok(prepared) => prepared,
            Err(problem) => return self.say(section, problem),
        };
        match &prepared {
            Prepared::Stdout | Prepared::Discard => {}
            Prepared::File(file) => match file.check_place() {
                Ok(found) => {
                    self.places.push(Place { found, written: file.path.clone(), sink: Arc::clone(name) });
                }
                Err(error) => self.wrong(section, &error),
            },
            Prepared::Http(http) => {
                if let Err(error) = http.check() {
                    self.wrong(section, &error);
                }
            }
            Prepared::RocketMq(options) => self.look_at_tls("sinks", name, &options.client),
            Prepared::Handoff(service) => {
                for error in service.check_files() {
                    self.wrong(section.clone(), &error);
                }
            }
        }
        self.prepared.sinks.insert(Arc::clone(name), prepared);
    }

    /// One file is written by one sink.
    fn compare_files(&mut self) {
        let mut writers: BTreeMap<PathBuf, Arc<str>> = BTreeMap::new();
        for Place { found, written, sink } in std::mem::take(&mut self.places) {
            let Some(first) = writers.get(&found) else {
                writers.insert(found, sink);
                continue;
            };
            let problem = format!(
                "writes to `{}`, as `sinks.{first}` does; give each its own file, or name one sink in several flows",
                written.display()
            );
            self.say(format!("sinks.{sink}"), problem);
        }
    }

    /// One port is listened on by one service.
    fn compare_addresses(&mut self, admin: SocketAddr) {
        let mut listening = vec![("host.admin-listen".to_owned(), admin)];
        let mut taken = Vec::new();
        for (name, sink) in &self.prepared.sinks {
            let Prepared::Handoff(service) = sink else { continue };
            match listening.iter().find(|(_, address)| excludes(*address, service.listen)) {
                Some((first, address)) => taken.push((Arc::clone(name), format!(
                    "`listen` is {}, and `{first}` is {address}: one address cannot be listened on twice; give each a port \
                     of its own",
                    service.listen
                ))),
                None => listening.push((format!("sinks.{name}.listen"), service.listen)),
            }
        }
        for (name, problem) in taken {
            self.say(format!("sinks.{name}"), problem);
        }
    }

    /// Flows that tokens are for and that are not there. Receipts may be of flows of other hosts, and the file may be ahead
    /// of the configuration: it is odd, not wrong. Where there are no flows at all, they are all of other hosts.
    fn look_at_tokens(&mut self, config: &Config) {
        if config.flows.is_empty() {
            return;
        }
        let mut remarks = Vec::new();
        for (name, sink) in &self.prepared.sinks {
            let Prepared::Handoff(service) = sink else { continue };
            for (token, flow) in service.flows_of_tokens() {
                if config.flows.contains_key(&*flow) {
                    continue;
                }
                let near = nearest(&flow, config.flows.keys().map(|name| &**name));
                let hint = near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
                remarks.push(format!(
                    "sinks.{name}: the token `{token}` in `tokens-file` is for the flow `{flow}`, which this host does not \
                     have{hint}"
                ));
            }
        }
        self.prepared.remarks.extend(remarks);
    }

    fn look_at_flow(&mut self, name: &str, flow: &Flow, extras: &Extras) {
        let is_handoff = |sink: &Arc<str>| match self.prepared.sinks.get(sink) {
            Some(sink) => matches!(sink, Prepared::Handoff(_)),
            // Of what was brought along, or is wrong itself, nothing is known.
            None => true,
        };
        let is_mistaken = flow.ack == AckMode::OnDelivery && !flow.sinks.iter().any(is_handoff);
        if is_mistaken && extras.sinks.is_empty() {
            let problem = "`ack = \"on-delivery\"` is for flows with a `handoff` sink, and this one has none: what other sinks \
                           take is done when they have it; leave `ack` out";
            self.say(format!("flows.{name}"), problem.to_owned());
        }
    }

    /// A host without flows settles what others give out, if anybody can ask it to.
    fn look_for_work(&mut self, config: &Config) {
        let is_service = |sink: &Prepared| matches!(sink, Prepared::Handoff(_));
        if config.flows.is_empty() && !self.prepared.sinks.values().any(is_service) {
            let problem = "there is no flow, and nobody could ask this host to settle: a host that only settles has a sink with \
                           `connector = \"handoff\"` beside them, where workers bring their receipts";
            let section = if config.settlers.is_empty() { "peers" } else { "settlers" };
            self.say(section.to_owned(), problem.to_owned());
        }
    }

    fn wrong(&mut self, section: String, error: &dyn std::error::Error) {
        let mut problem = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            problem.push_str(": ");
            problem.push_str(&error.to_string());
            cause = error.source();
        }
        self.say(section, problem);
    }

    fn say(&mut self, section: String, problem: String) {
        self.mistakes.push(Mistake { section, problem });
    }
}

/// Whether one who listens on an address keeps others from listening on the other.
fn excludes(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |all: IpAddr, ip: IpAddr| {
        // What listens on all addresses of IPv6 does so on those of IPv4, as systems are usually set up.
        all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4())
    };
    one.port() != 0
        && one.port() == other.port()
        && (one.ip() == other.ip() || covers(one.ip(), other.ip()) || covers(other.ip(), one.ip()))
}

fn source_options(source: &Source) -> Result<SourceOptions, String> {
    SourceOptions::of(source)
        .map_err(|errors| list(&errors))?
        .ok_or_else(|| unusable(&source.connector, "source"))
}

fn settler_options(settler: &Settler) -> Result<ClientOptions, String> {
    if *settler.connector != *tidegate_rocketmq::TABLE.connector {
        return Err(unusable(&settler.connector, "settler"));
    }
    ClientOptions::from_values(&settler.values).map_err(|errors| list(&errors))
}

fn peer_options(name: &Arc<str>, peer: &Peer) -> PeerOptions {
    let file = |path: &std::path::Path| Pem::File(path.to_owned());
    PeerOptions {
        name: Arc::clone(name),
        endpoint: peer.endpoint().into(),
        token: peer.token().map(Into::into),
        tls: tls::Client {
            trust: peer.ca_file().map_or(Trust::SystemRoots, |path| Trust::Certificates(file(path))),
            identity: peer
                .identity_files()
                .map(|(chain, key)| ClientIdentity { certificates: file(chain), key: file(key) }),
            ..tls::Client::default()
        },
    }
}

fn sink_options(sink: &SinkConfig) -> Result<Prepared, String> {
    let wrong = |errors: Vec<OptionError>| list(&errors);
    let values = &sink.values;
    Ok(match &*sink.connector {
        "stdout" => Prepared::Stdout,
        "discard" => Prepared::Discard,
        "file" => Prepared::File(FileOptions::from_values(values).map_err(wrong)?),
        "http" => Prepared::Http(Box::new(HttpOptions::from_values(values).map_err(wrong)?)),
        name if *name == *tidegate_handoff::TABLE.connector => {
            Prepared::Handoff(ServiceOptions::from_values(values).map_err(wrong)?)
        }
        name if *name == *tidegate_rocketmq::TABLE.connector => {
            Prepared::RocketMq(Box::new(SinkOptions::from_values(values).map_err(wrong)?))
        }
        name => return Err(unusable(name, "sink")),
    })
}

fn unusable(connector: &str, role: &str) -> String {
    format!("`{connector}` cannot be used as a {role} here")
}

// === impl Mistakes ===

impl Mistakes {
    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Mistake> {
        self.0.iter()
    }
}

impl From<Mistakes> for Vec<Mistake> {
    fn from(mistakes: Mistakes) -> Self {
        mistakes.0
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.section, self.problem)
    }
}

/// One line each.
impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, mistake) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            mistake.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_keep_each_other_out() {
        let excludes = |one: &str, other: &str| {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(excludes(one, other), excludes(other, one));
            excludes(one, other)
        };
        assert!(excludes("127.0.0.1:9641", "127.0.0.1:9641"));
        assert!(excludes("0.0.0.0:9641", "127.0.0.1:9641"));
        assert!(excludes("[::]:9641", "127.0.0.1:9641"));
        assert!(!excludes("0.0.0.0:9641", "[::1]:9641"));
        assert!(!excludes("127.0.0.1:9641", "127.0.0.2:9641"));
        assert!(!excludes("127.0.0.1:9641", "127.0.0.1:9642"));
        assert!(!excludes("127.0.0.1:0", "127.0.0.1:0"), "the system chooses another one each time");
    }
}
