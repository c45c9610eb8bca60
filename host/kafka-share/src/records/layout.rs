//! Where a batch's fields are, in bytes from its begin.

/// The offset of the first record. Set by the broker, and not under the checksum.
pub(super) const BASE_OFFSET: usize = 0;
/// How many bytes follow this field.
pub(super) const LENGTH: usize = 8;
/// Where the bytes begin that [`LENGTH`] counts, with the leader's epoch.
pub(super) const LEADER_EPOCH: usize = 12;
/// The message format, in the same place in all of them.
pub(super) const MAGIC: usize = 16;
/// CRC-32C of everything from the attributes on.
pub(super) const CHECKSUM: usize = 17;
/// Compression and flags.
pub(super) const ATTRIBUTES: usize = 21;
/// The last offset less the first one. It stays when the last record is compacted away.
pub(super) const LAST_DELTA: usize = 23;
pub(super) const BASE_TIMESTAMP: usize = 27;
pub(super) const MAX_TIMESTAMP: usize = 35;
pub(super) const PRODUCER_ID: usize = 43;
pub(super) const PRODUCER_EPOCH: usize = 51;
pub(super) const BASE_SEQUENCE: usize = 53;
pub(super) const COUNT: usize = 57;
/// Where the records begin, which is the part that is compressed.
pub(super) const RECORDS: usize = 61;

/// Attributes of a message of the formats 0 and 1.
pub(super) const OLD_ATTRIBUTES: usize = 17;

/// The message format that is read and written.
pub(super) const MAGIC_READ: i8 = 2;

/// Which attribute bits name the compression.
pub(super) const COMPRESSION_BITS: u8 = 0x07;
/// The broker set the timestamps.
pub(super) const LOG_APPEND_TIME: u16 = 1 << 3;
/// Part of a transaction.
pub(super) const TRANSACTIONAL: u16 = 1 << 4;
/// The records are a transaction's markers.
pub(super) const CONTROL: u16 = 1 << 5;

/// The `SIZE` bytes at `at`, or zeros where there are not that many, which no caller asks for.
pub(super) fn field<const SIZE: usize>(bytes: &[u8], at: usize) -> [u8; SIZE] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; SIZE])
}
