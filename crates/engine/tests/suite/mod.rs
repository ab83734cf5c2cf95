//! One suite, run over each provider: what a user of the engine relies on, over any transport.

pub(crate) mod atomics;
pub(crate) mod cancelled;
pub(crate) mod contiguous;
pub(crate) mod counters;
pub(crate) mod ends;
pub(crate) mod grants;
pub(crate) mod lists;
pub(crate) mod many;
pub(crate) mod messages;
pub(crate) mod pages;
mod pair;
pub(crate) mod peers;
pub(crate) mod publications;
pub(crate) mod shared_counters;
pub(crate) mod streams;
pub(crate) mod terms;
pub(crate) mod waits;

#[allow(unused_imports, reason = "not every program has tests of its own beside the suite")]
pub(crate) use pair::{Pair, RailUnderTest, SOON, fill, grant, join, settings};

/// Runs the suite over providers. Takes the function that runs a test in its environment,
/// optionally the reason why tests are ignored elsewhere, and each provider with a name.
macro_rules! suite {
    ($run:path; $($name:ident = $provider:expr;)*) => {
        suite! { @all [] $run; $($name = $provider;)* }
    };
    ($run:path, $reason:literal; $($name:ident = $provider:expr;)*) => {
        suite! { @all [#[ignore = $reason]] $run; $($name = $provider;)* }
    };
    (@all $attributes:tt $run:path; $($name:ident = $provider:expr;)*) => {
        $(suite! { @provider $attributes $name, $provider, $run;
            messages: messages_arrive_in_order_each_once;
            messages: an_empty_one_and_the_longest_arrive_and_a_longer_one_is_refused;
            messages: a_sender_waits_for_one_who_does_not_take_them;
            pages: pages_arrive_where_the_map_says;
            pages: scattered_pages_of_many_sizes_are_there_when_the_counter_says_so;
            pages: a_shared_source_goes_to_two_peers_at_once;
            pages: pages_are_read_from_where_the_map_says;
            pages: what_is_out_of_bounds_is_refused_before_it_is_posted;
            pages: a_transfer_that_nobody_waits_for_arrives;
            pages: many_transfers_at_once_through_a_small_queue;
            pages: an_explanation_adds_up;
            contiguous: ranges_of_any_length_arrive_and_are_counted_once;
            contiguous: memory_comes_back_in_the_form_in_which_it_was_given;
            contiguous: a_refused_range_gives_its_memory_back;
            contiguous: a_vector_in_flight_is_freed_after_its_transfer;
            contiguous: a_vector_is_granted_where_a_rail_can;
            contiguous: parts_of_remote_memory_are_bounded;
            lists: regions_arrive_where_the_list_says;
            lists: regions_are_read_into_their_memory;
            lists: ten_thousand_segments_are_one_transfer;
            lists: a_refused_list_gives_its_memory_back;
            lists: a_list_ends_with_the_first_grant_that_is_revoked;
            lists: a_prepared_write_starts_many_times_at_once;
            lists: a_prepared_read_gives_its_memory_back_at_the_end;
            lists: subsets_are_checked_when_they_are_made;
            lists: a_prepared_transfer_ends_with_its_peer;
            lists: a_prepared_transfer_may_be_dropped_at_any_point;
            counters: a_wait_ends_at_its_deadline;
            counters: a_wait_ends_when_the_peer_is_gone;
            counters: a_wait_ends_when_the_transfer_is_given_up;
            counters: a_counter_counts_for_its_own_peer_alone;
            grants: a_slice_comes_back_with_what_was_written;
            grants: what_was_revoked_takes_no_more_pages;
            grants: rights_are_kept;
            grants: a_grant_of_a_lost_peer_comes_back;
            grants: what_came_back_is_granted_again;
            publications: many_peers_open_what_was_published_once;
            publications: a_publication_is_revoked_for_one_peer_alone;
            publications: a_peer_that_is_revoked_while_it_opens_has_nothing_afterwards;
            publications: published_memory_comes_back_from_all_peers;
            publications: published_memory_outlives_a_peer;
            publications: a_publication_that_is_dropped_ends;
            publications: shared_memory_is_published_for_reading;
            atomics: atomics_add_and_swap_where_a_rail_can;
            peers: eight_peers_at_once;
            peers: futures_need_no_thread_that_waits;
            peers: threads_share_an_engine;
            peers: a_peer_that_leaves_and_comes_again_is_served;
            peers: nobody_listens_and_a_stranger_are_told_of;
            peers: an_engine_that_ends_ends_all_waits;
            ends: the_last_message_arrives;
            ends: what_an_engine_that_ends_has_received_is_confirmed;
            ends: the_last_pages_are_counted;
            ends: whoever_closes_waits_until_its_messages_are_held;
            ends: an_engine_that_is_closed_leaves_all_its_peers;
            ends: a_peer_keeps_its_engine_going;
            ends: a_grant_that_was_handed_back_is_revoked_again;
            ends: a_revoke_that_nobody_waits_for_keeps_no_peer;
            ends: a_grant_outlives_the_handle_on_its_peer;
            ends: a_waker_that_waits_or_panics_ends_nothing;
            ends: no_time_is_too_long_for_a_wait;
            cancelled: futures_may_be_dropped_at_any_point;
            cancelled: thousands_of_transfers_leave_no_memory;
            cancelled: an_engine_may_be_dropped_in_a_waker;
            cancelled: a_token_of_a_counter_that_is_closed_raises_no_other;
            many: peers_are_listed_while_they_are_connected_and_held;
            many: events_tell_of_connections_and_losses;
            many: a_message_of_any_peer_is_received_once;
            many: a_peer_that_floods_does_not_starve_another;
            many: a_wait_for_one_peer_goes_before_a_wait_for_any;
            many: a_wait_for_any_that_is_dropped_loses_no_message;
            many: messages_of_a_lost_peer_are_received;
            many: messages_from_before_the_first_wait_are_received;
            many: waits_for_any_peer_end_with_the_engine;
            many: a_waker_may_wait_for_any_peer;
            terms: a_deadline_that_has_passed_refuses_every_transfer;
            terms: a_deadline_ends_a_transfer_and_gives_its_memory_back;
            terms: an_urgent_transfer_is_done_before_large_ones_that_began_earlier;
            terms: a_handle_with_other_terms_is_the_same_peer;
            waits: the_first_of_several_results_is_found;
            waits: all_of_several_results_are_waited_for;
            waits: a_wait_for_several_ends_when_a_peer_is_lost;
            waits: changes_without_a_result_extend_no_wait;
            waits: threads_wait_for_several_results_at_once;
            shared_counters: pages_of_several_peers_are_added_up;
            shared_counters: each_of_several_peers_is_waited_for;
            shared_counters: waits_for_several_peers_end_when_one_is_lost;
            shared_counters: a_request_to_open_a_counter_ends_with_its_peer;
            streams: a_connection_that_was_made_elsewhere_becomes_a_peer;
            streams: what_becomes_of_a_stream_is_told_to_its_own_side;
        })*
    };
    (@provider $attributes:tt $name:ident, $provider:expr, $run:path; $($module:ident: $test:ident;)*) => {
        mod $name {
            $(super::suite! { @test $attributes $run, $provider, $module, $test })*
        }
    };
    (@test [$($attribute:tt)*] $run:path, $provider:expr, $module:ident, $test:ident) => {
        #[test]
        $($attribute)*
        fn $test() {
            $run(|| $crate::suite::$module::$test(&$provider));
        }
    };
}

pub(crate) use suite;
