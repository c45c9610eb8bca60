//! The credential resolver `http-token`: secrets from an endpoint that answers JSON, such as OAuth 2's client
//! credentials, a cloud's metadata service, or a vault.
//!
//! The rules say what to ask, with places for environment variables and for the endpoint in question, and where in the
//! answer the secret and its end are. No failure tells a secret: neither what was sent nor what was answered is repeated.

mod exchange;
mod expiry;
mod template;

use exchange::{Exchange, World};
use tidegate_guest::credentials::{
    ByEndpoint, CredentialResolver, Failure, Parts, Request, Resolved, Secret, describe_entries, valid_for,
};
use tidegate_guest::{Description, RuleError, Rules, clock, env, http};

struct HttpToken {
    exchanges: ByEndpoint<Exchange>,
    /// Milliseconds, for answers that do not say how long.
    valid_for: Option<u64>,
}

impl HttpToken {
    fn resolved(&self, request: &Request, world: &World<'_>) -> Result<Resolved, Failure> {
        let Some(exchange) = self.exchanges.find(request)? else {
            return Ok(Resolved { secret: Secret::None, valid_for: self.valid_for });
        };
        let resolved = exchange.run(request, world)?;
        Ok(Resolved { valid_for: resolved.valid_for.or(self.valid_for), ..resolved })
    }
}

impl CredentialResolver for HttpToken {
    fn describe() -> Description {
        let description = Description::of(
            "http-token",
            env!("CARGO_PKG_VERSION"),
            "Secrets from an HTTP endpoint that answers JSON.",
        )
        .text(
            "url",
            "What to ask; `${env:NAME}`, `${endpoint}` and `${purpose}` are filled in, here and below.",
            None,
        )
        .text("method", "GET, POST or PUT; POST when there is a body, else GET.", None)
        .table("headers", "Headers of the request.")
        .table("basic", "`username` and `password` for the endpoint itself.")
        .text("body", "Body of the request.", None)
        .text("expires", "The place in the answer that says when the secret ends.", None)
        .text(
            "expires-as",
            "How: `seconds` (from now), `rfc3339`, `unix-seconds` or `unix-milliseconds`.",
            Some("seconds"),
        );
        let description = Parts::describe(
            description,
            "The place in the answer, such as `data.token`, that has",
        )
        .duration("valid-for", "How long a secret may be used when the answer does not say.", None);
        describe_entries(description)
    }

    fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
        let valid_for = valid_for(rules)?;
        Ok(Self { exchanges: ByEndpoint::read(rules, Exchange::read)?, valid_for })
    }

    fn resolve(&mut self, request: &Request) -> Result<Resolved, Failure> {
        self.resolved(request, &World { get: &env::get, fetch: &http::fetch, now: clock::now() })
    }
}

tidegate_guest::credential_resolver!(HttpToken);

#[cfg(test)]
mod tests {
    use tidegate_guest::credentials::Purpose;
    use tidegate_guest::http::Response;

    use super::*;

    #[test]
    fn what_the_answer_does_not_say_the_rules_do() {
        let rules = r#"{"url": "https://a", "token": "t", "valid-for": "5m",
            "endpoint": [{"purposes": ["registry"], "anonymous": true}]}"#;
        let token = HttpToken::configure(&mut Rules::parse(rules).unwrap()).unwrap();
        let fetch = |_: &http::Request| {
            Ok(Response { status: 200, headers: Vec::new(), body: br#"{"t": "abc"}"#.to_vec() })
        };
        let world = World { get: &|_| None, fetch: &fetch, now: 0 };
        let resolve =
            |purpose| token.resolved(&Request { endpoint: "a:1".to_owned(), purpose }, &world).unwrap();
        let expected = Resolved { secret: Secret::Bearer("abc".to_owned()), valid_for: Some(300_000) };
        assert_eq!(resolve(Purpose::Consume), expected);
        assert_eq!(resolve(Purpose::Registry).secret, Secret::None);
    }
}
