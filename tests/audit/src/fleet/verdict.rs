//! The outcome of a run.

use std::collections::BTreeMap;
use std::fmt;

use super::duplicates::Cause;
use super::witness::Witness;

/// The outcome.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Verdict {
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) sent: u64,
    /// Messages that a worker took at least once.
    pub(crate) delivered: u64,
    pub(crate) never_delivered: u64,
    /// Messages that the brokers still count as not acknowledged at the end.
    pub(crate) unacknowledged: u64,
    /// Messages whose last worker lives and was never told that they are done.
    pub(crate) unsettled: u64,
    /// Deliveries beyond the first of a message.
    pub(crate) duplicates: u64,
    pub(crate) duplicates_by_cause: BTreeMap<Cause, u64>,
    /// Receipts that came to workers more than once.
    pub(crate) handed_out_twice: u64,
    /// The highest attempt that a worker was told, and that from which on the brokers give a message up.
    pub(crate) attempts_max: u64,
    pub(crate) attempts_limit: u64,
    /// Lines of workers that nobody understands; a kill may cut one short.
    pub(crate) unreadable_lines: u64,
    pub(crate) kills: Kills,
    /// What workers were told, by where they settle.
    pub(crate) answers_at_owner: BTreeMap<String, u64>,
    pub(crate) answers_at_other: BTreeMap<String, u64>,
    /// Acceptances that were done at the other host while the one that gave the messages out was dead.
    pub(crate) done_while_owner_was_dead: u64,
    pub(crate) taking: Taking,
    pub(crate) receipts: Receipts,
    /// Bytes in which the secrets were looked for.
    pub(crate) searched_bytes: u64,
    /// Where something of a secret was found.
    pub(crate) secrets_found: Vec<String>,
}

/// What was killed, how often.
#[derive(Debug, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Kills {
    pub(crate) workers: u64,
    pub(crate) host: u64,
    /// Nodes of the brokers.
    pub(crate) node: u64,
}

/// Who took messages from the brokers.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Taking {
    /// Messages that the settling host says it has received.
    pub(crate) received_by_settler: u64,
    /// Flows that it has.
    pub(crate) flows_of_settler: u64,
    pub(crate) witness: Witness,
}

/// What the receipts of the run are.
#[derive(Debug, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Receipts {
    pub(crate) seen: u64,
    /// Those that the settling host takes for receipts of its fleet.
    pub(crate) good: u64,
}

impl Verdict {
    /// Whether every promise held, and the run was one that could have broken them.
    pub(crate) fn holds(&self) -> bool {
        let kept = self.never_delivered == 0
            && self.unacknowledged == 0
            && self.unsettled == 0
            && self.unexplained() == 0
            && self.handed_out_twice == 0
            && self.attempts_max < self.attempts_limit
            && self.unreadable_lines <= self.kills.workers
            && self.secrets_found.is_empty()
            && self.receipts.good == self.receipts.seen;
        let Taking { received_by_settler, flows_of_settler, witness } = &self.taking;
        kept && (*received_by_settler, *flows_of_settler) == (0, 0)
            && witness.clears_settler()
            && self.tells()
    }

    /// Whether all of it happened that the run is about.
    fn tells(&self) -> bool {
        let done = |answers: &BTreeMap<String, u64>| answers.get("done accept").copied().unwrap_or_default();
        let settles_alone = matches!(self.taking.witness, Witness::Admitted(_));
        done(&self.answers_at_owner) > 0
            && done(&self.answers_at_other) > 0
            && self.taking.witness.tells()
            && (!settles_alone || self.kills.host == 0 || self.done_while_owner_was_dead > 0)
    }

    fn unexplained(&self) -> u64 {
        self.duplicates_by_cause.get(&Cause::Unexplained).copied().unwrap_or_default()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, count: u64| writeln!(f, "{what:<62} {count:>9}");
        line("sent", self.sent)?;
        line("delivered to a worker at least once", self.delivered)?;
        line("never delivered", self.never_delivered)?;
        line("not acknowledged at the broker", self.unacknowledged)?;
        line("never told to be done, with a worker that lives", self.unsettled)?;
        line("kills of workers", self.kills.workers)?;
        line("kills of the host that gives messages out", self.kills.host)?;
        line("kills of a node of the brokers", self.kills.node)?;
        line("deliveries beyond the first", self.duplicates)?;
        for (cause, what) in [
            (Cause::WorkerKilled, "  since its worker was killed"),
            (Cause::HostKilled, "  since its lease ended after its host was killed"),
            (Cause::LockGoneWithHost, "  since its lock went with its host"),
            (Cause::LockGoneWithNode, "  since its lock went with the node that led its partition"),
            (Cause::LeaseEnded, "  since its lease ended otherwise"),
            (Cause::GivenBack, "  since its worker gave it back"),
            (Cause::BehindALostOne, "  since an earlier one of its lite topic was lost"),
            (Cause::BehindOneUnderWay, "  the same, the earlier one being under way at a kill"),
            (Cause::Overtook, "  since it, or one before it, was settled before an earlier one"),
            (Cause::SentAgain, "  since it was sent again, and stored twice"),
            (Cause::Unexplained, "  UNEXPLAINED"),
        ] {
            line(what, self.duplicates_by_cause.get(&cause).copied().unwrap_or_default())?;
        }
        line("receipts handed out twice", self.handed_out_twice)?;
        line("the highest attempt", self.attempts_max)?;
        line("lines cut short by a kill", self.unreadable_lines)?;
        for (answers, at) in
            [(&self.answers_at_owner, "the owner"), (&self.answers_at_other, "the other host")]
        {
            for (answer, count) in answers {
                line(&format!("{answer}, at {at}"), *count)?;
            }
        }
        line("done at the other host while the owner was dead", self.done_while_owner_was_dead)?;
        line("messages that the other host says it received", self.taking.received_by_settler)?;
        line("flows that it has", self.taking.flows_of_settler)?;
        for (what, count) in self.taking.witness.lines() {
            line(what, count)?;
        }
        line("receipts seen", self.receipts.seen)?;
        line("of them good at the other host", self.receipts.good)?;
        line("bytes in which secrets were looked for", self.searched_bytes)?;
        line("secrets found", self.secrets_found.len() as u64)?;
        for leak in &self.secrets_found {
            writeln!(f, "  {leak}")?;
        }
        writeln!(f, "{} s, seed {}", self.seconds, self.seed)?;
        let outcome = match (self.holds(), self.tells()) {
            (true, _) => "every promise held",
            (false, true) => "A PROMISE WAS BROKEN",
            (false, false) => {
                "THE RUN PROVES NOTHING: part of what it is about did not happen, or a promise was broken"
            }
        };
        write!(f, "{outcome}")
    }
}
