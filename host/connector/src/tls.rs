//! TLS of a client as chosen: whom to believe, and who to be; from PEM files, or from PEM text in the configuration.
//!
//! What is wrong with a file is found by [`Client::check`] before anything is connected, and each sentence names the
//! option that must change.

mod pem;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;

pub use pem::{Pem, Wanted};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use verify::{AcceptAnyone, AnyName};

/// How a client's connections are encrypted.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Whom to believe.
    pub trust: Trust,
    /// Which names a believed server may have.
    pub server_name: ServerNameCheck,
    /// The client's own certificate, for servers that ask for one.
    pub identity: Option<Identity>,
}

/// Which server certificates are believed.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Those that lead to the system's root certificates.
    #[default]
    SystemRoots,
    /// Those that lead to one of these certificates.
    Certificates(Pem),
    /// Any, without a check: whoever stands on the road can read and alter everything.
    Anyone,
}

/// Whether a server must be the one that was called.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ServerNameCheck {
    /// Its certificate must be for the name or address that was called.
    #[default]
    On,
    /// Any believed certificate will do, so any server that has one can pose as any other.
    Off,
}

/// A client's certificate.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate chain, its own first.
    pub certificates: Pem,
    /// The private key.
    pub key: Pem,
}

/// What the options are called where they were given; errors name them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OptionNames {
    /// The certificates to trust.
    pub trust: &'static str,
    /// The client's own certificate.
    pub certificates: &'static str,
    /// The key of that certificate.
    pub key: &'static str,
}

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
    /// A file or a text holds something else.
    #[error("{}", pem::wrong_content(option, path.as_deref(), *wanted, found))]
    Content {
        /// The option that names or holds it.
        option: &'static str,
        /// Where it is; none for text that stands in the option.
        path: Option<PathBuf>,
        /// What it should hold.
        wanted: Wanted,
        /// What it holds instead, such as `holds a private key`.
        found: Box<str>,
    },
    /// The client's key is not that of its certificate.
    #[error(
        "`{option}`{} is not the key of the first certificate in {}; give the two that were made together",
        key.as_ref().map(|path| format!(" names `{}`, which", path.display())).unwrap_or_default(),
        certificates.as_ref().map_or_else(|| format!("`{chain_option}`"), |path| format!("`{}`", path.display()))
    )]
    Strangers {
        /// The option that names or holds the key.
        option: &'static str,
        /// Where the key is, when it is a file.
        key: Option<PathBuf>,
        /// The option that names or holds the certificate.
        chain_option: &'static str,
        /// Where the certificate is, when it is a file.
        certificates: Option<PathBuf>,
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

impl Client {
    /// Looks at all that the options name or hold, and at whether key and certificate belong together; opens no
    /// connection. Nothing found means that [`config`](Self::config) works, as long as nobody changes a file and the
    /// system has roots.
    #[must_use]
    pub fn check(&self, names: &OptionNames) -> Vec<TlsError> {
        let mut errors = Vec::new();
        if let Trust::Certificates(pem) = &self.trust {
            errors.extend(roots_of(names.trust, pem).err());
        }
        if let Some(identity) = &self.identity {
            match (identity.chain(names), identity.private_key(names)) {
                (Ok(chain), Ok(key)) => {
                    let both = CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider());
                    errors.extend(both.err().map(|error| identity.unusable(error, names)));
                }
                (chain, key) => errors.extend([chain.err(), key.err()].into_iter().flatten()),
            }
        }
        errors
    }

    /// Reads the files and makes the configuration, without a protocol (ALPN).
    ///
    /// # Errors
    /// The first of what [`check`](Self::check) finds, or that the system has no roots.
    pub fn config(&self, names: &OptionNames) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let algorithms = provider.signature_verification_algorithms;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Config)?;
        let roots = match &self.trust {
            Trust::SystemRoots => Some(system_roots(names)?),
            Trust::Certificates(pem) => Some(roots_of(names.trust, pem)?),
            Trust::Anyone => None,
        };
        let builder = match (roots, self.server_name) {
            (Some(roots), ServerNameCheck::On) => builder.with_root_certificates(roots),
            (Some(roots), ServerNameCheck::Off) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyName::new(roots, algorithms))),
            (None, _) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyone::new(algorithms)))
            }
        };
        let Some(identity) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let (chain, key) = (identity.chain(names)?, identity.private_key(names)?);
        builder.with_client_auth_cert(chain, key).map_err(|error| identity.unusable(error, names))
    }
}

impl Identity {
    fn chain(&self, names: &OptionNames) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        self.certificates.certificates(names.certificates)
    }

    fn private_key(&self, names: &OptionNames) -> Result<PrivateKeyDer<'static>, TlsError> {
        self.key.private_key(names.key)
    }

    /// Why a chain and a key make no identity.
    fn unusable(&self, error: rustls::Error, names: &OptionNames) -> TlsError {
        match error {
            rustls::Error::InconsistentKeys(_) => TlsError::Strangers {
                option: names.key,
                key: self.key.path(),
                chain_option: names.certificates,
                certificates: self.certificates.path(),
            },
            error => TlsError::Content {
                option: names.key,
                path: self.key.path(),
                wanted: Wanted::Key,
                found: format!("holds a key that cannot be used ({error})").into(),
            },
        }
    }
}

fn system_roots(names: &OptionNames) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoRoots { option: names.trust }) } else { Ok(roots) }
}

fn roots_of(option: &'static str, pem: &Pem) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in pem.certificates(option)? {
        roots.add(certificate).map_err(|error| TlsError::Content {
            option,
            path: pem.path(),
            wanted: Wanted::Certificates,
            found: format!("holds a certificate that cannot be used ({error})").into(),
        })?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests;
