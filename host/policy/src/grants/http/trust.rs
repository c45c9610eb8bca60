//! Whose certificates are believed: those of the system's roots, and of the file that was granted.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tidegate_connector::files;

use super::Failure;

/// A system's whole list of roots has about a quarter of it.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Read once: there are hundreds of them.
static SYSTEM: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
});

/// How to make TLS connections. The file is read each time, since whoever renews it does not tell.
pub(super) fn config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, Failure> {
    let mut roots = SYSTEM.clone();
    if let Some(path) = ca_file {
        add_file(&mut roots, path)
            .map_err(|problem| Failure::Other(format!("the policy's `http-ca-file` {problem}")))?;
    }
    if roots.is_empty() {
        let problem = "the system has no root certificates to trust; grant some as `http-ca-file`";
        return Err(Failure::Other(problem.to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::Other(format!("TLS cannot be set up: {error}")))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let text = files::read(path, PEM_BYTES_MAX).map_err(|error| error.to_string())?;
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|_| "holds no certificates in PEM".to_owned())?;
        roots
            .add(certificate)
            .map_err(|error| format!("holds a certificate that cannot be used: {error}"))?;
        count += 1;
    }
    if count == 0 { Err("holds no certificates in PEM".to_owned()) } else { Ok(()) }
}
