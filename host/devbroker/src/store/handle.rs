//! The text of a receipt handle, in the layout of the real broker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::time::{Moment, millis};

/// The revive queue written into handles of ordered deliveries (lite topics, FIFO topics under an orderly group).
const ORDERED_REVIVE_QUEUE: u32 = 999;

/// Fewer fields than this are no handle; the ninth (the commit log position) may be absent.
const FIELDS_MIN: usize = 8;

/// What a receipt handle says: nine fields with a space between, as measured on 5.5.0.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Handle {
    /// Place in the topic's main log; zero for ordered deliveries.
    pub start: u64,
    /// Wall clock of the delivery in milliseconds. The delivery's identity at the broker.
    pub popped_ms: u64,
    /// How long after `popped_ms` the handle is good.
    pub invisible_ms: u64,
    /// Whether the delivery was an ordered one.
    pub ordered: bool,
    /// Zero for a first delivery, one for a delivery from the group's retry topic.
    pub kind: u8,
    /// The broker that holds the message.
    pub broker: Arc<str>,
    /// The queue within the topic.
    pub queue: u32,
    /// The offset within the queue. Copies of dead letters carry the offset of their original here.
    pub offset: u64,
    /// The message's place in the commit log: unique per stored message. Zero when the text had no ninth field.
    pub sequence: u64,
}

/// Why a text is not a receipt handle. Both texts are those of the real proxy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HandleError {
    /// Too few fields.
    #[error("Parse failed, dataList size {0}")]
    Fields(usize),
    /// A field that must be a number is not.
    #[error("For input string: \"{0}\"")]
    Number(String),
}

impl Handle {
    /// Reads a handle's text.
    ///
    /// # Errors
    /// The text has fewer than eight fields or a field that is not a number.
    pub fn parse(text: &str) -> Result<Self, HandleError> {
        let fields: Vec<&str> = text.split(' ').collect();
        if fields.len() < FIELDS_MIN {
            return Err(HandleError::Fields(fields.len()));
        }
        let number = |at: usize| -> Result<u64, HandleError> {
            let field = fields.get(at).copied().unwrap_or("0");
            field.parse::<u64>().map_err(|_| HandleError::Number(field.to_owned()))
        };
        let small = |at: usize| -> Result<u32, HandleError> {
            u32::try_from(number(at)?).map_err(|_| HandleError::Number(fields[at].to_owned()))
        };
        Ok(Self {
            start: number(0)?,
            popped_ms: number(1)?,
            invisible_ms: number(2)?,
            ordered: number(3)? == u64::from(ORDERED_REVIVE_QUEUE),
            kind: u8::try_from(number(4)?).map_err(|_| HandleError::Number(fields[4].to_owned()))?,
            broker: Arc::from(fields[5]),
            queue: small(6)?,
            offset: number(7)?,
            sequence: number(8)?,
        })
    }

    /// Whether the handle has run out: the proxy refuses it without asking the broker.
    #[must_use]
    pub fn is_expired(&self, now: Moment) -> bool {
        self.popped_ms.saturating_add(self.invisible_ms) <= now.wall_ms
    }

    /// The handle that answers a change of an ordered delivery: the pop time stays, the invisible time grows.
    #[must_use]
    pub fn extended(&self, now: Moment, invisible: Duration) -> Self {
        let until = now.wall_ms.saturating_add(millis(invisible));
        Self { invisible_ms: until.saturating_sub(self.popped_ms), ..self.clone() }
    }

    /// The handle that answers a change of an ordered delivery that was acked before: it has ended already.
    #[must_use]
    pub fn spent(&self) -> Self {
        Self { start: 0, popped_ms: 0, invisible_ms: 0, ordered: false, ..self.clone() }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let revive = if self.ordered { ORDERED_REVIVE_QUEUE } else { 0 };
        write!(
            f,
            "{} {} {} {} {} {} {} {} {}",
            self.start,
            self.popped_ms,
            self.invisible_ms,
            revive,
            self.kind,
            self.broker,
            self.queue,
            self.offset,
            self.sequence
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_agree() {
        let text = "7 1700000000123 60000 999 0 broker-a 3 41 1099";
        let handle = Handle::parse(text).unwrap();
        assert!(handle.ordered);
        assert_eq!((handle.queue, handle.offset, handle.sequence), (3, 41, 1099));
        assert_eq!(handle.to_string(), text);
        assert_eq!(Handle::parse("7 1 6 0 1 broker-a 3 41").unwrap().sequence, 0);
    }

    #[test]
    fn what_is_not_a_handle_is_refused_with_the_proxys_words() {
        assert_eq!(Handle::parse("garbage").unwrap_err().to_string(), "Parse failed, dataList size 1");
        assert!(matches!(Handle::parse("a 2 3 4 5 6 7 8 9"), Err(HandleError::Number(_))));
    }

    #[test]
    fn a_handle_runs_out_at_its_own_time() {
        let handle = Handle::parse("0 1000 500 999 0 b 0 0 1").unwrap();
        let at = |wall_ms| Moment { since_start: Duration::ZERO, wall_ms };
        assert!(!handle.is_expired(at(1499)));
        assert!(handle.is_expired(at(1500)));
        let longer = handle.extended(at(1400), Duration::from_secs(2));
        assert_eq!((longer.popped_ms, longer.invisible_ms), (1000, 2400));
    }
}
