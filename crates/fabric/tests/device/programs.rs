//! The program `write_pages` over Soft-RoCE.

use farreach_testkit::Device;

use crate::write_pages::Place;

const VERBS_UNDER_RXM: Place = Place {
    provider: || "verbs;ofi_rxm",
    node: Some(|| Device::find().address.to_string()),
    // With its default number of peers, the provider asks for a longer completion queue than
    // Soft-RoCE has; and with a cache of registrations, nothing can be exposed.
    environment: &[("FI_UNIVERSE_SIZE", "32"), ("FI_MR_CACHE_MAX_COUNT", "0")],
    is_emulated: true,
};

/// Long under emulation, and the same everywhere.
mod one_guest {
    use crate::write_pages::program_suite;

    program_suite! {
        farreach_testkit::on_host_a, "needs an RDMA device: cargo xtask vm test runs it";
        soft_roce = crate::programs::VERBS_UNDER_RXM;
    }
}
