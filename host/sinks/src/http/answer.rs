//! What an answer means.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, StatusCode, header};
use tidegate_model::Timestamp;
use tidegate_telemetry::events::sink::RequestResult;

/// Characters of an answer's body that go into the reason of a rejection.
const EXCERPT_CHARS_MAX: usize = 200;

/// What becomes of the deliveries of a request.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Accepted,
    Rejected { reason: String },
    Again { detail: String, retry_after: Option<Duration> },
}

/// What a status is for.
pub(super) fn result_of(status: StatusCode) -> RequestResult {
    match status.as_u16() {
        200..=299 => RequestResult::Accepted,
        429 => RequestResult::Throttled,
        408 | 500..=599 => RequestResult::Failed,
        400..=499 => RequestResult::Refused,
        _ => RequestResult::Odd,
    }
}

/// What an answer means. `excerpt` is the beginning of its body, as it may be shown.
pub(super) fn judge(
    origin: &str,
    status: StatusCode,
    headers: &HeaderMap,
    excerpt: &str,
    now: Timestamp,
) -> Verdict {
    let code = status.as_u16();
    match result_of(status) {
        RequestResult::Accepted => Verdict::Accepted,
        RequestResult::Throttled | RequestResult::Failed => Verdict::Again {
            detail: format!("`{origin}` answered with HTTP {code}"),
            retry_after: retry_after(headers, now),
        },
        _ if status.is_redirection() => Verdict::Rejected {
            reason: format!("HTTP {code}: redirects are not followed; give the final address as `url`"),
        },
        _ if excerpt.is_empty() => Verdict::Rejected { reason: format!("HTTP {code}") },
        _ => Verdict::Rejected { reason: format!("HTTP {code}: {excerpt}") },
    }
}

/// The beginning of a body as text: cut, without control characters and without what must not be shown.
pub(super) fn excerpt(body: &[u8], secrets: &[&str]) -> String {
    let mut text = String::from_utf8_lossy(body).into_owned();
    // Some servers show what they got.
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, "(secret)");
    }
    let printable = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).filter(|c| !c.is_control());
    let text: String = printable.take(EXCERPT_CHARS_MAX).collect();
    text.trim().to_owned()
}

/// RFC 9110, 10.2.3: seconds, or a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // What does not fit is capped anyway.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(Duration::from_millis(now.as_unix_millis())))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix_millis(784_111_777_000);

    fn verdict(code: u16) -> Verdict {
        let status = StatusCode::from_u16(code).unwrap();
        judge("https://h", status, &HeaderMap::new(), "no such tenant", NOW)
    }

    #[test]
    fn every_status_means_something() {
        for code in 100..=999 {
            let verdict = verdict(code);
            match code {
                200..=299 => assert_eq!(verdict, Verdict::Accepted),
                408 | 429 | 500..=599 => assert!(matches!(verdict, Verdict::Again { .. }), "{code}"),
                _ => assert!(matches!(verdict, Verdict::Rejected { .. }), "{code}"),
            }
        }
        assert_eq!(verdict(404), Verdict::Rejected { reason: "HTTP 404: no such tenant".to_owned() });
        let Verdict::Rejected { reason } = verdict(302) else { panic!("a redirect") };
        assert_eq!(reason, "HTTP 302: redirects are not followed; give the final address as `url`");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        for (text, expected) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("99999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:30 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("", None),
            ("soon", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(text));
            assert_eq!(retry_after(&headers, NOW), expected.map(Duration::from_secs), "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), NOW), None);
    }

    #[test]
    fn an_excerpt_is_short_and_harmless() {
        assert_eq!(excerpt(b" a\x1b[31m\r\n\tb\x00\xff ", &[]), "a[31m   b\u{fffd}");
        assert_eq!(excerpt(&[b'x'; 5_000], &[]), "x".repeat(200));
        assert_eq!(
            excerpt(b"got Bearer tok3n, sorry", &["Bearer tok3n", "tok3n", ""]),
            "got (secret), sorry"
        );
    }
}
