//! TLS as chosen: the system's roots, a CA file, or anyone.
//!
//! gRPC's own TLS cannot be told to accept any certificate, and hides why a handshake failed. So all of it is done
//! here, in the connector.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tidegate_connector::files::{self, ReadError};

use crate::options::{ClientOptions, IdentityFiles, OptionNames, Tls, Trust};

/// The largest PEM file that is read, in bytes. A system's whole list of roots has about a quarter of it.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("`{option}` names `{}`, which cannot be read: {reason}; give a PEM file that is there", path.display())]
    Unreadable {
        /// The option that names it.
        option: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        reason: Box<str>,
    },
    /// A file holds something else.
    #[error(
        "`{option}` names `{}`, which {found}; give a PEM file with {}", path.display(), wanted.description()
    )]
    Content {
        /// The option that names it.
        option: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What it should hold.
        wanted: TlsFile,
        /// What it holds instead, such as `holds a private key`.
        found: Box<str>,
    },
    /// The client's key is not that of its certificate.
    #[error(
        "`{option}` names `{}`, which is not the key of the first certificate in `{}`; give the two that were made \
         together", key.display(), certificates.display()
    )]
    Strangers {
        /// The option that names the key.
        option: &'static str,
        /// Where the key is.
        key: PathBuf,
        /// Where the certificate is.
        certificates: PathBuf,
    },
    /// The system has no root certificates.
    #[error("the system has no root certificates to trust; give a file as `{option}`")]
    NoRoots {
        /// The option to give.
        option: &'static str,
    },
    /// The pieces do not fit together.
    #[error("the TLS options do not fit together")]
    Config(#[source] rustls::Error),
}

/// What a PEM file is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TlsFile {
    /// Certificates.
    Certificates,
    /// A private key.
    Key,
}

impl TlsFile {
    const fn description(self) -> &'static str {
        match self {
            Self::Certificates => "certificates (`-----BEGIN CERTIFICATE-----`)",
            Self::Key => "one unencrypted private key (`-----BEGIN PRIVATE KEY-----`)",
        }
    }
}

/// Looks at every file that the options name, and at whether key and certificate belong together; opens no connection.
#[must_use]
pub fn check_tls_files(options: &ClientOptions) -> Vec<TlsError> {
    let Tls::On { trust, identity } = &options.tls else { return Vec::new() };
    let mut errors = Vec::new();
    if let Trust::CaFile(path) = trust {
        errors.extend(roots_of(options.names.tls_ca_file, path).err());
    }
    if let Some(files) = identity {
        let (chain, key) = (chain_of(files, options.names), key_of(files, options.names));
        match (chain, key) {
            (Ok(chain), Ok(key)) => {
                let identity = CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider());
                errors.extend(identity.err().map(|error| unusable(error, files, options.names)));
            }
            (chain, key) => errors.extend([chain.err(), key.err()].into_iter().flatten()),
        }
    }
    errors
}

/// Reads the files and makes the configuration; `None` when TLS is off.
pub(crate) fn load(tls: &Tls, names: &OptionNames) -> Result<Option<Arc<ClientConfig>>, TlsError> {
    let Tls::On { trust, identity } = tls else { return Ok(None) };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Config)?;
    let builder = match trust {
        Trust::SystemRoots => builder.with_root_certificates(system_roots(names)?),
        Trust::CaFile(path) => builder.with_root_certificates(roots_of(names.tls_ca_file, path)?),
        Trust::Anyone => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyone { schemes }))
        }
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let (chain, key) = (chain_of(files, names)?, key_of(files, names)?);
            builder.with_client_auth_cert(chain, key).map_err(|error| unusable(error, files, names))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(Arc::new(config)))
}

fn system_roots(names: &OptionNames) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoRoots { option: names.tls_ca_file }) } else { Ok(roots) }
}

fn roots_of(option: &'static str, path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of(option, path)? {
        roots.add(certificate).map_err(|error| TlsError::Content {
            option,
            path: path.to_owned(),
            wanted: TlsFile::Certificates,
            found: format!("holds a certificate that cannot be used ({error})").into(),
        })?;
    }
    Ok(roots)
}

fn chain_of(files: &IdentityFiles, names: &OptionNames) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    certificates_of(names.tls_cert_file.unwrap_or("the certificate"), &files.certificates)
}

fn key_of(files: &IdentityFiles, names: &OptionNames) -> Result<PrivateKeyDer<'static>, TlsError> {
    let pem = PemFile { option: key_option(names), path: &files.key, wanted: TlsFile::Key };
    let text = pem.read()?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| pem.wrong(&text, &error))
}

/// Why a chain and a key make no identity.
fn unusable(error: rustls::Error, files: &IdentityFiles, names: &OptionNames) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsError::Strangers {
            option: key_option(names),
            key: files.key.clone(),
            certificates: files.certificates.clone(),
        },
        error => TlsError::Content {
            option: key_option(names),
            path: files.key.clone(),
            wanted: TlsFile::Key,
            found: format!("holds a key that cannot be used ({error})").into(),
        },
    }
}

fn key_option(names: &OptionNames) -> &'static str {
    names.tls_key_file.unwrap_or("the key")
}

fn certificates_of(option: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = PemFile { option, path, wanted: TlsFile::Certificates };
    let text = pem.read()?;
    let certificates = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem.wrong(&text, &error))?;
    if certificates.is_empty() {
        return Err(pem.wrong(&text, &pem::Error::NoItemsFound));
    }
    Ok(certificates)
}

/// A file that an option names.
#[derive(Clone, Copy)]
struct PemFile<'a> {
    option: &'static str,
    path: &'a Path,
    wanted: TlsFile,
}

impl PemFile<'_> {
    fn read(&self) -> Result<Vec<u8>, TlsError> {
        let unreadable = |reason: String| TlsError::Unreadable {
            option: self.option,
            path: self.path.to_owned(),
            reason: reason.into(),
        };
        files::read(self.path, PEM_BYTES_MAX).map_err(|error| {
            unreadable(match error {
                ReadError::Io(error) => error.to_string(),
                ReadError::NotAFile { .. } => "it is not a regular file".to_owned(),
                ReadError::TooLarge { .. } => format!("it is larger than {PEM_BYTES_MAX} bytes"),
            })
        })
    }

    /// Why a text is not what is wanted.
    fn wrong(&self, text: &[u8], error: &pem::Error) -> TlsError {
        let has = |part: &str| text.windows(part.len()).any(|window| window == part.as_bytes());
        let found = if !matches!(error, pem::Error::NoItemsFound) {
            format!("is damaged ({error})")
        } else if has("-----BEGIN ENCRYPTED PRIVATE KEY-----") {
            "holds an encrypted private key".to_owned()
        } else if has("PRIVATE KEY-----") {
            "holds a private key".to_owned()
        } else if has("-----BEGIN CERTIFICATE-----") {
            "holds certificates".to_owned()
        } else {
            "holds nothing in PEM".to_owned()
        };
        TlsError::Content {
            option: self.option,
            path: self.path.to_owned(),
            wanted: self.wanted,
            found: found.into(),
        }
    }
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
mod tests;
