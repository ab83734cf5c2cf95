//! Exports the functions of the data path as symbols, to inspect their machine code:
//!
//! ```text
//! cargo build --release -p farreach-verbs-sys --example verbs_hot_path
//! objdump -d --disassemble=hot_post_send target/release/examples/verbs_hot_path
//! ```
//!
//! `tests/host/assembly.rs` checks that they call only through the table.

use std::ffi::c_int;
use std::hint::black_box;

use farreach_verbs_sys::{
    ibv_cq, ibv_poll_cq, ibv_post_recv, ibv_post_send, ibv_qp, ibv_qp_ex, ibv_recv_wr, ibv_send_wr, ibv_wc,
    ibv_wr_rdma_write,
};

/// Calls `ibv_post_send`.
///
/// # Safety
///
/// As for `ibv_post_send`.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn hot_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller upholds the contract of the function.
    unsafe { ibv_post_send(qp, wr, bad) }
}

/// Calls `ibv_post_recv`.
///
/// # Safety
///
/// As for `ibv_post_recv`.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn hot_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller upholds the contract of the function.
    unsafe { ibv_post_recv(qp, wr, bad) }
}

/// Calls `ibv_poll_cq`.
///
/// # Safety
///
/// As for `ibv_poll_cq`.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn hot_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller upholds the contract of the function.
    unsafe { ibv_poll_cq(cq, num_entries, wc) }
}

/// Calls `ibv_wr_rdma_write`.
///
/// # Safety
///
/// As for `ibv_wr_rdma_write`.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn hot_wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    // SAFETY: the caller upholds the contract of the function.
    unsafe { ibv_wr_rdma_write(qp, rkey, remote_addr) }
}

fn main() {
    // Referenced so that the linker keeps them, and not called, because there is no device.
    black_box(hot_post_send as unsafe extern "C" fn(_, _, _) -> _);
    black_box(hot_post_recv as unsafe extern "C" fn(_, _, _) -> _);
    black_box(hot_poll_cq as unsafe extern "C" fn(_, _, _) -> _);
    black_box(hot_wr_rdma_write as unsafe extern "C" fn(_, _, _));
}
