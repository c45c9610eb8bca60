//! A batch of receipts, sorted by the client that each goes through.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_connector::SettleByReceipt;
use tidegate_model::{
    BodyState, Handle, Message, Receipt, Routing, SettleError, SettleFault, Settlement, Verb,
};

use super::Inner;
use super::matching::{Candidate, choose};
use super::table::Key;
use crate::settler::Settled;

/// Tasks that prepare the settlements of a large group.
const SPREAD_TASKS: usize = 4;

/// Why a lite message cannot be rejected by receipt.
const LITE_REJECT_REFUSED: &str =
    "the message itself is needed for a dead letter: reject it at the host that gave it out";

/// The settlements of one batch that go through one client.
pub(super) struct Group {
    pub(super) key: Key,
    /// Their places in the batch.
    pub(super) members: Vec<usize>,
    pub(super) settlements: Vec<Settlement>,
}

/// Where one settlement of a batch goes, and what came of it.
pub(super) struct Sorted {
    /// The client that is for it.
    pub(super) client: Option<usize>,
    pub(super) result: Option<Settled>,
}

/// Where receipts of one routing go.
struct Road {
    /// The client that is for it.
    client: Option<usize>,
    routing: Arc<Routing>,
    /// The groups of those without and with a lite topic.
    groups: [Option<usize>; 2],
}

impl Inner {
    /// The configured client for a routing.
    pub(super) fn choose(&self, routing: &Routing) -> Option<usize> {
        let candidates = self.clients.iter().map(|configured| Candidate {
            endpoints: &configured.client.client.endpoints,
            namespace: &configured.client.client.namespace,
            scope: &configured.client.scope,
        });
        choose(candidates, routing)
    }

    /// Puts what goes through one client together, in the order of the batch, and refuses what cannot be settled.
    pub(super) fn sort(&self, batch: Vec<SettleByReceipt>) -> (Vec<Sorted>, Vec<Group>) {
        let mut sorted = Vec::with_capacity(batch.len());
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of: HashMap<Key, usize> = HashMap::new();
        let mut roads: Vec<Road> = Vec::new();
        let mut road_of: HashMap<Routing, usize> = HashMap::new();
        let mut last = 0;
        for (at, SettleByReceipt { receipt, verb }) in batch.into_iter().enumerate() {
            // Most of a batch goes one road.
            if roads.get(last).is_none_or(|road| *road.routing != receipt.routing) {
                last = *road_of.entry(receipt.routing.clone()).or_insert_with_key(|routing| {
                    roads.push(Road {
                        client: self.choose(routing),
                        routing: Arc::new(routing.clone()),
                        groups: [None; 2],
                    });
                    roads.len() - 1
                });
            }
            let road = &mut roads[last];
            let refused = match (road.client, &verb, &receipt.lite_topic) {
                (None, ..) => Some(not_served(&receipt)),
                // The server's own dead letters come back to their lite topic for ever (measured on 5.5.0).
                (Some(_), Verb::Reject { .. }, Some(_)) => Some(LITE_REJECT_REFUSED.to_owned()),
                _ => None,
            };
            let result = refused.map(|detail| {
                Err(SettleError { verb: verb.name(), detail: detail.into(), fault: SettleFault::Refused })
            });
            if let (Some(client), None) = (road.client, &result) {
                let group =
                    *road.groups[usize::from(receipt.lite_topic.is_some())].get_or_insert_with(|| {
                        *group_of.entry(self.key(client, &receipt)).or_insert_with_key(|key| {
                            groups.push(Group {
                                key: key.clone(),
                                members: Vec::new(),
                                settlements: Vec::new(),
                            });
                            groups.len() - 1
                        })
                    });
                groups[group].members.push(at);
                groups[group].settlements.push(settlement(receipt, verb, &road.routing));
            }
            sorted.push(Sorted { client: road.client, result });
        }
        (sorted, groups)
    }

    fn key(&self, client: usize, receipt: &Receipt) -> Key {
        let configuration = self.clients[client].configuration;
        let endpoint = match &self.configurations[configuration].endpoint {
            Some(endpoints) => endpoints.text(),
            None => &receipt.routing.endpoint,
        };
        Key {
            configuration,
            endpoint: Arc::clone(endpoint),
            namespace: Arc::clone(&receipt.routing.namespace),
            group: Arc::clone(&receipt.routing.group),
            is_lite: receipt.lite_topic.is_some(),
        }
    }
}

/// As if it were a delivery of ours. A receipt knows no message group, so that what is no lite topic's keeps its order
/// only within one message.
fn settlement(receipt: Receipt, verb: Verb, routing: &Arc<Routing>) -> Settlement {
    let message = Message {
        topic: receipt.topic,
        lite_topic: receipt.lite_topic,
        group: None,
        id: receipt.message_id,
        tag: None,
        keys: Vec::new(),
        properties: Vec::new(),
        body: Bytes::new(),
        body_state: BodyState::Intact,
        born_at: None,
        stored_at: None,
    };
    Settlement {
        id: receipt.delivery,
        verb,
        message: Arc::new(message),
        handle: Handle { routing: Arc::clone(routing), text: receipt.handle },
        attempt: receipt.attempt,
    }
}

/// Divides settlements so that those of one lite topic, or of one message, stay together and in order.
pub(super) fn spread(
    members: Vec<usize>,
    settlements: Vec<Settlement>,
) -> [(Vec<usize>, Vec<Settlement>); SPREAD_TASKS] {
    let mut parts: [(Vec<usize>, Vec<Settlement>); SPREAD_TASKS] = Default::default();
    for (at, settlement) in members.into_iter().zip(settlements) {
        let message = &settlement.message;
        let mut hasher = DefaultHasher::new();
        message.lite_topic.as_deref().unwrap_or(message.id.as_str()).hash(&mut hasher);
        let part = usize::try_from(hasher.finish() % SPREAD_TASKS as u64).unwrap_or(0);
        parts[part].0.push(at);
        parts[part].1.push(settlement);
    }
    parts
}

fn not_served(receipt: &Receipt) -> String {
    let Routing { endpoint, namespace, group } = &receipt.routing;
    let of_namespace =
        if namespace.is_empty() { String::new() } else { format!(" in namespace `{namespace}`") };
    format!(
        "nothing here is configured to settle for group `{group}`{of_namespace} at {endpoint}: no source of this host \
         consumes with it, and no settler is for it"
    )
}
