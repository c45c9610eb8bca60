//! Whether a flow's broker serves it, as readiness wants to know it: without the moments in which a connection is made
//! anew.

use std::time::Duration;

use tidegate_model::Instant;

/// How long a broker that served the flow may be away before the flow counts as not served. A proxy that restarts is
/// back within a few seconds, and whoever acts on readiness should not act on that.
pub const AWAY_GRACE: Duration = Duration::from_secs(10);

/// What was seen of the broker.
#[derive(Debug, Default)]
pub(super) struct Presence {
    served: bool,
    joined_before: bool,
    away_since: Option<Instant>,
}

/// What changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Change {
    Joined,
    Away,
    Back,
}

impl Presence {
    /// Whether the broker serves the flow.
    pub(super) const fn is_served(&self) -> bool {
        self.served
    }

    /// Takes what the source says now.
    pub(super) fn handle_look(&mut self, now: Instant, joined: bool) -> Option<Change> {
        if joined {
            self.away_since = None;
            if std::mem::replace(&mut self.served, true) {
                return None;
            }
            let before = std::mem::replace(&mut self.joined_before, true);
            return Some(if before { Change::Back } else { Change::Joined });
        }
        let since = *self.away_since.get_or_insert(now);
        let left = self.served && now.saturating_since(since) >= AWAY_GRACE;
        left.then(|| {
            self.served = false;
            Change::Away
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    #[test]
    fn not_served_until_joined() {
        let mut presence = Presence::default();
        for second in 0..60 {
            assert_eq!(presence.handle_look(at(second), false), None);
            assert!(!presence.is_served());
        }
        assert_eq!(presence.handle_look(at(60), true), Some(Change::Joined));
        assert_eq!(presence.handle_look(at(61), true), None);
        assert!(presence.is_served());
    }

    #[test]
    fn a_short_absence_does_not_show() {
        let mut presence = Presence::default();
        presence.handle_look(at(0), true);
        for second in 1..=10 {
            assert_eq!(presence.handle_look(at(second), false), None);
        }
        assert_eq!(presence.handle_look(at(10), true), None);
        assert_eq!(presence.handle_look(at(11), false), None, "counts from its own beginning");
        assert_eq!(presence.handle_look(at(20), false), None);
        assert!(presence.is_served());
    }

    #[test]
    fn a_long_absence_shows_until_the_broker_is_back() {
        let mut presence = Presence::default();
        presence.handle_look(at(0), true);
        presence.handle_look(at(1), false);
        assert_eq!(presence.handle_look(at(11), false), Some(Change::Away));
        assert_eq!(presence.handle_look(at(12), false), None);
        assert!(!presence.is_served());
        assert_eq!(presence.handle_look(at(13), true), Some(Change::Back));
        assert!(presence.is_served());
    }
}
