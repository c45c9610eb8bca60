//! The credential resolver `env-keys`: the parts of a secret are in environment variables of the host, whose names the
//! rules give and the host's configuration grants.

use tidegate_guest::credentials::{
    ByEndpoint, CredentialResolver, Failure, Parts, Request, Resolved, Secret, describe_entries, valid_for,
};
use tidegate_guest::{Description, RuleError, Rules, env};

struct EnvKeys {
    secrets: ByEndpoint<Parts>,
    /// Milliseconds.
    valid_for: Option<u64>,
}

impl EnvKeys {
    /// Puts a secret together out of what `get` answers for a variable.
    fn resolved(&self, request: &Request, get: impl Fn(&str) -> Option<String>) -> Result<Resolved, Failure> {
        let secret = match self.secrets.find(request)? {
            None => Secret::None,
            Some(parts) => parts.resolve(
                |name| Ok(get(name).filter(|text| !text.is_empty())),
                |name| Failure::Denied(format!("the variable `{name}` is empty, not set, or not granted")),
            )?,
        };
        Ok(Resolved { secret, valid_for: self.valid_for })
    }
}

impl CredentialResolver for EnvKeys {
    fn describe() -> Description {
        let description = Description::of(
            "env-keys",
            env!("CARGO_PKG_VERSION"),
            "Secrets from environment variables; each key names the variable.",
        );
        let description = Parts::describe(description, "The variable that has").duration(
            "valid-for",
            "How long a secret may be used; as the host says when left out.",
            None,
        );
        describe_entries(description)
    }

    fn configure(rules: &mut Rules) -> Result<Self, RuleError> {
        let valid_for = valid_for(rules)?;
        Ok(Self { secrets: ByEndpoint::read(rules, Parts::read)?, valid_for })
    }

    fn resolve(&mut self, request: &Request) -> Result<Resolved, Failure> {
        self.resolved(request, env::get)
    }
}

tidegate_guest::credential_resolver!(EnvKeys);

#[cfg(test)]
mod tests {
    use tidegate_guest::credentials::{AccessKey, Purpose};

    use super::*;

    fn resolve(rules: &str, endpoint: &str) -> Result<Resolved, Failure> {
        let keys = EnvKeys::configure(&mut Rules::parse(rules).unwrap()).unwrap();
        let request = Request { endpoint: endpoint.to_owned(), purpose: Purpose::Consume };
        keys.resolved(&request, |name| match name {
            "ID" => Some("me".to_owned()),
            "SECRET" => Some("swordfish".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn a_secret_is_put_together_from_variables() {
        let rules = r#"{"id": "ID", "secret": "SECRET", "session-token": "EMPTY", "valid-for": "15m",
            "endpoint": [{"match": "open:*", "anonymous": true}]}"#;
        let key = AccessKey { id: "me".to_owned(), secret: "swordfish".to_owned(), session_token: None };
        let expected = Resolved { secret: Secret::AccessKey(key), valid_for: Some(900_000) };
        assert_eq!(resolve(rules, "10.0.0.5:8081"), Ok(expected));
        assert_eq!(resolve(rules, "open:8081").unwrap().secret, Secret::None);
    }

    #[test]
    fn a_variable_that_is_not_there_is_told_by_name_and_nothing_else_is() {
        let error = |text: &str| Err(Failure::Denied(text.to_owned()));
        let told = error("the variable `MINE` is empty, not set, or not granted");
        assert_eq!(resolve(r#"{"id": "ID", "secret": "MINE"}"#, "a:1"), told);
        let told = error("the variable `EMPTY` is empty, not set, or not granted");
        assert_eq!(resolve(r#"{"token": "EMPTY"}"#, "a:1"), told);
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_by_key() {
        let error = |rules: &str| {
            let error = EnvKeys::configure(&mut Rules::parse(rules).unwrap()).err().unwrap();
            format!("{}: {}", error.key, error.message)
        };
        assert!(error(r#"{"token": "T", "valid-for": "0s"}"#).starts_with("valid-for: must be longer"));
        assert!(error(r#"{"token": "T", "valid": "5s"}"#).starts_with("valid: unknown key"));
    }
}
