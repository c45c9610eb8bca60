use std::fs;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use tidegate_connector::secret::{Purpose, SecretSource as _};

pub(crate) use super::scram::Hash;
use super::*;

fn secret(text: &str) -> SecretString {
    SecretString::from(text.to_owned())
}

fn login(username: &str, password: &str) -> Secret {
    Secret::Login { username: username.into(), password: secret(password) }
}

fn shown(message: &SecretSlice<u8>) -> String {
    String::from_utf8(message.expose_secret().to_vec()).unwrap()
}

fn sent(step: Result<Step, SaslError>) -> String {
    match step {
        Ok(Step::Send(message)) => shown(&message),
        other => panic!("nothing to send: {other:?}"),
    }
}

const NONCE: Nonce = [7; 24];

/// The example of RFC 7677, section 3.
#[test]
fn scram_sha_256_is_that_of_the_rfc() {
    let (mut scram, first) =
        Scram::with_nonce(Hash::Sha256, "user", &secret("pencil"), "rOprNGfwEbeRWgbNEkqO".to_owned())
            .unwrap();
    assert_eq!(shown(&first), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let challenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    assert_eq!(
        sent(scram.step(challenge.as_bytes())),
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
    let end = scram.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    assert!(matches!(end, Ok(Step::Done)), "{end:?}");
    assert!(matches!(scram.step(b""), Err(SaslError::Malformed { .. })), "after its end");
}

/// The same exchange with the longer digest, as computed by the `hashlib` and `hmac` of Python 3.
#[test]
fn scram_sha_512_is_what_others_compute() {
    let (mut scram, _) =
        Scram::with_nonce(Hash::Sha512, "user", &secret("pencil"), "rOprNGfwEbeRWgbNEkqO".to_owned())
            .unwrap();
    let challenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=8192";
    assert_eq!(
        sent(scram.step(challenge.as_bytes())),
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=6HZ5rUA3PgkE/X3DbWzXrokJFsM9zr9o7EgisWdnKczXrIzjgD4BKpBTn7XA\
         OVwLeZUg1pFRTcesJnSwFTQsIw=="
    );
    let end = scram.step(
        b"v=RqO11yK/xS8vUqXJmCYvXcKjTIkTicWzQEDh94upkSMgEZfW9mqg9ws9DPT5\
          rQ74uE1weAEpGS1Y6Q6l6KVKXw==",
    );
    assert!(matches!(end, Ok(Step::Done)), "{end:?}");
}

/// A server's side of SCRAM, written from the RFC's formulas in another order than the client's: it knows the stored
/// keys only.
pub(crate) fn served(
    hash: Hash,
    password: &str,
    first: &str,
    challenge: &str,
    proof: &str,
) -> Option<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    let parts: Vec<_> = challenge.split(',').collect();
    let salt = BASE64.decode(&parts[1][2..]).unwrap();
    let salted = hash.salted(password.as_bytes(), &salt, parts[2][2..].parse().unwrap());
    let stored = hash.digest(&hash.mac(&salted, b"Client Key"));
    let (without, proof) = proof.split_once(",p=").unwrap();
    let auth = format!("{},{challenge},{without}", first.strip_prefix("n,,").unwrap());
    let signature = hash.mac(&stored, auth.as_bytes());
    let key: Vec<u8> =
        BASE64.decode(proof).unwrap().iter().zip(signature.iter()).map(|(p, s)| p ^ s).collect();
    let server_key = hash.mac(&salted, b"Server Key");
    (hash.digest(&key) == stored)
        .then(|| format!("v={}", BASE64.encode(&*hash.mac(&server_key, auth.as_bytes()))))
}

#[test]
fn both_digests_convince_a_server_and_are_convinced_by_it() {
    for (mechanism, hash) in [(Mechanism::ScramSha256, Hash::Sha256), (Mechanism::ScramSha512, Hash::Sha512)]
    {
        let user = login("a=b,ç", "pässword, with = and more");
        let (mut exchange, first) = Exchange::start(mechanism, &user, &[], NONCE).unwrap();
        let first = shown(&first);
        assert!(first.starts_with("n,,n=a=3Db=2Cç,r="), "{first}");
        let nonce = first.rsplit_once("r=").unwrap().1;
        let challenge = format!("r={nonce}theirs,s=c2FsdA==,i=4096,x=extension");
        let proof = sent(exchange.handle_answer(challenge.as_bytes()));
        assert_eq!(served(hash, "another", &first, &challenge, &proof), None);
        let end = served(hash, "pässword, with = and more", &first, &challenge, &proof).unwrap();
        let end = exchange.handle_answer(format!("{end},x=more").as_bytes());
        assert!(matches!(end, Ok(Step::Done)), "{end:?}");
    }
}

#[test]
fn a_server_that_does_not_know_the_password_is_an_impostor() {
    for answer in ["v=AAAA", "v=", "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="] {
        let mut scram = challenged();
        assert_eq!(scram.step(answer.as_bytes()).unwrap_err(), SaslError::Impostor, "{answer}");
    }
    let mut scram = challenged();
    assert_eq!(scram.step(b"e=invalid-proof").unwrap_err(), SaslError::Refused("invalid-proof".into()));
    for answer in [&b""[..], b"v=*", b"ok", &[0xff]] {
        assert!(matches!(challenged().step(answer), Err(SaslError::Malformed { .. })), "{answer:?}");
    }
}

fn started() -> Scram {
    Scram::with_nonce(Hash::Sha256, "user", &secret("pencil"), "ours".to_owned()).unwrap().0
}

fn challenged() -> Scram {
    let mut scram = started();
    sent(scram.step(b"r=ourstheirs,s=c2FsdA==,i=4096"));
    scram
}

#[test]
fn challenges_are_not_believed_blindly() {
    for challenge in [
        "",
        "r=ours,s=c2FsdA==,i=4096",
        "r=theirs,s=c2FsdA==,i=4096",
        "r=ourstheirs,s=,i=4096",
        "r=ourstheirs,s=*,i=4096",
        "r=ourstheirs,i=4096,s=c2FsdA==",
        "r=ourstheirs,s=c2FsdA==",
        "m=must,r=ourstheirs,s=c2FsdA==,i=4096",
    ] {
        let answer = started().step(challenge.as_bytes());
        assert!(matches!(answer, Err(SaslError::Malformed { .. })), "{challenge}: {answer:?}");
    }
    for count in ["0", "1", "4095", "65537", "4294967296", "-4096", "many", ""] {
        let answer = started().step(format!("r=ourstheirs,s=c2FsdA==,i={count}").as_bytes());
        assert_eq!(answer.unwrap_err(), SaslError::Iterations(count.into()));
    }
    assert_eq!(started().step(b"e=unknown-user").unwrap_err(), SaslError::Refused("unknown-user".into()));
}

#[test]
fn plain_says_it_all_at_once() {
    let (mut exchange, first) = Exchange::start(Mechanism::Plain, &login("me", "pw"), &[], NONCE).unwrap();
    assert_eq!(shown(&first), "\0me\0pw");
    assert!(matches!(exchange.handle_answer(b""), Ok(Step::Done)));
    assert!(matches!(exchange.handle_answer(b"more"), Err(SaslError::Malformed { .. })));
    for (user, password, told) in [
        ("", "pw", "user name is empty"),
        ("me", "", "password is empty"),
        ("m\0e", "pw", "user name has a NUL"),
        ("me", "p\0w", "password has a NUL"),
    ] {
        let error = Exchange::start(Mechanism::Plain, &login(user, password), &[], NONCE).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
    }
}

#[test]
fn a_token_goes_with_its_extensions() {
    let extensions = [
        Extension::new("logicalCluster", "lkc-1").unwrap(),
        Extension::new("identityPoolId", "pool 1").unwrap(),
    ];
    let bearer = Secret::Bearer(secret("a.b-c_d~e+f/g="));
    let (mut exchange, first) = Exchange::start(Mechanism::OauthBearer, &bearer, &extensions, NONCE).unwrap();
    assert_eq!(
        shown(&first),
        "n,,\x01auth=Bearer a.b-c_d~e+f/g=\x01logicalCluster=lkc-1\x01identityPoolId=pool 1\x01\x01"
    );
    assert!(matches!(exchange.handle_answer(b""), Ok(Step::Done)));
    for token in ["", "two words", "line\n", "ümlaut", "a\x01b"] {
        let bearer = Secret::Bearer(secret(token));
        let error = Exchange::start(Mechanism::OauthBearer, &bearer, &[], NONCE).unwrap_err();
        assert!(matches!(error, SaslError::Unsendable { part: "token", .. }), "{error}");
    }
    for (name, value) in [("", "v"), ("a1", "v"), ("auth", "v"), ("a", "\x01"), ("a", "ü")] {
        assert!(Extension::new(name, value).is_err(), "{name}={value}");
    }
}

#[test]
fn a_refused_token_is_confirmed_and_then_an_error_with_the_servers_words() {
    let bearer = Secret::Bearer(secret("t"));
    let (mut exchange, _) = Exchange::start(Mechanism::OauthBearer, &bearer, &[], NONCE).unwrap();
    assert_eq!(sent(exchange.handle_answer(br#"{"status":"invalid_token"}"#)), "\x01");
    // A server that now says yes has said no before.
    let error = exchange.handle_answer(b"").unwrap_err();
    assert_eq!(error, SaslError::Refused(r#"{"status":"invalid_token"}"#.into()));
}

#[test]
fn a_secret_of_another_kind_is_told_and_not_shown() {
    for (mechanism, secret) in [
        (Mechanism::Plain, Secret::Bearer(secret("hunter2"))),
        (Mechanism::ScramSha512, Secret::Bearer(secret("hunter2"))),
        (Mechanism::OauthBearer, login("me", "hunter2")),
        (Mechanism::Plain, Secret::None),
    ] {
        let error = Exchange::start(mechanism, &secret, &[], NONCE).unwrap_err();
        assert!(matches!(error, SaslError::WrongKind { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
    let (exchange, first) =
        Exchange::start(Mechanism::ScramSha256, &login("me", "hunter2"), &[], NONCE).unwrap();
    assert!(!format!("{exchange:?} {first:?}").contains("hunter2"));
}

#[test]
fn names_of_mechanisms_are_read_back() {
    for mechanism in Mechanism::ALL {
        assert_eq!(Mechanism::parse(mechanism.name()), Some(mechanism));
    }
    assert_eq!(Mechanism::parse("GSSAPI"), None);
}

#[test]
fn what_servers_say_is_cut_and_cleaned() {
    assert_eq!(&*told("a\x1b[31m\nb"), "a [31m b");
    assert_eq!(told(&"x".repeat(1_000)).len(), 303);
}

#[tokio::test]
async fn a_token_file_is_read_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let file = TokenFile::new(&path);
    let token = |file: &TokenFile| match file.current("broker", Purpose::Consume).as_deref() {
        Ok(Secret::Bearer(token)) => Ok(token.expose_secret().to_owned()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    };
    assert!(token(&file).unwrap_err().contains("cannot be read"));
    fs::write(&path, " one\n").unwrap();
    assert_eq!(token(&file).unwrap(), "one");
    let refused = Arc::new(Secret::Bearer(secret("one")));
    assert!(!file.renew("broker", Purpose::Consume, &refused).await, "the same again");
    fs::write(&path, "two").unwrap();
    assert_eq!(token(&file).unwrap(), "two");
    assert!(file.renew("broker", Purpose::Consume, &refused).await);
    fs::write(&path, "\n").unwrap();
    assert!(token(&file).unwrap_err().contains("is empty"));
    fs::write(&path, vec![b'x'; 70_000]).unwrap();
    assert!(token(&file).unwrap_err().contains("larger"));
}
