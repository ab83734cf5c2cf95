//! The functions that libibverbs exports.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::bindings::*;

farreach_dylib::library! {
    /// libibverbs, opened on first use: every function of `verbs.h` that the library exports.
    ///
    /// `since` is an rdma-core release. "12" is the first one: functions with that number are from
    /// the earlier libibverbs and exist in every release.
    ///
    /// Omitted, although exported: `ibv_cmd_*`, `verbs_*` and other functions with a private symbol
    /// version (such as `ibv_wr_opcode_str`), `ibv_register_driver`, `ibv_copy_*_kern`,
    /// `ibv_dofork_range`, `ibv_dontfork_range`, `ibv_get_sysfs_path` and `ibv_read_sysfs_file`,
    /// because they serve provider libraries and the kernel's old binary interface;
    /// `ibv_static_providers`, because it serves static linking.
    pub struct Ibverbs {
        soname: "libibverbs.so.1",
        install: "apt-get install libibverbs1 ibverbs-providers (Debian, Ubuntu) or dnf install libibverbs (Fedora, RHEL)",
        release: "rdma-core",
    }

    /// `ibv_get_device_list(3)`: returns a null-terminated array, or null with `errno` set if there
    /// can be no devices.
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device, since "12";
    /// `ibv_free_device_list(3)`: invalidates devices that were not opened.
    fn ibv_free_device_list(list: *mut *mut ibv_device), since "12";
    /// `ibv_get_device_name(3)`
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char, since "12";
    /// `ibv_get_device_index(3)`: returns the kernel's index, or -1.
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int, since "30";
    /// `ibv_get_device_guid(3)`: returns a big-endian number.
    fn ibv_get_device_guid(device: *mut ibv_device) -> __be64, since "12";
    /// `ibv_open_device(3)`
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context, since "12";
    /// `ibv_close_device(3)`
    fn ibv_close_device(context: *mut ibv_context) -> c_int, since "12";
    /// `ibv_import_device(3)`
    fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context, since "31";
    /// `ibv_import_pd(3)`
    fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd, since "31";
    /// `ibv_unimport_pd(3)`
    fn ibv_unimport_pd(pd: *mut ibv_pd), since "31";
    /// `ibv_import_mr(3)`
    fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr, since "31";
    /// `ibv_unimport_mr(3)`
    fn ibv_unimport_mr(mr: *mut ibv_mr), since "31";
    /// `ibv_import_dm(3)`
    fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm, since "35";
    /// `ibv_unimport_dm(3)`
    fn ibv_unimport_dm(dm: *mut ibv_dm), since "35";
    /// `ibv_get_async_event(3)`: waits for the next event of the device.
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int, since "12";
    /// `ibv_ack_async_event(3)`
    fn ibv_ack_async_event(event: *mut ibv_async_event), since "12";

    /// `ibv_query_device(3)`: the short form of
    /// [`ibv_query_device_ex`](crate::ibv_query_device_ex).
    fn ibv_query_device(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int, since "12";
    /// `ibv_query_port(3)` as exported, in its old, short form: call
    /// [`ibv_query_port`](crate::ibv_query_port) instead.
    fn ibv_query_port(context: *mut ibv_context, port_num: u8, attr: *mut _compat_ibv_port_attr) -> c_int, since "12";
    /// `ibv_query_port_speed(3)`: the speed is in units of 100 Mb/s.
    fn ibv_query_port_speed(context: *mut ibv_context, port_num: u32, port_speed: *mut u64) -> c_int, since "62";
    /// `ibv_query_gid(3)`
    fn ibv_query_gid(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> c_int, since "12";
    /// The implementation of [`ibv_query_gid_ex`](crate::ibv_query_gid_ex).
    fn _ibv_query_gid_ex(
        context: *mut ibv_context,
        port_num: u32,
        gid_index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
        entry_size: usize,
    ) -> c_int, since "32";
    /// The implementation of [`ibv_query_gid_table`](crate::ibv_query_gid_table).
    fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize, since "32";
    /// `ibv_query_pkey(3)`: the key is big-endian.
    fn ibv_query_pkey(context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut __be16) -> c_int, since "12";
    /// `ibv_get_pkey_index(3)`
    fn ibv_get_pkey_index(context: *mut ibv_context, port_num: u8, pkey: __be16) -> c_int, since "20";

    /// `ibv_alloc_pd(3)`
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd, since "12";
    /// `ibv_dealloc_pd(3)`
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int, since "12";

    /// `ibv_reg_mr(3)` as exported: call [`ibv_reg_mr`](crate::ibv_reg_mr) instead, which supports
    /// optional access flags.
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr, since "12";
    /// `ibv_reg_mr_iova(3)` as exported: call [`ibv_reg_mr_iova`](crate::ibv_reg_mr_iova) instead.
    fn ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr,
        since "25";
    /// The implementation of [`ibv_reg_mr`](crate::ibv_reg_mr) with optional access flags: ignores
    /// those that the kernel does not know.
    fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr,
        since "28";
    /// `ibv_reg_dmabuf_mr(3)`
    fn ibv_reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int)
        -> *mut ibv_mr, since "34";
    /// `ibv_reg_mr_ex(3)`
    fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ibv_mr, since "59";
    /// `ibv_rereg_mr(3)`: returns 0, or a code of `ibv_rereg_mr_err_code`.
    fn ibv_rereg_mr(
        mr: *mut ibv_mr,
        flags: c_int,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int, since "12";
    /// `ibv_dereg_mr(3)`
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int, since "12";
    /// `ibv_alloc_buf(3)`: allocates a buffer by the provider.
    fn ibv_alloc_buf(pd: *mut ibv_pd, size: usize, buf: *mut *mut ibv_buf) -> *mut c_void, since "64";
    /// `ibv_free_buf(3)`
    fn ibv_free_buf(buf: *mut ibv_buf), since "64";
    /// `ibv_reg_buf_mr(3)`
    fn ibv_reg_buf_mr(pd: *mut ibv_pd, buf: *mut ibv_buf, addr: *mut c_void, length: usize, access: c_int)
        -> *mut ibv_mr, since "64";
    /// `ibv_export_buf_dmabuf_fd(3)`: returns a new descriptor, or -1.
    fn ibv_export_buf_dmabuf_fd(buf: *mut ibv_buf) -> c_int, since "65";
    /// `ibv_dm_export_dmabuf_fd(3)`: returns a new descriptor, or -1.
    fn ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm) -> c_int, since "62";
    /// `ibv_alloc_dmah(3)`: allocates a handle with steering hints for a region.
    fn ibv_alloc_dmah(context: *mut ibv_context, attr: *mut ibv_dmah_init_attr) -> *mut ibv_dmah, since "59";
    /// `ibv_dealloc_dmah(3)`
    fn ibv_dealloc_dmah(dmah: *mut ibv_dmah) -> c_int, since "59";

    /// `ibv_create_comp_channel(3)`
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel, since "12";
    /// `ibv_destroy_comp_channel(3)`
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int, since "12";
    /// `ibv_create_cq(3)`
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq, since "12";
    /// `ibv_resize_cq(3)`
    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int, since "12";
    /// `ibv_destroy_cq(3)`: waits until every event of the queue is acknowledged.
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int, since "12";
    /// `ibv_get_cq_event(3)`: waits for the next event of the channel.
    fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int,
        since "12";
    /// `ibv_ack_cq_events(3)`
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint), since "12";

    /// The implementation of [`ibv_query_comp_cntr_caps`](crate::ibv_query_comp_cntr_caps).
    fn _ibv_query_comp_cntr_caps(context: *mut ibv_context, caps: *mut ibv_comp_cntr_caps, caps_size: usize) -> c_int,
        since "65";
    /// `ibv_create_comp_cntr(3)`
    fn ibv_create_comp_cntr(context: *mut ibv_context, attr: *mut ibv_comp_cntr_init_attr) -> *mut ibv_comp_cntr,
        since "65";
    /// `ibv_destroy_comp_cntr(3)`
    fn ibv_destroy_comp_cntr(comp_cntr: *mut ibv_comp_cntr) -> c_int, since "65";
    /// `ibv_set_comp_cntr(3)`
    fn ibv_set_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: u64) -> c_int, since "65";
    /// `ibv_set_err_comp_cntr(3)`
    fn ibv_set_err_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: u64) -> c_int, since "65";
    /// `ibv_inc_comp_cntr(3)`
    fn ibv_inc_comp_cntr(comp_cntr: *mut ibv_comp_cntr, amount: u64) -> c_int, since "65";
    /// `ibv_inc_err_comp_cntr(3)`
    fn ibv_inc_err_comp_cntr(comp_cntr: *mut ibv_comp_cntr, amount: u64) -> c_int, since "65";
    /// `ibv_read_comp_cntr(3)`
    fn ibv_read_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: *mut u64) -> c_int, since "65";
    /// `ibv_read_err_comp_cntr(3)`
    fn ibv_read_err_comp_cntr(comp_cntr: *mut ibv_comp_cntr, value: *mut u64) -> c_int, since "65";
    /// `ibv_qp_attach_comp_cntr(3)`
    fn ibv_qp_attach_comp_cntr(
        qp: *mut ibv_qp,
        comp_cntr: *mut ibv_comp_cntr,
        attr: *mut ibv_qp_attach_comp_cntr_attr,
    ) -> c_int, since "65";

    /// `ibv_create_srq(3)`
    fn ibv_create_srq(pd: *mut ibv_pd, srq_init_attr: *mut ibv_srq_init_attr) -> *mut ibv_srq, since "12";
    /// `ibv_modify_srq(3)`
    fn ibv_modify_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr, srq_attr_mask: c_int) -> c_int, since "12";
    /// `ibv_query_srq(3)`
    fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int, since "12";
    /// `ibv_destroy_srq(3)`
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int, since "12";

    /// `ibv_create_qp(3)`
    fn ibv_create_qp(pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> *mut ibv_qp, since "12";
    /// `ibv_qp_to_qp_ex(3)`: returns null if the queue pair was created without `send_ops_flags`.
    fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex, since "24";
    /// `ibv_modify_qp(3)`
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int, since "12";
    /// `ibv_query_qp(3)`
    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        attr_mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> c_int, since "12";
    /// `ibv_query_qp_data_in_order(3)`: returns whether the bytes of a message are written in
    /// order.
    fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: ibv_wr_opcode, flags: u32) -> c_int, since "36";
    /// `ibv_set_ece(3)`
    fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int, since "31";
    /// `ibv_query_ece(3)`
    fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int, since "31";
    /// `ibv_destroy_qp(3)`: afterwards the device accesses no memory for the queue pair.
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int, since "12";

    /// `ibv_create_ah(3)`
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah, since "12";
    /// `ibv_init_ah_from_wc(3)`
    fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port_num: u8,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        ah_attr: *mut ibv_ah_attr,
    ) -> c_int, since "12";
    /// `ibv_create_ah_from_wc(3)`
    fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8) -> *mut ibv_ah,
        since "12";
    /// `ibv_destroy_ah(3)`
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int, since "12";
    /// Resolves the Ethernet address and VLAN of a RoCE address handle from its GID. It has no
    /// manual page.
    fn ibv_resolve_eth_l2_from_gid(
        context: *mut ibv_context,
        attr: *mut ibv_ah_attr,
        eth_mac: *mut u8,
        vid: *mut u16,
    ) -> c_int, since "12";
    /// `ibv_attach_mcast(3)`
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int, since "12";
    /// `ibv_detach_mcast(3)`
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int, since "12";

    /// `ibv_fork_init(3)`
    fn ibv_fork_init() -> c_int, since "12";
    /// `ibv_is_fork_initialized(3)`
    fn ibv_is_fork_initialized() -> ibv_fork_status, since "35";

    /// `ibv_rate_to_mult(3)`
    fn ibv_rate_to_mult(rate: ibv_rate) -> c_int, since "12";
    /// `mult_to_ibv_rate(3)`
    fn mult_to_ibv_rate(mult: c_int) -> ibv_rate, since "12";
    /// `ibv_rate_to_mbps(3)`
    fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int, since "12";
    /// `mbps_to_ibv_rate(3)`
    fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate, since "12";
    /// `ibv_node_type_str(3)`
    fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char, since "12";
    /// `ibv_port_state_str(3)`
    fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char, since "12";
    /// `ibv_event_type_str(3)`
    fn ibv_event_type_str(event: ibv_event_type) -> *const c_char, since "12";
    /// Returns the name of a completion status. It has no manual page.
    fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char, since "12";
}
