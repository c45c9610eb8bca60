//! Which of the configured clients settles a receipt, without I/O.

use std::sync::Arc;

use tidegate_model::Routing;

use crate::endpoints::Endpoints;

/// What a client of the pool is for. Its keys go to its own access point and to brokers that this names, wherever a
/// receipt says that it belongs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AckScope {
    /// These consumer groups, each with its namespace: what sources of this host consume. Deliveries of other groups
    /// only when they came through this client's own access point and no client is for everything there.
    Groups(Vec<(Arc<str>, Arc<str>)>),
    /// Everything of the client's namespace.
    Namespace,
    /// Everything, of whatever namespace: what a user gives by hand.
    Everything,
}

/// A client as far as the choice looks at it.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) endpoints: &'a Endpoints,
    pub(super) namespace: &'a str,
    pub(super) scope: &'a AckScope,
    /// Whether it settles at a place of its own, whatever receipts say.
    pub(super) is_pinned: bool,
}

/// A client that fits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Choice {
    /// Which one.
    pub(super) at: usize,
    /// Whether it may be sent where the receipt says as it is. Otherwise its access point has to know that endpoint.
    pub(super) is_here: bool,
}

/// How well a client fits, the best first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Fit {
    /// It is for the very group, and the delivery came through its access point.
    GroupHere,
    /// It is for the very group.
    Group,
    /// It is for everything, and the delivery came through its access point.
    NamespaceHere,
    /// It is for other groups, and the delivery came through its access point.
    OthersHere,
    /// It is for everything.
    Namespace,
}

/// The clients that could settle what `routing` names, the best fit first, those alike as they are configured.
pub(super) fn choices<'a>(candidates: impl Iterator<Item = Candidate<'a>>, routing: &Routing) -> Vec<Choice> {
    let fits = candidates.enumerate().filter_map(|(at, candidate)| {
        let is_here = candidate.is_here(&routing.endpoint);
        Some((candidate.fit(routing, is_here)?, at, is_here || candidate.is_pinned))
    });
    let mut fits: Vec<_> = fits.collect();
    fits.sort();
    fits.into_iter().map(|(_, at, is_here)| Choice { at, is_here }).collect()
}

impl Candidate<'_> {
    fn fit(&self, routing: &Routing, is_here: bool) -> Option<Fit> {
        let is_namespace = *self.namespace == *routing.namespace;
        match self.scope {
            AckScope::Groups(groups) => {
                let is_group = |(namespace, group): &(Arc<str>, Arc<str>)| {
                    *namespace == routing.namespace && *group == routing.group
                };
                match (groups.iter().any(is_group), is_here) {
                    (true, true) => Some(Fit::GroupHere),
                    (true, false) => Some(Fit::Group),
                    (false, true) if is_namespace => Some(Fit::OthersHere),
                    (false, _) => None,
                }
            }
            AckScope::Namespace if !is_namespace => None,
            AckScope::Namespace if is_here => Some(Fit::NamespaceHere),
            AckScope::Namespace | AckScope::Everything => Some(Fit::Namespace),
        }
    }

    /// Whether all of an endpoint's addresses are the access point's: a connection may be made to any of them.
    fn is_here(&self, endpoint: &str) -> bool {
        endpoint.split(';').all(|address| self.endpoints.text().split(';').any(|own| own == address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_very_group_comes_first_then_the_endpoint_then_whoever_is_for_everything() {
        let clients = [
            client("far:1", "", AckScope::Namespace),
            client("here:1", "", groups(&[("", "other")])),
            client("here:1", "", AckScope::Namespace),
            client("far:1", "", groups(&[("", "G")])),
            client("here:1", "", groups(&[("", "G")])),
        ];
        let choices = choices(clients.iter().map(Client::candidate), &routing("here:1", "", "G"));
        let choices: Vec<_> = choices.into_iter().map(|choice| (choice.at, choice.is_here)).collect();
        assert_eq!(choices, [(4, true), (3, false), (2, true), (1, true), (0, false)]);
    }

    #[test]
    fn of_several_alike_the_first_is_taken() {
        let clients = [client("a:1", "", AckScope::Namespace), client("b:1", "", AckScope::Namespace)];
        assert_eq!(chosen(&clients, &routing("c:1", "", "G")), Some(0));
        assert_eq!(chosen(&clients, &routing("b:1", "", "G")), Some(1));
    }

    #[test]
    fn another_namespace_is_nobodys_but_the_groups_that_name_it() {
        let clients =
            [client("a:1", "one", AckScope::Namespace), client("a:1", "one", groups(&[("two", "G")]))];
        assert_eq!(chosen(&clients, &routing("a:1", "two", "H")), None);
        assert_eq!(chosen(&clients, &routing("a:1", "", "G")), None);
        assert_eq!(chosen(&clients, &routing("a:1", "two", "G")), Some(1));
        assert_eq!(chosen(&clients, &routing("a:1", "one", "H")), Some(0));
    }

    #[test]
    fn a_client_for_some_groups_serves_others_only_through_its_own_access_point() {
        let clients = [client("a:1;b:1", "", groups(&[("", "G")]))];
        assert_eq!(chosen(&clients, &routing("c:1", "", "G")), Some(0));
        assert_eq!(chosen(&clients, &routing("c:1", "", "H")), None);
        assert_eq!(chosen(&clients, &routing("b:1", "", "H")), Some(0));
        assert_eq!(chosen(&clients, &routing("b:1;a:1", "", "H")), Some(0));
        assert_eq!(chosen(&clients, &routing("c:1;b:1", "", "H")), None, "c is a stranger");
        assert_eq!(chosen(&clients, &routing("b:11", "", "H")), None, "addresses are compared whole");
        assert_eq!(chosen(&[], &routing("c:1", "", "G")), None);
    }

    struct Client {
        endpoints: Endpoints,
        namespace: &'static str,
        scope: AckScope,
    }

    impl Client {
        fn candidate(&self) -> Candidate<'_> {
            Candidate {
                endpoints: &self.endpoints,
                namespace: self.namespace,
                scope: &self.scope,
                is_pinned: false,
            }
        }
    }

    fn client(endpoints: &str, namespace: &'static str, scope: AckScope) -> Client {
        Client { endpoints: Endpoints::parse(endpoints).expect("endpoints"), namespace, scope }
    }

    fn groups(groups: &[(&str, &str)]) -> AckScope {
        AckScope::Groups(
            groups.iter().map(|(namespace, group)| ((*namespace).into(), (*group).into())).collect(),
        )
    }

    fn routing(endpoint: &str, namespace: &str, group: &str) -> Routing {
        Routing { endpoint: endpoint.into(), namespace: namespace.into(), group: group.into() }
    }

    fn chosen(clients: &[Client], routing: &Routing) -> Option<usize> {
        choices(clients.iter().map(Client::candidate), routing).first().map(|choice| choice.at)
    }
}
