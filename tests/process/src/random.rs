//! Chance, the same at every run with the same seed.

/// A generator (xorshift) that is good enough to choose moments.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}
