//! What the brokers and the settling host itself say of who took messages.

use std::collections::BTreeMap;

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

/// The sum of a metric over its labels; `None` when it is not there.
pub(crate) fn metric(metrics: &str, name: &str) -> Option<f64> {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let is_it = rest.starts_with('{') || rest.starts_with(' ');
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
        let text =
            "# HELP x y\n# TYPE x_total counter\nx_total{a=\"1\"} 2\nx_total{a=\"2\"} 3\nx_total_more 7\n";
        assert_eq!(metric(text, "x_total"), Some(5.0));
        assert_eq!(metric(text, "y_total"), None);
    }
}
