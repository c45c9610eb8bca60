//! What policies in shadow mode would have said, beside what was followed.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_policy::{Comparison, Kind, Question};

/// The comparisons of one flow, by the shadow's name. Shared by the flow's task, which writes, and its status.
#[derive(Clone, Debug, Default)]
pub(super) struct Shadows(Arc<Mutex<BTreeMap<Arc<str>, Comparison>>>);

impl Shadows {
    pub(super) fn note(&self, policy: &Arc<str>, question: &Question<'_>, live: Kind, shadow: Kind) {
        let mut shadows = self.0.lock();
        let comparison = match shadows.get_mut(policy) {
            Some(comparison) => comparison,
            None => shadows.entry(Arc::clone(policy)).or_default(),
        };
        comparison.note(question, live, shadow);
    }

    pub(super) fn all(&self) -> BTreeMap<Arc<str>, Comparison> {
        self.0.lock().clone()
    }
}
