//! Record batches (message format 2), as brokers store and send them.
//!
//! [`Batches`] walks the `Records` bytes of a fetch response batch by batch; a [`Batch`] gives its [`Records`], all or
//! those in wanted ranges of offsets; each [`Record`] is slices of the response, or of one decompressed buffer.
//! [`BatchBuilder`] makes a batch.
//!
//! A broker cuts the last batch where the response is full, so a cut end is usual and no error: [`Batches::ending`] tells
//! it. A batch that cannot be read is an error of that batch alone, with the offsets that it is about, and the walk goes
//! on with the next one. Whoever settles offsets must know the two apart from an offset that has no record: that one is a
//! gap, while what lies behind a cut end has not been seen at all.
//!
//! It reads no message sets of the formats 0 and 1, which brokers have not written since Kafka 0.11.
//!
//! The layout is that of Kafka's `DefaultRecordBatch` and `DefaultRecord`. Numbers are big-endian; `varint` and `varlong`
//! are zigzag with seven bits a byte, least significant first.

mod batch;
mod batches;
mod compression;
mod encode;
mod error;
mod layout;
mod ranges;
mod record;
mod varint;

#[cfg(test)]
mod tests;

pub use batch::{Batch, TimestampType};
pub use batches::{Batches, Ending};
pub use compression::{Compression, Decompressor};
pub use encode::{BatchBuilder, BuildError, NewRecord};
pub use error::{BatchError, BatchFault, RecordFault};
pub use ranges::{OffsetRange, OffsetRanges};
pub use record::{Header, Headers, Record, Records};
