//! Shared texts: thousands of messages name the same few topics.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;

/// Hands out one shared text per distinct text. Bounded: two generations, of which the older is dropped when the
/// younger is full; a text in use moves to the younger.
#[derive(Debug)]
pub(crate) struct Interner {
    young: HashSet<Arc<str>>,
    old: HashSet<Arc<str>>,
    generation_max: usize,
}

impl Interner {
    /// Remembers at most `texts_max` texts.
    pub(crate) fn new(texts_max: usize) -> Self {
        Self { young: HashSet::new(), old: HashSet::new(), generation_max: (texts_max / 2).max(1) }
    }

    pub(crate) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.young.get(text) {
            return Arc::clone(shared);
        }
        let shared = self.old.take(text).unwrap_or_else(|| Arc::from(text));
        if self.young.len() >= self.generation_max {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_shared() {
        let mut interner = Interner::new(100);
        let (first, second) = (interner.intern("tenant-1"), interner.intern("tenant-1"));
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn a_million_texts_stay_within_bounds_and_a_busy_one_stays_shared() {
        let mut interner = Interner::new(1_000);
        let busy = interner.intern("busy");
        for number in 0..1_000_000 {
            interner.intern(&number.to_string());
            if number % 100 == 0 {
                assert!(Arc::ptr_eq(&busy, &interner.intern("busy")));
            }
        }
        assert!(interner.young.len() + interner.old.len() <= 1_000);
    }
}
