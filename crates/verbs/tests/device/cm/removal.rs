//! Tests of removing a device: each id on it gets an event.

use std::process::{Child, Command};

use farreach_testkit::{on_host_a, wait_for};
use farreach_verbs::cm::{CmId, Error, EventChannel, EventKind, Listener, PortSpace, get_devices};

use super::rig::{Watchdog, deadline, expect, run};

/// A device of the test, on a net device of its own, which the test removes.
struct OwnDevice;

const ADDRESS: [u8; 4] = [198, 51, 100, 9];

impl OwnDevice {
    fn add() -> Self {
        run("ip link add farcm0 type veth peer name farcm1");
        let made = Self;
        run("ip addr add 198.51.100.9/24 dev farcm0");
        run("ip link set farcm0 up");
        run("ip link set farcm1 up");
        run("rdma link add farcm type rxe netdev farcm0");
        made
    }

    /// Begins to remove it. The kernel completes that only when no program has the device open.
    fn begin_removal(&self) -> Child {
        Command::new("rdma").args(["link", "delete", "farcm"]).spawn().expect("rdma, which every guest has")
    }
}

impl Drop for OwnDevice {
    fn drop(&mut self) {
        // The RDMA device is removed with the net device, unless it was removed before.
        let _ = Command::new("ip").args(["link", "delete", "farcm0"]).status();
    }
}

/// Binds once the new address is available: the kernel adds it to the device with a delay.
fn bound(channel: &EventChannel) -> CmId {
    wait_for("device with the new address", || {
        let id = channel.create_id(PortSpace::Tcp).unwrap();
        id.bind((ADDRESS, 0).into()).ok().map(|()| id)
    })
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn each_id_on_a_removed_device_is_told() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let device = OwnDevice::add();
        let channel = EventChannel::new().unwrap();
        let ids = [(); 3].map(|()| bound(&channel));
        let listener = Listener::bind((ADDRESS, 0).into()).unwrap();
        let context = ids[0].context().unwrap();
        assert_eq!(context.device().name(), "farcm");
        drop(context);
        let mut removal = device.begin_removal();

        let mut told: Vec<CmId> =
            ids.iter().map(|_| expect(&channel, EventKind::DeviceRemoval).id().clone()).collect();
        for id in &ids {
            let place = told.iter().position(|found| found == id).expect("each id gets an event");
            told.swap_remove(place);
        }
        drop(told);
        let error = listener.wait_request(deadline()).unwrap_err();
        assert!(matches!(error, Error::DeviceRemoved { .. }), "{error}");
        assert!(error.to_string().contains("198.51.100.9"), "{error}");
        assert!(Listener::bind((ADDRESS, 0).into()).is_err());

        // Soft-RoCE is removed only when no program has it open: this one dropped it after the
        // event, and librdmacm closes it when the devices are listed.
        drop((ids, listener));
        get_devices().unwrap();
        let gone = wait_for("end of the removal", || removal.try_wait().unwrap());
        assert!(gone.success(), "{gone}");
    });
}
