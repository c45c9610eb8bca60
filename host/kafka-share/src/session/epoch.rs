//! The number that a session's requests carry.

/// Closes a session.
pub(super) const CLOSING: i32 = -1;
/// Opens one.
const OPENING: i32 = 0;

/// What the next request carries.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Epoch {
    /// There is no session: the next fetch opens one.
    #[default]
    Closed,
    /// The broker expects this one.
    Open(i32),
}

impl Epoch {
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Open(_))
    }

    pub(super) const fn code(self) -> i32 {
        match self {
            Self::Closed => OPENING,
            Self::Open(next) => next,
        }
    }

    /// After a request that the broker took, whatever it said about its partitions.
    pub(super) const fn advance(&mut self) {
        *self = match *self {
            Self::Closed | Self::Open(i32::MAX) => Self::Open(1),
            Self::Open(next) => Self::Open(next + 1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_from_0_and_wraps_to_1() {
        let mut epoch = Epoch::default();
        assert_eq!(epoch.code(), 0);
        epoch.advance();
        assert_eq!(epoch.code(), 1);
        epoch.advance();
        assert_eq!(epoch.code(), 2);
        epoch = Epoch::Open(i32::MAX);
        epoch.advance();
        assert_eq!(epoch.code(), 1);
    }
}
