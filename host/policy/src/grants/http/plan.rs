//! The first gate: what a request may be, and whether its origin was granted.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Uri};
use http_body_util::Full;
use tidegate_connector::origin::Origin;

use super::{Failure, Limits, Request};

/// Headers of one request, and bytes of all of them together.
const HEADERS_MAX: usize = 64;
const HEADER_BYTES_MAX: usize = 16 << 10;
const URL_BYTES_MAX: usize = 8 << 10;

/// What the host says by itself: whoever chose these could make one request look like two.
const OWNED: [HeaderName; 9] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::ACCEPT_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
];

/// A request that may be made, and where.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) origin: Origin,
    /// Addresses that were granted by themselves at this port.
    pub(super) granted_addresses: Vec<std::net::IpAddr>,
    pub(super) request: http::Request<Full<Bytes>>,
}

/// The origin of a URL, if it has one.
pub(in crate::grants) fn origin_of(url: &str) -> Option<Origin> {
    let uri: Uri = url.parse().ok()?;
    format!("{}://{}", uri.scheme_str()?, uri.authority()?).parse().ok()
}

/// Checks a request.
pub(super) fn plan(granted: &BTreeSet<Origin>, limits: &Limits, request: Request) -> Result<Plan, Failure> {
    let refused = |why: String| Err(Failure::Refused(why));
    if request.url.len() > URL_BYTES_MAX {
        return refused(format!("its URL has more than {URL_BYTES_MAX} bytes"));
    }
    let Some(origin) = origin_of(&request.url) else {
        // The URL is not repeated: it may hold what nobody may see.
        return refused("its URL is not one that begins with `https://` or `http://` and a host".to_owned());
    };
    if !granted.contains(&origin) {
        return refused(format!("`{origin}` is not granted: add it to the policy's `grants.http`"));
    }
    let Some(method) = Method::from_bytes(request.method.as_bytes()).ok() else {
        return refused("its method is not one of HTTP".to_owned());
    };
    if matches!(method, Method::CONNECT | Method::TRACE) {
        return refused(format!("the host makes no {method} requests"));
    }
    if request.body.len() > limits.request_bytes_max {
        return refused(format!("its body has more than {} bytes", limits.request_bytes_max));
    }
    let header_bytes: usize = request.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if request.headers.len() > HEADERS_MAX || header_bytes > HEADER_BYTES_MAX {
        return refused(format!(
            "it has more than {HEADERS_MAX} headers or {HEADER_BYTES_MAX} bytes of them"
        ));
    }
    let uri: Uri = request.url.parse().unwrap_or_default();
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let body = Bytes::from(request.body);
    let sends_length = !body.is_empty() || matches!(method, Method::POST | Method::PUT | Method::PATCH);
    let mut wire = http::Request::new(Full::new(body.clone()));
    *wire.uri_mut() = target.parse().unwrap_or_default();
    *wire.method_mut() = method;
    let headers = wire.headers_mut();
    for (name, value) in &request.headers {
        let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
            return refused("a header has a name that HTTP does not allow".to_owned());
        };
        if OWNED.contains(&header) || header.as_str().starts_with("proxy-") || header.as_str() == "keep-alive"
        {
            return refused(format!("the host says `{header}` by itself; leave it out"));
        }
        let Ok(mut value) = HeaderValue::from_str(value) else {
            return refused(format!("its header `{header}` has a value that HTTP does not allow"));
        };
        value.set_sensitive(true);
        headers.append(header, value);
    }
    let authority = HeaderValue::from_str(&origin.authority());
    let Ok(authority) = authority else { return refused("its host is no header value".to_owned()) };
    headers.insert(header::HOST, authority);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if sends_length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let at_port = granted.iter().filter(|other| other.port() == origin.port());
    let granted_addresses = at_port.filter_map(Origin::ip).collect();
    Ok(Plan { origin, granted_addresses, request: wire })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_out(url: &str, method: &str, headers: &[(&str, &str)], body: usize) -> Result<Plan, String> {
        let granted = ["https://vault.example:8200", "http://127.0.0.1:9000"];
        let granted = granted.iter().map(|origin| origin.parse().unwrap()).collect();
        let request = Request {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            body: vec![0; body],
        };
        let limits = Limits { request_bytes_max: 10, ..Limits::default() };
        plan(&granted, &limits, request).map_err(|failure| match failure {
            Failure::Refused(why) => why,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn only_granted_origins_pass() {
        for url in
            ["https://vault.example:8200/v1", "https://VAULT.example:8200", "http://127.0.0.1:9000/a?b=c#d"]
        {
            assert!(try_out(url, "GET", &[], 0).is_ok(), "{url}");
        }
        for url in [
            "http://vault.example:8200/",
            "https://vault.example/",
            "https://vault.example:8201/",
            "https://evil.vault.example:8200/",
            "https://vault.example.:8200/",
            "https://vault.example@evil.example:8200/",
            "https://user:hunter2@vault.example:8200/",
            "https://vault.example:8200@evil.example/",
            "http://2130706433:9000/",
            "file:///etc/passwd",
            "//vault.example:8200/",
            "/v1",
            "",
        ] {
            let why = try_out(url, "GET", &[], 0).unwrap_err();
            assert!(!why.contains("hunter2"), "{why}");
        }
    }

    #[test]
    fn the_host_keeps_its_own_headers() {
        for name in
            ["Host", "connection", "Content-Length", "transfer-encoding", "Proxy-Authorization", "Upgrade"]
        {
            let why = try_out("https://vault.example:8200/", "GET", &[(name, "x")], 0).unwrap_err();
            assert!(why.contains("by itself"), "{why}");
        }
        let url = "https://vault.example:8200/v1/a?b=c";
        let plan = try_out(url, "LIST", &[("X-Vault-Token", "hunter2")], 0).unwrap();
        assert_eq!(plan.request.headers()["host"], "vault.example:8200");
        assert_eq!(plan.request.headers()["connection"], "close");
        assert_eq!(plan.request.uri(), "/v1/a?b=c");
        assert!(!format!("{plan:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let url = "https://vault.example:8200/";
        assert!(try_out(url, "CONNECT", &[], 0).unwrap_err().contains("CONNECT"));
        assert!(try_out(url, "GE T", &[], 0).unwrap_err().contains("method"));
        assert!(try_out(url, "POST", &[], 11).unwrap_err().contains("10 bytes"));
        assert!(try_out(url, "GET", &[("a", "b\r\nc: d")], 0).unwrap_err().contains("value"));
        assert!(try_out(url, "GET", &[("a b", "c")], 0).unwrap_err().contains("name"));
        assert!(try_out(url, "GET", &[("a", &"x".repeat(20_000))], 0).unwrap_err().contains("headers"));
    }
}
