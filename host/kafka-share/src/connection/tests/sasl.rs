//! Who the client is: exchanges with a server that knows only what a server knows.

use std::fs;
use std::sync::Arc;

use kafka_wire::{SaslHandshakeRequest, SaslHandshakeResponse};
use parking_lot::Mutex;
use secrecy::SecretString;
use tidegate_connector::secret::{Purpose, Secret, SecretError, SecretSource};

use super::peer::Broker;
use super::*;
use crate::sasl::tests::{Hash, served};
use crate::{Extension, FixedSecret, Mechanism, SaslError, TokenFile};

fn with_secrets(mechanism: Mechanism, secrets: Arc<dyn SecretSource>) -> ClientOptions {
    let sasl = Sasl { mechanism, secrets, extensions: Vec::new() };
    ClientOptions { security: Security { tls: None, sasl: Some(sasl) }, ..options() }
}

fn with_password(mechanism: Mechanism, password: &str) -> ClientOptions {
    let password = SecretString::from(password.to_owned());
    let login = Secret::Login { username: "alice".into(), password };
    with_secrets(mechanism, Arc::new(FixedSecret::new(login)))
}

/// A server's side of SCRAM that says `lie` instead of its proof, if there is one.
async fn scram(peer: &mut Peer, hash: Hash, lie: Option<&str>) {
    peer.agree().await;
    let (heard, first) = peer.hear_sasl().await;
    let nonce = first.rsplit_once("r=").unwrap().1;
    let challenge = format!("r={nonce}andmore,s=c2FsdA==,i=4096");
    peer.answer_sasl(&heard, &challenge, 0).await;
    let (heard, proof) = peer.hear_sasl().await;
    match served(hash, "alice-pw", &first, &challenge, &proof) {
        Some(own) => peer.answer_sasl(&heard, lie.unwrap_or(&own), 0).await,
        None => peer.deny_sasl(&heard, "Authentication failed due to invalid credentials").await,
    }
}

#[tokio::test]
async fn plain_gets_in_and_goes_on_to_calls() {
    let broker = Broker::greeting(|mut peer| async move {
        assert_eq!(peer.agree().await, "PLAIN");
        let (heard, message) = peer.hear_sasl().await;
        assert_eq!((heard.version.value(), &*message), (2, "\0alice\0alice-pw"));
        peer.answer_sasl(&heard, "", 0).await;
        peer.serve_metadata().await;
    })
    .await;
    let mut connection = open(&broker, with_password(Mechanism::Plain, "alice-pw")).await.unwrap();
    ask(&mut connection).await.unwrap();
    assert!(!format!("{connection:?}").contains("alice-pw"));
}

#[tokio::test]
async fn a_wrong_password_is_told_in_the_servers_words_and_not_shown() {
    let broker = Broker::greeting(|mut peer| async move {
        peer.agree().await;
        let (heard, _) = peer.hear_sasl().await;
        peer.deny_sasl(&heard, "Authentication failed: Invalid username or password").await;
    })
    .await;
    let (text, problem) = refused(&broker, with_password(Mechanism::Plain, "hunter2")).await;
    assert!(
        text.ends_with(
            "the broker refused PLAIN: Authentication failed: Invalid username or password; check \
             `properties.sasl.jaas.config`"
        ),
        "{text}"
    );
    assert_eq!((problem.fault(), problem.is_retriable()), (Fault::Access, false));
    assert!(!format!("{text} {problem:?}").contains("hunter2"));
    assert_eq!(broker.accepted(), 1, "not tried again");
}

async fn denying() -> Broker {
    Broker::greeting(|mut peer| async move {
        peer.agree().await;
        let (heard, _) = peer.hear_sasl().await;
        peer.deny_sasl(&heard, "no").await;
    })
    .await
}

#[tokio::test]
async fn a_wrong_password_is_not_shown_to_every_server_of_a_list() {
    let (one, other) = (denying().await, denying().await);
    let servers = BootstrapServers::parse(&format!("{},{}", one.address, other.address)).unwrap();
    let connector = Connector::new(with_password(Mechanism::Plain, "pw")).unwrap();
    let error = connector.open_any(&servers, 5).await.unwrap_err();
    assert_eq!(one.accepted() + other.accepted(), 1);
    assert_eq!((error.failures().len(), error.untried().len(), error.fault()), (1, 1, Fault::Access));
    let end = format!("; not tried with these credentials: {}", error.untried()[0]);
    assert!(error.to_string().ends_with(&end), "{error}");
    assert!(!error.is_retriable());
}

#[tokio::test]
async fn scram_gets_in_with_either_digest() {
    for (mechanism, hash) in [(Mechanism::ScramSha256, Hash::Sha256), (Mechanism::ScramSha512, Hash::Sha512)]
    {
        let broker = Broker::greeting(move |mut peer| async move {
            scram(&mut peer, hash, None).await;
            peer.serve_metadata().await;
        })
        .await;
        let mut connection = open(&broker, with_password(mechanism, "alice-pw")).await.unwrap();
        ask(&mut connection).await.unwrap();
        let (text, problem) = refused(&broker, with_password(mechanism, "another")).await;
        assert!(text.contains("due to invalid credentials"), "{text}");
        assert_eq!(problem.fault(), Fault::Access);
    }
}

#[tokio::test]
async fn a_server_without_the_password_is_not_trusted() {
    let broker = Broker::greeting(|mut peer| async move {
        scram(&mut peer, Hash::Sha512, Some("v=c2lnbmF0dXJl")).await;
        peer.serve_metadata().await;
    })
    .await;
    let (text, problem) = refused(&broker, with_password(Mechanism::ScramSha512, "alice-pw")).await;
    assert!(text.contains("impostor"), "{text}");
    assert_eq!(problem, OpenProblem::Sasl(SaslError::Impostor));
    assert!(!problem.is_retriable());
}

/// Answers the handshake with `code`.
async fn refusing(code: i16) -> Broker {
    Broker::greeting(move |mut peer| async move {
        let heard = peer.must_hear().await;
        let mut answer = SaslHandshakeResponse::default();
        answer.error_code = code;
        answer.mechanisms = vec!["GSSAPI".into(), "SCRAM-SHA-512".into()];
        peer.answer::<SaslHandshakeRequest>(&heard, &answer).await;
        be_silent(peer).await;
    })
    .await
}

#[tokio::test]
async fn a_mechanism_that_is_not_offered_is_told_with_those_that_are() {
    let (text, problem) = refused(&refusing(33).await, with_password(Mechanism::Plain, "pw")).await;
    assert!(text.contains("does not offer PLAIN, but GSSAPI, SCRAM-SHA-512; choose another `"), "{text}");
    assert_eq!(problem.fault(), Fault::Configuration);
    let (text, _) = refused(&refusing(34).await, with_password(Mechanism::Plain, "pw")).await;
    assert!(text.contains("takes no SASL; make `properties.security.protocol` PLAINTEXT or SSL"), "{text}");
}

#[tokio::test]
async fn a_server_that_hangs_up_or_says_nothing_during_the_exchange() {
    let broker = Broker::greeting(|mut peer| async move {
        peer.agree().await;
        if peer.number == 0 {
            peer.hear_sasl().await;
        } else {
            be_silent(peer).await;
        }
    })
    .await;
    let (text, problem) = refused(&broker, with_password(Mechanism::Plain, "pw")).await;
    assert!(text.contains("closed the connection during authentication"), "{text}");
    assert_eq!(problem, OpenProblem::Closed { phase: Phase::Sasl });
    let mut hasty = with_password(Mechanism::Plain, "pw");
    hasty.deadlines.sasl = SHORT;
    let (text, problem) = refused(&broker, hasty).await;
    assert!(text.contains("authentication took longer than 150ms"), "{text}");
    assert!(problem.is_retriable());
}

/// A server that never has enough.
#[tokio::test]
async fn an_exchange_has_an_end() {
    let broker = Broker::greeting(|mut peer| async move {
        peer.agree().await;
        while let Some(heard) = peer.hear().await {
            peer.answer_sasl(&heard, r#"{"status":"more"}"#, 0).await;
        }
    })
    .await;
    let token = Secret::Bearer(SecretString::from("token".to_owned()));
    let (text, problem) =
        refused(&broker, with_secrets(Mechanism::OauthBearer, Arc::new(FixedSecret::new(token)))).await;
    assert!(text.contains(r#"the server refused: {"status":"more"}"#), "{text}");
    assert_eq!(problem.fault(), Fault::Access);
}

/// Has one secret after the other.
#[derive(Debug)]
struct Row(Mutex<Vec<&'static str>>);

impl Row {
    fn new(tokens: &[&'static str]) -> Arc<Self> {
        Arc::new(Self(Mutex::new(tokens.iter().rev().copied().collect())))
    }
}

#[async_trait::async_trait]
impl SecretSource for Row {
    fn current(&self, _: &str, _: Purpose) -> Result<Arc<Secret>, SecretError> {
        match self.0.lock().last() {
            Some(token) => Ok(Arc::new(Secret::Bearer(SecretString::from((*token).to_owned())))),
            None => Err(SecretError { detail: "used up".into() }),
        }
    }

    async fn first(&self, endpoint: &str, purpose: Purpose) -> Result<Arc<Secret>, SecretError> {
        self.current(endpoint, purpose)
    }

    async fn renew(&self, endpoint: &str, purpose: Purpose, _: &Arc<Secret>) -> bool {
        self.0.lock().pop();
        self.current(endpoint, purpose).is_ok()
    }
}

/// Takes only this token.
async fn taking(token: &'static str) -> Broker {
    Broker::greeting(move |mut peer| async move {
        peer.agree().await;
        let (heard, message) = peer.hear_sasl().await;
        if message == format!("n,,\x01auth=Bearer {token}\x01\x01") {
            peer.answer_sasl(&heard, "", 0).await;
            return peer.serve_metadata().await;
        }
        peer.answer_sasl(&heard, r#"{"status":"invalid_token"}"#, 0).await;
        let (heard, message) = peer.hear_sasl().await;
        assert_eq!(message, "\x01");
        peer.deny_sasl(&heard, r#"{"status":"invalid_token"}"#).await;
    })
    .await
}

#[tokio::test]
async fn another_secret_is_tried_once() {
    let broker = taking("second").await;
    let source = Row::new(&["first", "second"]);
    let mut connection = open(&broker, with_secrets(Mechanism::OauthBearer, source)).await.unwrap();
    ask(&mut connection).await.unwrap();
    assert_eq!(broker.accepted(), 2);
    let source = Row::new(&["a", "b", "c"]);
    let (text, problem) = refused(&broker, with_secrets(Mechanism::OauthBearer, source)).await;
    assert!(text.contains(r#"refused OAUTHBEARER: {"status":"invalid_token"}"#), "{text}");
    assert_eq!((problem.fault(), broker.accepted()), (Fault::Access, 4));
}

#[tokio::test]
async fn without_a_secret_there_is_no_connection() {
    let broker = taking("x").await;
    let (text, problem) = refused(&broker, with_secrets(Mechanism::OauthBearer, Row::new(&[]))).await;
    assert!(text.contains("there is no secret to authenticate with: used up"), "{text}");
    assert!(problem.is_retriable(), "it may come");
    let (text, problem) = refused(&broker, with_password(Mechanism::OauthBearer, "hunter2")).await;
    assert!(text.contains("OAUTHBEARER takes a token, and a secret of the kind `login` is given"), "{text}");
    assert!(!problem.is_retriable() && !text.contains("hunter2"));
}

/// Notes the tokens that come, and lets each session last for ten seconds.
async fn noting(tokens: Arc<Mutex<Vec<String>>>) -> Broker {
    Broker::greeting(move |mut peer| {
        let tokens = Arc::clone(&tokens);
        async move {
            while let Some(heard) = peer.hear().await {
                match heard.key {
                    17 => {
                        peer.answer::<SaslHandshakeRequest>(&heard, &SaslHandshakeResponse::default()).await;
                    }
                    36 => {
                        let request: kafka_wire::SaslAuthenticateRequest = heard.body();
                        let message = String::from_utf8(request.auth_bytes.to_vec()).unwrap();
                        let is_good = !message.contains("expired");
                        tokens.lock().push(message);
                        match is_good {
                            true => peer.answer_sasl(&heard, "", 10_000).await,
                            false => peer.deny_sasl(&heard, "expired").await,
                        }
                    }
                    _ => {
                        tokens.lock().push("call".to_owned());
                        peer.answer::<MetadataRequest>(&heard, &kafka_wire::MetadataResponse::default())
                            .await;
                    }
                }
            }
        }
    })
    .await
}

/// Lets so much time pass, as far as timers know.
async fn pass(time: Duration) {
    time::pause();
    time::advance(time).await;
    time::resume();
}

#[tokio::test]
async fn a_session_is_renewed_on_the_same_connection_with_a_token_that_is_read_anew() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let broker = noting(Arc::clone(&heard)).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    fs::write(&path, "one").unwrap();
    let mut options = with_secrets(Mechanism::OauthBearer, Arc::new(TokenFile::new(&path)));
    options.security.sasl.as_mut().unwrap().extensions = vec![Extension::new("pool", "p").unwrap()];
    let mut connection = open(&broker, options).await.unwrap();
    ask(&mut connection).await.unwrap();
    fs::write(&path, "two").unwrap();
    pass(Duration::from_secs(5)).await;
    ask(&mut connection).await.unwrap();
    pass(Duration::from_millis(4_600)).await;
    ask(&mut connection).await.unwrap();
    ask(&mut connection).await.unwrap();
    let message = |token| format!("n,,\x01auth=Bearer {token}\x01pool=p\x01\x01");
    assert_eq!(*heard.lock(), [&*message("one"), "call", "call", &message("two"), "call", "call"]);
    assert_eq!(broker.accepted(), 1);
    fs::write(&path, "expired").unwrap();
    pass(Duration::from_secs(10)).await;
    let error = ask(&mut connection).await.unwrap_err();
    assert!(error.to_string().contains("authentication had to be renewed: the broker refused"), "{error}");
    assert!(error.to_string().contains("check `properties.sasl.jaas.config`"), "{error}");
    assert!(!error.may_have_been_done() && !error.is_retriable());
    assert_eq!(error.fault(), Fault::Access);
    assert!(!connection.is_usable());
    assert_eq!(heard.lock().last().unwrap(), &message("expired"), "no call was sent");
}

#[test]
fn sessions_are_renewed_in_time_and_not_too_often() {
    let hour = Duration::from_secs(3_600);
    assert_eq!(renewal_wait(hour, 0), hour.mul_f64(0.85));
    assert_eq!(renewal_wait(hour, 255), hour.mul_f64(0.95));
    assert_eq!(renewal_wait(Duration::from_millis(1), 255), RENEWAL_WAIT_MIN);
}
