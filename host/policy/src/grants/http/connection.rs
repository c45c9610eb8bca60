//! One connection for one request.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::plan::Plan;
use super::{Failure, Inner, Response, address, trust};

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Head of an answer: bytes and headers.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Makes the request. Whoever calls bounds the time.
pub(super) async fn run(inner: Arc<Inner>, plan: Plan) -> Result<Response, Failure> {
    let stream = timeout(inner.limits.connect_timeout, connect(&inner, &plan));
    let stream = stream.await.unwrap_or(Err(Failure::TimedOut))?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(&error))?;
    // It ends with the runtime at the latest.
    tokio::spawn(connection);
    let response = sender.send_request(plan.request).await.map_err(|error| broken(&error))?;
    let (head, body) = response.into_parts();
    // The buffer's bound is a rough one.
    if head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>()
        > HEAD_BYTES_MAX
    {
        return Err(Failure::TooLarge(HEAD_BYTES_MAX as u64));
    }
    let text = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    let headers = head.headers.iter().filter_map(text).collect();
    let body = read(body, inner.limits.response_bytes_max).await?;
    Ok(Response { status: head.status.as_u16(), headers, body })
}

async fn connect(inner: &Arc<Inner>, plan: &Plan) -> Result<Box<dyn Stream>, Failure> {
    let origin = &plan.origin;
    let addresses = addresses(inner, plan).await?;
    let mut problem = String::new();
    let mut connected = None;
    for address in addresses.into_iter().take(ADDRESSES_MAX) {
        match TcpStream::connect(SocketAddr::new(address, origin.port())).await {
            Ok(stream) => {
                connected = Some(stream);
                break;
            }
            Err(error) => problem = format!("cannot connect to `{origin}` at {address}: {error}"),
        }
    }
    let Some(stream) = connected else { return Err(Failure::Other(problem)) };
    // One small request goes out at once.
    let _ = stream.set_nodelay(true);
    if !origin.is_https() {
        return Ok(Box::new(stream));
    }
    let config = trust::config(inner.ca_file.as_deref())?;
    let name = ServerName::try_from(origin.host().to_owned())
        .map_err(|_| Failure::Refused(format!("`{origin}` has no name that a certificate could be for")))?;
    let stream = TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(|error| Failure::Other(format!("no TLS with `{origin}`: {error}")))?;
    Ok(Box::new(stream))
}

/// Addresses that a request may go to.
async fn addresses(inner: &Arc<Inner>, plan: &Plan) -> Result<Vec<IpAddr>, Failure> {
    let origin = &plan.origin;
    if let Some(address) = origin.ip() {
        // It was granted as it is.
        return Ok(vec![address]);
    }
    let (names, host) = (Arc::clone(&inner.names), origin.host().to_owned());
    let found = tokio::task::spawn_blocking(move || names.lookup(&host)).await;
    let found = match found {
        Ok(Ok(found)) if !found.is_empty() => found,
        Ok(Ok(_)) => return Err(Failure::Other(format!("the name of `{origin}` has no address"))),
        Ok(Err(error)) => {
            return Err(Failure::Other(format!("the name of `{origin}` does not resolve: {error}")));
        }
        Err(_) => return Err(Failure::Other(format!("the name of `{origin}` could not be looked up"))),
    };
    let is_allowed = |address: &IpAddr| {
        let address = address::plain(*address);
        address::is_public(address)
            || plan.granted_addresses.contains(&address)
            || (origin.is_localhost() && address.is_loopback())
    };
    let allowed: Vec<_> = found.iter().copied().filter(is_allowed).collect();
    match (allowed.is_empty(), found.first()) {
        (true, Some(address)) => Err(Failure::Refused(format!(
            "`{origin}` leads to {address}, which is not a public address: if that is meant, grant that address and \
             port as well"
        ))),
        _ => Ok(allowed),
    }
}

/// The whole body, if it is not too large.
async fn read(mut body: Incoming, bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let too_large = || Failure::TooLarge(bytes_max as u64);
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    let mut content = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| broken(&error))?;
        let Ok(data) = frame.into_data() else { continue };
        if content.len() + data.len() > bytes_max {
            return Err(too_large());
        }
        content.extend_from_slice(&data);
    }
    Ok(content)
}

fn broken(error: &hyper::Error) -> Failure {
    use std::error::Error as _;
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::Other(format!("the connection failed: {error}{cause}"))
}
