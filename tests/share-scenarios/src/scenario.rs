//! The one list of scenarios.

mod access;
mod acks;
mod chain;
mod damage;
mod flow;
mod groups;
mod limits;
mod locks;
mod mixed;
mod nodes;
mod quiet;
mod topics;
mod trouble;

use std::pin::Pin;

use crate::play::Play;
use crate::stage::Stand;
use crate::stands::Side;

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name, also the beginning of the names of its topics and groups.
    pub name: &'static str,
    /// The cluster that it needs.
    pub stand: Stand,
    /// Where alone it can be played: what it is about is there only.
    pub only: Option<Side>,
    /// Plays it; a panic is a failure.
    pub play: fn(Play) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// `stand: module => function, ...` as [`Scenario`] values named after their functions; `(side)` before the stand where it
/// is for one side only.
macro_rules! scenarios {
    (@only) => { None };
    (@only $side:ident) => { Some(Side::$side) };
    ($($(($side:ident))? $stand:ident: $module:ident => $name:ident,)*) => {
        &[$(Scenario {
            name: stringify!($name),
            stand: Stand::$stand,
            only: scenarios!(@only $($side)?),
            play: |play| Box::pin($module::$name(play)),
        }),*]
    };
}

/// All of them. Those that have a cluster to themselves come first: they wait for each other.
pub const ALL: &[Scenario] = scenarios! {
    Three: nodes => a_leader_moves_between_acknowledgements,
    Three: nodes => a_killed_leaders_records_come_from_the_next,
    Three: nodes => a_killed_coordinator_is_replaced,
    Three: nodes => a_frozen_leader_keeps_only_its_own_back,
    (Memory) Three: trouble => an_old_leaders_session_is_let_go,
    Three: trouble => the_record_limit_holds_over_all_leaders,
    Three: trouble => administration_asks_the_groups_coordinators,
    Three: trouble => a_close_while_a_leader_moves_answers_everything,
    Crash: nodes => a_killed_broker_comes_back,
    Crash: nodes => a_broker_is_stopped_in_order_and_comes_back,
    Crash: nodes => a_frozen_broker_is_told_and_goes_on,
    Narrow: limits => a_full_group_is_told_and_joined_when_there_is_room,
    Narrow: limits => full_sessions_are_told_and_opened_when_there_is_room,
    One: chain => a_chain_of_three_groups_loses_no_key,
    One: groups => two_members_in_a_storm,
    One: groups => five_members_in_a_storm,
    One: groups => a_dead_members_records_come_to_the_others,
    One: groups => members_share_fairly,
    One: groups => a_leaving_member_gives_back_at_once,
    One: groups => a_resting_members_partitions_go_to_others,
    One: groups => two_groups_have_all_each,
    (Real) One: mixed => members_of_ours_and_of_java_share_a_group,
    (Real) One: mixed => members_of_ours_and_of_librdkafka_share_a_group,
    (Real) One: mixed => members_of_three_clients_share_a_group,
    (Real) One: mixed => a_killed_java_members_records_come_to_ours,
    (Real) One: mixed => a_killed_librdkafka_members_records_come_to_ours,
    (Real) One: mixed => records_are_released_to_java_and_back,
    (Real) One: mixed => records_are_released_to_librdkafka_and_back,
    (Real) One: mixed => a_renewed_record_is_kept_from_java,
    (Real) One: mixed => a_renewed_record_is_kept_from_librdkafka,
    One: trouble => deaths_use_up_deliveries,
    One: trouble => a_partition_that_went_to_another_is_not_fetched,
    (Memory) One: trouble => overlapping_ranges_are_taken_once,
    One: locks => a_renewed_record_stays_with_its_holder,
    One: locks => renewal_that_is_switched_off_is_told,
    One: locks => an_ended_lock_is_told_and_the_record_comes_once_more,
    One: acks => acceptance_release_and_rejection_mixed,
    One: acks => what_is_settled_cannot_be_settled_again,
    One: acks => the_delivery_limit_ends_deliveries,
    One: acks => the_record_limit_is_exact,
    One: acks => what_is_held_is_bounded,
    One: flow => the_first_record_comes_soon,
    One: flow => ten_thousand_records_once,
    One: flow => records_come_as_they_were_written,
    One: flow => every_compression_is_read,
    One: flow => a_record_larger_than_a_fetch_comes,
    One: flow => transactions_leave_no_trace,
    One: flow => dead_servers_among_living_ones,
    One: topics => a_topic_is_made_later,
    One: topics => a_deleted_topic_leaves_the_others_alone,
    One: topics => a_topic_is_deleted_and_made_anew,
    One: topics => partitions_are_added,
    One: topics => a_pattern_follows_topics,
    Guarded: access => a_right_is_withdrawn_and_given_twice,
    Guarded: access => a_wrong_password_is_told,
    Guarded: access => a_password_of_the_plain_mechanism,
    (Real) Guarded: access => passwords_of_both_kinds_of_scram,
    (Real) Guarded: access => a_wrong_scram_password_is_told,
    (Real) Guarded: access => a_token,
    (Real) Guarded: access => an_encrypted_connection,
    (Real) Guarded: access => a_client_certificate,
    (Real) Guarded: access => a_missing_client_certificate_is_told,
    (Real) Guarded: access => plain_text_at_an_encrypted_port_is_told,
    (Real) Guarded: access => encryption_at_a_plain_port_is_told,
    Without: access => missing_share_groups_are_told,
    (Memory) One: quiet => an_idle_member_asks_little,
    (Memory) One: quiet => a_missing_topic_is_asked_for_little,
    (Memory) One: quiet => a_missing_leader_is_asked_for_little,
    (Memory) One: quiet => a_missing_right_is_asked_for_little,
    (Memory) One: quiet => refused_sessions_are_asked_for_little,
    (Memory) Narrow: quiet => a_full_group_is_asked_for_little,
    (Memory) One: damage => empty_batches_are_passed_over,
    (Memory) One: damage => damaged_batches_are_rejected_and_told,
    (Memory) One: damage => an_unknown_compression_is_given_back_and_told,
    (Memory) One: damage => unknown_codes_are_survived,
    (Memory) One: damage => a_member_that_is_always_put_out_asks_little,
    (Memory) Without: damage => missing_share_groups_are_asked_for_little,
    (Memory) One: damage => a_throttled_member_waits,
    (Memory) One: quiet => a_silent_connection_is_replaced,
    (Memory) One: quiet => a_cut_connection_is_replaced,
};
