//! One suite, run over each provider.

pub(crate) mod keys;
pub(crate) mod lifetime;
pub(crate) mod messages;
pub(crate) mod one_sided;
pub(crate) mod pair;
pub(crate) mod peers;
pub(crate) mod queues;
pub(crate) mod several;

pub(crate) use pair::Provider;

/// Runs the suite over providers. Arguments: the function that brings a test to its host, the
/// reason for which it is ignored elsewhere, and each provider with a name.
macro_rules! suite {
    ($run:path, $reason:literal; $($name:ident = $provider:expr;)*) => {
        $(suite! { @provider $name, $provider, $run, $reason;
            messages: a_message_arrives_with_its_length_and_immediate;
            messages: an_empty_message_and_an_empty_write_arrive;
            messages: an_injected_message_arrives_without_a_completion;
            messages: a_message_longer_than_its_room_is_told_and_the_room_comes_back;
            messages: many_messages_arrive_in_order;
            one_sided: a_write_with_immediate_has_landed_when_its_target_is_told;
            one_sided: a_write_without_immediate_is_silent_at_its_target;
            one_sided: a_delivered_write_is_there_when_it_completes;
            one_sided: a_read_brings_the_peers_memory;
            one_sided: an_injected_write_lands;
            one_sided: atomics_are_there_where_the_endpoint_says_so;
            keys: a_wrong_key_is_refused_where_keys_are_enforced;
            keys: a_region_that_promises_too_much_is_refused_by_its_target;
            keys: a_revoked_region_takes_no_late_write;
            keys: a_write_under_way_ends_with_its_region_where_the_profile_says_so;
            keys: what_reaches_beyond_a_region_is_not_posted;
            keys: a_key_leads_to_nothing_beside_its_bytes;
            keys: a_region_of_an_unenforced_key_needs_somebody_to_vouch_for_it;
            several: parts_of_a_region_are_written_and_read_by_one_operation;
            several: a_read_goes_into_lent_parts_and_not_into_what_others_read;
            several: memory_has_a_key_for_each_domain_and_each_ends_by_itself;
            several: memory_of_an_ended_key_is_kept_while_a_write_may_be_under_way;
            queues: a_full_queue_hands_the_request_back;
            queues: a_driver_waits_for_room;
            queues: several_threads_post_to_one_endpoint;
            queues: a_wait_ends_at_its_deadline_or_with_an_event;
            queues: a_queue_whose_endpoint_is_closed_is_not_slept_on_in_vain;
            queues: what_cannot_be_posted_is_handed_back;
            peers: addresses_are_inserted_looked_up_and_removed;
            peers: an_address_of_another_kind_is_refused;
            peers: many_peers_of_one_address_vector_are_reached;
            lifetime: closing_gives_back_what_was_posted;
            lifetime: a_dropped_region_is_kept_while_a_write_may_be_under_way;
            lifetime: late_completions_of_a_closed_endpoint_are_nobodys;
            lifetime: objects_may_be_dropped_in_every_order;
        })*
    };
    (@provider $name:ident, $provider:expr, $run:path, $reason:literal; $($module:ident: $test:ident;)*) => {
        mod $name {
            $(
                #[test]
                #[ignore = $reason]
                fn $test() {
                    $run(|| $crate::suite::$module::$test(&$provider));
                }
            )*
        }
    };
}

pub(crate) use suite;
