//! An authority of our own, and who it vouches for.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// Somebody with a certificate.
#[derive(Clone)]
pub struct Identity {
    /// PEM, this one's own certificate only.
    pub certificate: String,
    /// PEM, PKCS#8.
    pub key: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(..)")
    }
}

/// What brokers and clients of one cluster need for TLS.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// PEM: whom both sides trust.
    pub authority: String,
    /// What every broker shows: valid for `localhost` and 127.0.0.1.
    pub server: Identity,
    /// What a client may show; the brokers call it `User:CN=client`.
    pub client: Identity,
}

impl Certificates {
    /// Makes new ones.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn generate() -> Result<Self, rcgen::Error> {
        let mut authority = named("tests' authority", &[])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        Ok(Self {
            server: identity(named("server", &["localhost", "127.0.0.1"])?, &authority)?,
            client: identity(named("client", &[])?, &authority)?,
            authority: authority.pem(),
        })
    }
}

fn named(name: &str, addresses: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let addresses = addresses.iter().map(|address| (*address).to_owned()).collect::<Vec<_>>();
    let mut parameters = CertificateParams::new(addresses)?;
    parameters.distinguished_name.push(DnType::CommonName, name);
    Ok(parameters)
}

fn identity(
    mut parameters: CertificateParams,
    authority: &CertifiedIssuer<'_, KeyPair>,
) -> Result<Identity, rcgen::Error> {
    parameters.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let certificate = parameters.signed_by(&key, authority)?;
    Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
}
