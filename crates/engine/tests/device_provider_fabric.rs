//! Rails over Soft-RoCE by libfabric: its verbs provider, with reliable datagrams made of its connections by `ofi_rxm`.

#[allow(dead_code)] // engine_provider_fabric uses all of it
mod fabric;

use std::net::IpAddr;
use std::sync::Once;

use fabric::{Place, suite};
use farreach_testkit::{Device, on_host_a};

const VERBS_UNDER_RXM: Place = Place {
    name: "verbs;ofi_rxm",
    bind: Some(device),
    has_atomics: [true, true],
    is_rdma: true,
    has_descriptor: [true, true],
};

// All of the suite but what libfabric does not survive there: docs/PROVIDERS.md tells.
suite! { @place verbs_under_rxm, crate::VERBS_UNDER_RXM, on_host_a, "needs an RDMA device: cargo xtask vm test runs it";
    requests: a_write_lands_and_its_immediate_is_told;
    requests: a_write_without_bytes_tells_its_immediate;
    requests: a_write_of_several_pieces_fills_several_targets;
    requests: a_tick_comes_behind_what_it_counts;
    requests: a_read_fills_lent_parts;
    requests: atomics_are_there_where_the_rail_says_so;
    requests: messages_go_both_ways;
    requests: a_full_rail_hands_the_request_back;
    requests: what_can_never_be_done_is_handed_back_with_a_reason;
    ends: a_closed_link_takes_nothing_and_gives_all_back;
    ends: a_reset_gives_back_all_and_a_new_link_works;
    ends: concealed_memory_takes_no_late_write;
    rails: its_properties_are_what_the_library_says;
    rails: an_end_of_another_kind_is_refused;
    rails: one_memory_is_reached_over_two_rails;
    rails: whoever_sleeps_is_woken;
}

/// The address of the device here.
fn device() -> IpAddr {
    static SETTINGS: Once = Once::new();
    SETTINGS.call_once(|| {
        // For the number of peers that it assumes otherwise, it asks for a longer completion queue than Soft-RoCE has; and from a
        // cache of registrations nothing can be exposed.
        for (name, value) in [("FI_UNIVERSE_SIZE", "32"), ("FI_MR_CACHE_MAX_COUNT", "0")] {
            // SAFETY: once, before libfabric is first asked for anything, and device tests run one at a time.
            unsafe { std::env::set_var(name, value) };
        }
    });
    Device::find().address.into()
}
