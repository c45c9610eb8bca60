//! What a user writes and what comes of it.

use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tidegate_connector::options::{OptionError, Raw, Side, nearest};
use tidegate_connector::secret::{Purpose, Secret};
use tidegate_connector::tls::{Pem, ServerNameCheck, Trust};

use super::*;
use crate::connector::{REFUSED, TABLE};

const LEAST: [(&str, &str); 3] = [
    ("properties.bootstrap.servers", "a:9092,b:9092"),
    ("share-group-id", "any group; at all"),
    ("topic", "orders; refunds"),
];
const MECHANISM: &str = "properties.sasl.mechanism";
const JAAS: &str = "properties.sasl.jaas.config";
const TOKEN_URL: &str = "properties.sasl.oauthbearer.token.endpoint.url";
const TRUST_FILE: &str = "properties.ssl.truststore.location";
const TRUST_TYPE: &str = "properties.ssl.truststore.type";
const KEY_FILE: &str = "properties.ssl.keystore.location";
const CHAIN: &str = "properties.ssl.keystore.certificate.chain";
const KEY: &str = "properties.ssl.keystore.key";
const NAME_CHECK: &str = "properties.ssl.endpoint.identification.algorithm";
const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"u\" \
                     password=\"hunter2\";";

fn read(least: &[(&str, &str)], pairs: &[(&str, &str)]) -> Result<SourceOptions, Vec<OptionError>> {
    let raw: BTreeMap<String, Raw> = least
        .iter()
        .chain(pairs)
        .map(|(key, value)| ((*key).to_owned(), Raw::Text((*value).to_owned())))
        .collect();
    SourceOptions::from_values(&TABLE.read(Side::Source, &raw)?)
}

fn options(pairs: &[(&str, &str)]) -> SourceOptions {
    read(&LEAST, pairs).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn assert_problem(pairs: &[(&str, &str)], key: &str, said: &str) {
    let errors = read(&LEAST, pairs).expect_err(key);
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(
        errors.len() == 1
            && errors[0].key() == key
            && texts[0].contains(said)
            && !texts[0].contains("hunter2"),
        "{key}, {said}: {texts:?}"
    );
}

fn secret(options: &SourceOptions) -> Arc<Secret> {
    let sasl = options.client.security.sasl.as_ref().unwrap();
    sasl.secrets.current("b:9092", Purpose::Consume).unwrap()
}

#[test]
fn the_least_has_the_defaults_of_the_table() {
    let options = options(&[]);
    let Subscription::Topics(topics) = &options.subscription else { panic!("{options:?}") };
    assert_eq!(topics.iter().map(|name| &**name).collect::<Vec<_>>(), ["orders", "refunds"]);
    assert_eq!(
        (&*options.group, options.parallelism, options.held_records_max),
        ("any group; at all", 1, 10_000)
    );
    assert_eq!((options.delivery_count_limit, options.hold.records), (None, 10_000));
    assert_eq!(options.fetch, FetchSettings::default());
    assert_eq!(options.client.security.protocol(), "PLAINTEXT");
    assert_eq!(options.request_timeout, Duration::from_secs(30));
}

#[test]
fn javas_names_reach_the_client() {
    let options = options(&[
        ("source.parallelism", "4"),
        ("max-queue-size", "100"),
        ("defer-hold-records", "500"),
        ("delivery-count-limit", "3"),
        ("properties.client.id", "c"),
        ("properties.client.rack", "r"),
        ("properties.fetch.max.bytes", "1000"),
        ("properties.fetch.max.wait.ms", "50"),
        ("properties.max.poll.records", "70"),
        ("properties.share.acquire.mode", "record_limit"),
        ("properties.metadata.max.age.ms", "2000"),
        ("properties.request.timeout.ms", "4000"),
    ]);
    let expected = FetchSettings {
        max_records: 70,
        max_bytes: 1_000,
        max_wait: Duration::from_millis(50),
        max_wait_while_held: Duration::from_millis(50),
        acquire_mode: AcquireMode::RecordLimit,
    };
    assert_eq!(options.fetch, expected);
    assert_eq!((options.receive_records_max(), options.hold.records), (25, 100));
    assert_eq!(options.delivery_count_limit, Some(3));
    assert_eq!((&*options.client.client_id, options.rack.as_deref()), ("c", Some("r")));
    assert_eq!(options.metadata_max_age, Duration::from_secs(2));
    assert_eq!(options.request_timeout, Duration::from_secs(4));
}

#[test]
fn a_pattern_is_about_the_whole_name() {
    let pattern = |text| -> Result<TopicPattern, Vec<OptionError>> {
        let least = [LEAST[0], LEAST[1], ("topic-pattern", text)];
        match read(&least, &[])?.subscription {
            Subscription::Pattern(pattern) => Ok(pattern),
            Subscription::Topics(topics) => panic!("{topics:?}"),
        }
    };
    let either = pattern("orders|refunds").unwrap();
    assert!(either.matches("orders") && either.matches("refunds"));
    assert!(!either.matches("orders2") && !either.matches("xrefunds"));
    for wrong in ["(", "a)(b", "((a{100}){100}){100}"] {
        let errors: Vec<OptionError> = pattern(wrong).expect_err(wrong);
        assert_eq!(errors[0].key(), "topic-pattern", "{errors:?}");
    }
    assert_problem(&[("topic-pattern", "x")], "topic-pattern", "beside `topic`");
}

#[test]
fn mistakes_of_values_are_told() {
    let with = |servers: &'static str, topic: &'static str| {
        let least = [("properties.bootstrap.servers", servers), LEAST[1], ("topic", topic)];
        read(&least, &[]).expect_err("a mistake").iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(with("http://a:1", "t")[0].contains("without a scheme"));
    assert!(with("a:1", "a,b")[0].contains("separated by `;`"));
    assert!(with("a:1", " ; ")[0].contains("names no topic"));
    assert_problem(&[("format", "json")], "format", "cannot be `json` yet");
    assert_problem(&[("format", "rwa")], "format", "must be `raw`");
    assert_problem(&[("delivery-count-limit", "0")], "delivery-count-limit", "every record");
    assert_problem(
        &[("properties.fetch.max.byte", "1")],
        "properties.fetch.max.byte",
        "properties.fetch.max.bytes",
    );
    assert!(read(&LEAST[..2], &[]).expect_err("no topic")[0].to_string().contains("topic-pattern"));
}

#[test]
fn sasl_is_read_from_javas_texts() {
    let sasl = [("properties.security.protocol", "SASL_SSL"), ("properties.sasl.mechanism", "SCRAM-SHA-512")];
    let given = options(&[sasl[0], sasl[1], ("properties.sasl.jaas.config", SCRAM)]);
    assert_eq!(given.client.security.protocol(), "SASL_SSL");
    let Secret::Login { username, password } = &*secret(&given) else { panic!("a login") };
    assert_eq!((&**username, password.expose_secret()), ("u", "hunter2"));
    assert!(!format!("{given:?}").contains("hunter2"));
    let plain = ("properties.sasl.mechanism", "PLAIN");
    assert_problem(&[sasl[0], plain, ("properties.sasl.jaas.config", SCRAM)], JAAS, "PlainLoginModule");
    assert_problem(&sasl, JAAS, "is missing");
    assert_problem(&sasl[..1], MECHANISM, "is missing");
    assert_problem(&[("credentials-resolver", "keys")], RESOLVER, "no effect");
    assert_problem(&[("properties.sasl.jaas.config", SCRAM)], JAAS, "no effect");
    assert_problem(&[sasl[0], sasl[1], ("properties.sasl.jaas.config", "hunter2")], JAAS, "login module");
    // A file's content is looked up later, and `tidegate check` works without it.
    options(&[sasl[0], sasl[1], ("properties.sasl.jaas.config", "file:/run/login")]);
    let resolved = options(&[sasl[0], sasl[1], ("credentials-resolver", "keys")]);
    assert_eq!(resolved.credentials_resolver.as_deref(), Some("keys"));
}

#[test]
fn tokens_come_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, "abc\n").unwrap();
    let url = format!("file://{}", path.display());
    let sasl =
        [("properties.security.protocol", "SASL_PLAINTEXT"), ("properties.sasl.mechanism", "OAUTHBEARER")];
    let module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
    let jaas = format!("{module} required extension_logicalCluster=\"lkc\";");
    let given = options(&[sasl[0], sasl[1], (TOKEN_URL, &url), (JAAS, &jaas)]);
    let Secret::Bearer(token) = &*secret(&given) else { panic!("a token") };
    assert_eq!(token.expose_secret(), "abc");
    assert_eq!(given.client.security.sasl.unwrap().extensions.len(), 1);
    assert_problem(&sasl, TOKEN_URL, "is missing");
    assert_problem(&[sasl[0], sasl[1], (TOKEN_URL, "https://idp/token")], TOKEN_URL, "must be a file");
}

#[test]
fn tls_is_pem() {
    let ssl = ("properties.security.protocol", "SSL");
    let given = options(&[ssl, (TRUST_FILE, "ca.pem"), (KEY_FILE, "own.pem"), (NAME_CHECK, "")]);
    let tls = given.client.security.tls.as_ref().unwrap();
    assert!(matches!(tls.trust, Trust::Certificates(Pem::File(_))), "{tls:?}");
    assert_eq!(tls.server_name, ServerNameCheck::Off);
    assert!(tls.identity.is_some());
    let missing: Vec<_> = given.check_files().iter().map(ToString::to_string).collect();
    assert!(missing.iter().any(|problem| problem.contains("ca.pem")), "{missing:?}");
    assert_problem(&[ssl, (TRUST_TYPE, "JKS")], TRUST_TYPE, "keytool");
    assert_problem(&[ssl, (TRUST_FILE, "x.jks")], TRUST_FILE, "PEM");
    assert_problem(&[ssl, (CHAIN, "x")], KEY, "is missing");
    assert_problem(&[ssl, (NAME_CHECK, "none")], NAME_CHECK, "`https` or empty");
    assert_problem(&[(TRUST_FILE, "ca.pem")], TRUST_FILE, "no effect");
}

#[test]
fn what_a_connection_needs_has_an_option() {
    for name in properties::NAMES {
        assert_eq!(key(name), format!("properties.{name}"));
    }
}

#[test]
fn what_is_refused_by_name_is_no_option() {
    let keys: Vec<_> = TABLE.options.iter().map(|option| option.key).collect();
    for (key, reason) in REFUSED {
        assert!(!keys.contains(key), "{key} is both");
        assert!(reason.len() > 20 && !reason.ends_with('.'), "{key}: {reason}");
    }
    let mut names: Vec<_> = REFUSED.iter().map(|(key, _)| key).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), REFUSED.len());
    assert_eq!(nearest("properties.max.poll.record", keys), Some("properties.max.poll.records"));
}

#[test]
fn implicit_acknowledgement_has_a_spool_and_each_mode_its_own_bounds() {
    assert_eq!(options(&[]).spool, None);
    let spool = options(&[("ack", "implicit")]).spool.unwrap();
    assert_eq!((spool.limits.records, spool.limits.bytes), (100_000, 1 << 30));
    assert_eq!(spool.lease, Duration::from_secs(300));
    let chosen = [
        ("ack", "implicit"),
        ("spool-records-max", "7"),
        ("spool-bytes-max", "2MiB"),
        ("spool-lease-time", "9s"),
    ];
    let spool = options(&chosen).spool.unwrap();
    assert_eq!((spool.limits.records, spool.limits.bytes, spool.lease.as_secs()), (7, 2 << 20, 9));
    assert_problem(&[("spool-bytes-max", "2MiB")], "spool-bytes-max", "has no spool");
    assert_problem(&[("ack", "implicit"), ("defer-hold-time", "9s")], "defer-hold-time", "no effect");
}
