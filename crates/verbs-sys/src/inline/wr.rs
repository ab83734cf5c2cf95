//! Builds work requests in the queue itself: `ibv_wr_start(3)` and the functions of its sequence.

use std::ffi::{c_int, c_void};

use super::through_object;
use crate::bindings::*;

through_object! {
    safety: "The contract is that of the C function, and the sequence that of `ibv_wr_start(3)`. The entry of this name in \
             `ibv_qp_ex` is not null: an operation's entry exists if `send_ops_flags` requested it when the queue \
             pair was created, and those that `ibv_wr_post(3)` names for the queue pair's type. The creator of the \
             queue pair must check that (the fields are `Option`s, but an older library's structure ends before newer \
             ones: read only the requested entries).";

    /// `ibv_wr_start(3)`: opens a batch. No other thread may post until it is completed or aborted.
    fn ibv_wr_start(qp: *mut ibv_qp_ex): wr_start;
    /// `ibv_wr_complete(3)`: posts the batch, whole or not at all.
    fn ibv_wr_complete(qp: *mut ibv_qp_ex) -> c_int: wr_complete;
    /// `ibv_wr_abort(3)`: discards the batch.
    fn ibv_wr_abort(qp: *mut ibv_qp_ex): wr_abort;

    /// `ibv_wr_send(3)`
    fn ibv_wr_send(qp: *mut ibv_qp_ex): wr_send;
    /// `ibv_wr_send_imm(3)`: `imm_data` is big-endian.
    fn ibv_wr_send_imm(qp: *mut ibv_qp_ex, imm_data: __be32): wr_send_imm;
    /// `ibv_wr_send_inv(3)`: the receiver's key is invalidated when the message arrives.
    fn ibv_wr_send_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32): wr_send_inv;
    /// `ibv_wr_send_tso(3)`
    fn ibv_wr_send_tso(qp: *mut ibv_qp_ex, hdr: *mut c_void, hdr_sz: u16, mss: u16): wr_send_tso;
    /// `ibv_wr_rdma_read(3)`
    fn ibv_wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64): wr_rdma_read;
    /// `ibv_wr_rdma_write(3)`
    fn ibv_wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64): wr_rdma_write;
    /// `ibv_wr_rdma_write_imm(3)`: `imm_data` is big-endian.
    fn ibv_wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: __be32): wr_rdma_write_imm;
    /// `ibv_wr_atomic_cmp_swp(3)`
    fn ibv_wr_atomic_cmp_swp(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, compare: u64, swap: u64):
        wr_atomic_cmp_swp;
    /// `ibv_wr_atomic_fetch_add(3)`
    fn ibv_wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64): wr_atomic_fetch_add;
    /// `ibv_wr_atomic_write(3)`: `atomic_wr` points to 8 bytes.
    fn ibv_wr_atomic_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, atomic_wr: *const c_void): wr_atomic_write;
    /// `ibv_wr_flush(3)`: `placement` is an `ibv_placement_type` and `level` an
    /// `ibv_selectivity_level`.
    fn ibv_wr_flush(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, len: usize, placement: u8, level: u8): wr_flush;
    /// `ibv_wr_bind_mw(3)`: binds a window of type 2.
    fn ibv_wr_bind_mw(qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info): wr_bind_mw;
    /// `ibv_wr_local_inv(3)`
    fn ibv_wr_local_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32): wr_local_inv;

    /// `ibv_wr_set_ud_addr(3)`
    fn ibv_wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32): wr_set_ud_addr;
    /// `ibv_wr_set_xrc_srqn(3)`
    fn ibv_wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32): wr_set_xrc_srqn;
    /// `ibv_wr_set_inline_data(3)`: the bytes are copied before it returns.
    fn ibv_wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize): wr_set_inline_data;
    /// `ibv_wr_set_inline_data_list(3)`: the bytes are copied before it returns.
    fn ibv_wr_set_inline_data_list(qp: *mut ibv_qp_ex, num_buf: usize, buf_list: *const ibv_data_buf):
        wr_set_inline_data_list;
    /// `ibv_wr_set_sge(3)`
    fn ibv_wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32): wr_set_sge;
    /// `ibv_wr_set_sge_list(3)`
    fn ibv_wr_set_sge_list(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge): wr_set_sge_list;
}
