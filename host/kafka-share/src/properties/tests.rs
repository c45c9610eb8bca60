use tidegate_connector::tls::{Pem, ServerNameCheck, Trust};

use super::*;

const LOGIN: &str =
    "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"u\" password=\"p\";";

fn options(properties: &[(&str, &str)]) -> Result<ClientOptions, String> {
    let properties =
        properties.iter().map(|(name, value)| ((*name).into(), SecretString::from((*value).to_owned())));
    client_options(&properties.collect()).map_err(|error| error.to_string())
}

#[test]
fn each_protocol_gives_what_it_is_made_of() {
    let login = [(MECHANISM, "SCRAM-SHA-512"), (JAAS, LOGIN)];
    for (protocol, tls, sasl) in [
        ("PLAINTEXT", false, false),
        ("SSL", true, false),
        ("SASL_PLAINTEXT", false, true),
        ("SASL_SSL", true, true),
    ] {
        let mut properties = vec![(PROTOCOL, protocol)];
        properties.extend(login.iter().filter(|_| sasl));
        let security = options(&properties).unwrap().security;
        assert_eq!((security.tls.is_some(), security.sasl.is_some()), (tls, sasl), "{protocol}");
    }
    assert_eq!(options(&[]).unwrap().security.protocol(), "PLAINTEXT");
    assert_eq!(&*options(&[(CLIENT_ID, "c")]).unwrap().client_id, "c");
}

#[test]
fn certificates_come_from_files_or_texts() {
    let ssl = |more: &[(&str, &str)]| {
        let all: Vec<_> = [(PROTOCOL, "SSL")].iter().chain(more).copied().collect();
        options(&all).map(|options| options.security.tls.unwrap())
    };
    let tls = ssl(&[(TRUST_FILE, "ca.pem"), (KEY_FILE, "me.pem"), (NAME_CHECK, "")]).unwrap();
    assert!(matches!(tls.trust, Trust::Certificates(Pem::File(path)) if path.ends_with("ca.pem")));
    assert!(tls.identity.is_some() && tls.server_name == ServerNameCheck::Off);
    assert!(matches!(ssl(&[(TRUST_TEXT, "pem")]).unwrap().trust, Trust::Certificates(Pem::Text(_))));
    for (more, expected) in [
        (&[(TRUST_FILE, "a"), (TRUST_TEXT, "b")][..], "cannot stand beside `ssl.truststore.location`"),
        (
            &[(CHAIN, "a")],
            "property `ssl.keystore.key` is missing: `ssl.keystore.certificate.chain` is given",
        ),
        (&[(KEY, "a")], "property `ssl.keystore.certificate.chain` is missing"),
        (&[(KEY_FILE, "a"), (KEY, "b")], "cannot stand beside `ssl.keystore.location`"),
        (&[(TRUST_TYPE, "JKS")], "must be `PEM`, not `JKS`: convert"),
        (&[(NAME_CHECK, "yes")], "must be `https` or empty, not `yes`"),
    ] {
        let error = ssl(more).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_has_no_effect_is_refused() {
    for (properties, expected) in [
        (
            &[(JAAS, LOGIN)][..],
            "`sasl.jaas.config` has no effect: `security.protocol` is PLAINTEXT, which has no SASL",
        ),
        (&[(PROTOCOL, "SSL"), (MECHANISM, "PLAIN")], "is SSL, which has no SASL"),
        (&[(TRUST_FILE, "a")], "which has no TLS"),
        (&[(PROTOCOL, "ssl")], "must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        (&[("group.id", "g")], "property `group.id` is not one that a connection needs"),
        (&[(PROTOCOL, "SASL_SSL")], "`sasl.mechanism` is missing: it must be one of SCRAM-SHA-512"),
        (&[(PROTOCOL, "SASL_SSL"), (MECHANISM, "GSSAPI")], "must be one of SCRAM-SHA-512"),
        (
            &[(PROTOCOL, "SASL_SSL"), (MECHANISM, "PLAIN")],
            "`sasl.jaas.config` is missing: `sasl.mechanism` is PLAIN, which takes a name",
        ),
        (
            &[(PROTOCOL, "SASL_SSL"), (MECHANISM, "PLAIN"), (JAAS, LOGIN)],
            "`sasl.jaas.config` must have `org.apache.kafka.common.security.plain.PlainLoginModule` for",
        ),
        (
            &[(PROTOCOL, "SASL_SSL"), (MECHANISM, "OAUTHBEARER"), (TOKEN_URL, "https://x")],
            "must be a file: tokens are not fetched",
        ),
    ] {
        let error = options(properties).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
