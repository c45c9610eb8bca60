//! A hand-out as the text of a handle.

use crate::entry::Sequence;

/// What the text begins with; another layout takes another number.
const KIND: &str = "sp1";

/// Which hand-out of which entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SpoolHandle {
    /// Which life of which spool handed it out: hand-outs are only told apart within one.
    pub(crate) life: u64,
    pub(crate) sequence: Sequence,
    /// How often it was handed out in this life, this time included.
    pub(crate) hand_out: u32,
}

impl SpoolHandle {
    pub(crate) fn encode(&self) -> String {
        let Self { life, sequence, hand_out } = self;
        format!("{KIND} {life:x} {} {hand_out}", sequence.0)
    }

    /// `None` for what was made by nobody here.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        if parts.next()? != KIND {
            return None;
        }
        let life = u64::from_str_radix(parts.next()?, 16).ok()?;
        let sequence = Sequence(parts.next()?.parse().ok()?);
        let hand_out = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { life, sequence, hand_out })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again_and_nothing_else() {
        let handle = SpoolHandle { life: u64::MAX, sequence: Sequence(u64::MAX), hand_out: 3 };
        let text = handle.encode();
        assert_eq!(SpoolHandle::parse(&text), Some(handle));
        for wrong in ["", "sp1", "sp1 1 2", "sp2 1 2 3", "sp1 1 2 3 4", "sp1 x 2 3", "ks1 1 2 3"] {
            assert_eq!(SpoolHandle::parse(wrong), None, "{wrong}");
        }
    }
}
