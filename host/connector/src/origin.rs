//! Where HTTP requests may go: scheme, host and port, and nothing else.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Scheme, host and port of a URL. There are no wildcards.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Origin {
    is_https: bool,
    host: Box<str>,
    port: u16,
}

/// It is no origin.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{text}` is no origin: {problem}; write it such as `https://vault.example:8200`")]
pub struct OriginError {
    text: Box<str>,
    problem: &'static str,
}

impl Origin {
    /// An origin; `host` is in lower case, an IPv6 address without brackets.
    #[must_use]
    pub fn new(is_https: bool, host: &str, port: u16) -> Self {
        Self { is_https, host: host.to_ascii_lowercase().into(), port }
    }

    /// Whether it is encrypted.
    #[must_use]
    pub const fn is_https(&self) -> bool {
        self.is_https
    }

    /// Name or address; an IPv6 address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, 443 or 80 when none was written.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The address, when it is one and not a name.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether the name means this machine by itself, whatever a name server says.
    #[must_use]
    pub fn is_localhost(&self) -> bool {
        &*self.host == "localhost" || self.host.ends_with(".localhost")
    }

    /// Host and port as a `Host` header has them.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_string() };
        let usual = if self.is_https { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }
}

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        let wrong = |problem| OriginError { text: text.into(), problem };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let is_https = match &*scheme.to_ascii_lowercase() {
            "https" => true,
            "http" => false,
            _ => return Err(wrong("its scheme is neither `https` nor `http`")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(wrong("it has a path, and only scheme, host and port can be granted"));
        }
        if rest.contains('@') {
            return Err(wrong("it has a user name"));
        }
        if rest.contains('*') {
            return Err(wrong("it has a wildcard, and each host must be named"));
        }
        let (host, port) = if let Some(inner) = rest.strip_prefix('[') {
            let (host, port) = inner.split_once(']').ok_or_else(|| wrong("its bracket is not closed"))?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(wrong("there is no IPv6 address in its brackets"));
            }
            (host, port)
        } else {
            rest.split_at(rest.find(':').unwrap_or(rest.len()))
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => {
                if is_https {
                    443
                } else {
                    80
                }
            }
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| wrong("its port is no number from 1 to 65535"))?,
            None => return Err(wrong("something follows its bracket")),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
        if host.is_empty() || host.ends_with('.') || !(host.chars().all(is_name) || host.contains(':')) {
            return Err(wrong("its host is neither a name nor an address"));
        }
        // One way to write an address, so that comparing texts is comparing addresses.
        match host.parse::<IpAddr>() {
            Ok(address) => Ok(Self::new(is_https, &address.to_string(), port)),
            Err(_) => Ok(Self::new(is_https, host, port)),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for (text, shown, port) in [
            ("https://Vault.Example:8200", "https://vault.example:8200", 8200),
            ("HTTPS://vault.example/", "https://vault.example", 443),
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000", 9000),
            ("http://[0:0::1]:80", "http://[::1]", 80),
        ] {
            let origin: Origin = text.parse().unwrap();
            assert_eq!((origin.to_string().as_str(), origin.port()), (shown, port));
        }
        assert!("http://a.localhost:1".parse::<Origin>().unwrap().is_localhost());
        assert!(!"http://localhost.example".parse::<Origin>().unwrap().is_localhost());
    }

    #[test]
    fn what_is_no_origin_is_refused_with_a_reason() {
        for (text, part) in [
            ("vault.example:8200", "scheme"),
            ("ftp://vault.example", "scheme"),
            ("https://vault.example/v1", "path"),
            ("https://user@vault.example", "user name"),
            ("https://*.example", "wildcard"),
            ("https://vault.example:0", "port"),
            ("https://vault.example:", "port"),
            ("https://vault.example:https", "port"),
            ("https://", "host"),
            ("https://vault.example.", "host"),
            ("https://[::1", "bracket"),
            ("https://[vault]", "brackets"),
            ("https://[::1]x", "bracket"),
            ("https://a b", "host"),
        ] {
            let error = text.parse::<Origin>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("https://vault.example:8200"), "{error}");
        }
    }
}
