//! Rules that differ by endpoint: entries for some, and one for all others.

use crate::credentials::{Failure, Purpose, Request};
use crate::glob::Glob;
use crate::{Description, RuleError, Rules};

/// What a resolver is to do, by endpoint and purpose.
///
/// The keys at the top of the rules are for every endpoint; entries of `[[endpoint]]`, of which the first that fits
/// counts, are for those that they `match`:
///
/// ```toml
/// token = "BROKER_TOKEN"
///
/// [[endpoint]]
/// match = "registry.*:8081"      # `*` is any text, `?` any character; left out, it is every endpoint
/// purposes = ["registry"]        # of consume, produce, acknowledge, registry; left out, it is all
/// anonymous = true               # it wants no secret; or the keys of the resolver
/// ```
#[derive(Clone, Debug)]
pub struct ByEndpoint<T> {
    /// What fits first counts. `None` stands for no secret.
    entries: Vec<(Scope, Option<T>)>,
    otherwise: Option<T>,
}

#[derive(Clone, Debug)]
struct Scope {
    endpoint: Option<Glob>,
    purposes: Option<Vec<Purpose>>,
}

/// The purposes, in the order of [`PURPOSE_NAMES`].
const PURPOSES: [Purpose; 4] = [Purpose::Consume, Purpose::Produce, Purpose::Acknowledge, Purpose::Registry];

const PURPOSE_NAMES: [&str; 4] = ["consume", "produce", "acknowledge", "registry"];

/// The name of a purpose, as rules have it.
#[must_use]
pub fn purpose_name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Consume => "consume",
        Purpose::Produce => "produce",
        Purpose::Acknowledge => "acknowledge",
        Purpose::Registry => "registry",
    }
}

/// Describes the entries that [`ByEndpoint::read`] reads, for a resolver whose keys were described before.
#[must_use]
pub fn describe_entries(description: Description) -> Description {
    description.list(
        "endpoint",
        "Entries for some endpoints, with `match`, `purposes`, `anonymous` and the keys above.",
    )
}

/// Reads `valid-for`: for how long a secret may be used, in milliseconds.
///
/// # Errors
/// When it is no duration, or nothing.
pub fn valid_for(rules: &mut Rules) -> Result<Option<u64>, RuleError> {
    match rules.duration("valid-for")? {
        Some(0) => Err(rules.error("valid-for", "must be longer than nothing")),
        valid_for => Ok(valid_for),
    }
}

impl<T> ByEndpoint<T> {
    /// Reads the rules; `read` takes the keys of one entry and answers `None` when there are none of them.
    ///
    /// # Errors
    /// When an entry makes no sense, or there is none.
    pub fn read(
        rules: &mut Rules,
        read: impl Fn(&mut Rules) -> Result<Option<T>, RuleError>,
    ) -> Result<Self, RuleError> {
        let mut entries = Vec::new();
        for mut table in rules.tables("endpoint")? {
            let scope = Scope::read(&mut table)?;
            let anonymous = table.boolean("anonymous")?.unwrap_or(false);
            let entry = read(&mut table)?;
            table.finish()?;
            match (&entry, anonymous) {
                (Some(_), true) => {
                    return Err(table.error("anonymous", "an entry with a secret cannot be anonymous"));
                }
                (None, false) => {
                    return Err(
                        table.error("anonymous", "must be `true`, or the entry must say where its secret is")
                    );
                }
                _ => entries.push((scope, entry)),
            }
        }
        let otherwise = read(rules)?;
        rules.finish()?;
        if entries.is_empty() && otherwise.is_none() {
            return Err(rules
                .error("", "say where the secret is, for every endpoint or in entries of `[[endpoint]]`"));
        }
        Ok(Self { entries, otherwise })
    }

    /// What the rules say about an endpoint; `None` when it wants no secret.
    ///
    /// # Errors
    /// When they say nothing.
    pub fn find(&self, request: &Request) -> Result<Option<&T>, Failure> {
        let entry = self.entries.iter().find(|(scope, _)| scope.fits(request));
        match (entry, &self.otherwise) {
            (Some((_, entry)), _) => Ok(entry.as_ref()),
            (None, Some(entry)) => Ok(Some(entry)),
            (None, None) => Err(Failure::Denied(format!(
                "no rule fits `{}` ({})",
                request.endpoint,
                purpose_name(request.purpose)
            ))),
        }
    }
}

impl Scope {
    fn read(rules: &mut Rules) -> Result<Self, RuleError> {
        let endpoint = match rules.text("match")? {
            Some(text) => Some(Glob::parse(&text).map_err(|message| rules.error("match", message))?),
            None => None,
        };
        let purposes = rules.choices("purposes", &PURPOSE_NAMES)?;
        if purposes.as_ref().is_some_and(Vec::is_empty) {
            return Err(rules.error("purposes", "must name one at least; left out, it is all of them"));
        }
        let purposes = purposes
            .map(|places| places.into_iter().filter_map(|place| PURPOSES.get(place).copied()).collect());
        Ok(Self { endpoint, purposes })
    }

    fn fits(&self, request: &Request) -> bool {
        self.endpoint.as_ref().is_none_or(|glob| glob.matches(&request.endpoint))
            && self.purposes.as_ref().is_none_or(|purposes| purposes.contains(&request.purpose))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ByEndpoint<String>, String> {
        let mut rules = Rules::parse(text).unwrap();
        ByEndpoint::read(&mut rules, |rules| rules.text("token"))
            .map_err(|error| format!("{}: {}", error.key, error.message))
    }

    fn request(endpoint: &str, purpose: Purpose) -> Request {
        Request { endpoint: endpoint.to_owned(), purpose }
    }

    #[test]
    fn the_first_entry_that_fits_counts_and_the_top_is_for_all_others() {
        let rules = read(
            r#"{"token": "all", "endpoint": [
                {"match": "a.*:1", "purposes": ["produce", "consume"], "token": "a"},
                {"match": "a.*", "anonymous": true},
                {"purposes": ["registry"], "token": "registry"}
            ]}"#,
        )
        .unwrap();
        let find = |endpoint, purpose| rules.find(&request(endpoint, purpose)).unwrap().map(String::as_str);
        assert_eq!(find("a.b:1", Purpose::Consume), Some("a"));
        assert_eq!(find("a.b:1", Purpose::Registry), None);
        assert_eq!(find("b:1", Purpose::Registry), Some("registry"));
        assert_eq!(find("b:1", Purpose::Acknowledge), Some("all"));
    }

    #[test]
    fn an_endpoint_without_a_rule_is_denied_by_name() {
        let rules = read(r#"{"endpoint": [{"match": "a", "token": "a"}]}"#).unwrap();
        let Err(Failure::Denied(text)) = rules.find(&request("b:1", Purpose::Produce)) else { panic!() };
        assert_eq!(text, "no rule fits `b:1` (produce)");
    }

    #[test]
    fn errors_name_the_entry() {
        for (text, expected) in [
            ("{}", ": say where the secret is"),
            (r#"{"endpoint": [{"match": "["}]}"#, "endpoint[0].match: `[` has"),
            (r#"{"endpoint": [{"match": "a"}]}"#, "endpoint[0].anonymous: must be `true`, or"),
            (r#"{"endpoint": [{"token": "a", "anonymous": true}]}"#, "endpoint[0].anonymous: an entry with"),
            (
                r#"{"endpoint": [{"token": "a", "purposes": ["consum"]}]}"#,
                "endpoint[0].purposes[0]: must be `consume` or",
            ),
            (r#"{"endpoint": [{"token": "a", "purposes": []}]}"#, "endpoint[0].purposes: must name one"),
            (r#"{"endpoint": [{"tokens": "a", "anonymous": true}]}"#, "endpoint[0].tokens: unknown key"),
            (r#"{"tokens": "a"}"#, "tokens: unknown key; known here are `endpoint`, `token`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn purposes_have_their_names() {
        for (purpose, name) in PURPOSES.into_iter().zip(PURPOSE_NAMES) {
            assert_eq!(purpose_name(purpose), name);
        }
    }
}
