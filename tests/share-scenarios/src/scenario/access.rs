//! Who may come in, and what is said to whom may not.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tidegate_connector::secret::Secret;
use tidegate_connector::tls::{Client as Tls, Identity, Pem, Trust};
use tidegate_kafka_share::{FixedSecret, Mechanism, Sasl};
use tidegate_test_brokers::kafka::unsecured_token;
use tokio::time::Instant;

use crate::play::{Member, Play, Wants};
use crate::stage::{CERTIFICATE_USER, Door, PLAIN_USER, SCRAM_256_USER, SCRAM_512_USER, TOKEN_USER};

/// Within this a mistake in the options is told.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// Added to it, since the machine may be busy.
const BUSY: Duration = Duration::from_secs(5);

fn login((username, password): (&str, &str)) -> Secret {
    Secret::Login { username: username.into(), password: SecretString::from(password.to_owned()) }
}

fn sasl(mechanism: Mechanism, secret: Secret) -> Sasl {
    Sasl { mechanism, secrets: Arc::new(FixedSecret::new(secret)), extensions: Vec::new() }
}

fn pem(text: &str) -> Pem {
    Pem::Text(SecretString::from(text.to_owned()))
}

fn tls(play: &Play) -> Tls {
    let authority = &play.stage.certificates().expect("a cluster with certificates").authority;
    Tls { trust: Trust::Certificates(pem(authority)), ..Tls::default() }
}

fn identity(play: &Play) -> Identity {
    let client = &play.stage.certificates().expect("a cluster with certificates").client;
    Identity { certificates: pem(&client.certificate), key: pem(&client.key) }
}

/// A member's making that comes in by a door with a name.
fn wants(
    play: &Play,
    (group, topic): &(String, String),
    door: Door,
    sasl: Option<Sasl>,
    tls: Option<Tls>,
) -> Wants {
    let mut wants = play.wants(group, &[topic]).at(&play.stage.bootstrap(door));
    wants.client.security.sasl = sasl;
    wants.client.security.tls = tls;
    wants
}

/// A topic with records and a group that a user may use.
async fn granted(play: &Play, user: &str, part: &str) -> (String, String) {
    let topic = play.topic(&format!("topic-{part}"), 1).await;
    let group = play.group(&format!("group-{part}"), &[]).await;
    play.stage.let_read(user, &topic, true).await;
    play.stage.let_join(user, &group).await;
    play.append(&topic, 0, 0..10).await;
    (group, topic)
}

async fn comes_in(play: &Play, wants: Wants, (group, topic): &(String, String)) {
    let member = play.start(wants);
    member.consume(10).await;
    assert!(member.status().troubles.is_empty(), "{}", member.account());
    play.until_done(group, topic).await;
    member.close().await;
}

/// Waits until the member has told what is in the way, and says how.
async fn told(member: &Member, texts: &[&str]) -> String {
    let began = Instant::now();
    loop {
        if let Some(trouble) = member.status().troubles.first() {
            let sentence = trouble.to_string();
            assert!(texts.iter().all(|text| sentence.contains(text)), "{texts:?} in: {sentence}");
            assert!(began.elapsed() < TOLD_WITHIN + BUSY, "told after {:?}: {sentence}", began.elapsed());
            return sentence;
        }
        assert!(began.elapsed() < crate::play::PATIENCE, "nothing was told: {}", member.account());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(super) async fn a_password_of_the_plain_mechanism(play: Play) {
    let names = granted(&play, PLAIN_USER.0, "plain").await;
    let sasl = sasl(Mechanism::Plain, login(PLAIN_USER));
    comes_in(&play, wants(&play, &names, Door::Sasl, Some(sasl), None), &names).await;
}

pub(super) async fn passwords_of_both_kinds_of_scram(play: Play) {
    for (user, mechanism) in
        [(SCRAM_256_USER, Mechanism::ScramSha256), (SCRAM_512_USER, Mechanism::ScramSha512)]
    {
        let names = granted(&play, user.0, user.0).await;
        let sasl = sasl(mechanism, login(user));
        comes_in(&play, wants(&play, &names, Door::Sasl, Some(sasl), None), &names).await;
    }
}

pub(super) async fn a_token(play: Play) {
    let names = granted(&play, TOKEN_USER, "token").await;
    let token = unsecured_token(TOKEN_USER, Duration::from_secs(600));
    let sasl = sasl(Mechanism::OauthBearer, Secret::Bearer(SecretString::from(token)));
    comes_in(&play, wants(&play, &names, Door::Sasl, Some(sasl), None), &names).await;
}

pub(super) async fn an_encrypted_connection(play: Play) {
    let names = granted(&play, SCRAM_512_USER.0, "tls").await;
    let sasl = sasl(Mechanism::ScramSha512, login(SCRAM_512_USER));
    comes_in(&play, wants(&play, &names, Door::SaslTls, Some(sasl), Some(tls(&play))), &names).await;
}

pub(super) async fn a_client_certificate(play: Play) {
    let names = granted(&play, CERTIFICATE_USER, "tls").await;
    let tls = Tls { identity: Some(identity(&play)), ..tls(&play) };
    comes_in(&play, wants(&play, &names, Door::Tls, None, Some(tls)), &names).await;
}

async fn is_told(play: &Play, door: Door, sasl: Option<Sasl>, tls: Option<Tls>, texts: &[&str]) {
    let names = (play.own("group"), play.own("topic"));
    let member = play.start(wants(play, &names, door, sasl, tls));
    told(&member, texts).await;
    assert!(!member.status().is_joined && !member.status().is_over, "{}", member.account());
    member.close().await;
}

pub(super) async fn a_wrong_password_is_told(play: Play) {
    let sasl = sasl(Mechanism::Plain, login((PLAIN_USER.0, "something else")));
    is_told(&play, Door::Sasl, Some(sasl), None, &["Invalid username or password"]).await;
}

pub(super) async fn a_wrong_scram_password_is_told(play: Play) {
    let sasl = sasl(Mechanism::ScramSha256, login((SCRAM_256_USER.0, "something else")));
    is_told(&play, Door::Sasl, Some(sasl), None, &["invalid credentials"]).await;
}

pub(super) async fn a_missing_client_certificate_is_told(play: Play) {
    is_told(&play, Door::Tls, None, Some(tls(&play)), &["certificate"]).await;
}

pub(super) async fn plain_text_at_an_encrypted_port_is_told(play: Play) {
    is_told(&play, Door::Tls, None, None, &["TLS"]).await;
}

pub(super) async fn encryption_at_a_plain_port_is_told(play: Play) {
    is_told(&play, Door::Plain, None, Some(tls(&play)), &["TLS"]).await;
}

/// Told when it begins and when it ends, and so again the second time.
pub(super) async fn a_right_is_withdrawn_and_given_twice(play: Play) {
    let names = granted(&play, PLAIN_USER.0, "rights").await;
    let (group, topic) = &names;
    let sasl = sasl(Mechanism::Plain, login(PLAIN_USER));
    let member = play.start(wants(&play, &names, Door::Sasl, Some(sasl), None));
    member.consume(10).await;
    for round in 1..=2 {
        play.stage.let_read(PLAIN_USER.0, topic, false).await;
        // The member asks for records, so that it hears of it.
        let hears = async {
            while member.status().troubles.is_empty() {
                member.receive(1, Duration::from_millis(200)).await;
            }
        };
        let heard = tokio::time::timeout(crate::play::PATIENCE, hears).await;
        assert!(heard.is_ok(), "round {round}: {}", member.account());
        assert!(member.heard().count("no right to read it") >= round, "{}", member.account());
        play.stage.let_read(PLAIN_USER.0, topic, true).await;
        play.append(topic, 0, 0..10).await;
        member.consume(10).await;
        member.until_well().await;
        assert!(member.heard().count("ended: ") >= round, "{}", member.account());
    }
    play.until_done(group, topic).await;
    member.close().await;
}

/// Brokers of Kafka 4 with the feature `share.version` at 0.
pub(super) async fn missing_share_groups_are_told(play: Play) {
    let topic = play.topic("topic", 1).await;
    let member = play.member(&play.own("group"), &topic);
    let sentence = told(&member, &["share"]).await;
    assert!(!member.status().is_joined, "{sentence}");
    member.close().await;
}
