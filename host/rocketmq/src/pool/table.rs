//! The clients that are alive, without I/O: who uses them, which is idle, which makes room for another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_model::Instant;

/// A client that nobody has used for so long is closed: the next receipt of its group makes a new one within a second.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(60);
/// Most clients alive, those that take leave included: each is a connection, a telemetry stream and a heartbeat.
pub(super) const CLIENTS_MAX: usize = 256;

/// What tells one client from others.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Key {
    /// Which of the pool's configurations it connects with.
    pub(super) configuration: usize,
    /// Where to.
    pub(super) endpoint: Arc<str>,
    pub(super) namespace: Arc<str>,
    pub(super) group: Arc<str>,
    /// Deliveries of lite topics want another kind of client than those of others.
    pub(super) is_lite: bool,
}

/// Counts the users of each client.
#[derive(Debug)]
pub(super) struct Table<C> {
    entries: HashMap<Key, Entry<C>>,
    clients_max: usize,
    /// Clients that take leave.
    leaving: usize,
    is_closed: bool,
}

#[derive(Debug)]
struct Entry<C> {
    client: Arc<C>,
    users: usize,
    /// When the last user ended.
    idle_since: Instant,
}

/// What whoever wants a client has to do.
#[derive(Debug)]
pub(super) enum Step<C> {
    /// Use this one, and [`end`](Table::end) with it.
    Use(Arc<C>),
    /// The same; it has just been made.
    UseNew(Arc<C>),
    /// Let this one take leave, and ask again: it makes room.
    Close(Arc<C>),
    /// Ask again when something has changed.
    Wait,
    /// Give up: there will be no more clients.
    Closed,
}

impl<C> Table<C> {
    pub(super) fn new(clients_max: usize) -> Self {
        Self { entries: HashMap::new(), clients_max, leaving: 0, is_closed: false }
    }

    /// Asks for a client. Whoever waits makes room once (`may_close`): more would close what others need.
    pub(super) fn begin<E>(
        &mut self,
        now: Instant,
        key: &Key,
        may_close: bool,
        make: impl FnOnce() -> Result<C, E>,
    ) -> Result<Step<C>, E> {
        if self.is_closed {
            return Ok(Step::Closed);
        }
        if let Some(entry) = self.entries.get_mut(key) {
            entry.users += 1;
            return Ok(Step::Use(Arc::clone(&entry.client)));
        }
        if self.entries.len() + self.leaving < self.clients_max {
            let client = Arc::new(make()?);
            let entry = Entry { client: Arc::clone(&client), users: 1, idle_since: now };
            self.entries.insert(key.clone(), entry);
            return Ok(Step::UseNew(client));
        }
        let idle = self.entries.iter().filter(|(_, entry)| entry.users == 0);
        let longest = idle.min_by_key(|(_, entry)| entry.idle_since).map(|(key, _)| key.clone());
        match longest.filter(|_| may_close).and_then(|key| self.leave(&key)) {
            Some(client) => Ok(Step::Close(client)),
            None => Ok(Step::Wait),
        }
    }

    /// A use of a client has ended. True when nobody uses it any more.
    pub(super) fn end(&mut self, now: Instant, key: &Key) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        entry.users = entry.users.saturating_sub(1);
        entry.idle_since = now;
        entry.users == 0
    }

    /// The clients that have been idle for long: they are to take leave.
    pub(super) fn take_idle(&mut self, now: Instant) -> Vec<Arc<C>> {
        let is_due =
            |entry: &Entry<C>| entry.users == 0 && now.saturating_since(entry.idle_since) >= IDLE_MAX;
        let due: Vec<Key> =
            self.entries.iter().filter(|(_, entry)| is_due(entry)).map(|(key, _)| key.clone()).collect();
        due.iter().filter_map(|key| self.leave(key)).collect()
    }

    /// A client has taken leave.
    pub(super) fn handle_left(&mut self) {
        self.leaving = self.leaving.saturating_sub(1);
    }

    /// Makes no more clients. Those that there are, used or not, are to take leave.
    pub(super) fn close(&mut self) -> Vec<Arc<C>> {
        self.is_closed = true;
        self.leaving += self.entries.len();
        self.entries.drain().map(|(_, entry)| entry.client).collect()
    }

    fn leave(&mut self, key: &Key) -> Option<Arc<C>> {
        let entry = self.entries.remove(key)?;
        self.leaving += 1;
        Some(entry.client)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_client_for_each_key_however_many_use_it() {
        let mut table = Table::new(8);
        assert!(matches!(begin(&mut table, 0, 1), Step::UseNew(client) if *client == 1));
        assert!(matches!(begin(&mut table, 0, 1), Step::Use(_)));
        assert!(matches!(begin(&mut table, 0, 2), Step::UseNew(_)));
        assert!(!table.end(at(1), &key(1)), "one still uses it");
        assert!(table.end(at(1), &key(1)));
    }

    #[test]
    fn what_is_idle_for_long_leaves_and_what_is_used_stays() {
        let mut table = Table::new(8);
        begin(&mut table, 0, 1);
        begin(&mut table, 0, 2);
        table.end(at(0), &key(1));
        assert!(table.take_idle(at(59)).is_empty());
        assert_eq!(table.take_idle(at(60)), [Arc::new(1)]);
        assert!(table.take_idle(at(10_000)).is_empty(), "the other one is in use");
        assert!(matches!(begin(&mut table, 10_000, 1), Step::UseNew(_)), "made anew");
    }

    #[test]
    fn when_full_the_longest_idle_makes_room_and_others_wait() {
        let mut table = Table::new(2);
        begin(&mut table, 0, 1);
        begin(&mut table, 0, 2);
        assert!(matches!(begin(&mut table, 1, 3), Step::Wait), "both are in use");
        table.end(at(2), &key(2));
        table.end(at(3), &key(1));
        let step = table.begin(at(4), &key(3), false, || Ok::<_, Infallible>(3)).expect("infallible");
        assert!(matches!(step, Step::Wait), "it has made room before");
        assert!(matches!(begin(&mut table, 4, 3), Step::Close(client) if *client == 2));
        assert!(
            matches!(table.begin(at(4), &key(3), false, || Ok::<_, Infallible>(3)), Ok(Step::Wait)),
            "not before that one has left"
        );
        table.handle_left();
        assert!(matches!(begin(&mut table, 5, 3), Step::UseNew(_)));
    }

    #[test]
    fn a_closed_table_gives_nothing() {
        let mut table = Table::new(2);
        begin(&mut table, 0, 1);
        assert_eq!(table.close().len(), 1);
        assert!(matches!(begin(&mut table, 0, 1), Step::Closed));
        assert!(!table.end(at(1), &key(1)), "late users do no harm");
    }

    proptest! {
        /// Whatever happens, no more clients are alive than may be, and every use gets the client of its key.
        #[test]
        fn never_more_than_may_be(steps in proptest::collection::vec((0usize..6, 0u8..4), 0..200)) {
            let mut table = Table::new(3);
            let mut users: Vec<usize> = Vec::new();
            let mut leaving = 0usize;
            for (second, (number, action)) in steps.into_iter().enumerate() {
                let now = at(second as u64 * 20);
                match action {
                    0 | 1 => match table.begin(now, &key(number), true, || Ok::<_, Infallible>(number)) {
                        Ok(Step::Use(client) | Step::UseNew(client)) => {
                            prop_assert_eq!(*client, number);
                            users.push(number);
                        }
                        Ok(Step::Close(client)) => {
                            prop_assert!(!users.contains(&client), "somebody uses it");
                            leaving += 1;
                        }
                        Ok(Step::Wait | Step::Closed) | Err(_) => {}
                    },
                    2 => {
                        if let Some(number) = users.pop() {
                            table.end(now, &key(number));
                        }
                    }
                    _ => {
                        for client in table.take_idle(now) {
                            prop_assert!(!users.contains(&client), "somebody uses it");
                            leaving += 1;
                        }
                        if leaving > 0 {
                            leaving -= 1;
                            table.handle_left();
                        }
                    }
                }
                prop_assert!(table.entries.len() + leaving <= 3);
            }
        }
    }

    fn begin(table: &mut Table<usize>, second: u64, number: usize) -> Step<usize> {
        table.begin(at(second), &key(number), true, || Ok::<_, Infallible>(number)).expect("infallible")
    }

    fn key(number: usize) -> Key {
        Key {
            configuration: 0,
            endpoint: "a:1".into(),
            namespace: "".into(),
            group: number.to_string().into(),
            is_lite: true,
        }
    }

    fn at(second: u64) -> Instant {
        Instant::from_millis(second * 1_000)
    }
}
