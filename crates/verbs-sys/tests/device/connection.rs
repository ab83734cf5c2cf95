//! Tests of the connection manager: binding an id, resolving an address and a route, and
//! acknowledging each event.

use std::ffi::{CStr, c_int};
use std::io::Error;
use std::net::Ipv4Addr;
use std::ptr::null_mut;

use farreach_testkit::{Device, WAIT_MAX, on_host_a};
use farreach_verbs_sys::*;
use libc::{sockaddr, sockaddr_in};

use crate::rig::{Owned, wait_readable};

fn cm() -> &'static Rdmacm {
    Rdmacm::get().expect("librdmacm is installed")
}

fn socket_address(address: Ipv4Addr) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(address).to_be() },
        sin_zero: [0; 8],
    }
}

fn channel() -> Owned<rdma_event_channel> {
    // SAFETY: the function takes no arguments; a channel is destroyed after its ids.
    Owned::new(unsafe { cm().rdma_create_event_channel() }.unwrap(), |channel| {
        // SAFETY: called once, by the owner.
        unsafe { cm().rdma_destroy_event_channel(channel) }.unwrap();
        0
    })
}

fn id(channel: &Owned<rdma_event_channel>) -> Owned<rdma_cm_id> {
    let mut id = null_mut();
    // SAFETY: the channel lives and the id is valid for writing.
    let status = unsafe { cm().rdma_create_id(channel.get(), &raw mut id, null_mut(), RDMA_PS_TCP) };
    assert_eq!(status, Ok(0), "{}", Error::last_os_error());
    // SAFETY: called once, by the owner, when every event is acknowledged.
    Owned::new(id, |id| unsafe { cm().rdma_destroy_id(id) }.unwrap())
}

/// Takes the next event, which must be a success of this type, and acknowledges it.
fn expect_event(channel: &Owned<rdma_event_channel>, id: &Owned<rdma_cm_id>, expected: rdma_cm_event_type) {
    // SAFETY: the channel lives.
    wait_readable(unsafe { (*channel.get()).fd });
    let mut event = null_mut();
    // SAFETY: the channel lives and has an event, and the pointer is valid for writing. The event
    // is read before it is acknowledged, which frees it.
    unsafe {
        let status = cm().rdma_get_cm_event(channel.get(), &raw mut event);
        assert_eq!(status, Ok(0), "{}", Error::last_os_error());
        let name = CStr::from_ptr(cm().rdma_event_str((*event).event).unwrap());
        assert_eq!(((*event).event, (*event).status, (*event).id), (expected, 0, id.get()), "{name:?}");
        assert_eq!(cm().rdma_ack_cm_event(event), Ok(0));
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_id_is_bound_and_resolves_its_own_address() {
    on_host_a(|| {
        let device = Device::find();
        let channel = channel();
        let id = id(&channel);
        let mut address = socket_address(device.address);
        let address: *mut sockaddr = (&raw mut address).cast();

        // SAFETY: the id lives and the address is an IPv4 address.
        let status = unsafe { cm().rdma_bind_addr(id.get(), address) };
        assert_eq!(status, Ok(0), "{}", Error::last_os_error());
        // SAFETY: a bound id has a device, and its local address is inside it.
        unsafe {
            let name = CStr::from_ptr((*(*(*id.get()).verbs).device).name.as_ptr());
            assert_eq!(name.to_str(), Ok(device.name.as_str()));
            let local = rdma_get_local_addr(id.get()).cast::<sockaddr_in>();
            assert_eq!(u32::from_be((*local).sin_addr.s_addr), u32::from(device.address));
            let port = u16::from_be(cm().rdma_get_src_port(id.get()).unwrap());
            assert_ne!(port, 0, "the kernel chose a port");
            assert_eq!(port, u16::from_be((*local).sin_port));
        }

        let limit = WAIT_MAX.as_millis() as c_int;
        // SAFETY: the id lives and the address is an IPv4 address.
        let status = unsafe { cm().rdma_resolve_addr(id.get(), null_mut(), address, limit) };
        assert_eq!(status, Ok(0), "{}", Error::last_os_error());
        expect_event(&channel, &id, RDMA_CM_EVENT_ADDR_RESOLVED);
        // SAFETY: the id lives, and its address is resolved.
        let status = unsafe { cm().rdma_resolve_route(id.get(), limit) };
        assert_eq!(status, Ok(0), "{}", Error::last_os_error());
        expect_event(&channel, &id, RDMA_CM_EVENT_ROUTE_RESOLVED);

        // SAFETY: the id lives, and its resolved route is inside it.
        unsafe {
            let peer = rdma_get_peer_addr(id.get()).cast::<sockaddr_in>();
            assert_eq!(u32::from_be((*peer).sin_addr.s_addr), u32::from(device.address));
            assert_eq!((*id.get()).port_num, device.port);
            assert!((*id.get()).route.num_paths >= 1);
            let sgid = (*id.get()).route.addr.addr.ibaddr.sgid.raw;
            assert_eq!(sgid, device.address.to_ipv6_mapped().octets());
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_address_of_no_device_is_refused() {
    on_host_a(|| {
        let channel = channel();
        let id = id(&channel);
        // From the second documentation network, which no host of a guest has.
        let mut address = socket_address(Ipv4Addr::new(198, 51, 100, 1));
        // SAFETY: the id lives and the address is an IPv4 address.
        let status = unsafe { cm().rdma_bind_addr(id.get(), (&raw mut address).cast()) };
        let error = Error::last_os_error();
        assert_eq!((status, error.raw_os_error()), (Ok(-1), Some(libc::EADDRNOTAVAIL)), "{error}");
    });
}
