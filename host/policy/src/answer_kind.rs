//! The kinds of answer, as counters have them.

use tidegate_model::{Renewal, Verdict};

use crate::world::World;

/// An answer without its details.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AnswerKind {
    Deliver,
    Defer,
    Reject,
    Discard,
    Renew,
    Release,
    Lapse,
    Resolved,
    Unresolved,
    Partition,
    Observed,
}

impl AnswerKind {
    pub(crate) const ALL: [Self; 11] = [
        Self::Deliver,
        Self::Defer,
        Self::Reject,
        Self::Discard,
        Self::Renew,
        Self::Release,
        Self::Lapse,
        Self::Resolved,
        Self::Unresolved,
        Self::Partition,
        Self::Observed,
    ];

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the callers have it by reference")]
    pub(crate) const fn of_verdict(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Deliver => Self::Deliver,
            Verdict::Defer(_) => Self::Defer,
            Verdict::Reject { .. } => Self::Reject,
            Verdict::Discard { .. } => Self::Discard,
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the callers have it by reference")]
    pub(crate) const fn of_renewal(renewal: &Renewal) -> Self {
        match renewal {
            Renewal::Renew(_) => Self::Renew,
            Renewal::Release => Self::Release,
            Renewal::Lapse => Self::Lapse,
        }
    }

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Deliver => "deliver",
            Self::Defer => "defer",
            Self::Reject => "reject",
            Self::Discard => "discard",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Lapse => "lapse",
            Self::Resolved => "resolved",
            Self::Unresolved => "unresolved",
            Self::Partition => "partition",
            Self::Observed => "observed",
        }
    }

    /// Whether policies of that world give such answers.
    pub(crate) const fn belongs_to(self, world: World) -> bool {
        match self {
            Self::Deliver | Self::Defer | Self::Reject | Self::Discard => {
                matches!(world, World::ThrottlePolicy)
            }
            Self::Renew | Self::Release | Self::Lapse => matches!(world, World::RenewalPolicy),
            Self::Resolved | Self::Unresolved => matches!(world, World::CredentialResolver),
            Self::Partition => matches!(world, World::PartitionerPolicy),
            Self::Observed => matches!(world, World::ThrottlePolicy | World::RenewalPolicy),
        }
    }
}
