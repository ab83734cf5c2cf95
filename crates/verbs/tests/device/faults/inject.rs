//! Breaks links and devices, and restores them on drop.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use farreach_testkit::{Device, wait_for};
use farreach_verbs::cm::{EventChannel, PortSpace, get_devices};

use super::peer::{Peer, is_alone, on_far_host};

/// This host's link, down while this lives.
///
/// It must be restored before either side of a connection over it is dropped: a message of the
/// connection manager that finds no route breaks Soft-RoCE's queue pair for such messages.
/// Connections over the device then fail until the device is created again (seen on Linux 7.2).
pub(crate) struct CutLink {
    device: Device,
    /// The time of the cut.
    pub(crate) since: Instant,
}

impl CutLink {
    /// Cuts it. A peer on this host is stopped, so that it does not end while the link is down.
    pub(crate) fn cut(peer: &Peer) -> Self {
        let cut = Self { device: Device::find(), since: Instant::now() };
        run(Command::new("ip").args(["link", "set", &cut.device.net_device, "down"]));
        if is_alone() {
            peer.hold();
        }
        cut
    }
}

impl Drop for CutLink {
    fn drop(&mut self) {
        let net_device = &self.device.net_device;
        run(Command::new("ip").args(["link", "set", net_device, "up"]));
        // The IPv6 address is removed with the link. If it is still there, adding it fails, which
        // is harmless.
        let last = self.device.address.octets()[3];
        let address = format!("2001:db8::{last}/64");
        let _ = Command::new("ip").args(["address", "add", &address, "dev", net_device, "nodad"]).output();
        wait_for("address on the mended link", || is_usable(self.device.address.octets()));
    }
}

/// A partition: all packets that leave by this host's link are lost while this lives, without any
/// error.
pub(crate) struct Partition {
    net_device: String,
    /// The time when it was made.
    pub(crate) since: Instant,
}

impl Partition {
    pub(crate) fn make() -> Self {
        let made = Self { net_device: Device::find().net_device, since: Instant::now() };
        run(Command::new("tc")
            .args(["qdisc", "add", "dev", &made.net_device, "root", "netem"])
            .args(["loss", "100%"]));
        made
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        run(Command::new("tc").args(["qdisc", "delete", "dev", &self.net_device, "root"]));
    }
}

/// This host's device, which is being removed, and is created again on drop.
pub(crate) struct RemovedDevice {
    device: Device,
    /// The kernel completes the removal only when no program has the device open.
    removal: Child,
    /// The time when the removal began.
    pub(crate) since: Instant,
    _bystander: Bystander,
}

impl RemovedDevice {
    /// Begins to remove it.
    pub(crate) fn remove() -> Self {
        let (device, bystander) = (Device::find(), Bystander::add());
        let since = Instant::now();
        let removal = Command::new("rdma").args(["link", "delete", &device.name]).spawn();
        Self { device, removal: removal.expect("rdma, which every guest has"), since, _bystander: bystander }
    }
}

impl Drop for RemovedDevice {
    fn drop(&mut self) {
        let status = wait_removed(&mut self.removal);
        assert!(status.success(), "rdma link delete: {status}");
        let Device { name, net_device, address, .. } = &self.device;
        run(Command::new("rdma").args(["link", "add", name, "type", "rxe", "netdev", net_device]));
        wait_for("address on the new device", || is_usable(address.octets()));
    }
}

/// The other host's device, which is being removed, and is created again on drop.
pub(crate) struct FarDevice {
    /// The time after the removal began.
    pub(crate) since: Instant,
}

impl FarDevice {
    pub(crate) fn remove() -> Self {
        run(&mut on_far_host(&["sh", "-c", "rdma link delete rxeb > /tmp/removal 2>&1 &"]));
        Self { since: Instant::now() }
    }
}

impl Drop for FarDevice {
    fn drop(&mut self) {
        wait_for("end of the removal", || {
            // If the hosts share one list of devices, librdmacm may have this one open here too.
            let_go_of_what_is_gone();
            let removing = on_far_host(&["pgrep", "-x", "rdma"]).stdout(Stdio::null()).status();
            (removing.expect("host, which every guest has").code() == Some(1)).then_some(())
        });
        let add = r#"rdma link add rxeb type rxe netdev "$(ls /sys/class/net | grep -x -e vb -e eth0)""#;
        run(&mut on_far_host(&["sh", "-c", add]));
    }
}

/// A device that stays. librdmacm closes removed devices when it lists devices, except if none is
/// left.
struct Bystander;

impl Bystander {
    fn add() -> Self {
        run(Command::new("ip").args("link add farby0 type veth peer name farby1".split(' ')));
        let made = Self;
        run(Command::new("ip").args("link set farby0 up".split(' ')));
        run(Command::new("rdma").args("link add farby type rxe netdev farby0".split(' ')));
        made
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let removal = Command::new("ip").args(["link", "delete", "farby0"]).spawn();
        wait_removed(&mut removal.expect("ip, which every guest has"));
    }
}

/// Waits for the end of a removal, during which librdmacm may have the device open.
fn wait_removed(removal: &mut Child) -> ExitStatus {
    wait_for("end of the removal", || {
        let_go_of_what_is_gone();
        removal.try_wait().expect("a child can be waited for")
    })
}

/// Makes librdmacm list devices, upon which it closes those that are gone.
fn let_go_of_what_is_gone() {
    // It fails for a device whose removal is incomplete; the next attempt succeeds.
    let _ = get_devices();
}

/// Returns `Some` if a device of this host has the address: the kernel adds it with a delay.
fn is_usable(address: [u8; 4]) -> Option<()> {
    let id = EventChannel::new().ok()?.create_id(PortSpace::Tcp).ok()?;
    id.bind((address, 0).into()).ok()
}

#[track_caller]
fn run(command: &mut Command) {
    let status = command.status();
    assert!(status.as_ref().is_ok_and(ExitStatus::success), "{command:?}: {status:?}");
}
