//! `farreach devices` on real RDMA: it agrees with other witnesses, reads well, and says what is missing.

use serde_json::Value;

use crate::support::agreement::Testimony;
use crate::support::devinfo;
use crate::support::faults::{ClosedNodes, DeletedLinks};
use crate::support::host::Host;
use crate::support::kernel::{self, Sysfs};
use crate::support::offers;
use crate::support::run::FARREACH;
use crate::support::schema::assert_valid;

/// Fields of the verbs part that no witness knows: our own words, of which there are none where all is well.
const UNWITNESSED: &[&str] = &["problems"];

/// Which devices, ports and addresses there are: on this each of these witnesses must be as complete as we are.
const COUNTED: &[(&str, &[&str])] = &[
    ("devices[].name", &["ibv_devinfo", "ibv_devices", "rdma dev", "sysfs"]),
    ("devices[].ports[].number", &["ibv_devinfo", "rdma link", "sysfs"]),
    ("devices[].ports[].gids[].gid", &["ibv_devinfo", "sysfs"]),
    ("devices[].ports[].gids[].type", &["ibv_devinfo", "sysfs"]),
];

/// The file of libibverbs that `ibv_devinfo` is linked to.
const LIBRARY_OF_DEVINFO: &str = "readlink -f $(LD_TRACE_LOADED_OBJECTS=1 ibv_devinfo | sed -n 's/.*libibverbs.so.1 => \\([^ ]*\\).*/\\1/p')";

fn report(host: Host) -> Value {
    let report = serde_json::from_str(&host.farreach(&["devices", "--json"])).expect("the report is JSON");
    assert_valid("devices", &report);
    report
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn verbs_agrees_with_every_witness_field_by_field() {
    for host in Host::all() {
        let verbs = &report(*host)["verbs"];
        assert!(!verbs["devices"].as_array().expect("devices are a list").is_empty(), "no device: {verbs:#}");
        let mut testimony = Testimony::default();
        devinfo::testify(&devinfo::parse(&host.output(&["ibv_devinfo", "-v"])), &mut testimony);
        kernel::testify_by_device_list(*host, &mut testimony);
        let sysfs = Sysfs::read(*host);
        sysfs.testify(&mut testimony);
        kernel::testify_by_rdma_dev(*host, &mut testimony);
        kernel::testify_by_rdma_link(*host, &sysfs, &mut testimony);
        let library = host.output(&["sh", "-c", LIBRARY_OF_DEVINFO]);
        testimony.says("ibv_devinfo", "library", library.trim());
        let differences = testimony.differences(verbs, UNWITNESSED, COUNTED);
        assert!(differences.is_empty(), "{host:?}:\n{}", differences.join("\n"));
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn libfabric_agrees_with_fi_info() {
    for host in Host::all() {
        let report = report(*host);
        offers::assert_agrees(&report, &host.output(&["fi_info"]), &host.output(&["fi_info", "-l"]));
        // Each device is there a second time, through libfabric.
        for device in report["verbs"]["devices"].as_array().expect("devices are a list") {
            let is_offered = offers::reported(&report)
                .iter()
                .any(|[provider, _, _, domain, ..]| provider == "verbs" && device["name"] == domain.as_str());
            assert!(is_offered, "libfabric does not offer {}", device["name"]);
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_person_reads_each_port_and_address_in_80_columns() {
    let report = report(Host::HERE);
    for options in ["", "-v"] {
        let command = format!("stty cols 80 rows 24; {FARREACH} devices {options}");
        let text = Host::HERE.output(&["script", "-qec", &command, "/dev/null"]).replace('\r', "");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "over 80 columns: {line}\n{text}");
            assert_eq!(line.trim_end(), line, "space at the end of a line\n{text}");
        }
        let has_row = |cells: &[&str]| {
            text.lines()
                .any(|line| cells.iter().all(|cell| line.split_whitespace().any(|word| word == *cell)))
        };
        for device in report["verbs"]["devices"].as_array().expect("devices are a list") {
            let name = device["name"].as_str().expect("a name");
            for port in device["ports"].as_array().expect("ports are a list") {
                let number = port["number"].to_string();
                let state = port["state"].as_str().expect("a state");
                assert!(
                    has_row(&[name, &number, state, "rdma_rxe"]),
                    "no row of port {number} of {name}\n{text}"
                );
                for gid in port["gids"].as_array().expect("GIDs are a list") {
                    let (index, address) =
                        (gid["index"].to_string(), gid["address"].as_str().expect("an address"));
                    assert!(has_row(&[name, &number, &index, address]), "no row of {address}\n{text}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_node_that_this_user_may_not_open_is_named_with_the_fix() {
    let before = report(Host::HERE);
    let nodes = ClosedNodes::new();
    let json = nodes.as_nobody(&["devices", "--json"]);
    assert_eq!(json.code, Some(0), "libfabric still offers something: {json:#?}");
    let report = json.json();
    assert_valid("devices", &report);
    assert_eq!(report["verbs"]["devices"], Value::Array(Vec::new()));
    let problems = report["verbs"]["problems"].as_array().expect("problems are a list");
    let devices = before["verbs"]["devices"].as_array().expect("devices are a list");
    assert_eq!(problems.len(), devices.len(), "one for each device: {problems:#?}");
    let text = nodes.as_nobody(&["devices"]);
    assert_eq!(text.code, Some(0), "{text:#?}");
    for (problem, device) in problems.iter().zip(devices) {
        let (name, node) =
            (device["name"].as_str().expect("a name"), device["uverbs_node"].as_str().expect("a node"));
        let what = format!("this user may not open {node}, the node of {name}");
        let fix = format!("give this user read and write access to {node}");
        assert_eq!((problem["what"].as_str(), problem["fix"].as_str()), (Some(&*what), Some(&*fix)));
        assert!(text.stdout.contains(&what) && text.stdout.contains(&fix), "{}", text.stdout);
    }
    drop(nodes);
    assert_eq!(self::report(Host::HERE)["verbs"], before["verbs"], "the guest is as it was");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_kernel_without_a_device_is_told_with_the_fix() {
    let deleted = DeletedLinks::new();
    let text = Host::HERE.run(&[FARREACH, "devices"]);
    assert_eq!(text.code, Some(0), "libfabric still offers something: {text:#?}");
    for words in
        ["the kernel has no RDMA device", "rdma link add rxe0 type rxe netdev NETDEV", "libfabric offers"]
    {
        assert!(text.stdout.contains(words), "nothing on {words}:\n{}", text.stdout);
    }
    let report = report(Host::HERE);
    assert_eq!(report["verbs"]["devices"], Value::Array(Vec::new()));
    assert_eq!(report["verbs"]["problems"].as_array().map(Vec::len), Some(1), "{report:#}");
    assert!(offers::reported(&report).iter().all(|[provider, ..]| !provider.contains("verbs")));
    deleted.restore();
}
