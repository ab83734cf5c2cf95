//! Which rails a host has, and their names.

use farreach::rails::verbs::{VerbsRail, VerbsSettings, rails, rails_named};
use farreach_testkit::{Device, on_host_a};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_rails_of_a_host_are_its_active_ports_that_have_an_address_here() {
    on_host_a(|| {
        let (device, settings) = (Device::find(), VerbsSettings::default());
        let found = rails(&settings);
        let names: Vec<_> = found.iter().map(|rail| rail.name()).collect();
        let expected: Vec<_> = Device::all().into_iter().map(|device| device.name).collect();
        assert_eq!(names, expected, "others have no address in this network namespace");
        let gid = found[0].gid();
        assert!(gid.contains("RoCE v2, IPv4") && gid.contains(&device.net_device), "{gid}");
        VerbsRail::open(&found[0], &settings).expect("it opens");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_rail_is_found_by_the_name_of_its_device_or_port() {
    on_host_a(|| {
        let (device, settings) = (Device::find().name, VerbsSettings::default());
        for name in [device.clone(), format!("{device}/1")] {
            let found = rails_named(&name, &settings).expect("it is there");
            assert_eq!((found.len(), found[0].name()), (1, device.as_str()), "{name}");
        }
        let cause = |name: &str| rails_named(name, &settings).unwrap_err().cause;
        assert!(
            cause("nosuch0").contains(&format!("there are {device}")) || cause("nosuch0").contains(&device)
        );
        for port in ["0", "2", "x", ""] {
            assert!(cause(&format!("{device}/{port}")).contains("has ports 1 to 1"), "{port}");
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_gid_can_be_named_by_its_place() {
    on_host_a(|| {
        let device = Device::find();
        let settings = |index| VerbsSettings { gid_index: Some(index), ..Default::default() };
        let named = rails_named(&device.name, &settings(device.gid_index.into())).expect("it is there");
        assert!(named[0].gid().ends_with("requested"), "{}", named[0].gid());
        VerbsRail::open(&named[0], &settings(device.gid_index.into())).expect("it opens");
        let error = rails_named(&device.name, &settings(200)).unwrap_err();
        assert!(error.cause.contains("GID 200 was requested"), "{error}");
    });
}
