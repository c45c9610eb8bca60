//! Compression of a batch's records.

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;
use zstd::zstd_safe::DCtx;

use super::error::BatchFault;

/// What the Java library puts before its snappy blocks, followed by two versions of four bytes each.
pub(super) const SNAPPY_MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
/// The magic with its versions.
pub(super) const SNAPPY_HEADER: usize = 16;
/// No snappy element makes more of its own bytes: a copy of three bytes gives 64.
const SNAPPY_EXPANSION: usize = 22;
/// First guess at how much larger the records are. A wrong guess costs a copy.
const EXPANSION_GUESS: usize = 4;
/// The least that the buffer grows by.
const GROWTH_LEAST: usize = 4096;
/// A zstd context that has grown past this is not kept: usual levels need two megabytes of window and a little more,
/// while a single hostile batch may ask for 128.
const CONTEXT_KEPT_MAX: usize = 4 << 20;

/// What a batch's records are compressed by.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    None = 0,
    /// gzip.
    Gzip = 1,
    /// Snappy: the Java library's framing, or one raw block as some other clients send it.
    Snappy = 2,
    /// LZ4 frames.
    Lz4 = 3,
    /// Zstandard.
    Zstd = 4,
}

impl Compression {
    /// All that there are.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// As in a batch's attributes.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// From a batch's attributes.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::None,
            1 => Self::Gzip,
            2 => Self::Snappy,
            3 => Self::Lz4,
            4 => Self::Zstd,
            _ => return None,
        })
    }
}

/// As Kafka's configuration names it.
impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        })
    }
}

/// Decompresses batches, each into one buffer of at most so many bytes.
///
/// It keeps what can be used again between batches, so keep it too. Besides the buffer, lz4 and zstd work in memory of
/// their own, which a frame's header asks for: at most 17 MB, or for zstd up to 128 MB of address space of which no more
/// is touched than is decompressed.
pub struct Decompressor {
    limit: usize,
    zstd: Option<DCtx<'static>>,
}

impl Decompressor {
    /// With a limit in bytes for the decompressed records of one batch. Batches that are not compressed have no limit:
    /// they are in memory already.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, zstd: None }
    }

    /// The limit in bytes.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// A batch's records as they were before compression.
    pub(super) fn open(&mut self, compression: Compression, packed: &Bytes) -> Result<Bytes, BatchFault> {
        let opened = match compression {
            Compression::None => return Ok(packed.clone()),
            Compression::Gzip => self.read(MultiGzDecoder::new(&packed[..]), packed.len()),
            Compression::Snappy => self.snappy(packed),
            Compression::Lz4 => self.read(FrameDecoder::new(&packed[..]), packed.len()),
            Compression::Zstd => self.zstd(packed),
        };
        match opened {
            Ok(buffer) => Ok(buffer.into()),
            Err(Trouble::TooLarge) => Err(BatchFault::TooLarge { limit: self.limit }),
            Err(Trouble::Damaged(source)) => Err(BatchFault::Decompress { compression, source }),
        }
    }

    fn zstd(&mut self, packed: &[u8]) -> Result<Vec<u8>, Trouble> {
        // After an error the context is in the middle of something: it is dropped.
        let mut context = match self.zstd.take() {
            Some(context) => context,
            None => DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory).map_err(io::Error::from)?,
        };
        let opened = self.read(ZstdDecoder::with_context(packed, &mut context), packed.len())?;
        if context.sizeof() <= CONTEXT_KEPT_MAX {
            self.zstd = Some(context);
        }
        Ok(opened)
    }

    fn snappy(&self, packed: &[u8]) -> Result<Vec<u8>, Trouble> {
        let mut buffer = Vec::new();
        if !packed.starts_with(&SNAPPY_MAGIC) {
            self.snappy_block(packed, &mut buffer)?;
            return Ok(buffer);
        }
        let mut rest = packed.get(SNAPPY_HEADER..).ok_or(io::ErrorKind::UnexpectedEof)?;
        while !rest.is_empty() {
            let (length, blocks) = rest.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
            let length = usize::try_from(i32::from_be_bytes(*length))
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a block's length is below zero"))?;
            let (block, others) = blocks.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
            self.snappy_block(block, &mut buffer)?;
            rest = others;
        }
        Ok(buffer)
    }

    fn snappy_block(&self, block: &[u8], buffer: &mut Vec<u8>) -> Result<(), Trouble> {
        let length = snap::raw::decompress_len(block).map_err(io::Error::from)?;
        // What the block says of itself is not believed before it is known to be possible.
        if length > block.len().saturating_mul(SNAPPY_EXPANSION) {
            return Err(
                io::Error::new(io::ErrorKind::InvalidData, "a block is too short for its length").into()
            );
        }
        let begin = buffer.len();
        let end = begin.saturating_add(length);
        if end > self.limit {
            return Err(Trouble::TooLarge);
        }
        buffer.resize(end, 0);
        let into = buffer.get_mut(begin..).unwrap_or_default();
        snap::raw::Decoder::new().decompress(block, into).map_err(io::Error::from)?;
        Ok(())
    }

    /// Reads all that there is; the buffer grows by what really comes.
    fn read(&self, mut from: impl Read, packed: usize) -> Result<Vec<u8>, Trouble> {
        let guess = packed.saturating_mul(EXPANSION_GUESS).max(GROWTH_LEAST);
        let mut buffer = vec![0; guess.min(self.limit)];
        let mut filled = 0;
        loop {
            if filled == buffer.len() {
                if filled >= self.limit {
                    let more = read_some(&mut from, &mut [0])?;
                    return if more == 0 { Ok(buffer) } else { Err(Trouble::TooLarge) };
                }
                let grown = filled.saturating_mul(2).max(GROWTH_LEAST).min(self.limit);
                buffer.reserve_exact(grown - filled);
                buffer.resize(grown, 0);
            }
            let read = read_some(&mut from, buffer.get_mut(filled..).unwrap_or_default())?;
            if read == 0 {
                buffer.truncate(filled);
                return Ok(buffer);
            }
            filled += read;
        }
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").field("limit", &self.limit).finish_non_exhaustive()
    }
}

fn read_some(from: &mut impl Read, into: &mut [u8]) -> Result<usize, Trouble> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return Ok(read?),
        }
    }
}

enum Trouble {
    TooLarge,
    Damaged(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Damaged(error)
    }
}

impl From<io::ErrorKind> for Trouble {
    fn from(kind: io::ErrorKind) -> Self {
        Self::Damaged(kind.into())
    }
}
