//! `farreach doctor` on real RDMA: faults made for real, each found and named, with a fix that is then applied word for word, and clears it.
//!
//! Not here, because Soft-RoCE has it not: a wrong partition key (it has one key, and takes no other), and a limit of queue pairs of the device's own
//! (a million); that of a control group is reached instead.

use crate::support::doctor::{Doctor, apply};
use crate::support::faults::{ClosedNodes, DeletedLinks};
use crate::support::host::Host;
use crate::support::network::{DownLink, DroppedPackets};
use crate::support::run::FARREACH;

const HERE: Host = Host::HERE;

/// Undoes what a test has done, also when it fails.
struct Finally(&'static [&'static [&'static str]]);

impl Drop for Finally {
    fn drop(&mut self) {
        self.0.iter().for_each(|words| drop(HERE.run(words)));
    }
}

/// What the guest's first file system has loaded, where modprobe looks for it.
fn offer_modules() {
    let script = "folder=/lib/modules/$(uname -r)/kernel && mkdir -p $folder && cd /run/modules && \
                  for module in *.ko; do cp $module $folder/${module#*-}; done && depmod";
    HERE.output(&["sh", "-c", script]);
}

/// Once is enough: the kernel's part of these is the same in every guest.
mod one_guest {
    use super::*;

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_healthy_card_moves_bytes_and_nothing_fails() {
        let doctor = Doctor::on(HERE, &[]);
        for check in ["kernel", "modules", "nodes", "provider", "memlock", "port", "firewall", "queue pairs"]
        {
            doctor.assert_passes(check);
        }
        doctor.assert_found("gids", "pass", &["rxe0 port 1", "GID 1", "RoCE v2, IPv4"]);
        for rail in ["rxe0", "tcp"] {
            doctor.assert_found("transfer", "pass", &[rail]);
        }
        assert_eq!(doctor.code, Some(0), "{doctor:#?}");
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_module_that_is_missing_is_named_and_loaded() {
        offer_modules();
        let deleted = DeletedLinks::new();
        // The connection manager goes too, so that it comes after ib_uverbs again: a device that is removed is told in the opposite order, and ib_uverbs waits
        // for programs that only the connection manager could tell.
        for module in ["rdma_rxe", "rdma_ucm", "rdma_cm", "ib_uverbs"] {
            HERE.output(&["rmmod", module]);
        }
        let without = Doctor::here();
        assert_eq!(without.code, Some(3), "there is no device: {without:#?}");
        let fixes = without.assert_found("modules", "fail", &["ib_uverbs"]);
        apply(HERE, &fixes, "modprobe ib_uverbs");
        let fixes = Doctor::here().assert_found("modules", "warn", &["rdma_ucm"]);
        apply(HERE, &fixes, "modprobe rdma_ucm");
        Doctor::here().assert_passes("modules");
        deleted.restore();
        assert_eq!(Doctor::here().code, Some(0));
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_node_that_a_user_may_not_open_is_named() {
        let closed = ClosedNodes::new();
        let ask = || Doctor::of(&closed.as_nobody(&["doctor", "--json", "--no-transfers"]));
        let fixes = ask().assert_found("nodes", "fail", &["/dev/infiniband/uverbs", "EACCES"]);
        assert!(fixes.iter().any(|fix| fix.contains("udev")), "{fixes:#?}");
        apply(HERE, &fixes, "chmod ");
        ask().assert_passes("nodes");
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn memory_that_may_not_be_locked_is_told_in_bytes() {
        let ask = |limits: &str| {
            let limited =
                format!("{limits} && exec setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock \"$@\"");
            let words = ["sh", "-c", &limited, "sh", FARREACH, "doctor", "--json", "--no-transfers"];
            Doctor::of(&HERE.run(&words))
        };
        let fixes = ask("ulimit -l 64").assert_found("memlock", "fail", &["64 KiB"]);
        for form in ["ulimit -l unlimited", "LimitMEMLOCK=infinity", "memlock=-1", "limits.d"] {
            assert!(fixes.iter().any(|fix| fix.contains(form)), "{form}: {fixes:#?}");
        }
        ask("ulimit -l 64 && ulimit -l unlimited").assert_passes("memlock");
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_port_that_is_down_is_brought_up() {
        let down = DownLink::of(HERE, "v0");
        let without = Doctor::here();
        let fixes = without.assert_found("port", "fail", &["rxe0 port 1", "DOWN"]);
        assert_eq!(without.code, Some(1), "{without:#?}");
        apply(HERE, &fixes, "ip link set v0 up");
        Doctor::here().assert_passes("port");
        drop(down);
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_net_device_with_small_packets_is_told() {
        let _usual = Finally(&[&["ip", "link", "set", "v0", "mtu", "1500"]]);
        HERE.output(&["ip", "link", "set", "v0", "mtu", "1280"]);
        let fixes = Doctor::here().assert_found("mtu", "warn", &["rxe0 port 1", "1280"]);
        apply(HERE, &fixes, "ip link set v0 mtu ");
        Doctor::here().assert_passes("mtu");
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_card_without_an_ipv4_gid_is_told() {
        let _address = Finally(&[&["ip", "addr", "replace", "192.0.2.1/24", "dev", "v0"]]);
        HERE.output(&["ip", "addr", "del", "192.0.2.1/24", "dev", "v0"]);
        let fixes = Doctor::here().assert_found("gids", "warn", &["rxe0 port 1", "IPv4"]);
        assert!(fixes.iter().any(|fix| fix.starts_with("ip address add ")), "{fixes:#?}");
        HERE.output(&["ip", "addr", "add", "192.0.2.1/24", "dev", "v0"]);
        Doctor::here().assert_passes("gids");
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_rule_that_drops_soft_roce_is_named() {
        let _dropped = DroppedPackets::at(HERE);
        let fixes = Doctor::here().assert_found("firewall", "fail", &["4791", "inet farreach in"]);
        apply(HERE, &fixes, "nft insert rule inet farreach in ");
        Doctor::here().assert_passes("firewall");
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn without_huge_pages_some_are_reserved() {
        let _usual = Finally(&[&["sh", "-c", "echo 64 > /proc/sys/vm/nr_hugepages"]]);
        HERE.output(&["sh", "-c", "echo 0 > /proc/sys/vm/nr_hugepages"]);
        let fixes = Doctor::here().assert_found("huge pages", "warn", &["no huge pages are reserved"]);
        assert!(fixes.iter().any(|fix| fix.contains("vm.nr_hugepages")), "{fixes:#?}");
        HERE.output(&["sh", "-c", "echo 64 > /proc/sys/vm/nr_hugepages"]);
        Doctor::here().assert_passes("huge pages");
    }

    /// The device has room for a million; a control group has what it was given.
    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_control_group_that_has_no_queue_pair_left_is_told() {
        let _group = Finally(&[&["sh", "-c", "rmdir /sys/fs/cgroup/farreach; true"]]);
        let make = "mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup; \
                    echo +rdma > /sys/fs/cgroup/cgroup.subtree_control; mkdir -p /sys/fs/cgroup/farreach; \
                    echo 'rxe0 hca_handle=4 hca_object=2' > /sys/fs/cgroup/farreach/rdma.max";
        HERE.output(&["sh", "-c", make]);
        let ask = || {
            let inside = "echo $$ > /sys/fs/cgroup/farreach/cgroup.procs; exec \"$@\"";
            let words = ["sh", "-c", inside, "sh", FARREACH, "doctor", "--json", "--no-transfers"];
            Doctor::of(&HERE.run(&words))
        };
        let limited = ask();
        let fixes = limited.assert_found("cgroup", "warn", &["rxe0", "of 2 objects"]);
        limited.assert_found("queue pairs", "fail", &["rxe0"]);
        apply(HERE, &fixes, "echo ");
        let freed = ask();
        freed.assert_passes("cgroup");
        freed.assert_passes("queue pairs");
    }
}

mod two_devices {
    use super::*;

    /// In the shared mode each namespace sees both cards, and has the net device of one.
    #[test]
    #[ignore = "needs two RDMA devices: cargo xtask vm test runs it"]
    fn a_gid_of_another_namespace_is_told_and_clears_in_its_own() {
        let here = Doctor::on(HERE, &["--no-transfers"]);
        let fixes = here.assert_found("gid namespace", "warn", &["rxeb port 1", "another network namespace"]);
        assert!(fixes.iter().any(|fix| fix.contains("netns")), "{fixes:#?}");
        here.assert_found("gid namespace", "pass", &["rxea port 1"]);
        assert_eq!(here.code, Some(0), "what is another's is no failure: {here:#?}");
        let far = *Host::all().last().expect("two hosts");
        let there = Doctor::on(far, &["--no-transfers"]);
        there.assert_found("gid namespace", "pass", &["rxeb port 1"]);
    }
}
