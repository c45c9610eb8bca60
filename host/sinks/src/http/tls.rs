//! Whose certificates are believed.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tidegate_connector::files::{self, ReadError};

use super::HttpError;

/// The largest PEM file that is read, in bytes. A system's whole list of roots has about a quarter of it.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// TLS with HTTP/2 and HTTP/1.1, checked against the file, or else the system's roots.
pub(super) fn config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, HttpError> {
    let roots = match ca_file {
        Some(path) => roots_of(path)?,
        None => system_roots()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(HttpError::Tls)?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn system_roots() -> Result<RootCertStore, HttpError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(HttpError::NoRoots) } else { Ok(roots) }
}

fn roots_of(path: &Path) -> Result<RootCertStore, HttpError> {
    let wrong = |problem: String| HttpError::CaFile { path: path.to_owned(), problem: problem.into() };
    let text = files::read(path, PEM_BYTES_MAX).map_err(|error| {
        wrong(match error {
            ReadError::Io(error) => format!("cannot be read: {error}"),
            ReadError::NotAFile { .. } => "is no regular file".to_owned(),
            ReadError::TooLarge { .. } => format!("is larger than {PEM_BYTES_MAX} bytes"),
        })
    })?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| wrong(format!("is damaged: {error}")))?;
        roots
            .add(certificate)
            .map_err(|error| wrong(format!("holds a certificate that cannot be used: {error}")))?;
    }
    if roots.is_empty() { Err(wrong("holds no certificates in PEM".to_owned())) } else { Ok(roots) }
}
