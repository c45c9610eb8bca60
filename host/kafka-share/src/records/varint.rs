//! Numbers of variable length, and a reader of records that never goes past the end.

use super::error::RecordFault;

/// Reads a record's fields one after another.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes have been read.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    pub(super) const fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The next so many bytes.
    #[inline]
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], RecordFault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..length).ok_or(RecordFault::Ended)?;
        self.at += length;
        Ok(taken)
    }

    /// The bytes whose length comes before them; none where that is -1.
    #[inline]
    pub(super) fn nullable(&mut self) -> Result<Option<&'a [u8]>, RecordFault> {
        match self.varint()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| RecordFault::Negative { length })?;
                self.take(length).map(Some)
            }
        }
    }

    /// A length or a count, which is not negative.
    #[inline]
    pub(super) fn length(&mut self) -> Result<usize, RecordFault> {
        let length = self.varint()?;
        usize::try_from(length).map_err(|_| RecordFault::Negative { length })
    }

    /// A number of 32 bits.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<i32, RecordFault> {
        let raw = self.unsigned(u64::from(u32::MAX))?;
        // Within 32 bits, as was just asked for.
        let raw = u32::try_from(raw).map_err(|_| RecordFault::Number)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// A number of 64 bits.
    #[inline]
    pub(super) fn varlong(&mut self) -> Result<i64, RecordFault> {
        let raw = self.unsigned(u64::MAX)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    #[inline]
    fn unsigned(&mut self, max: u64) -> Result<u64, RecordFault> {
        // Nearly all numbers of a record are of one byte.
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.several(max),
        }
    }

    fn several(&mut self, max: u64) -> Result<u64, RecordFault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let mut value = 0;
        for (position, &byte) in rest.iter().enumerate() {
            let bits = u64::from(byte & 0x7f);
            let shift = 7 * position;
            // Bits that are shifted out of 64 are as wrong as a byte too many.
            if shift > 63 || bits << shift >> shift != bits {
                return Err(RecordFault::Number);
            }
            value |= bits << shift;
            if value > max {
                return Err(RecordFault::Number);
            }
            if byte & 0x80 == 0 {
                self.at += position + 1;
                return Ok(value);
            }
        }
        Err(RecordFault::Ended)
    }
}

/// Writes a number of either size: what 32 bits hold is the same bytes in both.
pub(super) fn put(into: &mut Vec<u8>, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while raw > 0x7f {
        into.push((raw & 0x7f) as u8 | 0x80);
        raw >>= 7;
    }
    into.push(raw as u8);
}

/// Writes a length; what is too long for the format makes the whole batch too long, which is told there.
pub(super) fn put_length(into: &mut Vec<u8>, length: usize) {
    put(into, i64::try_from(length).unwrap_or(i64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_their_bytes() {
        // From the definition of zigzag: 0, -1, 1, -2 are 0, 1, 2, 3.
        let pairs: [(i64, &[u8]); 9] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (-2, &[3]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 1]),
            (i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ];
        for (value, bytes) in pairs {
            let mut written = Vec::new();
            put(&mut written, value);
            assert_eq!(written, bytes, "{value}");
            assert_eq!(i64::from(Reader::new(bytes).varint().unwrap()), value);
            assert_eq!(Reader::new(bytes).varlong().unwrap(), value);
        }
        for value in [i64::MAX, i64::MIN, i64::MAX / 3] {
            let mut written = Vec::new();
            put(&mut written, value);
            assert_eq!(Reader::new(&written).varlong().unwrap(), value);
        }
    }

    #[test]
    fn numbers_that_are_too_long_or_cut() {
        let number = |bytes: &[u8]| Reader::new(bytes).varint();
        assert!(matches!(number(&[0xff, 0xff, 0xff, 0xff, 0x1f]), Err(RecordFault::Number)));
        assert!(matches!(number(&[0x80, 0x80, 0x80, 0x80, 0x80, 1]), Err(RecordFault::Number)));
        assert!(matches!(number(&[0xff, 0xff]), Err(RecordFault::Ended)));
        assert!(matches!(number(&[]), Err(RecordFault::Ended)));
        let long = |bytes: &[u8]| Reader::new(bytes).varlong();
        let mut ten = [0xff; 10];
        ten[9] = 1;
        assert_eq!(long(&ten).unwrap(), i64::MIN);
        ten[9] = 2;
        assert!(matches!(long(&ten), Err(RecordFault::Number)));
        assert!(matches!(long(&[0x80; 11]), Err(RecordFault::Number)));
    }

    #[test]
    fn a_failed_read_takes_nothing() {
        let mut reader = Reader::new(&[6, 1, 2]);
        assert!(matches!(reader.nullable(), Err(RecordFault::Ended)));
        let mut reader = Reader::new(&[3]);
        assert!(matches!(reader.nullable(), Err(RecordFault::Negative { length: -2 })));
        let mut reader = Reader::new(&[1, 4, 7, 8]);
        assert_eq!(reader.nullable().unwrap(), None);
        assert_eq!(reader.nullable().unwrap(), Some(&[7, 8][..]));
        assert!(reader.is_at_end());
    }
}
