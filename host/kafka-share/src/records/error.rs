//! What can be wrong with a batch.

use std::io;

use super::compression::Compression;
use super::ranges::OffsetRange;

/// Records that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}", sentence(*.offsets))]
pub struct BatchError {
    /// Which offsets it is about: the whole batch, or what follows the records that were read, or one record. It may name
    /// more offsets than there are records, and none of another batch.
    ///
    /// `None` when nothing that can be trusted says so: then it may be about any offset that no batch before or after
    /// covers.
    pub offsets: Option<OffsetRange>,
    /// What is wrong with them.
    #[source]
    pub fault: BatchFault,
}

fn sentence(offsets: Option<OffsetRange>) -> String {
    match offsets {
        Some(offsets) => format!("cannot read {offsets}"),
        None => "cannot read a record batch".to_owned(),
    }
}

/// What is wrong with a batch.
#[derive(Debug, thiserror::Error)]
pub enum BatchFault {
    /// Its length is less than that of a batch without records, so that the next batch cannot be found either.
    #[error("a batch cannot be {length} bytes long")]
    Length {
        /// As the batch says, in bytes.
        length: i32,
    },
    /// Another message format.
    #[error("the batch has message format {magic}, and only format 2 is read")]
    Format {
        /// The format's number.
        magic: i8,
    },
    /// Offsets that no batch can have.
    #[error("the batch cannot begin at offset {base} and end {last_delta} later")]
    Offsets {
        /// Its first offset.
        base: i64,
        /// Its last offset less the first.
        last_delta: i32,
    },
    /// Less than no records.
    #[error("the batch cannot have {count} records")]
    Count {
        /// As the batch says.
        count: i32,
    },
    /// The batch was changed on its way or on a disk.
    #[error("the batch's checksum is {computed:08x}, not {stated:08x} as it says")]
    Checksum {
        /// As the batch says.
        stated: u32,
        /// Of the bytes that came.
        computed: u32,
    },
    /// Compressed by something unknown.
    #[error("the batch's compression {code} is unknown")]
    Compression {
        /// The compression's number.
        code: u8,
    },
    /// The compressed bytes are not what their compression makes.
    #[error("cannot decompress the batch from {compression}")]
    Decompress {
        /// What it is compressed by.
        compression: Compression,
        /// What the decompressor says.
        source: io::Error,
    },
    /// The [`Decompressor`](super::Decompressor)'s limit.
    #[error("the batch is more than {limit} bytes when decompressed")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// A record in it.
    #[error("a record of the batch is malformed")]
    Record(#[source] RecordFault),
    /// Bytes that belong to no record.
    #[error("the batch has more bytes than its records")]
    Surplus,
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum RecordFault {
    /// A length goes past the end, or there are fewer records than the batch says.
    #[error("the bytes end before it does")]
    Ended,
    /// A number has more bits than its field.
    #[error("a number in it is too long")]
    Number,
    /// A length or count below zero.
    #[error("a length in it is {length}")]
    Negative {
        /// As the record says.
        length: i32,
    },
    /// Its offset is outside the batch, or not above the one before: two records could not be settled apart.
    #[error("its offset is out of order")]
    Order,
    /// Its own length is more than its fields take.
    #[error("it is longer than its fields")]
    Surplus,
}
