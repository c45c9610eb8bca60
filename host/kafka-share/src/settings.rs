//! What a member is told about how to fetch.

use std::time::Duration;

/// How a member fetches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FetchSettings {
    /// The most records that one fetch asks for. With [`AcquireMode::BatchOptimized`] a broker goes over it to the end of a
    /// batch. A group may hold only so many records of a partition (`share.partition.max.record.locks`, 2000).
    pub max_records: usize,
    /// The most bytes that one fetch asks for. Fetches ask for less when records are small: a broker's work for a fetch grows
    /// with what it may send.
    pub max_bytes: usize,
    /// How long a broker may wait for the first record. Records that another member gives back do not end the wait (measured
    /// on 4.3.1), and acknowledgements that come meanwhile are sent after it.
    pub max_wait: Duration,
    /// The same while records are held, whose acknowledgements are expected soon.
    pub max_wait_while_held: Duration,
    /// What the broker rounds to.
    pub acquire_mode: AcquireMode,
}

/// What a broker rounds the number of acquired records to (KIP-1206).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AcquireMode {
    /// Up to the end of a batch of the log: the fastest.
    #[default]
    BatchOptimized,
    /// Never more than asked for, from one broker at a time.
    RecordLimit,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self {
            max_records: 2_000,
            max_bytes: 52_428_800,
            max_wait: Duration::from_millis(500),
            max_wait_while_held: Duration::from_millis(100),
            acquire_mode: AcquireMode::default(),
        }
    }
}
