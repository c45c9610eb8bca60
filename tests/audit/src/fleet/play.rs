//! The run itself: everything works, and is killed and started again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::brokers::Brokers;
use super::crew::Worker;
use super::witness::metric;
use super::{Options, Stage};
use crate::blows::Blows;
use crate::load::Load;
use crate::progress;

/// How long the first host stays away when it is killed, at least and at most: settlements go on meanwhile, and leases must
/// not end all.
const AWAY_MILLIS: (u64, u64) = (500, 6_000);
/// How often both hosts are asked all that they answer.
const ASK_EVERY: Duration = Duration::from_secs(10);
/// The messages after which what the flows decide is recorded and watched for a while.
const LOOK_IN_AT: u64 = 500;

/// What is done to the system while it works.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Worker(usize),
    Host,
    Node,
}

impl<B: Brokers> Stage<B> {
    /// Lets all of it run, with its blows, until everything that may come again has come and is done.
    pub(super) async fn play(&mut self, options: &Options, node_kills: u32) -> anyhow::Result<()> {
        let mut kinds: Vec<(Blow, u32)> =
            (0..self.workers.len()).map(|at| (Blow::Worker(at), options.worker_kills)).collect();
        kinds.push((Blow::Host, options.host_kills));
        kinds.push((Blow::Node, node_kills));
        let total = self.brokers.shape().total();
        let mut blows = Blows::plan(&kinds, total, &mut self.random);
        let patience = Duration::from_secs(options.patience_seconds);
        let quiet = u64::try_from(B::QUIET.as_millis())?;
        let (mut seen, mut news_at, mut asked_at) = (0, Instant::now(), Instant::now());
        loop {
            sleep(Duration::from_millis(20)).await;
            self.revive().await?;
            let (delivered, taken, silence) = {
                let journal = self.journal.lock();
                (journal.delivered(), journal.record.deliveries.len(), journal.quiet())
            };
            if taken > seen {
                (seen, news_at) = (taken, Instant::now());
            } else if news_at.elapsed() > patience {
                self.tell(&format!("nothing new for {} s, giving up", patience.as_secs()));
                return Ok(());
            }
            if delivered >= LOOK_IN_AT && self.lookers.is_empty() && self.taker.is_running() {
                self.look_in()?;
            }
            let is_there = self.taker.is_running() && self.node_back_at.is_none();
            if asked_at.elapsed() > ASK_EVERY && is_there {
                self.tell(&format!("{delivered} delivered, {taken} deliveries"));
                self.ask_all().await?;
                asked_at = Instant::now();
            }
            while let Some(blow) = blows.due(delivered) {
                self.tell(&format!("{delivered} delivered, {taken} deliveries"));
                self.strike(blow).await?;
            }
            let is_calm = blows.is_over() && self.is_whole() && silence >= quiet;
            if is_calm && self.load.as_ref().is_none_or(Load::is_done) && delivered == total {
                self.tell(&format!("nothing has come for {} s: all is done", silence / 1_000));
                return Ok(());
            }
        }
    }

    /// Starts again what has been away for long enough; fails when something has ended by itself.
    async fn revive(&mut self) -> anyhow::Result<()> {
        for worker in &mut self.workers {
            worker.check_alive()?;
            if worker.is_due() {
                worker.start(&self.journal, false, &mut self.random)?;
            }
        }
        self.settler.check_alive()?;
        self.taker.check_alive()?;
        if self.host_back_at.is_some_and(|at| at <= Instant::now()) {
            self.host_back_at = None;
            // Before it serves: what is done from here on may be its own doing.
            self.journal.lock().host(false);
            self.taker.start().await?;
        }
        if let Some((at, node)) = self.node_back_at
            && at <= Instant::now()
        {
            self.brokers.revive(node).await?;
            self.node_back_at = None;
        }
        Ok(())
    }

    /// Says how it goes, and when.
    pub(super) fn tell(&self, what: &str) {
        let now = self.journal.lock().now();
        progress(&format!("{:>7.1} s  {what}", now as f64 / 1_000.0));
    }

    fn is_whole(&self) -> bool {
        self.host_back_at.is_none()
            && self.node_back_at.is_none()
            && !self.workers.iter().any(Worker::is_away)
    }

    async fn strike(&mut self, blow: Blow) -> anyhow::Result<()> {
        match blow {
            Blow::Worker(at) => {
                self.tell(&format!("worker {} is killed", self.workers[at].name));
                if self.workers[at].kill(&self.journal, &mut self.random)? {
                    self.kills.workers += 1;
                }
            }
            Blow::Host => {
                self.tell(&format!("{} is killed", self.taker.name));
                if self.taker.is_running() {
                    self.journal.lock().host(true);
                    self.taker.kill()?;
                    self.kills.host += 1;
                    let away = AWAY_MILLIS.0 + self.random.below(AWAY_MILLIS.1 - AWAY_MILLIS.0);
                    self.host_back_at = Some(Instant::now() + Duration::from_millis(away));
                }
            }
            Blow::Node => {
                if let Some((_, node)) = self.node_back_at.take() {
                    self.brokers.revive(node).await?;
                }
                let victim = self.brokers.choose(&mut self.random).await?;
                self.tell(&format!("{} is killed", victim.name));
                self.journal.lock().node(&victim.columns);
                self.brokers.kill(victim.node);
                self.kills.node += 1;
                let away = Duration::from_millis(self.random.below(B::NODE_AWAY_MAX));
                self.node_back_at = Some((Instant::now() + away, victim.node));
            }
        }
        Ok(())
    }

    /// Asks both hosts everything, for the search, and the brokers who takes.
    pub(super) async fn ask_all(&mut self) -> anyhow::Result<()> {
        let names = self.brokers.names();
        self.taker.ask_all(&names, &mut self.haul).await?;
        self.settler.ask_all(&names, &mut self.haul).await?;
        let metrics = self.taker.ask("/metrics").await?;
        for (taken, name) in self.taken.iter_mut().zip(B::TAKEN) {
            *taken = taken.max(metric(&metrics, name, &[]).unwrap_or_default());
        }
        self.brokers.look(&metrics).await
    }

    /// Records and watches what the flows decide, for the search. A kill of the host ends it early.
    fn look_in(&mut self) -> anyhow::Result<()> {
        for flow in B::FLOWS {
            let admin = ["--admin", self.taker.admin()];
            let record = ["policy", "record", flow, "-o", "-", "--count", "2000", "--for", "20s"];
            let tap = ["tap", flow, "--json", "--for", "20s"];
            for (command, output) in [(&record[..], "record"), (&tap[..], "tap")] {
                let arguments = [command, &admin].concat();
                let output = format!("{output}-{flow}.out");
                self.lookers.push(self.taker.run_beside(&arguments, None, &output)?);
            }
        }
        Ok(())
    }
}
