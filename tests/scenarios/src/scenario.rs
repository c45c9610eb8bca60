//! The one list of scenarios. Each broker's test binary runs all of it.

mod access;
mod deferral;
mod flow;
mod leases;
mod ordering;
mod plain_topics;
mod properties;
mod receipts;
mod renewal;
mod restarts;
mod scale;
mod several;
mod sinks;
mod subscriptions;
mod takeover;

use std::pin::Pin;

use crate::broker::Stand;
use crate::stage::Stage;

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name, also the beginning of the names of its topics and groups.
    pub name: &'static str,
    /// The broker that it needs.
    pub stand: Stand,
    /// Plays it; a panic is a failure.
    pub play: fn(Stage) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// `stand: module => function, ...` as [`Scenario`] values named after their functions.
macro_rules! scenarios {
    ($($stand:ident: $($module:ident)::+ => $name:ident,)*) => {
        &[$(Scenario {
            name: stringify!($name),
            stand: Stand::$stand,
            play: |stage| Box::pin($($module)::+::$name(stage)),
        }),*]
    };
}

/// All of them, the longest first: they run side by side, and the last to end decides how long all takes.
pub const ALL: &[Scenario] = scenarios! {
    Pair: several => two_brokers_and_two_proxies,
    Pair: sinks => a_lite_sink_tries_three_times_and_outlives_its_proxy,
    Restartable: restarts => a_broker_restart_is_survived,
    Restartable: restarts => a_proxy_restart_is_survived,
    Shared: flow::takeover => a_frozen_hosts_messages_come_to_the_other,
    Shared: flow::takeover => a_killed_hosts_messages_come_to_the_other,
    Shared: flow::pause => a_paused_hosts_messages_come_to_the_other,
    Shared: flow::room => a_flow_that_was_full_for_long_gets_the_rest,
    Shared: flow::order => a_deferral_in_the_middle_of_a_batch_keeps_the_order,
    Shared: flow::order => workers_finish_in_any_order,
    Shared: flow::rules => rules_are_edited_while_messages_are_held,
    Shared: flow::valves => the_last_attempt_is_delivered,
    Shared: flow::valves => the_last_attempt_is_a_dead_letter,
    Shared: flow::valves => the_longest_deferral_in_all_ends_in_a_delivery,
    Shared: flow::rejection => rejected_messages_are_published_and_acknowledged,
    Shared: flow::drain => a_stopped_host_finishes_and_leaves_the_rest_to_the_next,
    Shared: flow::failures => a_policy_that_traps_delivers_in_the_end,
    Shared: flow::failures => a_policy_that_traps_defers_in_the_end,
    Shared: flow::failures => a_policy_that_loops_delivers_in_the_end,
    Shared: flow::failures => a_policy_that_loops_defers_in_the_end,
    Shared: receipts => another_host_defers_renews_and_releases,
    Shared: receipts => another_host_settles_thousands,
    Shared: receipts => another_host_settles_and_takes_nothing,
    Narrow: sinks => a_lite_topic_quota_is_named_and_keeps_only_its_own_out,
    Shared: sinks => a_lite_sink_keeps_the_order_of_each_lite_topic,
    Shared: scale => two_thousand_lite_topics_with_a_backlog,
    Guarded: access => tls_with_the_clusters_own_authority,
    Guarded: access => an_unknown_certificate_is_refused_in_a_sentence,
    Guarded: access => any_certificate_is_taken_when_told_to,
    Guarded: access => a_wrong_secret_is_named,
    Guarded: access => no_secret_at_all_is_named,
    Guarded: access => a_missing_right_is_named,
    Guarded: flow::credentials => keys_change_while_messages_flow,
    Shared: plain_topics => a_normal_message_dies_after_its_attempts,
    Shared: plain_topics => a_rejected_normal_message_is_a_dead_letter,
    Shared: receipts => another_host_rejects_a_normal_message,
    Shared: plain_topics => a_message_group_keeps_its_order,
    Shared: plain_topics => a_delayed_message_comes_at_its_time,
    Shared: takeover => another_client_gets_what_the_first_one_held,
    Shared: takeover => two_clients_share_without_duplicates,
    Shared: renewal => a_renewed_normal_message_stays_with_its_holder,
    Shared: renewal => a_renewed_message_group_stays_with_its_holder,
    Shared: renewal => a_renewed_lite_message_stays_with_its_holder,
    Shared: renewal => a_lite_topic_comes_again_after_the_longest_renewal,
    Shared: renewal => a_renewal_is_one_of_its_own_handle,
    Shared: renewal => a_deferral_ends_renewed_leases,
    Shared: leases => an_ended_lease_brings_the_whole_tail_again,
    Shared: leases => an_ended_lease_spares_what_was_acknowledged_in_order,
    Shared: leases => an_expired_handle_is_refused,
    Shared: leases => a_stale_handle_settles_nothing,
    Shared: leases => an_acknowledgement_without_its_lite_topic_settles_nothing,
    Shared: leases => deferral_raises_the_attempt_of_a_lite_message_once,
    Shared: deferral => middle_deferred_while_an_earlier_one_is_held,
    Shared: deferral => the_last_deferral_of_a_batch_decides,
    Shared: deferral => head_deferred_after_its_tail_was_acknowledged,
    Shared: deferral => head_deferred_while_its_tail_is_held,
    Shared: deferral => whole_batch_deferred,
    Shared: deferral => middle_deferred_between_acknowledged_ones,
    Shared: deferral => last_deferred,
    Shared: deferral => a_new_message_waits_behind_a_deferred_head,
    Shared: ordering => a_lite_topic_keeps_its_order,
    Shared: ordering => a_held_head_blocks_only_its_lite_topic,
    Shared: subscriptions => a_missing_wildcard_attribute_is_named,
    Shared: subscriptions => a_group_bound_elsewhere_is_named,
    Shared: subscriptions => a_regular_group_is_named,
    Shared: subscriptions => an_unknown_topic_is_named,
    Shared: subscriptions => a_topic_without_lite_topics_is_named,
    Shared: subscriptions => the_name_servers_port_is_named,
    Shared: properties => the_brokers_internal_property_never_shows,
    Shared: properties => the_brokers_internal_property_is_not_sent,
};
