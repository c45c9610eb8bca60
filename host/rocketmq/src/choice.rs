//! Which queues a message is tried on, without I/O.
//!
//! Messages of one lite topic or message group keep to one broker or queue, as long as it works, since that is where
//! their order is kept; others go round. A further attempt goes to another broker where there is one, except for a
//! message group, whose order is worth more than an attempt. Endpoints that failed lately are tried last.

use std::sync::Arc;

use crate::endpoints::Endpoints;
use crate::outgoing::Kind;
use crate::route::Queue;

/// The queues to try, in order; empty when the route takes no messages of this kind.
pub(crate) fn attempts(
    queues: &[Arc<Queue>],
    kind: &Kind,
    turn: usize,
    attempts_max: u32,
    is_isolated: impl Fn(&Endpoints) -> bool,
) -> Vec<Arc<Queue>> {
    let attempts_max = usize::try_from(attempts_max).unwrap_or(usize::MAX);
    let accepting: Vec<&Arc<Queue>> = queues.iter().filter(|queue| queue.accepts(kind.to_proto())).collect();
    if accepting.is_empty() {
        return Vec::new();
    }
    if let Kind::Fifo { group } = kind {
        let queue = accepting[stable_hash(group) % accepting.len()];
        return std::iter::repeat_n(Arc::clone(queue), attempts_max).collect();
    }
    let mut brokers: Vec<&str> = accepting.iter().map(|queue| &*queue.broker).collect();
    brokers.dedup();
    let first = match kind {
        Kind::Lite { lite_topic } => stable_hash(lite_topic) % brokers.len(),
        Kind::Normal | Kind::Delay { .. } | Kind::Fifo { .. } => turn % brokers.len(),
    };
    brokers.rotate_left(first);
    let mut candidates: Vec<&Arc<Queue>> =
        brokers.iter().filter_map(|broker| queue_of(&accepting, broker, turn)).collect();
    candidates.sort_by_key(|queue| is_isolated(&queue.endpoints));
    candidates.into_iter().cycle().take(attempts_max).cloned().collect()
}

/// One of a broker's queues.
fn queue_of<'a>(queues: &[&'a Arc<Queue>], broker: &str, turn: usize) -> Option<&'a Arc<Queue>> {
    let own: Vec<&'a Arc<Queue>> = queues.iter().filter(|queue| &*queue.broker == broker).copied().collect();
    own.get(turn % own.len().max(1)).copied()
}

/// FNV-1a: the same in every process, so that all producers send a group to the same queue.
fn stable_hash(text: &str) -> usize {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    // The upper half is the better mixed one.
    usize::try_from(hash >> 33).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use tidegate_model::{Routing, Timestamp};
    use tidegate_proto::rocketmq as proto;

    use super::*;

    #[test]
    fn normal_messages_go_round_and_retry_elsewhere() {
        let queues = route(&[("a", 4), ("b", 4), ("c", 4)], &[]);
        for turn in 0..30 {
            let tried = brokers(&attempts(&queues, &Kind::Normal, turn, 3, |_| false));
            assert_eq!(tried[0], ["a", "b", "c"][turn % 3]);
            assert_eq!(tried.iter().collect::<std::collections::HashSet<_>>().len(), 3);
        }
    }

    #[test]
    fn one_broker_is_tried_again() {
        let queues = route(&[("a", 2)], &[]);
        let delay = Kind::Delay { at: Timestamp::from_unix_millis(1) };
        assert_eq!(brokers(&attempts(&queues, &delay, 0, 3, |_| false)), ["a", "a", "a"]);
    }

    #[test]
    fn an_isolated_endpoint_is_tried_last_unless_all_are() {
        let queues = route(&[("a", 1), ("b", 1)], &[]);
        let is_a = |endpoints: &Endpoints| endpoints.to_string().starts_with('a');
        assert_eq!(brokers(&attempts(&queues, &Kind::Normal, 0, 3, is_a)), ["b", "a", "b"]);
        assert_eq!(brokers(&attempts(&queues, &Kind::Normal, 0, 3, |_| true)), ["a", "b", "a"]);
    }

    #[test]
    fn a_group_keeps_its_queue_whatever_happens() {
        let queues = route(&[("a", 4), ("b", 4)], &[]);
        let fifo = Kind::Fifo { group: "order-7".into() };
        let first = attempts(&queues, &fifo, 0, 3, |_| false);
        for turn in 0..20 {
            assert_eq!(attempts(&queues, &fifo, turn, 3, |_| turn % 2 == 0), first);
        }
        assert!(first.iter().all(|queue| Arc::ptr_eq(queue, &first[0])));
    }

    #[test]
    fn a_lite_topic_keeps_its_broker_and_moves_when_that_fails() {
        let queues = route(&[("a", 1), ("b", 1), ("c", 1)], &[]);
        let lite = Kind::Lite { lite_topic: "tenant-1".into() };
        let first = brokers(&attempts(&queues, &lite, 0, 3, |_| false));
        for turn in 0..20 {
            assert_eq!(brokers(&attempts(&queues, &lite, turn, 3, |_| false)), first);
        }
        assert_ne!(first[0], first[1]);
    }

    #[test]
    fn a_route_that_takes_no_such_messages_gives_nobody() {
        let queues = route(&[("a", 1)], &[proto::MessageType::Normal]);
        let lite = Kind::Lite { lite_topic: "t".into() };
        assert!(attempts(&queues, &lite, 0, 3, |_| false).is_empty());
        assert!(!attempts(&queues, &Kind::Normal, 0, 3, |_| false).is_empty());
        assert!(attempts(&[], &Kind::Normal, 0, 3, |_| false).is_empty());
    }

    fn route(brokers: &[(&str, usize)], accepts: &[proto::MessageType]) -> Vec<Arc<Queue>> {
        let queues = brokers.iter().flat_map(|(broker, count)| (0..*count).map(move |id| (*broker, id)));
        queues
            .map(|(broker, id)| {
                Arc::new(Queue {
                    broker: broker.into(),
                    endpoints: Endpoints::parse(&format!("{broker}:8081")).expect("endpoints"),
                    routing: Arc::new(Routing::default()),
                    message_queue: proto::MessageQueue {
                        id: i32::try_from(id).expect("small"),
                        accept_message_types: accepts.iter().map(|kind| (*kind).into()).collect(),
                        ..Default::default()
                    },
                })
            })
            .collect()
    }

    fn brokers(queues: &[Arc<Queue>]) -> Vec<String> {
        queues.iter().map(|queue| queue.broker.to_string()).collect()
    }
}
