//! The suite over Soft-RoCE: libfabric's verbs provider, with reliable datagrams built on its
//! connections by `ofi_rxm`.

use std::sync::Once;

use farreach_testkit::Device;

use crate::suite::{Provider, suite};

const VERBS_UNDER_RXM: Provider = Provider {
    names: ["verbs;ofi_rxm", "verbs;ofi_rxm"],
    node: Some(device),
    has_atomics: true,
    has_descriptor: [true, true],
    // The card delivers.
    delivers_unpolled: true,
    wrong_key_lands: [false, false],
    // Closing a queue pair is slow under emulation.
    drop_orders_step: 37,
    endpoints_max: 8,
};

suite! {
    farreach_testkit::on_host_a, "needs an RDMA device: cargo xtask vm test runs it";
    verbs_under_rxm = crate::over_soft_roce::VERBS_UNDER_RXM;
}

/// Returns the address of the device here.
fn device() -> String {
    static SETTINGS: Once = Once::new();
    SETTINGS.call_once(|| {
        // With its default number of peers, the provider asks for a longer completion queue than
        // Soft-RoCE has; and with a cache of registrations, nothing can be exposed.
        for (name, value) in [("FI_UNIVERSE_SIZE", "32"), ("FI_MR_CACHE_MAX_COUNT", "0")] {
            // SAFETY: this runs once, before the first call of libfabric, and device tests run one
            // at a time.
            unsafe { std::env::set_var(name, value) };
        }
    });
    Device::find().address.to_string()
}
