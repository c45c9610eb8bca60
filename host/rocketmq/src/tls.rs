//! TLS as chosen: the system's roots, a CA file, or anyone.
//!
//! gRPC's own TLS cannot be told to accept any certificate, and hides why a handshake failed. So all of it is done
//! here, in the connector.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::options::{IdentityFiles, Tls, Trust};

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read as PEM.
    #[error("`{option}` cannot be read from {}", path.display())]
    File {
        /// The option that names it.
        option: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: pem::Error,
    },
    /// A file holds no certificate.
    #[error("`{option}` holds no certificate: {}", path.display())]
    Empty {
        /// The option that names it.
        option: &'static str,
        /// Where it is.
        path: PathBuf,
    },
    /// The system has no root certificates.
    #[error("the system has no root certificates to trust; give a file as `rocketmq.client.tls-ca-file`")]
    NoRoots,
    /// The pieces do not fit together.
    #[error("the TLS options do not fit together")]
    Config(#[source] rustls::Error),
}

/// Reads the files and makes the configuration; `None` when TLS is off.
pub(crate) fn load(tls: &Tls) -> Result<Option<Arc<ClientConfig>>, TlsError> {
    let Tls::On { trust, identity } = tls else { return Ok(None) };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Config)?;
    let builder = match trust {
        Trust::SystemRoots => builder.with_root_certificates(system_roots()?),
        Trust::CaFile(path) => builder.with_root_certificates(roots_of(path)?),
        Trust::Anyone => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyone { schemes }))
        }
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let (chain, key) = identity_of(files)?;
            builder.with_client_auth_cert(chain, key).map_err(TlsError::Config)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(Arc::new(config)))
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

fn roots_of(path: &Path) -> Result<RootCertStore, TlsError> {
    let option = "rocketmq.client.tls-ca-file";
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of(option, path)? {
        roots.add(certificate).map_err(TlsError::Config)?;
    }
    Ok(roots)
}

fn identity_of(
    files: &IdentityFiles,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = certificates_of("rocketmq.client.tls-cert-file", &files.certificates)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::File {
        option: "rocketmq.client.tls-key-file",
        path: files.key.clone(),
        source,
    })?;
    Ok((chain, key))
}

fn certificates_of(option: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |source| TlsError::File { option, path: path.to_owned(), source };
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { option, path: path.to_owned() });
    }
    Ok(certificates)
}

/// Accepts any certificate and any signature: chosen by the user with `tls-insecure`, never a fall-back.
#[derive(Debug)]
struct AcceptAnyone {
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for AcceptAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_needs_nothing() {
        assert!(load(&Tls::Off).expect("nothing to read").is_none());
    }

    #[test]
    fn http2_is_negotiated_in_every_mode() {
        let insecure = Tls::On { trust: Trust::Anyone, identity: None };
        let config = load(&insecure).expect("nothing to read").expect("on");
        assert_eq!(config.alpn_protocols, [b"h2".to_vec()]);
    }

    #[test]
    fn a_missing_or_empty_file_is_named_with_its_option() {
        let ca = |path: &Path| load(&Tls::On { trust: Trust::CaFile(path.to_owned()), identity: None });
        let error = ca(Path::new("/nonexistent/ca.pem")).expect_err("no such file").to_string();
        assert!(error.contains("tls-ca-file") && error.contains("/nonexistent/ca.pem"), "{error}");
        let file = tempfile::NamedTempFile::new().expect("a file");
        let error = ca(file.path()).expect_err("no certificate").to_string();
        assert!(error.contains("holds no certificate"), "{error}");
    }
}
