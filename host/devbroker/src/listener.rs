//! A proxy's port: plaintext and TLS on the same one, told apart by the first byte.

mod connection;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_proto::rocketmq::messaging_service_server::MessagingServiceServer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, version};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use self::connection::Connection;
pub(crate) use self::connection::Peer;
use crate::hub::Hub;
use crate::options::Tls;
use crate::service::Service;

/// How long a new connection may take to say whether it speaks TLS, and to agree on it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepted connections that wait to be served.
const BACKLOG: usize = 64;

/// The first byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// The largest message the real proxy takes.
const MESSAGE_BYTES_MAX: usize = 130 << 20;

/// Flow-control windows wide enough for a stream of 32 messages of some size.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The PEM text holds no certificate or no key, or a broken one.
    #[error("the development broker's certificate or key is not readable PEM")]
    Pem(#[source] tokio_rustls::rustls::pki_types::pem::Error),
    /// The certificate and the key do not go together.
    #[error("the development broker's certificate and key cannot be used")]
    Config(#[source] tokio_rustls::rustls::Error),
}

/// Makes the TLS side of a port.
pub(crate) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, TlsError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(tls.certificate_pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(TlsError::Pem)?;
    let key = PrivateKeyDer::from_pem_slice(tls.key_pem.as_bytes()).map_err(TlsError::Pem)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(TlsError::Config)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(TlsError::Config)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves a proxy's port until `cut`, then drops every connection.
pub(crate) async fn serve(
    hub: Arc<Hub>,
    proxy: usize,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    cut: CancellationToken,
) {
    let (accepted, connections) = mpsc::channel(BACKLOG);
    let service = MessagingServiceServer::new(Service::new(Arc::clone(&hub), proxy, cut.clone()))
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .add_service(service)
        .serve_with_incoming_shutdown(ReceiverStream::new(connections), cut.clone().cancelled_owned());
    let accept = accept(&hub, listener, tls, accepted, &cut);
    let (served, ()) = tokio::join!(server, accept);
    if let Err(error) = served {
        tracing::warn!(proxy, error = %error, "the development broker's proxy ended with an error");
    }
}

async fn accept(
    hub: &Hub,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    accepted: mpsc::Sender<std::io::Result<Connection>>,
    cut: &CancellationToken,
) {
    loop {
        let connection = tokio::select! {
            connection = listener.accept() => connection,
            () = cut.cancelled() => return,
        };
        match connection {
            Ok((stream, peer)) => {
                let greet = greet(stream, peer, tls.clone(), accepted.clone(), cut.clone());
                hub.tasks.spawn(greet);
            }
            Err(error) => {
                tracing::warn!(error = %error, "the development broker could not accept a connection");
                // Most often too many open files: without a pause this loop would spin.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Looks at the first byte and hands the connection on. One that says nothing, or fails to agree on TLS, is dropped.
async fn greet(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    accepted: mpsc::Sender<std::io::Result<Connection>>,
    cut: CancellationToken,
) {
    let handshake = async {
        stream.set_nodelay(true)?;
        let mut first = [0_u8; 1];
        stream.peek(&mut first).await?;
        match tls {
            Some(tls) if first[0] == TLS_HANDSHAKE => {
                let stream = tls.accept(stream).await?;
                Ok(Connection::tls(stream, peer, cut.clone()))
            }
            _ => Ok(Connection::plain(stream, peer, cut.clone())),
        }
    };
    let connection: std::io::Result<Connection> = tokio::select! {
        connection = handshake => connection,
        () = tokio::time::sleep(HANDSHAKE_TIMEOUT) => return,
        () = cut.cancelled() => return,
    };
    match connection {
        // The server is gone when this fails, and the connection with it.
        Ok(connection) => drop(accepted.send(Ok(connection)).await),
        Err(error) => {
            tracing::debug!(%peer, %error, "a connection to the development broker failed at the start");
        }
    }
}
