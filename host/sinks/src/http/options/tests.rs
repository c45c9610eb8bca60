use std::collections::BTreeMap;

use tidegate_connector::options::Raw;

use super::*;

fn read(pairs: &[(&str, &str)], headers: &[(&str, &str)]) -> Result<HttpOptions, Vec<String>> {
    let owned = |(key, text): &(&str, &str)| ((*key).to_owned(), (*text).to_owned());
    let mut raw: BTreeMap<_, _> = pairs.iter().map(owned).map(|(key, text)| (key, Raw::Text(text))).collect();
    if !headers.is_empty() {
        raw.insert("headers".to_owned(), Raw::Pairs(headers.iter().map(owned).collect()));
    }
    let said = |errors: Vec<OptionError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    HttpOptions::from_values(&HTTP.read(Side::Sink, &raw).map_err(said)?).map_err(said)
}

const URL: (&str, &str) = ("url", "https://hooks.example");

#[test]
fn the_least_that_it_needs() {
    let options = read(&[URL], &[]).unwrap();
    assert_eq!(format!("{options:?}"), format!("{:?}", HttpOptions::new("https://hooks.example").unwrap()));
    assert_eq!(options.origin.to_string(), "https://hooks.example");
    assert_eq!(options.path_and_query.as_str(), "/");
    assert_eq!((options.batch_max, options.concurrency), (1, 16));
    assert_eq!(options.timeout, Duration::from_secs(10));
}

#[test]
fn everything_can_be_chosen() {
    let options = read(
        &[
            ("url", "http://[::1]:8080/a/{lite-topic}?t={tag|none}"),
            ("method", "PUT"),
            ("body", "ndjson"),
            ("batch-max", "100"),
            ("timeout", "3s"),
            ("concurrency", "4"),
            ("retry-max-wait", "1m"),
            ("signature-secret", "s1gn"),
            ("authorization", "Bearer t0ken"),
        ],
        &[("X-Tenant", "{lite-topic}"), ("accept", "text/plain")],
    );
    let options = options.unwrap();
    assert_eq!(options.origin.to_string(), "http://[::1]:8080");
    assert_eq!((options.method, options.body), (HttpMethod::Put, BodyFormat::Ndjson));
    assert_eq!(options.headers.len(), 2);
    assert_eq!(options.retry_max_wait, Duration::from_secs(60));
    let shown = format!("{options:?}");
    for hidden in ["s1gn", "t0ken", "text/plain", "lite-topic"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

#[test]
fn a_url_has_a_fixed_origin_and_nothing_odd() {
    for (url, part) in [
        ("hooks.example/a", "has no scheme"),
        ("ftp://hooks.example", "has no valid origin"),
        ("https://", "has no valid origin"),
        ("https://{tag}.example/", "has a field in its origin"),
        ("https://h:{tag}/", "has a field in its origin"),
        ("{tag}://h/", "has a field in its origin"),
        ("https://user:pw@h/", "give them as `authorization`"),
        ("https://h/a#b", "has a fragment"),
        ("https://h/a b", "has the character ' '"),
        ("https://h/\u{e9}", "has the character 'é'"),
        ("https://h/{tag|a b}", "has the character ' '"),
        ("https://h/{{", "has the character '{'"),
        ("https://h/a/../b", "as a segment"),
        ("https://h/{topik}", "did you mean `{topic}`?"),
        ("https://h/{tag", "is not closed"),
    ] {
        let errors = read(&[("url", url)], &[]).unwrap_err();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with("`url` ") && errors[0].contains(part), "{url}: {errors:?}");
    }
    assert_eq!(read(&[("url", "http://h?a=1")], &[]).unwrap().path_and_query.as_str(), "/?a=1");
}

#[test]
fn headers_that_are_not_the_users_are_refused() {
    for (name, value, part) in [
        ("a b", "x", "no name of a header"),
        ("Authorization", "Bearer t0ken", "give it as `authorization`"),
        ("host", "x", "is made by the sink itself"),
        ("Content-Length", "1", "is made by the sink itself"),
        ("tidegate-key", "x", "is made by the sink itself"),
        ("Proxy-Authorization", "x", "proxies are not used"),
        ("x-a", "a\nb", "no header can have"),
        ("x-a", "t0ken {nonsense}", "unknown field `{...}`"),
    ] {
        let errors = read(&[URL], &[(name, value)]).unwrap_err();
        assert!(errors[0].starts_with("`headers` has ") && errors[0].contains(part), "{errors:?}");
        assert!(!errors[0].contains("t0ken") && !errors[0].contains("nonsense"), "{errors:?}");
    }
    assert!(read(&[URL], &[("X-A", "1"), ("x-a", "2")]).unwrap_err()[0].contains("twice"));
    let many: Vec<_> = (0..65).map(|at| format!("x-{at}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "x")).collect();
    assert!(read(&[URL], &many).unwrap_err()[0].contains("65 headers"));
}

#[test]
fn mistakes_are_reported_at_once_and_without_secrets() {
    let errors = read(
        &[("url", "nowhere"), ("body", "raw"), ("batch-max", "2"), ("authorization", "Bearer t0ken\nx")],
        &[("host", "x")],
    )
    .unwrap_err();
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert!(!errors.concat().contains("t0ken"), "{errors:?}");
    let plain = read(&[("url", "http://h/"), ("tls-ca-file", "ca.pem")], &[]).unwrap_err();
    assert!(plain[0].starts_with("`tls-ca-file` is of no use"), "{plain:?}");
}

/// References are looked up later; what they stand for is not known when the options are checked.
#[test]
fn references_to_secrets_are_no_mistakes() {
    read(&[URL, ("authorization", "env:HOOK_TOKEN"), ("signature-secret", "file:secret")], &[]).unwrap();
}

/// A password may have braces in it, or begin like a reference.
#[test]
fn what_was_looked_up_means_itself() {
    let raw = [
        ("url", Raw::Text("http://h/".into())),
        ("headers", Raw::Pairs([("x-key".into(), "env:KEY".into())].into())),
    ];
    let raw = raw.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let mut values = HTTP.read(Side::Sink, &raw).unwrap();
    values.set_part("headers", "x-key", "env:a{tag}}b{".to_owned());
    let options = HttpOptions::from_values(&values).unwrap();
    assert_eq!(options.headers[0].1.fixed(), Some("env:a{tag}}b{"));
    super::super::Http::open(crate::testing::parts("out"), &options).unwrap();
    values.set_part("headers", "x-key", "t0ken\n".to_owned());
    let errors = HttpOptions::from_values(&values).unwrap_err();
    assert!(!format!("{errors:?}").contains("t0ken"), "{errors:?}");
}
