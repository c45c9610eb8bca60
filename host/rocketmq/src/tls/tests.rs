use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::{Endpoints, IdentityFiles};

#[test]
fn off_needs_nothing() {
    assert!(load(&Tls::Off, &OptionNames::KEYS).expect("nothing to read").is_none());
}

#[test]
fn http2_is_negotiated_in_every_mode() {
    let insecure = Tls::On { trust: Trust::Anyone, identity: None };
    let config = load(&insecure, &OptionNames::KEYS).expect("nothing to read").expect("on");
    assert_eq!(config.alpn_protocols, [b"h2".to_vec()]);
}

/// A directory with a certificate, its key, and files that are neither.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().expect("directory"));
        for name in ["one", "other"] {
            let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("certificate");
            files.write(&format!("{name}.pem"), &made.cert.pem());
            files.write(&format!("{name}.key"), &made.signing_key.serialize_pem());
        }
        files.write("empty", "");
        files.write("text", "hello\n");
        let whole = std::fs::read_to_string(files.path("one.pem")).expect("written");
        files.write("half.pem", &whole[..whole.len() / 2]);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    fn check(&self, ca: Option<&str>, identity: Option<(&str, &str)>) -> Vec<String> {
        let trust = ca.map_or(Trust::Anyone, |name| Trust::CaFile(self.path(name)));
        let identity = identity
            .map(|(chain, key)| IdentityFiles { certificates: self.path(chain), key: self.path(key) });
        let mut options = ClientOptions::new(Endpoints::parse("127.0.0.1:8081").expect("address"));
        options.tls = Tls::On { trust, identity };
        let errors: Vec<_> = check_tls_files(&options).iter().map(ToString::to_string).collect();
        let loaded = load(&options.tls, options.names);
        assert_eq!(loaded.is_ok(), errors.is_empty(), "what passes the check can be used: {errors:?}");
        errors
    }
}

#[test]
fn good_files_pass() {
    let files = Files::new();
    assert_eq!(files.check(Some("one.pem"), Some(("one.pem", "one.key"))), [""; 0]);
}

#[test]
fn a_file_that_is_no_certificate_is_named_with_its_option_and_what_to_do() {
    let files = Files::new();
    for (name, found) in [
        ("absent", "No such file"),
        ("", "not a regular file"),
        ("empty", "holds nothing in PEM"),
        ("text", "holds nothing in PEM"),
        ("half.pem", "is damaged"),
        ("one.key", "holds a private key"),
    ] {
        let told = files.check(Some(name), None);
        let [told] = &told[..] else { panic!("one mistake: {told:?}") };
        assert!(told.starts_with("`rocketmq.client.tls-ca-file` names `"), "{told}");
        assert!(told.contains(&files.path(name).display().to_string()), "{told}");
        assert!(told.contains(found) && told.contains("give a PEM file"), "{told}");
    }
}

#[test]
fn a_key_that_is_none_or_that_of_another_certificate() {
    let files = Files::new();
    for (key, found) in [
        ("one.pem", "holds certificates"),
        ("absent", "No such file"),
        ("text", "holds nothing in PEM"),
        ("other.key", "is not the key of the first certificate"),
    ] {
        let told = files.check(None, Some(("one.pem", key)));
        let [told] = &told[..] else { panic!("one mistake: {told:?}") };
        assert!(told.contains("rocketmq.client.tls-key-file") && told.contains(found), "{told}");
    }
}

#[test]
fn every_file_is_looked_at() {
    let files = Files::new();
    let told = files.check(Some("absent"), Some(("absent", "absent")));
    assert_eq!(told.len(), 3, "{told:?}");
}
