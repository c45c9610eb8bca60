//! A batch of receipts, sorted by the client that each goes through.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_connector::SettleByReceipt;
use tidegate_model::{
    BodyState, Handle, Message, Receipt, Routing, SettleError, SettleFault, Settlement, Verb,
};

use super::cluster::{Belonging, Silence};
use super::matching::{Candidate, Choice, choices};
use super::table::Key;
use super::{AckClient, Inner};
use crate::settler::Settled;

/// Tasks that prepare the settlements of a large group.
const SPREAD_TASKS: usize = 4;

/// Why a lite message cannot be rejected by receipt.
const LITE_REJECT_REFUSED: &str =
    "the message itself is needed for a dead letter: reject it at the host that gave it out";

/// One settlement of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Its place.
    pub(super) at: usize,
    pub(super) verb: &'static str,
    /// The client that is for it.
    pub(super) client: Option<usize>,
}

/// The settlements of one batch that go through one client.
pub(super) struct Group {
    pub(super) key: Key,
    pub(super) members: Vec<Member>,
    pub(super) settlements: Vec<Settlement>,
}

/// What goes where, in the order of the batch.
#[derive(Default)]
pub(super) struct Sorted {
    pub(super) groups: Vec<Group>,
    /// What cannot be settled, and why.
    pub(super) refused: Vec<(Member, Settled)>,
}

/// The part of a batch of one routing and topic, about which an access point has to be asked first.
pub(super) struct Unasked {
    routing: Arc<Routing>,
    topic: Arc<str>,
    part: Vec<(usize, SettleByReceipt)>,
}

/// Where receipts of one routing and topic go.
struct Road {
    /// The client that is for it, or why there is none.
    client: Result<usize, Silence>,
    routing: Arc<Routing>,
    /// The groups of those without and with a lite topic.
    groups: [Option<usize>; 2],
}

/// A batch while it is sorted.
#[derive(Default)]
struct Sorting {
    sorted: Sorted,
    group_of: HashMap<Key, usize>,
}

/// What is known of a road.
enum Known {
    Road(Road),
    /// The place among those to ask about.
    Unasked(usize),
}

impl Inner {
    /// Puts what goes through one client together, in the order of the batch, and refuses what cannot be settled. Apart is
    /// what nobody knows the way of yet.
    pub(super) fn sort(&self, batch: Vec<SettleByReceipt>) -> (Sorted, Vec<Unasked>) {
        let mut sorting = Sorting::default();
        let mut unasked: Vec<Unasked> = Vec::new();
        let mut ends: Vec<((Routing, Arc<str>), Known)> = Vec::new();
        let mut end_of: HashMap<(Routing, Arc<str>), usize> = HashMap::new();
        let mut last = 0;
        for (at, asked) in batch.into_iter().enumerate() {
            let Receipt { routing, topic, .. } = &asked.receipt;
            // Most of a batch goes one road.
            if ends.get(last).is_none_or(|((of, about), _)| of != routing || about != topic) {
                last = *end_of.entry((routing.clone(), Arc::clone(topic))).or_insert_with_key(|end| {
                    let (routing, topic) = end;
                    let known = self.choose(routing, topic).map_or_else(
                        || {
                            let (routing, topic) = (Arc::new(routing.clone()), Arc::clone(topic));
                            unasked.push(Unasked { routing, topic, part: Vec::new() });
                            Known::Unasked(unasked.len() - 1)
                        },
                        |client| Known::Road(Road::new(client, Arc::new(routing.clone()))),
                    );
                    ends.push((end.clone(), known));
                    ends.len() - 1
                });
            }
            match &mut ends[last].1 {
                Known::Road(road) => self.take(&mut sorting, road, at, asked),
                Known::Unasked(place) => unasked[*place].part.push((at, asked)),
            }
        }
        (sorting.sorted, unasked)
    }

    /// Sorts the rest; access points are asked whether they know the endpoints that receipts name.
    pub(super) async fn sort_asking(&self, unasked: Unasked) -> Sorted {
        let Unasked { routing, topic, part } = unasked;
        let mut road = Road::new(self.choose_asking(&routing, &topic).await, routing);
        let mut sorting = Sorting::default();
        for (at, asked) in part {
            self.take(&mut sorting, &mut road, at, asked);
        }
        sorting.sorted
    }

    /// The clients that could settle what a routing names.
    pub(super) fn choices(&self, routing: &Routing) -> Vec<Choice> {
        let candidates = self.clients.iter().map(|configured| Candidate {
            endpoints: &configured.client.client.endpoints,
            namespace: &configured.client.client.namespace,
            scope: &configured.client.scope,
            is_pinned: configured.client.endpoint.is_some(),
        });
        choices(candidates, routing)
    }

    /// The client that settles deliveries of a routing and topic; nothing when an access point is to be asked first.
    fn choose(&self, routing: &Routing, topic: &Arc<str>) -> Option<Result<usize, Silence>> {
        let choices = self.choices(routing);
        let mut found = Vec::new();
        for choice in &choices {
            match self.look(*choice, routing, topic) {
                Belonging::Unasked => return None,
                Belonging::Own => return Some(Ok(choice.at)),
                belonging => found.push(belonging),
            }
        }
        Some(Err(self.nobody(routing, topic, &choices, found)))
    }

    async fn choose_asking(&self, routing: &Routing, topic: &Arc<str>) -> Result<usize, Silence> {
        let choices = self.choices(routing);
        let mut found = Vec::new();
        for choice in &choices {
            match self.look_asking(*choice, routing, topic).await {
                Belonging::Own => return Ok(choice.at),
                belonging => found.push(belonging),
            }
        }
        Err(self.nobody(routing, topic, &choices, found))
    }

    /// Why none of the choices is it.
    fn nobody(&self, routing: &Routing, topic: &str, choices: &[Choice], found: Vec<Belonging>) -> Silence {
        let silence = found.into_iter().find_map(|belonging| match belonging {
            Belonging::Unknown(silence) => Some(silence),
            Belonging::Own | Belonging::Stranger | Belonging::Unasked => None,
        });
        silence.unwrap_or_else(|| {
            let names: Vec<_> = choices.iter().map(|choice| self.client(choice.at)).collect();
            Silence { detail: not_served(routing, topic, &names).into(), fault: SettleFault::Refused }
        })
    }

    fn client(&self, at: usize) -> &AckClient {
        &self.clients[at].client
    }

    /// Puts one where it goes.
    fn take(&self, sorting: &mut Sorting, road: &mut Road, at: usize, asked: SettleByReceipt) {
        let SettleByReceipt { receipt, verb } = asked;
        let member = |client| Member { at, verb: verb.name(), client };
        let is_lite = receipt.lite_topic.is_some();
        let (member, refusal) = match (&road.client, &verb) {
            (Err(silence), _) => (member(None), silence.clone()),
            // The server's own dead letters come back to their lite topic for ever (measured on 5.5.0).
            (Ok(client), Verb::Reject { .. }) if is_lite => {
                let refusal = Silence { detail: LITE_REJECT_REFUSED.into(), fault: SettleFault::Refused };
                (member(Some(*client)), refusal)
            }
            (Ok(client), _) => {
                let Sorting { sorted: Sorted { groups, .. }, group_of } = sorting;
                let group = *road.groups[usize::from(is_lite)].get_or_insert_with(|| {
                    *group_of.entry(self.key(*client, &receipt)).or_insert_with_key(|key| {
                        groups.push(Group { key: key.clone(), members: Vec::new(), settlements: Vec::new() });
                        groups.len() - 1
                    })
                });
                groups[group].members.push(member(Some(*client)));
                groups[group].settlements.push(settlement(receipt, verb, &road.routing));
                return;
            }
        };
        let Silence { detail, fault } = refusal;
        sorting.sorted.refused.push((member, Err(SettleError { verb: member.verb, detail, fault })));
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

impl Road {
    const fn new(client: Result<usize, Silence>, routing: Arc<Routing>) -> Self {
        Self { client, routing, groups: [None; 2] }
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
    members: Vec<Member>,
    settlements: Vec<Settlement>,
) -> [(Vec<Member>, Vec<Settlement>); SPREAD_TASKS] {
    let mut parts: [(Vec<Member>, Vec<Settlement>); SPREAD_TASKS] = Default::default();
    for (member, settlement) in members.into_iter().zip(settlements) {
        let message = &settlement.message;
        let mut hasher = DefaultHasher::new();
        message.lite_topic.as_deref().unwrap_or(message.id.as_str()).hash(&mut hasher);
        let part = usize::try_from(hasher.finish() % SPREAD_TASKS as u64).unwrap_or(0);
        parts[part].0.push(member);
        parts[part].1.push(settlement);
    }
    parts
}

/// Why nobody settles: `asked` are those whose cluster it could have been.
fn not_served(routing: &Routing, topic: &str, asked: &[&AckClient]) -> String {
    let Routing { endpoint, namespace, group } = routing;
    let of_namespace =
        if namespace.is_empty() { String::new() } else { format!(" in namespace `{namespace}`") };
    if asked.is_empty() {
        return format!(
            "nothing here is configured to settle for group `{group}`{of_namespace} at {endpoint}: no source of this \
             host consumes with it, and no settler is for it"
        );
    }
    let asked: Vec<_> =
        asked.iter().map(|client| format!("`{}` ({})", client.name, client.client.endpoints)).collect();
    format!(
        "`{endpoint}` is no endpoint of {}, and not named there as a broker of topic `{topic}`{of_namespace}, so no keys \
         are sent to it; if it belongs to that cluster, add it to the `endpoints`, or configure a settler for it",
        asked.join(" or ")
    )
}
