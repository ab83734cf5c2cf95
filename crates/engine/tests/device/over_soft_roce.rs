//! The suite over Soft-RoCE: with two devices as rails, and with libfabric's verbs provider, on
//! whose connections `ofi_rxm` builds reliable datagrams.

use std::process::Command;
use std::sync::Once;

use farreach::Engine;
use farreach_testkit::{Device, wait_for};

use crate::suite::RailUnderTest;

const TWO_RAILS: RailUnderTest = RailUnderTest {
    open: |settings| Engine::with(settings.rails(two_devices())).unwrap(),
    has_atomics: Some(true),
    rails: 2,
};

const VERBS_UNDER_RXM: RailUnderTest = RailUnderTest {
    open: |settings| Engine::with(settings.rails([by_libfabric()])).unwrap(),
    has_atomics: Some(true),
    rails: 1,
};

/// These run in one guest only; the tests of the rails run in every guest.
mod one_guest {
    use crate::suite::suite;

    suite! {
        farreach_testkit::on_host_a, "needs an RDMA device: cargo xtask vm test runs it";
        two_rails = crate::over_soft_roce::TWO_RAILS;
        verbs_under_rxm = crate::over_soft_roce::VERBS_UNDER_RXM;
    }
}

/// Returns the device of this guest, and a second one over its own network.
fn two_devices() -> [String; 2] {
    static SECOND: Once = Once::new();
    SECOND.call_once(|| {
        for line in [
            "ip link add v8 type veth peer name v9",
            "ip address add 198.51.100.1/24 dev v8",
            "ip link set v8 up",
            "ip link set v9 up",
            "rdma link add rxe8 type rxe netdev v8",
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            // An earlier test may have created it.
            let made = Command::new(words[0]).args(&words[1..]).output().unwrap();
            let told = String::from_utf8_lossy(&made.stderr);
            let is_there = told.contains("exists") || told.contains("already assigned");
            assert!(made.status.success() || is_there, "{line}: {told}");
        }
        wait_for("address of the second device", || {
            let gids = std::fs::read_dir("/sys/class/infiniband/rxe8/ports/1/gids").ok()?;
            let texts = gids.flatten().filter_map(|gid| std::fs::read_to_string(gid.path()).ok());
            texts.into_iter().find(|text| text.trim().ends_with("c633:6401"))
        });
    });
    [Device::find().name, "rxe8".to_owned()]
}

/// Returns the device of this guest as a rail of libfabric.
fn by_libfabric() -> String {
    static SETTINGS: Once = Once::new();
    SETTINGS.call_once(|| {
        // With its default number of peers, the provider requests a longer completion queue than
        // Soft-RoCE supports. With its registration cache, no memory can be exposed.
        for (name, value) in [("FI_UNIVERSE_SIZE", "32"), ("FI_MR_CACHE_MAX_COUNT", "0")] {
            // SAFETY: called once, before libfabric is used, and device tests run one at a time.
            unsafe { std::env::set_var(name, value) };
        }
    });
    format!("verbs;ofi_rxm@{}", Device::find().address)
}
