//! Looks at a source's cluster, for people: what would keep records away, and what to do.

use tidegate_connector::check::{CheckOutcome, CheckReport};

use super::SourceOptions;
use crate::admin::{AdminOptions, Cause, Expectation, Finding, Severity, ShareGroupAdmin};
use crate::{Connector, Subscription};

/// The order in which servers are tried does not matter to somebody who asks once.
const SEED: u64 = 0;

/// Looks at everything that keeps records away from this source. Joins nothing and changes nothing. `renews_locks` says whether
/// locks would be renewed: by a renewal policy, or for messages that a throttle policy defers. Ends within some request
/// timeouts.
pub async fn check(options: &SourceOptions, renews_locks: bool) -> CheckReport {
    let mut report = CheckReport::default();
    let connector = match Connector::new(options.client.clone()) {
        Ok(connector) => connector,
        Err(error) => {
            report.fail("setup", error.to_string());
            return report;
        }
    };
    let waits = AdminOptions { request_timeout: options.request_timeout, ..AdminOptions::default() };
    let mut admin = ShareGroupAdmin::new(connector, options.bootstrap.clone(), waits, SEED);
    if let Some(topics) = topics(options, &mut admin, &mut report).await {
        let findings = admin.diagnose(&options.group, &Expectation { topics, renews_locks }).await;
        if findings.iter().all(|finding| is_as_expected(&finding.cause)) {
            report.good("group", format!("nothing keeps records away from `{}`", options.group));
        }
        for finding in findings {
            report.push(finding.cause.name(), outcome(&finding), finding.cause.to_string());
        }
    }
    admin.close().await;
    report
}

/// What is to be fetched from; `None` when nothing can be said, which is told.
async fn topics(
    options: &SourceOptions,
    admin: &mut ShareGroupAdmin,
    report: &mut CheckReport,
) -> Option<Vec<Box<str>>> {
    match &options.subscription {
        Subscription::Topics(names) => Some(names.iter().map(|name| Box::from(&**name)).collect()),
        Subscription::Pattern(pattern) => match admin.topics().await {
            Ok(names) => {
                let matching: Vec<_> = names.into_iter().filter(|name| pattern.matches(name)).collect();
                if matching.is_empty() {
                    let problem = format!("no topic that the client may see matches `{pattern}`");
                    report.warn("topics", problem);
                }
                Some(matching)
            }
            Err(error) => {
                report.fail("reach", crate::admin::told(&error));
                None
            }
        },
    }
}

/// Whether it is no more than one expects of a group that works.
const fn is_as_expected(cause: &Cause) -> bool {
    matches!(cause, Cause::NobodyThere | Cause::NothingLeft)
}

const fn outcome(finding: &Finding) -> CheckOutcome {
    match finding.severity {
        Severity::Blocks => CheckOutcome::Failed,
        Severity::Note if is_as_expected(&finding.cause) => CheckOutcome::Good,
        Severity::Warning | Severity::Note => CheckOutcome::Warning,
    }
}
