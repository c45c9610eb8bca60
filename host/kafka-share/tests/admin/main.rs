//! What an administrator can do: one list of cases, on a cluster in memory and on real brokers; and what only one of both
//! can show.
#![allow(clippy::unwrap_used, reason = "in the helpers of a test, a failure is the test's failure")]

/// The cases that hold everywhere, as tests on the stage that `$stage` gives.
macro_rules! play {
    ($stage:expr) => {
        play! {
            $stage;
            groups_are_listed_and_described,
            a_group_that_is_not_there,
            offsets_are_told_from_the_first_record_on,
            a_group_is_set_to_a_position_when_nobody_is_in_it,
            a_group_is_set_to_offsets_that_there_are,
            a_group_can_be_told_where_to_begin_before_it_is_there,
            topics_are_forgotten_and_groups_deleted,
            groups_are_configured,
            what_keeps_records_away_is_found,
        }
    };
    ($stage:expr; $($case:ident),+ $(,)?) => {
        $(#[tokio::test]
        async fn $case() {
            crate::cases::$case(&$stage).await;
        })+
    };
}

mod cases;
mod memory;
#[cfg(feature = "real")]
mod real;
mod stage;
