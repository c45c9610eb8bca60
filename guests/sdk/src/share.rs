//! What part of a whole is one key's share.

/// How shares are measured out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Part of the whole that a key may always take, 0 to 1.
    pub always: f64,
    /// How many even shares it may take, at least 1.
    pub factor: f64,
}

impl Shares {
    /// The part of the whole that a key may take when so many are active, 0 to 1.
    ///
    /// Some even shares; with many keys, where those are tiny, a fixed part; with two or three, where they are nearly
    /// everything, half of what is beyond an even share, so that one of two keys can be above its share at all.
    #[must_use]
    pub fn allowed(&self, active_keys: u32) -> f64 {
        let even = 1.0 / f64::from(active_keys.max(1));
        (self.factor * even).max(self.always).min(f64::midpoint(1.0, even))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_keys_have_a_fixed_part_some_have_even_shares_and_two_leave_room_for_each_other() {
        let shares = Shares { always: 0.1, factor: 2.0 };
        for (active_keys, expected) in
            [(0, 1.0), (1, 1.0), (2, 0.75), (4, 0.5), (8, 0.25), (20, 0.1), (1_000, 0.1)]
        {
            let allowed = shares.allowed(active_keys);
            assert!((allowed - expected).abs() < 1e-9, "{active_keys} keys: {allowed}");
        }
    }
}
