//! After the run: what the brokers, the hosts and the workers say is put together.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::brokers::Brokers;
use super::duplicates;
use super::journal::Way;
use super::secrets::control;
use super::verdict::{Receipts, Taking, Verdict};
use super::witness::metric;
use super::{Options, Stage};
use crate::progress;

impl<B: Brokers> Stage<B> {
    pub(super) async fn judge(
        &mut self,
        options: &Options,
        seed: u64,
        began: Instant,
    ) -> anyhow::Result<Verdict> {
        let sending = self.load.take().context("it is judged once")?;
        self.journal.lock().record.sent_again = sending.again();
        if sending.is_done() {
            sending.finish().await?;
        } else {
            bail!("not everything was sent");
        }
        let unacknowledged = self.wait_until_acknowledged(options).await?;
        self.ask_all().await?;
        let taking = self.taking().await?;
        for worker in &mut self.workers {
            tokio::task::block_in_place(|| worker.terminate())?;
        }
        for looker in &mut self.lookers {
            tokio::task::block_in_place(|| looker.wait())?;
        }
        let receipts = tokio::task::block_in_place(|| self.explain_receipts())?;
        tokio::task::block_in_place(|| self.taker.terminate())?;
        tokio::task::block_in_place(|| self.settler.terminate())?;
        self.tell("everything has ended; the search for secrets begins");
        let (searched_bytes, secrets_found) = tokio::task::block_in_place(|| self.search())?;

        self.tell("searched");
        let journal = self.journal.lock();
        let rules = self.brokers.rules();
        let duplicates = duplicates::explain(&journal.record, rules);
        let unsettled = journal.unsettled(rules);
        for (before, again) in duplicates.unexplained.iter().take(10) {
            for at in [*before, *again] {
                let delivery = &journal.record.deliveries[at];
                progress(&format!("unexplained: {delivery:?} {:?}", journal.record.lives[delivery.life.0]));
            }
        }
        for place in journal.missing().into_iter().take(10) {
            progress(&format!("never delivered: {place:?}"));
        }
        for place in unsettled.iter().take(10) {
            progress(&format!("never told to be done: {place:?}"));
        }
        let answers = |way: Way| -> BTreeMap<String, u64> {
            let own = journal.answers().iter().filter(|((of, _), _)| *of == way);
            own.map(|((_, answer), count)| (answer.clone(), *count)).collect()
        };
        Ok(Verdict {
            seed,
            seconds: began.elapsed().as_secs(),
            sent: self.brokers.shape().total(),
            delivered: journal.delivered(),
            never_delivered: journal.missing().len() as u64,
            unacknowledged,
            unsettled: unsettled.len() as u64,
            duplicates: duplicates.by_cause.values().sum(),
            duplicates_by_cause: duplicates.by_cause,
            handed_out_twice: journal.handed_out_twice(),
            attempts_max: journal.attempts_max(),
            attempts_limit: B::ATTEMPTS_MAX,
            unreadable_lines: journal.unreadable(),
            kills: std::mem::take(&mut self.kills),
            answers_at_owner: answers(Way::Owner),
            answers_at_other: answers(Way::Other),
            done_while_owner_was_dead: journal.orphans(),
            taking,
            receipts,
            searched_bytes,
            secrets_found,
        })
    }

    /// What the brokers still count as unacknowledged once nothing changes any more.
    async fn wait_until_acknowledged(&self, options: &Options) -> anyhow::Result<u64> {
        let deadline = Instant::now() + Duration::from_secs(options.patience_seconds);
        loop {
            let lag = self.brokers.lag().await?;
            if lag == 0 || Instant::now() > deadline {
                return Ok(lag);
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Who took messages: the settling host's own word, and the brokers'.
    async fn taking(&self) -> anyhow::Result<Taking> {
        let metrics = self.settler.ask("/metrics").await?;
        let mut received = 0.0;
        for (name, taken) in B::TAKEN.into_iter().zip(self.taken) {
            if taken == 0.0 {
                bail!("{} does not count what it receives as {name}", self.taker.name);
            }
            received += metric(&metrics, name, &[]).unwrap_or_default();
        }
        let flows: Value = serde_json::from_str(&self.settler.ask("/api/flows").await?)?;
        let flows = flows["flows"].as_array().context("`/api/flows` has no flows")?;
        Ok(Taking {
            received_by_settler: received as u64,
            flows_of_settler: flows.len() as u64,
            witness: self.brokers.witness()?,
        })
    }

    /// Has the program explain every receipt that a worker had, with the key of the settling host.
    fn explain_receipts(&self) -> anyhow::Result<Receipts> {
        let texts: Vec<String> = self.journal.lock().receipts().iter().cloned().collect();
        let (input, output) = (self.settler.file("receipts.txt"), "receipts.out");
        fs::write(&input, texts.join("\n"))?;
        let command = ["receipt", "-", "--config", "tidegate.toml", "--json"];
        let status = self.settler.run_beside(&command, Some(&input), output)?.wait()?;
        let explained = fs::read_to_string(self.settler.file(output))?;
        if !status.success() {
            progress(&format!("`tidegate receipt` ended with {status}"));
        }
        let good = explained.lines().filter(|line| line.contains(r#""tag":"good""#)).count();
        Ok(Receipts { seen: texts.len() as u64, good: good as u64 })
    }

    /// Looks for the run's secrets in everything that came out of it.
    fn search(&mut self) -> anyhow::Result<(u64, Vec<String>)> {
        let mut haul = std::mem::take(&mut self.haul);
        self.taker.collect(&mut haul);
        self.settler.collect(&mut haul);
        for (worker, text) in self.journal.lock().texts() {
            haul.add(format!("worker {worker}"), text);
        }
        let [taker, settler] =
            [&self.taker, &self.settler].map(|host| host.file("host.log").display().to_string());
        let mut pieces: Vec<String> =
            self.workers.iter().map(|worker| format!("worker {}", worker.name)).collect();
        pieces.extend([taker, settler, "receipts.txt".into(), "receipts.out".into()]);
        pieces.extend(["host a: GET /metrics", "host b: GET /metrics"].map(String::from));
        pieces.extend(["record", "tap"].map(|what| format!("{what}-{}.out", B::FLOWS[0])));
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let leaks = self.secrets.search(&haul, &control(), &pieces)?;
        let leaks = leaks.iter().map(|leak| format!("{} as {} in {}", leak.marker, leak.form, leak.from));
        Ok((haul.bytes(), leaks.collect()))
    }

    /// Copies what tells how it came.
    pub(super) fn keep(&self, directory: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(directory)?;
        for host in [&self.taker, &self.settler] {
            fs::copy(host.file("host.log"), directory.join(format!("{}.log", host.name.replace(' ', "-"))))?;
        }
        fs::write(directory.join("record.txt"), format!("{:?}", self.journal.lock().record))?;
        for (at, (worker, text)) in self.journal.lock().texts().enumerate() {
            fs::write(directory.join(format!("{at:02}-{worker}.log")), text)?;
        }
        progress(&format!("logs are kept in {}", directory.display()));
        Ok(())
    }
}
