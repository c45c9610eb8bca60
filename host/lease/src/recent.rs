//! A bounded set of delivery ids that forgets the oldest.

use std::collections::{HashSet, VecDeque};

use tidegate_model::DeliveryId;

/// Emitted deliveries whose lease ran out, so that their late report gets a truthful answer.
#[derive(Debug)]
pub(crate) struct Recent {
    max: usize,
    ids: HashSet<DeliveryId>,
    /// In order of insertion; may hold ids that were removed since.
    order: VecDeque<DeliveryId>,
}

impl Recent {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, ids: HashSet::new(), order: VecDeque::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn insert(&mut self, id: DeliveryId) {
        if self.order.len() >= self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        if self.max > 0 {
            self.ids.insert(id);
            self.order.push_back(id);
        }
    }

    /// True when it was there.
    pub(crate) fn remove(&mut self, id: DeliveryId) -> bool {
        let found = self.ids.remove(&id);
        if self.ids.is_empty() {
            self.order.clear();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut recent = Recent::new(2);
        for id in 1..=3 {
            recent.insert(DeliveryId(id));
        }
        assert!(!recent.remove(DeliveryId(1)));
        assert!(recent.remove(DeliveryId(2)));
        assert!(!recent.remove(DeliveryId(2)));
        assert!(recent.remove(DeliveryId(3)));
        assert_eq!(recent.len(), 0);
    }
}
