//! `tidegate ack`, `defer`, `reject`, `release`: settles by receipt, straight at the broker, or at the host that gave the
//! message out where only that one can.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use serde_json::json;
use tidegate_connector::{Clock, ReceiptSettler as _, SettleByReceipt};
use tidegate_handoff::{Forwarded, Forwarder, PeerOptions};
use tidegate_kafka_share::connector::only_owner_settles;
use tidegate_model::{Receipt, SettleError, SettleFault, Verb};
use tidegate_pipeline::{Preparation, Resolvers};
use tidegate_rocketmq::{AckClient, AckPool, AckScope};
use tidegate_telemetry::Telemetry;

use super::receipts::{Given, Key, each_batch, key_at, key_of};
use super::{block_on, client};
use crate::catalog;
use crate::cli::{DeferArgs, RejectArgs, SettleArgs};
use crate::exit::{Failure, Invalid};
use crate::output::{Output, talk};

/// Receipts that are settled together.
const BATCH: usize = 1000;

pub(crate) fn ack(args: &SettleArgs, output: &Output) -> Result<(), Failure> {
    block_on(settle(args, &Verb::Accept, output))
}

pub(crate) fn defer(args: &DeferArgs, output: &Output) -> Result<(), Failure> {
    if args.delay < Duration::from_secs(1) {
        return Err(Failure::config(anyhow!(
            "--delay is 1s at least; `tidegate release` gives back at once"
        )));
    }
    block_on(settle(&args.settle, &Verb::Defer(args.delay), output))
}

pub(crate) fn reject(args: &RejectArgs, output: &Output) -> Result<(), Failure> {
    let reason = args.reason.as_str().into();
    block_on(settle(&args.settle, &Verb::Reject { reason }, output))
}

pub(crate) fn release(args: &SettleArgs, output: &Output) -> Result<(), Failure> {
    block_on(settle(args, &Verb::Release, output))
}

async fn settle(args: &SettleArgs, verb: &Verb, output: &Output) -> Result<(), Failure> {
    let clock = Clock::start();
    let telemetry = Telemetry::default();
    // Resolvers live as long as the keys that they give.
    let Prepared { clients, peers, key, resolvers: _resolvers } = prepare(args, clock, &telemetry).await?;
    let pool = AckPool::start(clients, clock, telemetry.clone()).map_err(Failure::config)?;
    let forwarder = peers.map(|peers| Forwarder::start(peers, clock, telemetry)).transpose();
    let owners = forwarder.map_err(|(peer, error)| {
        Failure::config(anyhow!(error).context(format!("peer `{peer}` cannot be used")))
    })?;
    let mut desk = Desk { pool, owners, key, verb, output, counts: Counts::default() };
    let settled = each_batch(&args.receipts, BATCH, async |batch| desk.settle(batch).await).await;
    desk.pool.close().await;
    settled?;
    desk.counts.conclude(verb, output)
}

/// What receipts are settled with.
struct Prepared {
    clients: Vec<AckClient>,
    /// Other hosts, as a configuration has them; `None` without one.
    peers: Option<Vec<PeerOptions>>,
    key: Option<Key>,
    resolvers: Option<Resolvers>,
}

/// Who settles, and the key to check receipts with. At a place that the user names nothing has to be checked: the
/// receipt does not say where its keys go.
async fn prepare(args: &SettleArgs, clock: Clock, telemetry: &Telemetry) -> Result<Prepared, Failure> {
    let given_key = args.key_file.as_deref().map(key_at).transpose()?;
    if let Some(endpoints) = &args.endpoints {
        let client = client::options(endpoints, &args.client)?;
        let endpoint = Some(client.endpoints.clone());
        let name: Arc<str> = "command line".into();
        let clients = vec![AckClient { name, client, scope: AckScope::Everything, endpoint }];
        return Ok(Prepared { clients, peers: None, key: given_key, resolvers: None });
    }
    if args.client.is_given() {
        return Err(Failure::config(anyhow!(
            "--access-key, --tls and --tls-ca-file go with --endpoints; a configuration has its own"
        )));
    }
    if !args.config.exists() {
        return Err(Failure::config(anyhow!(
            "there is no `{}` to say how the broker is reached and which key receipts are checked with: name a \
             configuration with `--config FILE`, or a proxy with `--endpoints HOST:PORT`",
            args.config.display()
        )));
    }
    let config = catalog::load(&args.config)?;
    let prepared = Preparation::of_clients(&config).map_err(|mistakes| {
        Failure::Invalid(Box::new(Invalid { mistakes: mistakes.into(), ..Invalid::new(args.config.clone()) }))
    })?;
    let key = match given_key {
        Some(key) => key,
        None => key_of(&config)?,
    };
    let resolvers = Resolvers::start(&config, clock, telemetry.clone()).await.map_err(Failure::runtime)?;
    let clients = resolvers.ack_clients(&prepared).map_err(Failure::config)?;
    if clients.is_empty() && prepared.peers().is_empty() && prepared.sources().is_empty() {
        return Err(Failure::config(anyhow!(
            "`{}` has no `[settlers.NAME]`, no source and no `[peers.NAME]`, so nothing says how to reach a broker or another host",
            args.config.display()
        )));
    }
    Ok(Prepared {
        clients,
        peers: Some(prepared.peers().to_vec()),
        key: Some(key),
        resolvers: Some(resolvers),
    })
}

/// Settles batches and says what came of each receipt.
struct Desk<'a> {
    pool: AckPool,
    /// The way to the hosts that alone can settle what they gave out; `None` without a configuration that could say it.
    owners: Option<Forwarder>,
    key: Option<Key>,
    verb: &'a Verb,
    output: &'a Output,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    done: u64,
    expired: u64,
    unknown: u64,
    refused: u64,
    unreached: u64,
}

/// What came of one receipt: a word, and a sentence unless it is done.
type Told = (&'static str, Option<String>);

impl Desk<'_> {
    async fn settle(&mut self, given: Vec<Given>) -> Result<(), Failure> {
        let read = |given: &Given| match &self.key {
            Some(key) => key.decode(&given.text).map_err(|error| key.complaint(&error)),
            None => Receipt::decode_unverified(&given.text).map_err(|error| error.to_string()),
        };
        let read: Vec<_> = given.iter().map(read).collect();
        let (mut by_broker, mut by_owner) = (Vec::new(), Vec::new());
        for (given, receipt) in given.iter().zip(&read) {
            let Ok(receipt) = receipt else { continue };
            let (receipt, verb) = (receipt.clone(), self.verb.clone());
            if only_owner_settles(&receipt.routing) {
                by_owner.push((receipt, given.text.clone(), verb));
            } else {
                by_broker.push(SettleByReceipt { receipt, verb });
            }
        }
        let (by_broker, by_owner) =
            tokio::join!(self.pool.settle(by_broker), self.settle_at_owners(by_owner));
        let (mut by_broker, mut by_owner) = (by_broker.into_iter(), by_owner.into_iter());
        for (given, receipt) in given.iter().zip(read) {
            let told = match &receipt {
                Ok(receipt) if only_owner_settles(&receipt.routing) => {
                    by_owner.next().map_or_else(|| by_broker_told(Err(unsettled(self.verb))), told_by_owner)
                }
                Ok(_) => {
                    by_broker_told(by_broker.next().unwrap_or_else(|| Err(unsettled(self.verb))).map(|_| ()))
                }
                Err(detail) => ("refused", Some(detail.clone())),
            };
            self.tell(given, receipt.as_ref().ok(), told);
        }
        self.output.written()
    }

    /// Has the hosts settle that gave the messages out.
    async fn settle_at_owners(&self, batch: Vec<(Receipt, String, Verb)>) -> Vec<Forwarded> {
        match &self.owners {
            Some(forwarder) => forwarder.settle(batch).await,
            None => {
                let told = |receipt: Receipt| {
                    format!(
                        "only host `{}`, which gave it out, can settle it: name a configuration with a `[peers.NAME]` for it with \
                         `--config FILE`",
                        receipt.owner
                    )
                };
                batch.into_iter().map(|(receipt, ..)| Forwarded::Refused(told(receipt))).collect()
            }
        }
    }

    fn tell(&mut self, given: &Given, receipt: Option<&Receipt>, (status, detail): Told) {
        *match status {
            "done" => &mut self.counts.done,
            "expired" => &mut self.counts.expired,
            "unknown" => &mut self.counts.unknown,
            "refused" => &mut self.counts.refused,
            _ => &mut self.counts.unreached,
        } += 1;
        let message_id = receipt.map(|receipt| receipt.message_id.as_str());
        if self.output.is_json() {
            let line = json!({
                "receipt": given.text, "line": given.line, "message-id": message_id, "status": status,
                "detail": detail,
            });
            return self.output.data(&line.to_string());
        }
        // A receipt is long, and its message's id is what people look for; what failed is looked for where it was given.
        let shown = match (message_id, given.line) {
            (Some(id), Some(line)) if detail.is_some() => format!("{id} (line {line})"),
            (Some(id), _) => id.to_owned(),
            (None, _) => given.place(),
        };
        self.output.data(&match detail {
            None => format!("{status:<11}  {shown}"),
            Some(detail) => format!("{status:<11}  {shown}  {detail}"),
        });
    }
}

impl Counts {
    fn conclude(&self, verb: &Verb, output: &Output) -> Result<(), Failure> {
        let Self { done, expired, unknown, refused, unreached } = self;
        let failed = expired + unknown + refused + unreached;
        let lost = if *unknown == 0 { String::new() } else { format!("{unknown} unknown at their hosts, ") };
        let told = format!(
            "{done} settled ({verb}), {expired} expired, {lost}{refused} refused, {unreached} to be tried again"
        );
        if failed == 0 {
            if !output.is_json() {
                talk(&told);
            }
            return Ok(());
        }
        Err(match (refused, unreached) {
            (0, 0) => Failure::runtime(anyhow!("{told}; what expired comes again")),
            (0, _) => Failure::environment(anyhow!("{told}")),
            _ => Failure::runtime(anyhow!("{told}")),
        })
    }
}

fn by_broker_told(result: Result<(), SettleError>) -> Told {
    let Err(error) = result else { return ("done", None) };
    let status = match error.fault {
        SettleFault::LeaseGone => "expired",
        SettleFault::Refused => "refused",
        SettleFault::Broker => "retry-later",
    };
    (status, Some(error.detail.into()))
}

fn told_by_owner(forwarded: Forwarded) -> Told {
    match forwarded {
        Forwarded::Done => ("done", None),
        Forwarded::Expired(detail) => ("expired", Some(detail)),
        Forwarded::Unknown(detail) => ("unknown", Some(detail)),
        Forwarded::Refused(detail) => ("refused", Some(detail)),
        Forwarded::RetryLater(detail) => ("retry-later", Some(detail)),
    }
}

fn unsettled(verb: &Verb) -> SettleError {
    SettleError { verb: verb.name(), detail: "it was not sent".into(), fault: SettleFault::Broker }
}
