//! The kinds of verdict, as counters have them.

use tidegate_model::Verdict;

/// A verdict without its details.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum VerdictKind {
    Deliver,
    Defer,
    Reject,
    Discard,
}

impl VerdictKind {
    pub(crate) const ALL: [Self; 4] = [Self::Deliver, Self::Defer, Self::Reject, Self::Discard];

    pub(crate) const fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Deliver => Self::Deliver,
            Verdict::Defer(_) => Self::Defer,
            Verdict::Reject { .. } => Self::Reject,
            Verdict::Discard { .. } => Self::Discard,
        }
    }

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Deliver => "deliver",
            Self::Defer => "defer",
            Self::Reject => "reject",
            Self::Discard => "discard",
        }
    }
}
