//! TLS for the service, from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, version};
use tidegate_connector::files::{self, ReadError};
use tokio_rustls::TlsAcceptor;

use crate::options::TlsFiles;

/// The largest PEM file that is read, in bytes.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("`{option}` names `{}`, which cannot be read: {problem}", path.display())]
    Read {
        /// The option that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: Box<str>,
    },
    /// A file holds something else.
    #[error("`{option}` names `{}`, which is no PEM file with {wanted}", path.display())]
    Content {
        /// The option that names it.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
    },
    /// The pieces do not fit together.
    #[error("`tls-cert-file` and `tls-key-file` do not fit together: {0}")]
    Pair(rustls::Error),
    /// The clients' certificates.
    #[error("`tls-client-ca-file` cannot be used: {0}")]
    ClientCa(Box<str>),
}

/// What takes encrypted connections.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates("tls-cert-file", &files.certificates)?;
    let key = read("tls-key-file", &files.key)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| TlsError::Content {
        option: "tls-key-file",
        path: files.key.clone(),
        wanted: "a private key",
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(TlsError::Pair)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("tls-client-ca-file", path)? {
                roots.add(certificate).map_err(|error| TlsError::ClientCa(error.to_string().into()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| TlsError::ClientCa(error.to_string().into()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(option: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let content = || TlsError::Content { option, path: path.to_owned(), wanted: "certificates" };
    let pem = read(option, path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(content)
}

fn read(option: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    files::read(path, PEM_BYTES_MAX).map_err(|error| TlsError::Read {
        option,
        path: path.to_owned(),
        problem: match error {
            ReadError::Io(error) => error.to_string().into(),
            ReadError::NotAFile { .. } => "it is not a regular file".into(),
            ReadError::TooLarge { bytes } => format!("it has {bytes} bytes").into(),
        },
    })
}
