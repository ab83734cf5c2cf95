//! Posting lists of work requests.

use std::ffi::c_int;

use crate::bindings::*;

/// `ibv_post_send(3)`: posts a list to the send queue. Returns 0, or an errno with `bad_wr` at the
/// first one not posted.
///
/// # Safety
///
/// The contract is that of the C function: `qp` lives, `wr` heads a valid list, `bad_wr` is valid
/// for writing, and the memory that the list names stays registered and unused until its
/// completions. libibverbs has opened the context, and always fills this entry.
#[inline]
pub unsafe fn ibv_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the queue pair lives, and libibverbs fills the entry of every context that it opens.
    unsafe { (*(*qp).context).ops.post_send.unwrap_unchecked()(qp, wr, bad_wr) }
}

/// `ibv_post_recv(3)`: posts a list to the receive queue. Returns 0, or an errno with `bad_wr` at
/// the first one not posted.
///
/// # Safety
///
/// As for [`ibv_post_send`].
#[inline]
pub unsafe fn ibv_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the queue pair lives, and libibverbs fills the entry of every context that it opens.
    unsafe { (*(*qp).context).ops.post_recv.unwrap_unchecked()(qp, wr, bad_wr) }
}

/// `ibv_post_srq_recv(3)`: posts a list to a shared receive queue.
///
/// # Safety
///
/// As for [`ibv_post_send`].
#[inline]
pub unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the queue lives, and libibverbs fills the entry of every context that it opens.
    unsafe { (*(*srq).context).ops.post_srq_recv.unwrap_unchecked()(srq, wr, bad_wr) }
}

/// `ibv_post_wq_recv(3)`: posts a list to a work queue.
///
/// # Safety
///
/// As for [`ibv_post_send`]; the provider that created the work queue always fills this entry.
#[inline]
pub unsafe fn ibv_post_wq_recv(
    wq: *mut ibv_wq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the queue lives, and its provider fills the entry.
    unsafe { (*wq).post_recv.unwrap_unchecked()(wq, wr, bad_wr) }
}

/// `ibv_post_srq_ops(3)`: posts tag-matching operations to a shared receive queue.
///
/// # Safety
///
/// As for [`ibv_post_send`].
#[inline]
pub unsafe fn ibv_post_srq_ops(
    srq: *mut ibv_srq,
    op: *mut ibv_ops_wr,
    bad_op: *mut *mut ibv_ops_wr,
) -> c_int {
    // SAFETY: the queue lives and leads to an open context.
    match unsafe { crate::verbs_get_ctx_op!((*srq).context, post_srq_ops) } {
        // SAFETY: the entry is the provider's own. The caller guarantees the rest.
        Some(post) => unsafe { post(srq, op, bad_op) },
        None => {
            // SAFETY: the caller guarantees that `bad_op` is valid for writing.
            unsafe { *bad_op = op };
            libc::EOPNOTSUPP
        }
    }
}
