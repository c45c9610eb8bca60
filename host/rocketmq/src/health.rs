//! How a source is doing, in one sentence for people, without I/O.
//!
//! Two wrong set-ups show in no answer of the server: a group without the wildcard attribute is served nothing, for
//! ever and politely; a group with the default event limit is served a hundred lite topics every ten seconds. The
//! first is found by asking for something that only a wildcard group refuses; the second by messages that waited at
//! the broker although we were asking all the time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::Instant;

use crate::fault::{CallError, bind_group};

/// A subscription without any message for so long is worth a probe, and again from time to time: an old backlog takes
/// up to 15 s to show.
const IDLE_MIN: Duration = Duration::from_secs(30);
const PROBE_INTERVAL: Duration = Duration::from_secs(300);
/// Without messages for so long after there were some, the subscription is made anew, in case the broker lost the news
/// of a lite topic; then at twice the distance each time, up to the longest.
const REFRESH_IDLE_MIN: Duration = Duration::from_secs(15);
const REFRESH_IDLE_MAX: Duration = Duration::from_secs(300);
/// A receive that waited for so long found nothing ready.
const IDLE_POLL_MIN: Duration = Duration::from_secs(2);
/// A message that had been stored so long before such a receive began, and still was not handed out. Clocks of two
/// machines differ by less.
const LATE_MIN: Duration = Duration::from_secs(5);
/// After a subscription begins, late messages are the normal scan of an old backlog.
const WARM_UP: Duration = Duration::from_secs(60);
/// Over this time, so many different lite topics served late mean a queue for events, not a slow broker.
const LATE_WINDOW: Duration = Duration::from_secs(60);
const LATE_TOPICS_MIN: usize = 50;
/// Lite topics that we deferred ourselves come late for that reason. Bounded: with more of them nothing is concluded.
const DEFERRED_MAX: usize = 4_096;

/// What is known.
#[derive(Debug)]
pub(crate) struct Health {
    topic: Arc<str>,
    group: Arc<str>,
    worked: bool,
    receive_error: Option<CallError>,
    subscribed_at: Option<Instant>,
    received: bool,
    wildcard: Wildcard,
    probe_due: Option<Instant>,
    refresh_due: Option<Instant>,
    refresh_wait: Duration,
    late: Late,
}

/// Whether the group has the wildcard attribute.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Wildcard {
    Unknown,
    Present,
    Missing,
}

#[derive(Debug, Default)]
struct Late {
    window_began: Instant,
    topics: HashSet<Arc<str>>,
    deferred: HashSet<Arc<str>>,
    suspected_until: Option<Instant>,
}

/// One receive's messages, as far as lateness goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) lite_topic: &'a Arc<str>,
    pub(crate) attempt: u32,
    /// How long before the receive began the broker had stored it.
    pub(crate) stored_before: Duration,
}

impl Health {
    pub(crate) fn new(topic: Arc<str>, group: Arc<str>) -> Self {
        Self {
            topic,
            group,
            worked: false,
            receive_error: None,
            subscribed_at: None,
            received: false,
            wildcard: Wildcard::Unknown,
            probe_due: None,
            refresh_due: None,
            refresh_wait: REFRESH_IDLE_MIN,
            late: Late::default(),
        }
    }

    /// Whether the subscription has ever worked: later troubles with topic and group pass by themselves.
    pub(crate) const fn has_worked(&self) -> bool {
        self.worked
    }

    /// A receive was answered.
    pub(crate) fn handle_received(&mut self, now: Instant, messages: usize) {
        self.worked = true;
        self.receive_error = None;
        if messages > 0 {
            self.received = true;
            self.refresh_wait = REFRESH_IDLE_MIN;
            self.refresh_due = self.subscribed_at.map(|_| now + REFRESH_IDLE_MIN);
            self.wildcard = Wildcard::Present;
        }
    }

    /// A receive failed.
    pub(crate) fn handle_failed(&mut self, error: CallError) {
        self.receive_error = Some(error);
    }

    /// The lite subscription is in force.
    pub(crate) fn handle_subscribed(&mut self, now: Instant) {
        if self.subscribed_at.is_none() {
            self.subscribed_at = Some(now);
            self.probe_due = Some(now + IDLE_MIN);
            self.refresh_due = self.received.then(|| now + REFRESH_IDLE_MIN);
        }
    }

    /// True when it is time to ask whether the group has the wildcard attribute.
    pub(crate) fn begin_probe(&mut self, now: Instant) -> bool {
        let due = !self.received && self.probe_due.is_some_and(|due| due <= now);
        if due {
            self.probe_due = Some(now + PROBE_INTERVAL);
        }
        due
    }

    /// True when it is time to make the subscription anew.
    pub(crate) fn begin_refresh(&mut self, now: Instant) -> bool {
        let due = self.refresh_due.is_some_and(|due| due <= now);
        if due {
            self.refresh_wait = (self.refresh_wait * 2).min(REFRESH_IDLE_MAX);
            self.refresh_due = Some(now + self.refresh_wait);
        }
        due
    }

    /// When [`begin_probe`](Self::begin_probe) or [`begin_refresh`](Self::begin_refresh) may be true next.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let probe_due = self.probe_due.filter(|_| !self.received);
        [probe_due, self.refresh_due].into_iter().flatten().min()
    }

    pub(crate) fn handle_probed(&mut self, wildcard: Wildcard) {
        self.wildcard = wildcard;
    }

    /// A lite topic was deferred by us.
    pub(crate) fn handle_deferred(&mut self, lite_topic: &Arc<str>) {
        if self.late.deferred.len() < DEFERRED_MAX {
            self.late.deferred.insert(Arc::clone(lite_topic));
        }
    }

    /// Messages came after the receive had waited for `waited`.
    pub(crate) fn handle_arrivals<'a>(
        &mut self,
        now: Instant,
        waited: Duration,
        arrivals: impl Iterator<Item = Arrival<'a>>,
    ) {
        let warm = self.subscribed_at.is_some_and(|at| now.saturating_since(at) >= WARM_UP);
        if !warm || waited < IDLE_POLL_MIN {
            return;
        }
        let late = &mut self.late;
        if now.saturating_since(late.window_began) > LATE_WINDOW {
            late.window_began = now;
            late.topics.clear();
            late.deferred.clear();
        }
        if late.deferred.len() >= DEFERRED_MAX {
            return;
        }
        for arrival in arrivals {
            let is_late = arrival.attempt == 1 && arrival.stored_before >= LATE_MIN;
            if is_late && late.topics.len() < DEFERRED_MAX && !late.deferred.contains(arrival.lite_topic) {
                late.topics.insert(Arc::clone(arrival.lite_topic));
            }
        }
        if late.topics.len() >= LATE_TOPICS_MIN {
            late.suspected_until = Some(now + LATE_WINDOW * 5);
        }
    }

    /// What there is to say, apart from sessions and route.
    pub(crate) fn sentence(&self, now: Instant) -> Option<String> {
        if let Some(error) = &self.receive_error {
            return Some(error.to_string());
        }
        let (topic, group) = (&self.topic, &self.group);
        let idle_since = self.subscribed_at.filter(|_| !self.received);
        let idle = idle_since.is_some_and(|at| now.saturating_since(at) >= IDLE_MIN);
        match self.wildcard {
            Wildcard::Missing if !self.received => {
                return Some(format!(
                    "group `{group}` is subscribed to `{topic}` but gets nothing, because it lacks the attribute \
                     `lite.sub.wildcard`; set it: {}",
                    bind_group(group, topic)
                ));
            }
            Wildcard::Unknown if idle => {
                return Some(format!(
                    "group `{group}` is subscribed to `{topic}` but nothing has come yet; if messages are waiting, the \
                     group may lack the attribute `lite.sub.wildcard`, which the server does not tell: {}",
                    bind_group(group, topic)
                ));
            }
            _ => {}
        }
        if self.late.suspected_until.is_some_and(|until| now < until) {
            return Some(format!(
                "messages of many lite topics wait at the broker although this group asks for them; the group's \
                 event limit is probably the default of 400: `{}`",
                raise_event_count(group)
            ));
        }
        None
    }
}

/// The command that lets a group be told of many lite topics at once.
pub(crate) fn raise_event_count(group: &str) -> String {
    format!(
        "mqadmin updateSubGroup -n NAMESERVER:9876 -c CLUSTER -g {group} --attributes \
         \"+lite.sub.client.max.event.cnt=5000\""
    )
}

#[cfg(test)]
mod tests;
