//! Files are gone through by the connectors that name them; here is what is only asked for by some.

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConnection, ServerConfig, ServerConnection};
use secrecy::SecretString;

use super::*;

const NAMES: OptionNames = OptionNames { trust: "trust", certificates: "chain", key: "key" };

/// An authority and what it signed.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for `name` with its key, both PEM.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

fn text(pem: &str) -> Pem {
    Pem::Text(SecretString::from(pem.to_owned()))
}

fn trusting(pem: &str, server_name: ServerNameCheck) -> Client {
    Client { trust: Trust::Certificates(text(pem)), server_name, identity: None }
}

/// A whole handshake in memory, with a server that shows `chain` and `key`.
fn handshake(client: &Client, called: &str, chain: &str, key: &str) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = text(chain).certificates("chain").unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&text(key).private_key("key").unwrap()).unwrap();
    // Not looked at whether they belong together: some servers here are impostors.
    let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown));
    let mut server = ServerConnection::new(Arc::new(config)).unwrap();
    let name = ServerName::try_from(called.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client.config(&NAMES).unwrap()), name).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut io::Cursor::new(&wire)).unwrap();
        server.process_new_packets()?;
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut io::Cursor::new(&wire)).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

#[test]
fn the_servers_name_is_checked_unless_that_is_off() {
    let authority = Authority::new();
    let (chain, key) = authority.sign("one.test");
    let called = |name, check| handshake(&trusting(&authority.pem(), check), name, &chain, &key);
    called("one.test", ServerNameCheck::On).unwrap();
    called("one.test", ServerNameCheck::Off).unwrap();
    called("other.test", ServerNameCheck::Off).unwrap();
    let refused = called("other.test", ServerNameCheck::On).unwrap_err();
    assert!(refused.to_string().contains("not valid for name"), "{refused}");
}

#[test]
fn without_the_name_the_authority_still_counts() {
    let (chain, key) = Authority::new().sign("one.test");
    let other = trusting(&Authority::new().pem(), ServerNameCheck::Off);
    let refused = handshake(&other, "one.test", &chain, &key).unwrap_err();
    assert!(matches!(refused, rustls::Error::InvalidCertificate(_)), "{refused}");
    let anyone = Client { trust: Trust::Anyone, ..Client::default() };
    handshake(&anyone, "other.test", &chain, &key).unwrap();
}

/// The server has a certificate but not its key.
#[test]
fn without_the_name_the_key_still_counts() {
    let authority = Authority::new();
    let (chain, _) = authority.sign("one.test");
    let (_, other_key) = authority.sign("one.test");
    let client = trusting(&authority.pem(), ServerNameCheck::Off);
    let refused = handshake(&client, "one.test", &chain, &other_key).unwrap_err();
    assert!(refused.to_string().contains("BadSignature"), "{refused}");
}

#[test]
fn text_in_one_line_is_as_good_as_a_file() {
    let (chain, key) = Authority::new().sign("one.test");
    let folded = |pem: &str| text(&pem.trim().replace("\r\n", " ").replace('\n', " "));
    let identity = Identity { certificates: folded(&[chain.as_str(), &chain].concat()), key: folded(&key) };
    assert_eq!(identity.chain(&NAMES).unwrap().len(), 2);
    let client = Client { identity: Some(identity), ..Client::default() };
    assert!(client.check(&NAMES).is_empty(), "{:?}", client.check(&NAMES));
    let shown = format!("{client:?}");
    assert!(!shown.contains("BEGIN"), "{shown}");
}

#[test]
fn text_that_is_wrong_is_told_with_its_option_and_not_repeated() {
    let authority = Authority::new();
    let (chain, key) = authority.sign("one.test");
    let (_, other_key) = authority.sign("one.test");
    let cases = [
        (text(&chain), text("no key"), "`key` holds nothing in PEM; give PEM text with one unencrypted"),
        (text(&key), text(&key), "`chain` holds a private key; give PEM text with certificates"),
        (
            text(&chain),
            text(&other_key),
            "`key` is not the key of the first certificate in `chain`; give the two",
        ),
        (text(&chain), text(&key[..key.len() / 2]), "`key` is damaged"),
    ];
    for (certificates, key, expected) in cases {
        let client = Client { identity: Some(Identity { certificates, key }), ..Client::default() };
        let told: Vec<_> = client.check(&NAMES).iter().map(ToString::to_string).collect();
        let [told] = &told[..] else { panic!("one mistake: {told:?}") };
        assert!(told.starts_with(expected), "{told}");
    }
}
