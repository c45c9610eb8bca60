//! What the brokers and the settling host itself say of who took messages.

use std::collections::{BTreeMap, BTreeSet};

/// What the brokers say of who took messages.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Witness {
    /// Requests that RocketMQ's proxies let in.
    Admitted(Admitted),
    /// Members of Kafka's share groups.
    Joined(Joined),
}

/// Requests that proxies let in from either host's user.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Admitted {
    pub(crate) receives_by_settler: u64,
    pub(crate) receives_by_taker: u64,
    pub(crate) settlements_by_settler: u64,
    pub(crate) settlements_by_taker: u64,
}

/// Members of share groups, of all lives of the host that takes messages, and what this says of itself.
#[derive(Clone, Debug, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Joined {
    /// By the client's name that brokers list: members of the host that takes messages, and all others.
    pub(crate) of_taker: BTreeSet<String>,
    pub(crate) of_others: BTreeSet<String>,
    /// Deferred records that came due, renewals, and settlements that the other host passed on, in the life of the host that
    /// had most of them.
    pub(crate) came_due: u64,
    pub(crate) renewed: u64,
    pub(crate) passed_on: u64,
}

impl Witness {
    /// Whether nobody took messages who must not.
    pub(crate) fn clears_settler(&self) -> bool {
        match self {
            Self::Admitted(admitted) => admitted.receives_by_settler == 0,
            Self::Joined(joined) => joined.of_others.is_empty(),
        }
    }

    /// Whether there was something to see.
    pub(crate) fn tells(&self) -> bool {
        match self {
            Self::Admitted(admitted) => admitted.receives_by_taker > 0 && admitted.settlements_by_settler > 0,
            Self::Joined(joined) => {
                !joined.of_taker.is_empty() && joined.came_due > 0 && joined.passed_on > 0
            }
        }
    }

    /// What it says, line by line.
    pub(crate) fn lines(&self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Admitted(admitted) => vec![
                ("receives that the brokers let in from it", admitted.receives_by_settler),
                ("receives from the host that gives messages out", admitted.receives_by_taker),
                (
                    "acknowledgements and changes of leases from the other host",
                    admitted.settlements_by_settler,
                ),
                ("the same from the host that gives messages out", admitted.settlements_by_taker),
            ],
            Self::Joined(joined) => vec![
                ("members of the groups that are not the first host's", joined.of_others.len() as u64),
                ("members that are, over all its lives", joined.of_taker.len() as u64),
                ("deferred records that came due, in its best life", joined.came_due),
                ("renewals by policy, in its best life", joined.renewed),
                ("settlements that the other host passed on, in its best life", joined.passed_on),
            ],
        }
    }
}

/// Requests that proxies let in, by user and kind.
#[derive(Debug, Default)]
pub(crate) struct Admissions(BTreeMap<(String, String), u64>);

impl Admissions {
    /// Reads lines such as `… [AUTHORIZATION] Subject = User:alice is Allow Action = Sub from sourceIp = … on resource =
    /// Topic:t for request = apache.rocketmq.v2.AckMessageRequest.` A request is about a topic and a group, and each
    /// of them has its line: the group's counts.
    pub(crate) fn read(&mut self, log: &str) {
        for line in log.lines() {
            let Some((user, resource, request)) = admitted(line) else { continue };
            if resource.starts_with("Group:") {
                *self.0.entry((user.to_owned(), request.to_owned())).or_insert(0) += 1;
            }
        }
    }

    /// How often a user was let in with a request.
    pub(crate) fn count(&self, user: &str, request: &str) -> u64 {
        self.0.get(&(user.to_owned(), request.to_owned())).copied().unwrap_or_default()
    }
}

fn admitted(line: &str) -> Option<(&str, &str, &str)> {
    let (_, rest) = line.split_once("Subject = User:")?;
    let (user, rest) = rest.split_once(" is ")?;
    let (_, rest) = rest.split_once("on resource = ")?;
    let (resource, rest) = rest.split_once(" for request = ")?;
    let request = rest.trim().trim_end_matches('.').rsplit('.').next()?;
    Some((user, resource, request))
}

/// The sum of a metric over its labels, of those that have all of `labels`; `None` when it is not there.
pub(crate) fn metric(metrics: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_it = rest.starts_with('{') || rest.starts_with(' ');
        let is_it = is_it && labels.iter().all(|label| rest.contains(label));
        is_it.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok()).flatten()
    });
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admissions_are_counted_by_user_and_request() {
        let line = |user: &str, resource: &str, request: &str| {
            format!(
                "2026-01-01 00:00:00,000 DEBUG GrpcThread_1 - [AUTHORIZATION] Subject = User:{user} is Allow Action = Sub \
                 from sourceIp = 127.0.0.1 on resource = {resource} for request = apache.rocketmq.v2.{request}.\n"
            )
        };
        let mut admissions = Admissions::default();
        admissions.read(&line("a", "Topic:t", "ReceiveMessageRequest"));
        admissions.read(&line("a", "Group:g", "ReceiveMessageRequest"));
        admissions.read(&line("a", "Group:g", "ReceiveMessageRequest"));
        admissions.read(&line("b", "Group:g", "AckMessageRequest"));
        admissions.read("something else");
        assert_eq!(admissions.count("a", "ReceiveMessageRequest"), 2);
        assert_eq!(admissions.count("b", "ReceiveMessageRequest"), 0);
        assert_eq!(admissions.count("b", "AckMessageRequest"), 1);
    }

    #[test]
    fn metrics_are_summed_over_their_labels() {
        let text = "# HELP x y\n# TYPE x_total counter\nx_total{a=\"1\"} 2\nx_total{a=\"2\",b=\"1\"} 3\nx_total_more 7\n";
        assert_eq!(metric(text, "x_total", &[]), Some(5.0));
        assert_eq!(metric(text, "x_total", &["a=\"2\"", "b=\"1\""]), Some(3.0));
        assert_eq!(metric(text, "x_total", &["a=\"3\""]), None);
        assert_eq!(metric(text, "y_total", &[]), None);
    }
}
