use std::cell::RefCell;

use proptest::prelude::*;
use tidegate_guest::credentials::{AccessKey, Login, Purpose, Secret};

use super::*;

const NOW: u64 = 1_796_018_146_000;

/// An OAuth 2 client's credentials.
const OAUTH: &str = r#"{
    "url": "https://user:pass@id.example/token?tenant=${env:TENANT|url}",
    "basic": {"username": "me", "password": "${env:SECRET}"},
    "body": "grant_type=client_credentials&secret=${env:SECRET|url}",
    "token": "access_token", "expires": "expires_in"
}"#;

fn exchange(rules: &str) -> Result<Exchange, String> {
    let mut rules = Rules::parse(rules).unwrap();
    let read = Exchange::read(&mut rules).and_then(|read| rules.finish().map(|()| read));
    read.map(Option::unwrap).map_err(|error| format!("{}: {}", error.key, error.message))
}

fn variable(name: &str) -> Option<String> {
    match name {
        "SECRET" => Some("sword fish".to_owned()),
        "TENANT" => Some("a&b".to_owned()),
        _ => None,
    }
}

fn run(
    rules: &str,
    fetch: impl Fn(&HttpRequest) -> Result<Response, HttpFailure>,
) -> Result<Resolved, Failure> {
    let request = Request { endpoint: "10.0.0.5:8081".to_owned(), purpose: Purpose::Consume };
    exchange(rules).unwrap().run(&request, &World { get: &variable, fetch: &fetch, now: NOW })
}

fn answered(rules: &str, status: u16, body: &str) -> Result<Resolved, Failure> {
    run(rules, |_| Ok(Response { status, headers: Vec::new(), body: body.as_bytes().to_vec() }))
}

#[test]
fn a_token_is_asked_for_as_the_rules_say() {
    let asked = RefCell::new(None);
    let resolved = run(OAUTH, |request| {
        asked.replace(Some(request.clone()));
        let body = br#"{"access_token": "abc", "expires_in": 3600, "scope": []}"#.to_vec();
        Ok(Response { status: 200, headers: Vec::new(), body })
    });
    let expected = Resolved { secret: Secret::Bearer("abc".to_owned()), valid_for: Some(3_600_000) };
    assert_eq!(resolved, Ok(expected));
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = HttpRequest {
        method: "POST".to_owned(),
        url: "https://user:pass@id.example/token?tenant=a%26b".to_owned(),
        headers: vec![
            header("accept", "application/json"),
            header("authorization", "Basic bWU6c3dvcmQgZmlzaA=="),
            header("content-type", "application/x-www-form-urlencoded"),
        ],
        body: b"grant_type=client_credentials&secret=sword%20fish".to_vec(),
    };
    assert_eq!(asked.into_inner(), Some(expected));
}

#[test]
fn headers_of_the_rules_go_before_those_that_are_usual() {
    let rules = r#"{"url": "http://10.0.0.1/x", "method": "PUT", "headers": {"Accept": "text/json", "X": "${endpoint}"},
        "body": "{}", "token": "t"}"#;
    let asked = RefCell::new(Vec::new());
    let _ = run(rules, |request| {
        asked.replace(request.headers.clone());
        assert_eq!(request.method, "PUT");
        Err(HttpFailure::TimedOut)
    });
    let names: Vec<_> = asked.borrow().iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(names, ["Accept=text/json", "X=10.0.0.5:8081", "content-type=application/json"]);
}

#[test]
fn every_kind_of_secret_and_of_time_is_read() {
    let aws = r#"{"url": "http://169.254.169.254/x", "id": "AccessKeyId", "secret": "SecretAccessKey",
        "session-token": "Token", "expires": "Expiration", "expires-as": "rfc3339"}"#;
    let body =
        r#"{"AccessKeyId": "A", "SecretAccessKey": "B", "Token": "C", "Expiration": "2026-11-30T06:55:46Z"}"#;
    let key = AccessKey { id: "A".to_owned(), secret: "B".to_owned(), session_token: Some("C".to_owned()) };
    let expected = Resolved { secret: Secret::AccessKey(key), valid_for: Some(3_600_000) };
    assert_eq!(answered(aws, 200, body), Ok(expected));

    let vault = r#"{"url": "https://vault/x", "username": "data.username", "password": "data.password",
        "expires": "at", "expires-as": "unix-seconds"}"#;
    let login = Login { username: "u".to_owned(), password: "p".to_owned() };
    let resolved = answered(vault, 200, r#"{"data": {"username": "u", "password": "p"}, "at": 1796018147}"#);
    assert_eq!(resolved, Ok(Resolved { secret: Secret::Login(login.clone()), valid_for: Some(1_000) }));
    let resolved = answered(vault, 200, r#"{"data": {"username": "u", "password": "p"}}"#);
    assert_eq!(resolved, Ok(Resolved { secret: Secret::Login(login), valid_for: None }));
}

#[test]
fn statuses_say_whether_asking_again_may_help() {
    let told = |status: u16| answered(OAUTH, status, "{}").unwrap_err();
    let text = |status: u16| format!("https://id.example answered {status}");
    for status in [401, 403] {
        assert_eq!(told(status), Failure::Denied(text(status)));
    }
    for status in [408, 429, 500, 503] {
        assert_eq!(told(status), Failure::Unavailable(text(status)));
    }
    assert_eq!(told(404), Failure::Other(text(404)));
    assert_eq!(told(302), Failure::Other(text(302) + ", and redirects are not followed"));
}

#[test]
fn failures_of_the_request_are_told_without_secrets() {
    let told = |failure: HttpFailure| run(OAUTH, |_| Err(failure.clone())).unwrap_err();
    assert!(matches!(told(HttpFailure::TimedOut), Failure::Unavailable(_)));
    assert!(
        matches!(told(HttpFailure::TooLarge(9)), Failure::Other(text) if text.ends_with("more than 9 bytes"))
    );
    let why = "no route to id.example?tenant=a%26b with Basic bWU6c3dvcmQgZmlzaA== and sword%20fish";
    let cleaned = "no route to id.example?tenant=... with Basic ... and ...";
    let expected = Failure::Unavailable(format!("https://id.example cannot be asked: {cleaned}"));
    assert_eq!(told(HttpFailure::Other(why.to_owned())), expected);
    let refused = Failure::Denied("the host does not ask https://id.example: no grant".to_owned());
    assert_eq!(told(HttpFailure::Refused("no grant".to_owned())), refused);
}

#[test]
fn an_answer_that_has_no_secret_is_told_by_place() {
    let told = |body: &str| match answered(OAUTH, 200, body) {
        Err(Failure::Other(text) | Failure::Unavailable(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(told("<html>"), "https://id.example answered no JSON at byte 0");
    assert_eq!(told("{}"), "the answer of https://id.example has no text at `access_token`");
    let body = r#"{"access_token": "abc", "expires_in": "soon"}"#;
    assert_eq!(told(body), "the answer of https://id.example has no time at `expires_in`");
    let body = r#"{"access_token": "abc", "expires_in": 0}"#;
    assert_eq!(told(body), "https://id.example answered a secret that is over already");
    let unset = OAUTH.replace("env:TENANT", "env:OTHER");
    assert!(matches!(answered(&unset, 200, "{}"), Err(Failure::Denied(text)) if text.contains("`OTHER`")));
}

#[test]
fn rules_that_make_no_sense_are_refused_by_key() {
    for (rules, expected) in [
        (r#"{"token": "t"}"#, "url: is missing: say what to ask"),
        (r#"{"url": "https://a"}"#, "token: is missing"),
        (r#"{"url": "ftp://a", "token": "t"}"#, "url: must begin with"),
        (r#"{"url": "https://${host}", "token": "t"}"#, "url: knows `${env:NAME}`"),
        (r#"{"url": "https://a", "token": "t", "headers": {"X": "$"}}"#, "headers.X: has a `$`"),
        (r#"{"url": "https://a", "token": "t", "body": "${x}"}"#, "body: knows"),
        (r#"{"url": "https://a", "token": "t", "method": "DELETE"}"#, "method: must be `GET` or `POST`"),
        (r#"{"url": "https://a", "token": "t", "basic": {"username": "u"}}"#, "basic.password: is missing"),
        (r#"{"url": "https://a", "token": "t", "expires-as": "rfc3339"}"#, "expires: is missing"),
        (r#"{"url": "https://a", "token": "t", "expires": "e", "expires-as": "iso"}"#, "expires-as: must be"),
        (r#"{"url": "https://a", "tokens": "t", "token": "t"}"#, "tokens: unknown key"),
    ] {
        let error = exchange(rules).unwrap_err();
        assert!(error.starts_with(expected), "{rules}: {error}");
    }
}

proptest! {
    /// Whatever is answered, a failure repeats none of it.
    #[test]
    fn no_failure_repeats_the_answer(status in 200_u16..600, token in "[a-z]{12}", cut in 0_usize..60) {
        let body = format!(r#"{{"error": "{token}", "access_token": ["{token}"], "expires_in": "{token}"}}"#);
        let body = body.get(..cut).unwrap_or(&body);
        let Err(Failure::Denied(text) | Failure::Unavailable(text) | Failure::Other(text)) = answered(OAUTH, status, body)
        else {
            return Err(TestCaseError::fail("it has no secret"));
        };
        prop_assert!(!text.contains(&token), "{}", text);
    }
}
