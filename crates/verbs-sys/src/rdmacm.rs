//! The functions that librdmacm exports.

use std::ffi::{c_char, c_int, c_void};

use libc::sockaddr;

use crate::bindings::*;

farreach_dylib::library! {
    /// librdmacm, opened on first use: every function of `rdma_cma.h`. Unless stated otherwise, a
    /// function returns 0, or -1 with `errno` set.
    ///
    /// `since` is an rdma-core release. "12" is the first one: functions with that number are from
    /// the earlier librdmacm and exist in every release.
    ///
    /// Omitted, although exported: the sockets of `rsocket.h` (`rsocket`, `rconnect`, `rpoll` and
    /// related functions). They are a transport of their own over verbs.
    pub struct Rdmacm {
        soname: "librdmacm.so.1",
        install: "apt-get install librdmacm1 ibverbs-providers (Debian, Ubuntu) or dnf install librdmacm (Fedora, RHEL)",
        release: "rdma-core",
    }

    /// `rdma_create_event_channel(3)`: returns null with `errno` set on failure.
    fn rdma_create_event_channel() -> *mut rdma_event_channel, since "12";
    /// `rdma_destroy_event_channel(3)`
    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel), since "12";
    /// `rdma_create_id(3)`
    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: rdma_port_space,
    ) -> c_int, since "12";
    /// `rdma_create_ep(3)`
    fn rdma_create_ep(
        id: *mut *mut rdma_cm_id,
        res: *mut rdma_addrinfo,
        pd: *mut ibv_pd,
        qp_init_attr: *mut ibv_qp_init_attr,
    ) -> c_int, since "12";
    /// `rdma_destroy_ep(3)`
    fn rdma_destroy_ep(id: *mut rdma_cm_id), since "12";
    /// `rdma_destroy_id(3)`: waits until every event of the id is acknowledged.
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int, since "12";
    /// `rdma_bind_addr(3)`
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int, since "12";
    /// `rdma_resolve_addr(3)`
    fn rdma_resolve_addr(
        id: *mut rdma_cm_id,
        src_addr: *mut sockaddr,
        dst_addr: *mut sockaddr,
        timeout_ms: c_int,
    ) -> c_int, since "12";
    /// `rdma_resolve_route(3)`
    fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int, since "12";
    /// `rdma_create_qp(3)`
    fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> c_int, since "12";
    /// `rdma_create_qp_ex(3)`
    fn rdma_create_qp_ex(id: *mut rdma_cm_id, qp_init_attr: *mut ibv_qp_init_attr_ex) -> c_int, since "12";
    /// `rdma_destroy_qp(3)`
    fn rdma_destroy_qp(id: *mut rdma_cm_id), since "12";
    /// `rdma_create_srq(3)`
    fn rdma_create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> c_int, since "12";
    /// `rdma_create_srq_ex(3)`
    fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int, since "12";
    /// `rdma_destroy_srq(3)`
    fn rdma_destroy_srq(id: *mut rdma_cm_id), since "12";
    /// `rdma_connect(3)`
    fn rdma_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int, since "12";
    /// `rdma_establish(3)`
    fn rdma_establish(id: *mut rdma_cm_id) -> c_int, since "23";
    /// `rdma_listen(3)`
    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int, since "12";
    /// `rdma_get_request(3)`
    fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int, since "12";
    /// `rdma_accept(3)`
    fn rdma_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int, since "12";
    /// `rdma_reject(3)`
    fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int, since "12";
    /// `rdma_reject_ece(3)`
    fn rdma_reject_ece(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int, since "31";
    /// `rdma_notify(3)`
    fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int, since "12";
    /// `rdma_disconnect(3)`
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int, since "12";
    /// `rdma_join_multicast(3)`
    fn rdma_join_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr, context: *mut c_void) -> c_int, since "12";
    /// `rdma_join_multicast_ex(3)`
    fn rdma_join_multicast_ex(id: *mut rdma_cm_id, attr: *mut rdma_cm_join_mc_attr_ex, context: *mut c_void) -> c_int,
        since "16";
    /// `rdma_leave_multicast(3)`
    fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int, since "12";
    /// `rdma_get_cm_event(3)`: waits for the next event, unless the channel's descriptor is
    /// non-blocking.
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int, since "12";
    /// `rdma_ack_cm_event(3)`
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int, since "12";
    /// `rdma_write_cm_event(3)`: puts a user event on the id's channel.
    fn rdma_write_cm_event(id: *mut rdma_cm_id, event: rdma_cm_event_type, status: c_int, arg: u64) -> c_int,
        since "60";
    /// `rdma_get_src_port(3)`: returns a big-endian number.
    fn rdma_get_src_port(id: *mut rdma_cm_id) -> __be16, since "12";
    /// `rdma_get_dst_port(3)`: returns a big-endian number.
    fn rdma_get_dst_port(id: *mut rdma_cm_id) -> __be16, since "12";
    /// `rdma_get_devices(3)`: returns a null-terminated array of open contexts.
    fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context, since "12";
    /// `rdma_free_devices(3)`
    fn rdma_free_devices(list: *mut *mut ibv_context), since "12";
    /// `rdma_event_str(3)`
    fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char, since "12";
    /// `rdma_set_option(3)`
    fn rdma_set_option(id: *mut rdma_cm_id, level: c_int, optname: c_int, optval: *mut c_void, optlen: usize) -> c_int,
        since "12";
    /// `rdma_migrate_id(3)`: moves an id to another event channel.
    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int, since "12";
    /// `rdma_getaddrinfo(3)`
    fn rdma_getaddrinfo(
        node: *const c_char,
        service: *const c_char,
        hints: *const rdma_addrinfo,
        res: *mut *mut rdma_addrinfo,
    ) -> c_int, since "12";
    /// `rdma_freeaddrinfo(3)`
    fn rdma_freeaddrinfo(res: *mut rdma_addrinfo), since "12";
    /// `rdma_resolve_addrinfo(3)`: queries a name service of the fabric. The answer arrives as an
    /// event.
    fn rdma_resolve_addrinfo(
        id: *mut rdma_cm_id,
        node: *const c_char,
        service: *const c_char,
        hints: *const rdma_addrinfo,
    ) -> c_int, since "60";
    /// `rdma_query_addrinfo(3)`: returns the result of
    /// [`rdma_resolve_addrinfo`](Self::rdma_resolve_addrinfo).
    fn rdma_query_addrinfo(id: *mut rdma_cm_id, info: *mut *mut rdma_addrinfo) -> c_int, since "60";
    /// `rdma_init_qp_attr(3)`: returns the attributes for moving the caller's queue pair to the
    /// next state.
    fn rdma_init_qp_attr(id: *mut rdma_cm_id, qp_attr: *mut ibv_qp_attr, qp_attr_mask: *mut c_int) -> c_int, since "23";
    /// `rdma_set_local_ece(3)`
    fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int, since "31";
    /// `rdma_get_remote_ece(3)`
    fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int, since "31";
}
