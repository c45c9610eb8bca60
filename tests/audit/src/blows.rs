//! When something is done to the system while it works.

use tidegate_process_tests::Random;

/// Blows, and how far the run is when they fall; the last one first.
#[derive(Debug)]
pub(crate) struct Blows<B>(Vec<(u64, B)>);

impl<B: Copy> Blows<B> {
    /// So many of each kind. Each falls at a random moment of its own stretch of the run, so that they are spread and never
    /// foreseen.
    pub(crate) fn plan(kinds: &[(B, u32)], total: u64, random: &mut Random) -> Self {
        let mut blows: Vec<(u64, B)> = Vec::new();
        for (blow, count) in kinds {
            for at in 0..u64::from(*count) {
                let stretch = total / u64::from(*count);
                blows.push((at * stretch + random.below(stretch), *blow));
            }
        }
        blows.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Self(blows)
    }

    /// The next one, when the run is far enough for it.
    pub(crate) fn due(&mut self, reached: u64) -> Option<B> {
        let (at, _) = self.0.last()?;
        if *at > reached {
            return None;
        }
        self.0.pop().map(|(_, blow)| blow)
    }

    /// Whether all have fallen.
    pub(crate) const fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_falls_in_its_own_stretch() {
        let mut blows = Blows::plan(&[('h', 4), ('w', 2)], 1_000, &mut Random::new(7));
        let mut fallen = Vec::new();
        for reached in 0..1_000 {
            while let Some(blow) = blows.due(reached) {
                fallen.push((blow, reached));
            }
        }
        assert!(blows.is_over());
        let of = |kind| fallen.iter().filter(move |(blow, _)| *blow == kind).map(|(_, at)| at);
        assert!(of('h').enumerate().all(|(at, reached)| *reached / 250 == at as u64), "{fallen:?}");
        assert!(of('w').enumerate().all(|(at, reached)| *reached / 500 == at as u64), "{fallen:?}");
    }
}
