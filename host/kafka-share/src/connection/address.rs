//! Where a broker listens.

use std::fmt;
use std::net::Ipv6Addr;

/// Name or IP address, and port.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BrokerAddress {
    host: Box<str>,
    port: u16,
}

/// Why a text is no address.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AddressError {
    /// Nothing there.
    #[error("must name at least one `host:port`, such as `127.0.0.1:9092`")]
    Empty,
    /// A scheme in front.
    #[error(
        "must be `host:port` without a scheme, not `{0}`; whether there is TLS or SASL is an option of its own"
    )]
    Scheme(Box<str>),
    /// No port, or not a port.
    #[error("must be `host:port`, such as `127.0.0.1:9092` or `[::1]:9092`, not `{0}`")]
    Port(Box<str>),
    /// More than anyone needs.
    #[error("names {0} servers, at most {SERVERS_MAX} are looked at")]
    TooMany(usize),
}

/// Most servers of one list: each is tried with a deadline, so their number is bounded.
const SERVERS_MAX: usize = 64;

impl BrokerAddress {
    /// Reads `host:port`; an IPv6 address stands in brackets.
    ///
    /// # Errors
    /// When it is something else.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.contains("://") {
            return Err(AddressError::Scheme(text.into()));
        }
        let wrong = || AddressError::Port(text.into());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(address) if is_ipv6(address) => address,
            None if is_name(host) => host,
            _ => return Err(wrong()),
        };
        if port == 0 { Err(wrong()) } else { Ok(Self { host: host.into(), port }) }
    }

    /// What a broker says of itself or of another one; `None` when nobody can listen there.
    #[must_use]
    pub fn advertised(host: &str, port: i32) -> Option<Self> {
        let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
        (is_name(host) || is_ipv6(host)).then(|| Self { host: host.into(), port })
    }

    /// Name or IP address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for BrokerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Several servers of one cluster, any of which can be asked first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BootstrapServers(Box<[BrokerAddress]>);

impl BootstrapServers {
    /// Reads `host:port,host:port`. One that is named twice counts once.
    ///
    /// # Errors
    /// When one of them is no address, or there are none or too many.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let mut servers = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let server = BrokerAddress::parse(part)?;
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        match servers.len() {
            0 => Err(AddressError::Empty),
            count if count > SERVERS_MAX => Err(AddressError::TooMany(count)),
            _ => Ok(Self(servers.into())),
        }
    }

    /// In the order given.
    #[must_use]
    pub fn addresses(&self) -> &[BrokerAddress] {
        &self.0
    }

    /// In an order of its own for each seed, so that many clients do not all ask the same broker first.
    pub(super) fn shuffled(&self, seed: u64) -> Vec<&BrokerAddress> {
        let mut servers: Vec<_> = self.0.iter().collect();
        let mut random = seed;
        for last in (1..servers.len()).rev() {
            // SplitMix64: seeds that differ by one give orders that have nothing in common.
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            let pick = mixed % (last as u64 + 1);
            servers.swap(last, usize::try_from(pick).unwrap_or_default());
        }
        servers
    }
}

impl From<BrokerAddress> for BootstrapServers {
    fn from(address: BrokerAddress) -> Self {
        Self([address].into())
    }
}

fn is_name(host: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !host.is_empty() && host.chars().all(plain)
}

/// With a zone or without.
fn is_ipv6(host: &str) -> bool {
    let (address, zone) = host.split_once('%').map_or((host, None), |(address, zone)| (address, Some(zone)));
    address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(is_name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in ["127.0.0.1:9092", "broker-1.test:1", "[::1]:65535", "[fe80::1%eth0]:9092", "a_b:9092"] {
            assert_eq!(BrokerAddress::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(BrokerAddress::parse("[::1]:1").unwrap().host(), "::1");
        let wrong =
            ["", "a", "a:", "a:0", "a:65536", ":1", "::1:1", "[a]:1", "[::1]", "a b:1", "[::1%]:1", "a:-1"];
        for text in wrong {
            assert_eq!(BrokerAddress::parse(text), Err(AddressError::Port(text.into())));
        }
        assert!(matches!(BrokerAddress::parse("SSL://a:1"), Err(AddressError::Scheme(_))));
    }

    #[test]
    fn what_brokers_advertise_is_looked_at() {
        assert_eq!(BrokerAddress::advertised("::1", 9092).unwrap().to_string(), "[::1]:9092");
        assert_eq!(BrokerAddress::advertised("b", 1).unwrap().to_string(), "b:1");
        for (host, port) in [("", 1), ("a", 0), ("a", -1), ("a", 65_536), ("a\nb", 1), ("a:1", 1)] {
            assert_eq!(BrokerAddress::advertised(host, port), None, "{host}:{port}");
        }
    }

    #[test]
    fn a_list_is_read_without_gaps_and_doubles() {
        let servers = BootstrapServers::parse(" a:1, ,[::1]:2,a:1,").unwrap();
        assert_eq!(
            servers.addresses().iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["a:1", "[::1]:2"]
        );
        assert_eq!(BootstrapServers::parse(" , "), Err(AddressError::Empty));
        assert!(matches!(BootstrapServers::parse("a:1,b"), Err(AddressError::Port(_))));
        let many = (1..=65).map(|port| format!("a:{port}")).collect::<Vec<_>>().join(",");
        assert_eq!(BootstrapServers::parse(&many), Err(AddressError::TooMany(65)));
    }

    #[test]
    fn the_order_is_the_seeds() {
        let servers = BootstrapServers::parse("a:1,b:1,c:1").unwrap();
        assert_eq!(servers.shuffled(7), servers.shuffled(7));
        let orders: HashSet<_> = (0..100).map(|seed| servers.shuffled(seed)).collect();
        assert_eq!(orders.len(), 6, "all orders come up");
    }
}
