//! Ranges of offsets.

use std::fmt;

/// Offsets from the first to the last one, both of them in it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct OffsetRange {
    /// The lowest offset.
    pub first: i64,
    /// The highest offset; a range whose last offset is below its first one is empty.
    pub last: i64,
}

impl OffsetRange {
    /// Every offset that there is.
    pub const ALL: Self = Self { first: 0, last: i64::MAX };

    /// From the first to the last one, both of them in it.
    #[must_use]
    pub const fn new(first: i64, last: i64) -> Self {
        Self { first, last }
    }

    /// Whether no offset is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.last < self.first
    }

    /// Whether the offset is in it.
    #[must_use]
    pub const fn contains(self, offset: i64) -> bool {
        self.first <= offset && offset <= self.last
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Option<Self> {
        let both = Self { first: self.first.max(other.first), last: self.last.min(other.last) };
        (!both.is_empty()).then_some(both)
    }
}

impl fmt::Display for OffsetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "offset {}", self.first)
        } else {
            write!(f, "offsets {} to {}", self.first, self.last)
        }
    }
}

/// A set of offsets: ranges in ascending order that neither overlap nor touch, whatever they were made of.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OffsetRanges(Vec<OffsetRange>);

impl OffsetRanges {
    /// Its ranges, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[OffsetRange] {
        &self.0
    }

    /// Whether no offset is in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the offset is in it.
    #[must_use]
    pub fn contains(&self, offset: i64) -> bool {
        self.overlaps(OffsetRange::new(offset, offset))
    }

    /// Whether an offset of the range is in it.
    #[must_use]
    pub fn overlaps(&self, range: OffsetRange) -> bool {
        let at = self.0.partition_point(|own| own.last < range.first);
        self.0.get(at).is_some_and(|own| own.intersection(range).is_some())
    }
}

impl FromIterator<OffsetRange> for OffsetRanges {
    fn from_iter<T: IntoIterator<Item = OffsetRange>>(ranges: T) -> Self {
        let mut ranges: Vec<OffsetRange> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| range.first);
        ranges.dedup_by(|next, kept| {
            let joined = next.first <= kept.last.saturating_add(1);
            if joined {
                kept.last = kept.last.max(next.last);
            }
            joined
        });
        Self(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(i64, i64)]) -> OffsetRanges {
        ranges.iter().map(|&(first, last)| OffsetRange::new(first, last)).collect()
    }

    #[test]
    fn ranges_are_put_in_order_and_joined() {
        let made = set(&[(20, 29), (5, 9), (9, 12), (13, 14), (30, 29), (22, 23)]);
        assert_eq!(made.as_slice(), [OffsetRange::new(5, 14), OffsetRange::new(20, 29)]);
        assert_eq!(set(&[(0, i64::MAX), (3, 4)]).as_slice(), [OffsetRange::ALL]);
    }

    #[test]
    fn what_is_in_it_and_what_is_not() {
        let set = set(&[(5, 9), (20, 20)]);
        for (offset, wanted) in [(4, false), (5, true), (9, true), (10, false), (20, true), (21, false)] {
            assert_eq!(set.contains(offset), wanted, "{offset}");
        }
        assert!(set.overlaps(OffsetRange::new(0, 5)));
        assert!(!set.overlaps(OffsetRange::new(10, 19)));
        assert!(!set.overlaps(OffsetRange::new(9, 5)), "nothing overlaps an empty range");
        assert!(!OffsetRanges::default().contains(0));
    }

    #[test]
    fn a_range_in_words() {
        assert_eq!(OffsetRange::new(7, 7).to_string(), "offset 7");
        assert_eq!(OffsetRange::new(7, 9).to_string(), "offsets 7 to 9");
    }
}
