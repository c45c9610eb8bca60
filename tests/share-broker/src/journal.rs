//! What clients asked for: counts for ever, the last requests in full.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::cluster::ConnectionId;
use crate::wire::{Api, Request, RequestBody};

/// One request as it came in.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When, since the cluster began.
    pub at: Duration,
    /// At which node.
    pub node: i32,
    /// On which connection.
    pub connection: ConnectionId,
    /// The request.
    pub request: Request,
}

impl Entry {
    /// Which call it was.
    #[must_use]
    pub const fn api(&self) -> Api {
        self.request.body.api()
    }

    /// The member's epoch of a heartbeat, the session's of a fetch or an acknowledgement.
    #[must_use]
    pub const fn epoch(&self) -> Option<i32> {
        match &self.request.body {
            RequestBody::ShareGroupHeartbeat(body) => Some(body.member_epoch),
            RequestBody::ShareFetch(body) => Some(body.share_session_epoch),
            RequestBody::ShareAcknowledge(body) => Some(body.share_session_epoch),
            _ => None,
        }
    }

    /// The member's id, where the request has one.
    #[must_use]
    pub fn member(&self) -> Option<&str> {
        match &self.request.body {
            RequestBody::ShareGroupHeartbeat(body) => Some(&body.member_id),
            RequestBody::ShareFetch(body) => body.member_id.as_deref(),
            RequestBody::ShareAcknowledge(body) => body.member_id.as_deref(),
            _ => None,
        }
    }
}

/// All that was asked.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    entries: VecDeque<Entry>,
    counts: BTreeMap<(i32, Api), u64>,
    entries_max: usize,
}

impl Journal {
    pub(crate) fn keeping(entries_max: usize) -> Self {
        Self { entries_max, ..Self::default() }
    }

    pub(crate) fn note(&mut self, entry: impl FnOnce() -> Entry, node: i32, api: Api) {
        *self.counts.entry((node, api)).or_default() += 1;
        if self.entries_max == 0 {
            return;
        }
        if self.entries.len() >= self.entries_max {
            self.entries.pop_front();
        }
        self.entries.push_back(entry());
    }

    /// The requests still kept, the oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The requests of one kind still kept, the oldest first.
    pub fn of(&self, api: Api) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.api() == api)
    }

    /// How often a call was made, at all nodes together.
    #[must_use]
    pub fn count(&self, api: Api) -> u64 {
        self.counts.iter().filter(|((_, of), _)| *of == api).map(|(_, count)| count).sum()
    }

    /// How often a call was made at one node.
    #[must_use]
    pub fn count_at(&self, node: i32, api: Api) -> u64 {
        self.counts.get(&(node, api)).copied().unwrap_or(0)
    }

    /// The most requests of these kinds within any such span of time; of all kinds if none is named.
    #[must_use]
    pub fn most_within(&self, span: Duration, apis: &[Api]) -> usize {
        let times: Vec<Duration> = self
            .entries
            .iter()
            .filter(|entry| apis.is_empty() || apis.contains(&entry.api()))
            .map(|entry| entry.at)
            .collect();
        let mut from = 0;
        let mut most = 0;
        for (until, at) in times.iter().enumerate() {
            while times[from] + span <= *at {
                from += 1;
            }
            most = most.max(until - from + 1);
        }
        most
    }

    /// Forgets everything so far, counts too.
    pub fn clear(&mut self) {
        *self = Self::keeping(self.entries_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_wire::{ApiVersionsRequest, MetadataRequest};

    #[test]
    fn rates_are_the_worst_span() {
        let mut journal = Journal::keeping(100);
        let request = Request::new(MetadataRequest::default());
        for at in [0, 10, 20, 500, 900, 1_005] {
            let at = Duration::from_millis(at);
            let request = request.clone();
            journal.note(|| Entry { at, node: 1, connection: ConnectionId(1), request }, 1, Api::Metadata);
        }
        assert_eq!(journal.most_within(Duration::from_secs(1), &[Api::Metadata]), 5);
        assert_eq!(journal.most_within(Duration::from_millis(15), &[]), 2);
        assert_eq!(journal.most_within(Duration::from_secs(1), &[Api::ShareFetch]), 0);
        assert_eq!((journal.count(Api::Metadata), journal.count_at(2, Api::Metadata)), (6, 0));
    }

    #[test]
    fn only_the_last_requests_are_kept_and_all_are_counted() {
        let mut journal = Journal::keeping(2);
        for at in 0..5 {
            let at = Duration::from_secs(at);
            let request = Request::new(ApiVersionsRequest::default());
            journal.note(|| Entry { at, node: 1, connection: ConnectionId(1), request }, 1, Api::ApiVersions);
        }
        assert_eq!(journal.entries().map(|entry| entry.at.as_secs()).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(journal.count(Api::ApiVersions), 5);
    }
}
