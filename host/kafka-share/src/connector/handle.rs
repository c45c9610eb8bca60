//! A lease as the text of a handle.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_model::Instant;

use crate::{BrokerId, Lease, TopicId, TopicPartition};

/// What the text begins with; another layout takes another number.
const KIND: &str = "ks1";

/// Which record of which member, among all that this source has acquired.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Key {
    /// Which member of the source, from 0.
    pub(super) member: usize,
    pub(super) lease: Lease,
}

/// What a handle says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct LeaseHandle {
    /// Which life of which source took it. Members, offsets and acquisitions are only told apart within one.
    pub(super) life: u64,
    pub(super) key: Key,
    /// When the lock ends, unless it was renewed since.
    pub(super) ends: Instant,
    /// How long locks are.
    pub(super) lock: Duration,
}

impl LeaseHandle {
    pub(super) fn encode(&self) -> String {
        let Self { life, key: Key { member, lease }, ends, lock } = self;
        let Lease { broker, partition: TopicPartition { topic, partition }, offset, acquisition } = lease;
        let ends = millis(ends.saturating_since(Instant::ZERO));
        let lock = millis(*lock);
        format!("{KIND} {life:x} {member} {broker} {topic} {partition} {offset} {acquisition} {ends} {lock}")
    }

    /// `None` for what was made by nobody here.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        if parts.next()? != KIND {
            return None;
        }
        let life = u64::from_str_radix(parts.next()?, 16).ok()?;
        let member = parts.next()?.parse().ok()?;
        let broker = BrokerId(parts.next()?.parse().ok()?);
        let mut topic = [0; 16];
        let length = URL_SAFE_NO_PAD.decode_slice(parts.next()?, &mut topic).ok()?;
        let partition = parts.next()?.parse().ok()?;
        let offset = parts.next()?.parse().ok()?;
        let acquisition = parts.next()?.parse().ok()?;
        let ends = Instant::ZERO + Duration::from_millis(parts.next()?.parse().ok()?);
        let lock = Duration::from_millis(parts.next()?.parse().ok()?);
        let partition = TopicPartition { topic: TopicId(topic), partition };
        let lease = Lease { broker, partition, offset, acquisition };
        let is_whole = length == topic.len() && parts.next().is_none();
        is_whole.then_some(Self { life, key: Key { member, lease }, ends, lock })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again_and_nothing_else() {
        let partition = TopicPartition { topic: TopicId([255; 16]), partition: 3 };
        let lease = Lease { broker: BrokerId(-1), partition, offset: i64::MAX, acquisition: 9 };
        let handle = LeaseHandle {
            life: u64::MAX,
            key: Key { member: 2, lease },
            ends: Instant::ZERO + Duration::from_millis(1_234),
            lock: Duration::from_secs(30),
        };
        let text = handle.encode();
        assert_eq!(LeaseHandle::parse(&text), Some(handle));
        for wrong in
            ["", "ks1", "ks2 1 2", &text[..text.len() - 6], &format!("{text} 1"), &text.replace("ks1", "ks2")]
        {
            assert_eq!(LeaseHandle::parse(wrong), None, "{wrong}");
        }
    }
}
