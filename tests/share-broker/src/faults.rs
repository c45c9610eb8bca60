//! Faults to order: what goes wrong, in which call, how often.

use std::time::Duration;

use bytes::Bytes;

use crate::wire::Api;

/// A fault: an effect on the next calls of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The call it befalls.
    pub api: Api,
    /// Only at this node.
    pub node: Option<i32>,
    /// Only of this member.
    pub member: Option<String>,
    /// Calls that pass unharmed before.
    pub after: u32,
    /// Calls it befalls.
    pub times: u32,
    /// What goes wrong.
    pub effect: Effect,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Nothing is done; the answer as a whole carries this code. Metadata and FindCoordinator carry it at each topic and
    /// group, where their answers have no place for it as a whole.
    Error(i16),
    /// The work is done, and the session's epoch used up; the answer of a heartbeat, a fetch or an acknowledgement carries
    /// this code and nothing else.
    ErrorAfter(i16),
    /// Nothing is done for these partitions of a fetch or an acknowledgement, and each carries this code.
    PartitionError {
        /// The code.
        code: i16,
        /// Only partitions with this number; else all.
        partition: Option<i32>,
    },
    /// A fetch's acknowledgements are not applied, and each partition carries this code for them.
    AcknowledgeError(i16),
    /// The work is done at once, the answer comes this much later.
    Delay(Duration),
    /// Nothing is done; the connection ends.
    Disconnect,
    /// The work is done; the connection ends instead of an answer.
    DisconnectAfter,
    /// Nothing is done, there is no answer, and the connection stays open.
    Silence,
    /// The work is done, there is no answer, and the connection stays open.
    SilenceAfter,
    /// The answer comes twice.
    Twice,
    /// Each acquired range of a fetch is listed twice, the second time reaching over its end where the next range is.
    OverlappingRanges,
    /// A fetch acquires, and brings no bytes.
    NoRecords,
    /// A batch without records goes before the records of a fetch, at their first offset.
    EmptyBatch,
    /// A byte of the first batch of each partition is flipped.
    CorruptRecords,
    /// The first batch of each partition says it is compressed in a way nobody knows.
    UnknownCompression,
    /// Records of a fetch are cut so many bytes before their end.
    CutTail(usize),
    /// Metadata says that partitions have no leader (-1, with 5).
    NoLeader,
    /// The answer says that the client is throttled for so long.
    Throttle(Duration),
    /// These bytes come instead of an answer, as they are.
    Garbage(Bytes),
}

impl Fault {
    /// A fault that befalls the next `times` calls of one kind.
    #[must_use]
    pub const fn new(api: Api, effect: Effect, times: u32) -> Self {
        Self { api, node: None, member: None, after: 0, times, effect }
    }

    /// The same fault at one node only.
    #[must_use]
    pub fn at_node(self, node: i32) -> Self {
        Self { node: Some(node), ..self }
    }

    /// The same fault for one member only.
    #[must_use]
    pub fn of_member(self, member: &str) -> Self {
        Self { member: Some(member.to_owned()), ..self }
    }

    /// The same fault, beginning so many calls later.
    #[must_use]
    pub fn after(self, calls: u32) -> Self {
        Self { after: calls, ..self }
    }
}

/// The faults still to come.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pending: Vec<Fault>,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        if fault.times > 0 {
            self.pending.push(fault);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.pending.clear();
    }

    pub(crate) fn pending(&self) -> u32 {
        self.pending.iter().map(|fault| fault.times).sum()
    }

    /// What befalls this call: the oldest fault of those that are due.
    pub(crate) fn take(&mut self, api: Api, node: i32, member: Option<&str>) -> Option<Effect> {
        let mut taken = None;
        for fault in &mut self.pending {
            let meant = fault.api == api
                && fault.node.is_none_or(|wanted| wanted == node)
                && fault.member.as_deref().is_none_or(|wanted| member == Some(wanted));
            if !meant {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
            } else if taken.is_none() {
                fault.times -= 1;
                taken = Some(fault.effect.clone());
            }
        }
        self.pending.retain(|fault| fault.times > 0);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_befall_whom_they_are_meant_for() {
        let mut faults = Faults::default();
        faults.add(Fault::new(Api::ShareFetch, Effect::Error(15), 2).after(1));
        faults.add(Fault::new(Api::ShareFetch, Effect::Disconnect, 1).at_node(2).of_member("m"));
        assert_eq!(faults.take(Api::Metadata, 1, None), None);
        assert_eq!(faults.take(Api::ShareFetch, 1, Some("m")), None, "the first passes");
        assert_eq!(faults.take(Api::ShareFetch, 2, Some("m")), Some(Effect::Error(15)));
        assert_eq!(faults.take(Api::ShareFetch, 2, Some("n")), Some(Effect::Error(15)));
        assert_eq!(faults.take(Api::ShareFetch, 2, Some("n")), None);
        assert_eq!(faults.pending(), 1);
        assert_eq!(faults.take(Api::ShareFetch, 2, Some("m")), Some(Effect::Disconnect));
        assert_eq!(faults.pending(), 0);
    }
}
