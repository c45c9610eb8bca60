//! Message ids of version 1: 34 upper-case hex characters.
//!
//! `01`, six bytes that name the machine, two of the process, four of seconds since 2021-01-01 UTC, four of a
//! sequence. The machine's bytes are random with the bit of a locally administered address set, so that nobody's
//! hardware address leaves the host.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_model::Timestamp;

/// 2021-01-01T00:00:00Z, from which ids count, in seconds since the Unix epoch.
const EPOCH_SECONDS: u64 = 1_609_459_200;

/// Makes the ids of one producer.
#[derive(Debug)]
pub(crate) struct MessageIds {
    prefix: String,
    sequence: AtomicU32,
}

impl MessageIds {
    /// `machine` is random; `process` is the process id, of which two bytes count.
    pub(crate) fn new(machine: [u8; 6], process: u32) -> Self {
        /// Marks an address that no manufacturer gave.
        const LOCALLY_ADMINISTERED: u8 = 2;
        let mut prefix = String::with_capacity(18);
        prefix.push_str("01");
        for (at, byte) in machine.into_iter().enumerate() {
            let byte = if at == 0 { byte | LOCALLY_ADMINISTERED } else { byte };
            // Writing to a string has no way to fail.
            let _ = write!(prefix, "{byte:02X}");
        }
        let _ = write!(prefix, "{:04X}", process & 0xffff);
        Self { prefix, sequence: AtomicU32::new(0) }
    }

    /// The next id.
    pub(crate) fn next(&self, now: Timestamp) -> String {
        let seconds = (now.as_unix_millis() / 1_000).saturating_sub(EPOCH_SECONDS) & 0xffff_ffff;
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        format!("{}{seconds:08X}{sequence:08X}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let ids = MessageIds::new([0, 1, 2, 3, 4, 5], 0x1_2345);
        let now = Timestamp::from_unix_millis((EPOCH_SECONDS + 0x10) * 1_000);
        assert_eq!(ids.next(now), "0102010203040523450000001000000000");
        assert_eq!(ids.next(now), "0102010203040523450000001000000001");
        assert_eq!(ids.next(now).len(), 34);
    }
}
