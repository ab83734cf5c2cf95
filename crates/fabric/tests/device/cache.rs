//! A provider that takes registrations from a cache, as libfabric's verbs provider does by default.

use farreach_fabric::{Error, Fabric, Hints, Info, RemoteAccess};
use farreach_memory::Memory;
use farreach_testkit::{Device, in_own_process};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn nothing_is_exposed_from_a_cache_of_registrations() {
    // The suite turns the cache off for its process, and a child would inherit that.
    in_own_process(&[("FI_UNIVERSE_SIZE", "32"), ("FI_MR_CACHE_MAX_COUNT", "1024")], || {
        let node = Device::find().address.to_string();
        let offers = Info::query(&Hints::rdm().provider("verbs;ofi_rxm").node(node).source()).unwrap();
        let domain = Fabric::open(&offers[0]).unwrap().open_domain(&offers[0]).unwrap();
        assert!(domain.caches_registrations(), "this provider has a cache");
        let slice = domain.allocate(4096).unwrap();
        let (error, slice) = domain.expose(slice, RemoteAccess::WRITE).unwrap_err();
        assert!(matches!(error, Error::RegistrationCache { .. }), "{error}");
        assert!(error.fix().contains("FI_MR_CACHE_MAX_COUNT=0"), "{}", error.fix());
        assert_eq!(slice.len(), 4096, "it is handed back");
        // The cache would find it at its address, whatever is there.
        let vec = Memory::from_vec(vec![0; 4096]);
        let error = domain.register(vec.memory()).unwrap_err();
        assert!(matches!(error, Error::RegistrationCache { .. }), "{error}");
    });
}
