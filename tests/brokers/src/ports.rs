//! Blocks of neighbouring ports that no other test run takes.
//!
//! A RocketMQ broker opens three ports at fixed distances, and a restarted server must find its port free again, so ports are
//! taken from below the range that the system hands to outgoing connections (32768 and up on Linux). A locked file per
//! block keeps parallel test processes apart; the system drops the lock when its process ends.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process;

use crate::ClusterError;

const FIRST: u16 = 20_000;
const END: u16 = 32_000;
/// Ports in a block: a name server, two brokers of three and two proxies of two take 11, three Kafka nodes of five 15.
pub(crate) const BLOCK: u16 = 16;

/// A block of [`BLOCK`] ports, ours until dropped.
#[derive(Debug)]
pub(crate) struct PortBlock {
    base: u16,
    lock: File,
}

impl PortBlock {
    /// Finds a block in which every port is free.
    pub(crate) fn claim() -> Result<Self, ClusterError> {
        Self::claim_among(&std::env::temp_dir().join("tidegate-test-ports"))
    }

    fn claim_among(locks: &Path) -> Result<Self, ClusterError> {
        fs::create_dir_all(locks).map_err(ClusterError::file("create", locks))?;
        let blocks = (END - FIRST) / BLOCK;
        // Different processes begin at different places, so that they rarely meet.
        let start = u16::try_from(process::id() % u32::from(blocks)).unwrap_or_default();
        for step in 0..blocks {
            let base = FIRST + (start + step) % blocks * BLOCK;
            let path = locks.join(base.to_string());
            let lock = File::create(&path).map_err(ClusterError::file("create", &path))?;
            if lock.try_lock().is_ok() && (base..base + BLOCK).all(is_free) {
                return Ok(Self { base, lock });
            }
        }
        Err(ClusterError::Ports(BLOCK, FIRST, END))
    }

    /// The port `offset` places into the block.
    pub(crate) fn port(&self, offset: u16) -> u16 {
        assert!(offset < BLOCK, "port {offset} of a block of {BLOCK}");
        self.base + offset
    }
}

impl Drop for PortBlock {
    fn drop(&mut self) {
        // Not left to the closing: a process that is just being started still has a copy of the open file.
        let _ = self.lock.unlock();
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_blocks_never_overlap_and_a_dropped_one_can_be_had_again() {
        let locks = tempfile::tempdir().unwrap();
        let first = PortBlock::claim_among(locks.path()).unwrap();
        let second = PortBlock::claim_among(locks.path()).unwrap();
        assert!(first.base.abs_diff(second.base) >= BLOCK);
        let lock = File::open(locks.path().join(first.base.to_string())).unwrap();
        lock.try_lock().expect_err("a claimed block is locked");
        drop(first);
        lock.try_lock().expect("a dropped one is not");
    }

    #[test]
    fn a_port_in_use_spoils_its_block() {
        let locks = tempfile::tempdir().unwrap();
        let first = PortBlock::claim_among(locks.path()).unwrap();
        let base = first.base;
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 3)).unwrap();
        drop(first);
        assert_ne!(PortBlock::claim_among(locks.path()).unwrap().base, base);
    }
}
