//! Reads completions one field at a time: `ibv_create_cq_ex(3)`.

use std::ffi::{c_int, c_uint};

use super::through_object;
use crate::bindings::*;

through_object! {
    safety: "The contract is that of the C function. The entry of this name in `ibv_cq_ex` is not null: opcode, \
             status and vendor error always exist, the others if `wc_flags` requested them when the queue was \
             created. The creator of the queue must check that (the fields are `Option`s).";

    /// `ibv_start_poll(3)`: opens a batch and takes its first completion. Returns `ENOENT` if there
    /// is none.
    fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int: start_poll;
    /// `ibv_next_poll(3)`: takes the next completion of the batch. Returns `ENOENT` if there is
    /// none.
    fn ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int: next_poll;
    /// `ibv_end_poll(3)`: closes the batch.
    fn ibv_end_poll(cq: *mut ibv_cq_ex): end_poll;
    /// `ibv_wc_read_opcode(3)`
    fn ibv_wc_read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode: read_opcode;
    /// `ibv_wc_read_vendor_err(3)`
    fn ibv_wc_read_vendor_err(cq: *mut ibv_cq_ex) -> u32: read_vendor_err;
    /// `ibv_wc_read_byte_len(3)`, with `IBV_WC_EX_WITH_BYTE_LEN`.
    fn ibv_wc_read_byte_len(cq: *mut ibv_cq_ex) -> u32: read_byte_len;
    /// `ibv_wc_read_imm_data(3)`, with `IBV_WC_EX_WITH_IMM`: big-endian.
    fn ibv_wc_read_imm_data(cq: *mut ibv_cq_ex) -> __be32: read_imm_data;
    /// `ibv_wc_read_qp_num(3)`, with `IBV_WC_EX_WITH_QP_NUM`.
    fn ibv_wc_read_qp_num(cq: *mut ibv_cq_ex) -> u32: read_qp_num;
    /// `ibv_wc_read_src_qp(3)`, with `IBV_WC_EX_WITH_SRC_QP`.
    fn ibv_wc_read_src_qp(cq: *mut ibv_cq_ex) -> u32: read_src_qp;
    /// `ibv_wc_read_wc_flags(3)`
    fn ibv_wc_read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint: read_wc_flags;
    /// `ibv_wc_read_slid(3)`, with `IBV_WC_EX_WITH_SLID`.
    fn ibv_wc_read_slid(cq: *mut ibv_cq_ex) -> u32: read_slid;
    /// `ibv_wc_read_sl(3)`, with `IBV_WC_EX_WITH_SL`.
    fn ibv_wc_read_sl(cq: *mut ibv_cq_ex) -> u8: read_sl;
    /// `ibv_wc_read_dlid_path_bits(3)`, with `IBV_WC_EX_WITH_DLID_PATH_BITS`.
    fn ibv_wc_read_dlid_path_bits(cq: *mut ibv_cq_ex) -> u8: read_dlid_path_bits;
    /// `ibv_wc_read_completion_ts(3)`, with `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`: ticks of the
    /// device's clock.
    fn ibv_wc_read_completion_ts(cq: *mut ibv_cq_ex) -> u64: read_completion_ts;
    /// `ibv_wc_read_completion_wallclock_ns(3)`, with
    /// `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK`.
    fn ibv_wc_read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64: read_completion_wallclock_ns;
    /// `ibv_wc_read_cvlan(3)`, with `IBV_WC_EX_WITH_CVLAN`.
    fn ibv_wc_read_cvlan(cq: *mut ibv_cq_ex) -> u16: read_cvlan;
    /// `ibv_wc_read_flow_tag(3)`, with `IBV_WC_EX_WITH_FLOW_TAG`.
    fn ibv_wc_read_flow_tag(cq: *mut ibv_cq_ex) -> u32: read_flow_tag;
    /// `ibv_wc_read_tm_info(3)`, with `IBV_WC_EX_WITH_TM_INFO`.
    fn ibv_wc_read_tm_info(cq: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info): read_tm_info;
}

/// `ibv_wc_read_invalidated_rkey(3)`: shares its field with the immediate, in host byte order.
///
/// # Safety
///
/// As for [`ibv_wc_read_imm_data`].
#[inline]
pub unsafe fn ibv_wc_read_invalidated_rkey(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: the caller upholds the contract of the function.
    unsafe { ibv_wc_read_imm_data(cq) }
}
