//! Addresses of a proxy: the access point that a user gives, and the endpoints that a route answers.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tidegate_proto::rocketmq as proto;

/// One or several addresses of the same thing, all of one kind. Equal when their texts are.
#[derive(Clone)]
pub struct Endpoints {
    kind: HostKind,
    addresses: Arc<[Address]>,
    text: Arc<str>,
}

/// One address.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Address {
    /// Name or IP address, without brackets.
    pub host: Box<str>,
    /// Port.
    pub port: u16,
}

/// Why a text is not an access point.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EndpointsError {
    /// Nothing there.
    #[error("must name at least one `host:port`, such as `127.0.0.1:8081`")]
    Empty,
    /// A scheme in front.
    #[error("must be `host:port` without a scheme, not `{0}`; TLS is an option of its own")]
    Scheme(Box<str>),
    /// No port, or not a port.
    #[error("must be `host:port`, such as `127.0.0.1:8081`, not `{0}`")]
    Port(Box<str>),
    /// Names and IP addresses of both kinds cannot be told to the server together.
    #[error("must be all names, all IPv4 or all IPv6 addresses, not a mixture: `{0}`")]
    Mixed(Box<str>),
    /// More than anyone needs.
    #[error("names {0} addresses, at most {ADDRESSES_MAX} are looked at")]
    TooMany(usize),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum HostKind {
    V4,
    V6,
    Name,
}

/// Most addresses of one access point: each is tried with a deadline, so their number is bounded.
const ADDRESSES_MAX: usize = 32;

impl Endpoints {
    /// Reads `host:port;host:port`; an IPv6 address stands in brackets.
    ///
    /// # Errors
    /// When an address is not one, or they are of different kinds.
    pub fn parse(text: &str) -> Result<Self, EndpointsError> {
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let addresses = parts.map(Address::parse).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = addresses.first() else { return Err(EndpointsError::Empty) };
        let kind = first.kind();
        if addresses.iter().any(|address| address.kind() != kind) {
            return Err(EndpointsError::Mixed(text.into()));
        }
        if addresses.len() > ADDRESSES_MAX {
            return Err(EndpointsError::TooMany(addresses.len()));
        }
        Ok(Self::of(kind, addresses))
    }

    /// The addresses, in the order given.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The text, as [`parse`](Self::parse) reads it.
    #[must_use]
    pub const fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// What a route answered; `None` when it holds no usable address.
    pub(crate) fn from_proto(endpoints: &proto::Endpoints) -> Option<Self> {
        let addresses: Vec<_> = endpoints
            .addresses
            .iter()
            .take(ADDRESSES_MAX)
            .filter_map(|address| {
                let port = u16::try_from(address.port).ok().filter(|port| *port != 0)?;
                (!address.host.is_empty()).then(|| Address { host: address.host.as_str().into(), port })
            })
            .collect();
        let kind = addresses.first()?.kind();
        Some(Self::of(kind, addresses))
    }

    pub(crate) fn to_proto(&self) -> proto::Endpoints {
        let scheme = match self.kind {
            HostKind::V4 => proto::AddressScheme::IPv4,
            HostKind::V6 => proto::AddressScheme::IPv6,
            HostKind::Name => proto::AddressScheme::DomainName,
        };
        let addresses = self.addresses.iter();
        proto::Endpoints {
            scheme: scheme.into(),
            addresses: addresses
                .map(|address| proto::Address {
                    host: address.host.as_ref().to_owned(),
                    port: i32::from(address.port),
                })
                .collect(),
        }
    }

    fn of(kind: HostKind, addresses: Vec<Address>) -> Self {
        let text = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(";");
        Self { kind, addresses: addresses.into(), text: text.into() }
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl PartialEq for Endpoints {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Endpoints {}

impl Hash for Endpoints {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Address {
    fn parse(text: &str) -> Result<Self, EndpointsError> {
        if text.contains("://") {
            return Err(EndpointsError::Scheme(text.into()));
        }
        let wrong = || EndpointsError::Port(text.into());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(address) if address.parse::<Ipv6Addr>().is_ok() => address,
            Some(_) => return Err(wrong()),
            None => host,
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if port == 0 || host.is_empty() || (bracketed.is_none() && !host.chars().all(plain)) {
            return Err(wrong());
        }
        Ok(Self { host: host.into(), port })
    }

    fn kind(&self) -> HostKind {
        if self.host.parse::<Ipv4Addr>().is_ok() {
            HostKind::V4
        } else if self.host.parse::<Ipv6Addr>().is_ok() {
            HostKind::V6
        } else {
            HostKind::Name
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            HostKind::V6 => write!(f, "[{}]:{}", self.host, self.port),
            HostKind::V4 | HostKind::Name => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_several_and_ipv6() {
        assert_eq!(parsed("127.0.0.1:8081"), "127.0.0.1:8081");
        assert_eq!(parsed(" a.example:8081 ; b.example:8081;"), "a.example:8081;b.example:8081");
        assert_eq!(parsed("[::1]:8081"), "[::1]:8081");
    }

    #[test]
    fn mistakes_get_their_own_sentence() {
        assert_eq!(Endpoints::parse(" "), Err(EndpointsError::Empty));
        assert!(matches!(Endpoints::parse("http://h:1"), Err(EndpointsError::Scheme(_))));
        assert!(matches!(Endpoints::parse("h"), Err(EndpointsError::Port(_))));
        assert!(matches!(Endpoints::parse("h:0"), Err(EndpointsError::Port(_))));
        assert!(matches!(Endpoints::parse("h:99999"), Err(EndpointsError::Port(_))));
        assert!(matches!(Endpoints::parse("::1:80"), Err(EndpointsError::Port(_))));
        assert!(matches!(Endpoints::parse("h:1;127.0.0.1:2"), Err(EndpointsError::Mixed(_))));
        assert!(matches!(Endpoints::parse(&"h:1;".repeat(33)), Err(EndpointsError::TooMany(33))));
    }

    #[test]
    fn a_route_answers_the_same_form() {
        for text in ["10.0.0.5:8081", "[::1]:8081", "proxy.example:8081;other.example:8082"] {
            let endpoints = Endpoints::parse(text).expect(text);
            assert_eq!(Endpoints::from_proto(&endpoints.to_proto()), Some(endpoints));
        }
        assert_eq!(Endpoints::from_proto(&proto::Endpoints::default()), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            if let Ok(endpoints) = Endpoints::parse(&text) {
                prop_assert_eq!(Endpoints::parse(endpoints.text()), Ok(endpoints));
            }
        }
    }

    fn parsed(text: &str) -> String {
        Endpoints::parse(text).expect(text).to_string()
    }
}
