//! Share sessions at one node, and the connections that opened them.

use std::collections::HashMap;

use kafka_wire_core::Uuid;

use crate::cluster::ConnectionId;
use crate::error_code::{INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED, SHARE_SESSION_NOT_FOUND};

/// A group and a member of it.
pub(crate) type SessionKey = (String, String);

#[derive(Debug)]
pub(crate) struct Session {
    /// What the next request must carry.
    pub(crate) expected: i32,
    /// What is fetched, in the order of being added.
    pub(crate) partitions: Vec<(Uuid, i32)>,
    opened_by: ConnectionId,
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_key: HashMap<SessionKey, Session>,
    /// One for each connection, the one it opened last: the others live on when it ends.
    by_connection: HashMap<ConnectionId, SessionKey>,
}

impl Sessions {
    /// Opens a session; one that exists is dropped, and what it acquired stays acquired.
    pub(crate) fn open(
        &mut self,
        key: &SessionKey,
        connection: ConnectionId,
        partitions: Vec<(Uuid, i32)>,
        most: usize,
    ) -> Result<(), i16> {
        if self.by_key.len() >= most && !self.by_key.contains_key(key) {
            return Err(SHARE_SESSION_LIMIT_REACHED);
        }
        let mut session = Session { expected: 1, partitions: Vec::new(), opened_by: connection };
        session.add(partitions);
        self.by_key.insert(key.clone(), session);
        self.by_connection.insert(connection, key.clone());
        Ok(())
    }

    /// Takes a request at this epoch, which counts from now on whatever comes of it.
    pub(crate) fn step(&mut self, key: &SessionKey, epoch: i32) -> Result<&mut Session, i16> {
        let session = self.by_key.get_mut(key).ok_or(SHARE_SESSION_NOT_FOUND)?;
        if session.expected != epoch {
            return Err(INVALID_SHARE_SESSION_EPOCH);
        }
        session.expected = next_epoch(epoch);
        Ok(session)
    }

    pub(crate) fn get(&self, key: &SessionKey) -> Option<&Session> {
        self.by_key.get(key)
    }

    pub(crate) fn close(&mut self, key: &SessionKey) -> Option<Session> {
        self.by_key.remove(key)
    }

    /// The connection is gone, and the session that it opened last with it.
    pub(crate) fn disconnect(&mut self, connection: ConnectionId) -> Option<(SessionKey, Session)> {
        let key = self.by_connection.remove(&connection)?;
        if self.by_key.get(&key).is_none_or(|session| session.opened_by != connection) {
            return None;
        }
        self.by_key.remove_entry(&key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &SessionKey> {
        self.by_key.keys()
    }
}

impl Session {
    pub(crate) fn add(&mut self, partitions: impl IntoIterator<Item = (Uuid, i32)>) {
        for partition in partitions {
            if !self.partitions.contains(&partition) {
                self.partitions.push(partition);
            }
        }
    }

    pub(crate) fn forget(&mut self, partitions: &[(Uuid, i32)]) {
        self.partitions.retain(|partition| !partitions.contains(partition));
    }
}

/// Counts on; after the highest number comes 1.
pub(crate) fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(member: &str) -> SessionKey {
        ("g".to_owned(), member.to_owned())
    }

    const PARTITION: (Uuid, i32) = (Uuid::ZERO, 0);

    #[test]
    fn epochs_count_on_and_wrap() {
        let mut sessions = Sessions::default();
        let (a, connection) = (key("a"), ConnectionId(1));
        assert_eq!(sessions.step(&a, 1).err(), Some(SHARE_SESSION_NOT_FOUND));
        sessions.open(&a, connection, vec![PARTITION], 10).expect("there is room");
        assert_eq!(sessions.step(&a, 2).err(), Some(INVALID_SHARE_SESSION_EPOCH));
        assert!(sessions.step(&a, 1).is_ok());
        assert_eq!(sessions.step(&a, 1).err(), Some(INVALID_SHARE_SESSION_EPOCH));
        sessions.open(&a, connection, vec![], 10).expect("it takes its own place");
        assert!(sessions.step(&a, 1).is_ok(), "it was opened anew");
        assert_eq!(next_epoch(i32::MAX), 1);
    }

    #[test]
    fn a_connection_takes_its_last_session_with_it() {
        let mut sessions = Sessions::default();
        let (one, two) = (ConnectionId(1), ConnectionId(2));
        sessions.open(&key("a"), one, vec![PARTITION], 3).expect("there is room");
        sessions.open(&key("b"), one, vec![], 3).expect("there is room");
        sessions.open(&key("c"), two, vec![], 3).expect("there is room");
        assert_eq!(sessions.open(&key("d"), two, vec![], 3), Err(SHARE_SESSION_LIMIT_REACHED));
        assert_eq!(sessions.disconnect(one).map(|(key, _)| key), Some(key("b")));
        assert_eq!(sessions.keys().count(), 2, "the slot of a leaks");
        sessions.open(&key("c"), one, vec![], 3).expect("another connection takes over");
        assert!(sessions.disconnect(two).is_none());
        assert!(sessions.disconnect(one).is_some());
    }
}
