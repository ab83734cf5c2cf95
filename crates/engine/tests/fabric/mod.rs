//! One suite for rails over libfabric, run over each provider: the contract of a rail, and more.

pub(crate) mod ends;
pub(crate) mod pair;
pub(crate) mod rails;
pub(crate) mod requests;

pub(crate) use pair::Place;

/// Runs the suite over places. Takes the function that runs a test in its environment, the reason
/// why tests are ignored elsewhere, and each place with a name.
macro_rules! suite {
    ($run:path, $reason:literal; $($name:ident = $place:expr;)*) => {
        $(suite! { @place $name, $place, $run, $reason;
            requests: what_is_done_is_there_though_nobody_polls;
            requests: a_write_of_several_pieces_fills_several_targets;
            requests: an_immediate_comes_behind_what_it_counts;
            requests: a_read_gathers_several_ranges;
            requests: a_full_rail_hands_the_request_back;
            requests: what_can_never_be_done_is_handed_back_with_a_reason;
            ends: a_closed_link_takes_nothing_and_gives_all_back;
            ends: a_reset_gives_back_all_and_a_new_link_works;
            ends: a_peer_that_was_reset_costs_its_links_and_not_the_rail;
            ends: a_rail_that_was_reset_can_be_slept_on;
            ends: revoked_memory_takes_no_late_write;
            ends: dead_keys_hold_memory_up_to_a_bound;
            ends: a_new_link_takes_the_place_of_one_that_failed;
            ends: a_rail_that_is_dropped_lets_go_of_what_it_had;
            rails: its_properties_are_what_the_library_says;
            rails: what_is_no_end_is_refused;
            rails: one_memory_is_reached_over_two_rails;
            rails: whoever_sleeps_is_woken;
        })*
    };
    (@place $name:ident, $place:expr, $run:path, $reason:literal; $($module:ident: $test:ident;)*) => {
        mod $name {
            /// Calls a part of the contract. More messages come than there are receive buffers.
            fn over(part: fn($crate::fabric::pair::Pair)) {
                let settings =
                    farreach::rails::fabric::FabricSettings { receive_count: 4, ..Default::default() };
                $run(|| part($crate::fabric::pair::Pair::open_with(&$place, &settings)));
            }

            $crate::contract::contract! { [#[ignore = $reason]] over }

            $(
                #[test]
                #[ignore = $reason]
                fn $test() {
                    $run(|| $crate::fabric::$module::$test(&$place));
                }
            )*
        }
    };
}

pub(crate) use suite;
