//! The option table: one place for keys, bounds, defaults and their sentences; and what is refused by name.

use tidegate_connector::options::{Default, Kind, OptionSpec, PolicyUse, Side, Table};

/// The connector's options.
///
/// Those below `properties.` are Java's client options under their own names, as far as they mean something here.
/// [`REFUSED`] has those that do not.
pub const TABLE: Table = Table {
    connector: "kafka-sharegroup",
    summary: "Consumes Kafka topics through a share group (KIP-932): Kafka 4.2 and later.",
    options: &[
        option(
            "properties.bootstrap.servers",
            Kind::Text,
            Default::Required,
            "Brokers to ask first, as `host:port`, several separated by `,`; one that is up is enough.",
        ),
        option(
            "share-group-id",
            Kind::Text,
            Default::Required,
            "The share group. Where it begins on a topic is the group's own `share.auto.offset.reset`, which is `latest` \
             unless somebody sets it.",
        ),
        option(
            "topic",
            Kind::Text,
            Default::None,
            "The topic to consume, or several separated by `;`. One that is not there yet is consumed once it is. This or \
             `topic-pattern`.",
        ),
        option(
            "topic-pattern",
            Kind::Text,
            Default::None,
            "A regular expression: every topic whose whole name matches is consumed, also those that are made later.",
        ),
        option(
            "format",
            Kind::Text,
            Default::Value("raw"),
            "How values are read: `raw`, the bytes as they are. Others are not there yet.",
        ),
        option(
            "source.parallelism",
            Kind::Integer { min: 1, max: 256 },
            Default::Value("1"),
            "Members of the group in this host, any number whatever the partitions. Each has its own connections, and \
             receives at the same time as the others.",
        ),
        option(
            "max-queue-size",
            Kind::Integer { min: 1, max: 1_000_000 },
            Default::Value("10000"),
            "Records that this source holds at most, handed on or deferred and not settled, all members together. A broker \
             goes over it to the end of a batch unless `properties.share.acquire.mode` is `record_limit`.",
        ),
        option(
            "delivery-count-limit",
            Kind::Integer { min: -1, max: 32_767 },
            Default::Value("-1"),
            "Records that come for this or a later delivery are rejected without being handed out. -1: the broker's own \
             limit alone counts, the group's `share.delivery.count.limit` (5), past which it archives them.",
        ),
        option(
            "ack",
            Kind::Choice(&["explicit", "implicit"]),
            Default::Value("explicit"),
            "When the broker is told that a record is done. `explicit`: when the flow is done with it; until then its lock is \
             held. `implicit`: as soon as it is durable on this machine, in a spool below `state-dir`, from which it is \
             handed out, deferred and settled; after a crash what is in the spool comes before anything new. The broker \
             neither counts nor dead-letters such a record any more: what is rejected goes to the flow's `dead-letter` sink, \
             or is gone.",
        ),
        option(
            "spool-records-max",
            Kind::Integer { min: 1, max: 1_000_000 },
            Default::None,
            "For `ack = \"implicit\"`: records in the spool at most, 100000 if nothing is said. Nothing is received beyond \
             it, but for the rest of a batch.",
        ),
        option(
            "spool-bytes-max",
            Kind::Size { min: 1 << 20, max: 1 << 40 },
            Default::None,
            "The same in bytes of records, 1GiB if nothing is said. The file may take up to twice as much.",
        ),
        option(
            "spool-lease-time",
            Kind::Duration { min_millis: 1_000, max_millis: 86_400_000 },
            Default::None,
            "For `ack = \"implicit\"`: how long the flow may take for a record before it is handed out again, 5m if nothing \
             is said. A renewal makes it longer.",
        ),
        option(
            "defer-hold-records",
            Kind::Integer { min: 0, max: 1_000_000 },
            Default::None,
            "Deferred records whose locks are renewed until they are due, at most. One beyond is kept for the rest of its \
             lock, then released, and the delivery counts. Without it: as many as `max-queue-size`, so that the source \
             receives nothing more instead.",
        ),
        option(
            "defer-hold-bytes",
            Kind::Size { min: 1 << 20, max: 64 << 30 },
            Default::None,
            "The same in bytes, 64MiB if nothing is said. With so much held the source receives nothing until some of it is \
             due.",
        ),
        option(
            "defer-hold-time",
            Kind::Duration { min_millis: 1_000, max_millis: 86_400_000 },
            Default::None,
            "How long one delivery of a record is held by deferrals in all, 30m if nothing is said; then it is released, and \
             the delivery counts.",
        ),
        option(
            "renewal-policy",
            Kind::PolicyName(PolicyUse::Renewal),
            Default::None,
            "Policy that decides for how long a queued record's lock is renewed; none lets it run out. One renewal lasts \
             as long as the group's lock (`share.record.lock.duration.ms`, 30s); for a longer one the source renews \
             again by itself.",
        ),
        option(
            "renewal-ahead-time",
            Kind::Duration { min_millis: 0, max_millis: 3_600_000 },
            Default::Value("5s"),
            "How long before its end a queued record's lock is renewed; well below the group's lock duration.",
        ),
        option(
            "credentials-resolver",
            Kind::PolicyName(PolicyUse::Credentials),
            Default::None,
            "Policy that is asked for the SASL login or token per broker; takes the place of \
             `properties.sasl.jaas.config`.",
        ),
        option(
            "properties.security.protocol",
            Kind::Choice(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
            Default::Value("PLAINTEXT"),
            "Whether connections are encrypted (SSL), and whether the client logs in (SASL).",
        ),
        option(
            "properties.sasl.mechanism",
            Kind::Choice(&["SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER", "PLAIN"]),
            Default::None,
            "How the client logs in. PLAIN and OAUTHBEARER show the secret to whoever listens, unless there is TLS.",
        ),
        OptionSpec {
            secret: true,
            ..option(
                "properties.sasl.jaas.config",
                Kind::Text,
                Default::None,
                "Java's text for the login, such as `org.apache.kafka.common.security.scram.ScramLoginModule required \
                 username=\"U\" password=\"P\";`.",
            )
        },
        option(
            "properties.sasl.oauthbearer.token.endpoint.url",
            Kind::Text,
            Default::None,
            "For OAUTHBEARER: a file with the token, as `file:///run/secrets/token`; it is read again for each login.",
        ),
        option(
            "properties.ssl.truststore.location",
            Kind::Path,
            Default::None,
            "PEM file with the certificates to trust in place of the system's roots.",
        ),
        option("properties.ssl.truststore.certificates", Kind::Text, Default::None, "The same as PEM text."),
        option(
            "properties.ssl.truststore.type",
            Kind::Text,
            Default::Value("PEM"),
            "`PEM`. Java's own stores (JKS, PKCS12) are not read.",
        ),
        option(
            "properties.ssl.keystore.location",
            Kind::Path,
            Default::None,
            "PEM file with the client's certificate chain and its unencrypted private key, for brokers that ask for one.",
        ),
        option(
            "properties.ssl.keystore.certificate.chain",
            Kind::Text,
            Default::None,
            "The client's certificate chain as PEM text; together with `properties.ssl.keystore.key`.",
        ),
        OptionSpec {
            secret: true,
            ..option(
                "properties.ssl.keystore.key",
                Kind::Text,
                Default::None,
                "The client's unencrypted private key as PEM text.",
            )
        },
        option(
            "properties.ssl.keystore.type",
            Kind::Text,
            Default::Value("PEM"),
            "`PEM`. Java's own stores (JKS, PKCS12) are not read.",
        ),
        option(
            "properties.ssl.endpoint.identification.algorithm",
            Kind::Text,
            Default::Value("https"),
            "`https`: a broker's certificate must be for the name that was called. Empty: any believed certificate will do.",
        ),
        option(
            "properties.client.id",
            Kind::Text,
            Default::Value("tidegate"),
            "What brokers call this client in their logs, quotas and metrics.",
        ),
        option(
            "properties.client.rack",
            Kind::Text,
            Default::None,
            "Where this host is, for assignors that care.",
        ),
        option(
            "properties.fetch.max.bytes",
            Kind::Integer { min: 1, max: 100 << 20 },
            Default::Value("52428800"),
            "The most bytes that one fetch asks for. Fetches ask for less when records are small.",
        ),
        option(
            "properties.fetch.max.wait.ms",
            Kind::Integer { min: 1, max: 30_000 },
            Default::Value("500"),
            "How long a broker waits for the first record of a fetch. What other members release does not end the wait.",
        ),
        option(
            "properties.max.poll.records",
            Kind::Integer { min: 1, max: 100_000 },
            Default::Value("2000"),
            "The most records that one fetch asks for.",
        ),
        option(
            "properties.share.acquire.mode",
            Kind::Choice(&["batch_optimized", "record_limit"]),
            Default::Value("batch_optimized"),
            "What a broker rounds the number of records to: the end of a batch of the log, which is fastest, or nothing.",
        ),
        option(
            "properties.metadata.max.age.ms",
            Kind::Integer { min: 1_000, max: 86_400_000 },
            Default::Value("300000"),
            "How old the map of the cluster may become; new topics of a pattern are seen within it.",
        ),
        option(
            "properties.request.timeout.ms",
            Kind::Integer { min: 1_000, max: 600_000 },
            Default::Value("30000"),
            "How long a broker may take to answer, beyond what it is asked to wait.",
        ),
    ],
};

const fn option(key: &'static str, kind: Kind, default: Default, summary: &'static str) -> OptionSpec {
    OptionSpec { key, kind, default, side: Side::Source, secret: false, summary }
}

/// Keys that people bring along from other clients and that mean nothing here, each with what to do instead, as the rest of
/// a sentence that begins with the key.
pub const REFUSED: &[(&str, &str)] = &[
    ("properties.group.id", "is for consumer groups: give the share group as `share-group-id`"),
    ("group.id", "is for consumer groups: give the share group as `share-group-id`"),
    ("share.group.id", "is called `share-group-id`"),
    (
        "properties.auto.offset.reset",
        "is for consumer groups: where a share group begins is the group's own setting, as in `kafka-configs.sh --alter \
         --group GROUP --add-config share.auto.offset.reset=earliest`",
    ),
    (
        "scan.startup.mode",
        "is for the connector `kafka`: where a share group begins is the group's own setting \
         `share.auto.offset.reset`",
    ),
    (
        "properties.isolation.level",
        "is for consumer groups: for a share group it is the group's own setting `share.isolation.level`",
    ),
    (
        "properties.enable.auto.commit",
        "is for consumer groups: a record is acknowledged when the flow is done with it; leave it out",
    ),
    (
        "properties.auto.commit.interval.ms",
        "is for consumer groups: a record is acknowledged when the flow is done with it; leave it out",
    ),
    (
        "properties.group.instance.id",
        "is for consumer groups: members of a share group have no fixed names; leave it out",
    ),
    ("properties.group.protocol", "is for consumer groups: a share group has one protocol; leave it out"),
    (
        "properties.group.remote.assignor",
        "is for consumer groups: brokers assign in a share group; leave it out",
    ),
    (
        "properties.partition.assignment.strategy",
        "is for consumer groups: brokers assign in a share group; leave it out",
    ),
    (
        "properties.session.timeout.ms",
        "is for consumer groups: for a share group it is the group's own setting `share.session.timeout.ms`",
    ),
    (
        "properties.heartbeat.interval.ms",
        "is for consumer groups: for a share group it is the group's own setting `share.heartbeat.interval.ms`",
    ),
    (
        "properties.max.poll.interval.ms",
        "has no meaning here: nothing polls; locks run out by themselves; leave it out",
    ),
    ("properties.share.acknowledgement.mode", "is called `ack` here, with the same words"),
    ("properties.key.deserializer", "has no meaning here: how values are read is `format`; leave it out"),
    ("properties.value.deserializer", "has no meaning here: how values are read is `format`; leave it out"),
    ("properties.interceptor.classes", "names Java classes, which cannot be run: use a policy"),
    (
        "properties.metric.reporters",
        "names Java classes, which cannot be run: metrics are at `/metrics` of the admin API",
    ),
    (
        "properties.fetch.min.bytes",
        "has no meaning for share groups: a fetch ends with the first record; leave it out",
    ),
    (
        "properties.max.partition.fetch.bytes",
        "has no meaning for share groups: `properties.fetch.max.bytes` bounds a whole fetch",
    ),
    ("properties.check.crcs", "has no meaning here: checksums are always checked; leave it out"),
    (
        "properties.client.dns.lookup",
        "has no meaning here: all addresses of a name are always tried; leave it out",
    ),
    (
        "properties.default.api.timeout.ms",
        "has no meaning here: what is not there is tried for ever; `properties.request.timeout.ms` bounds one call",
    ),
    ("properties.retries", "has no meaning here: what can be tried again is, within the lock; leave it out"),
    (
        "properties.retry.backoff.ms",
        "cannot be chosen: waits between tries double from 100ms on; leave it out",
    ),
    ("properties.retry.backoff.max.ms", "cannot be chosen: waits between tries are 5s at most; leave it out"),
    (
        "properties.reconnect.backoff.ms",
        "cannot be chosen: waits between tries double from 100ms on; leave it out",
    ),
    (
        "properties.reconnect.backoff.max.ms",
        "cannot be chosen: waits between tries are 5s at most; leave it out",
    ),
    (
        "properties.connections.max.idle.ms",
        "cannot be chosen: connections are kept while they are needed; leave it out",
    ),
    (
        "properties.socket.connection.setup.timeout.ms",
        "cannot be chosen: a connection is ready within 10s or given up; leave it out",
    ),
    (
        "properties.socket.connection.setup.timeout.max.ms",
        "cannot be chosen: a connection is ready within 10s or given up; leave it out",
    ),
    (
        "properties.allow.auto.create.topics",
        "has no meaning here: topics are never created by asking; leave it out",
    ),
    ("properties.security.providers", "names Java classes, which cannot be loaded; leave it out"),
    (
        "properties.sasl.client.callback.handler.class",
        "names a Java class, which cannot be loaded: use a policy as `credentials-resolver`",
    ),
    (
        "properties.sasl.login.callback.handler.class",
        "names a Java class, which cannot be loaded: use a policy as `credentials-resolver`, or a file with a token as \
         `properties.sasl.oauthbearer.token.endpoint.url`",
    ),
    (
        "properties.sasl.login.class",
        "names a Java class, which cannot be loaded: use a policy as `credentials-resolver`",
    ),
    (
        "properties.sasl.kerberos.service.name",
        "is for Kerberos (GSSAPI), which is not supported: use SCRAM or OAUTHBEARER",
    ),
    (
        "properties.sasl.username",
        "is librdkafka's: give the login as Java does, in `properties.sasl.jaas.config`",
    ),
    (
        "properties.sasl.password",
        "is librdkafka's: give the login as Java does, in `properties.sasl.jaas.config`",
    ),
    ("properties.sasl.mechanisms", "is librdkafka's: it is called `properties.sasl.mechanism`"),
    ("properties.ssl.ca.location", "is librdkafka's: it is called `properties.ssl.truststore.location`"),
    (
        "properties.ssl.certificate.location",
        "is librdkafka's: put certificate and key into one PEM file, `properties.ssl.keystore.location`",
    ),
    (
        "properties.ssl.key.location",
        "is librdkafka's: put certificate and key into one PEM file, `properties.ssl.keystore.location`",
    ),
    (
        "properties.ssl.truststore.password",
        "is for Java's stores: trusted certificates are PEM, which has no password; leave it out",
    ),
    (
        "properties.ssl.keystore.password",
        "is for Java's stores: give PEM with an unencrypted key, readable for this host alone; leave it out",
    ),
    (
        "properties.ssl.key.password",
        "is for encrypted keys, which are not read: decrypt it with `openssl pkcs8 -in KEY -out KEY.pem`, readable for \
         this host alone",
    ),
    ("properties.ssl.protocol", "cannot be chosen: TLS 1.3 or 1.2, whatever both sides know; leave it out"),
    (
        "properties.ssl.enabled.protocols",
        "cannot be chosen: TLS 1.3 or 1.2, whatever both sides know; leave it out",
    ),
    ("properties.ssl.cipher.suites", "cannot be chosen: only safe ones are offered; leave it out"),
    ("properties.ssl.provider", "names Java classes, which cannot be loaded; leave it out"),
    ("properties.ssl.engine.factory.class", "names a Java class, which cannot be loaded; leave it out"),
    (
        "properties.ssl.secure.random.implementation",
        "names a Java class, which cannot be loaded; leave it out",
    ),
];
