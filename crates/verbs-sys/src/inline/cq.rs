//! Completion queues: polling, arming, moderation.

use std::ffi::c_int;

use farreach_dylib::{SymbolMissing, in_call};

use super::through_context;
use crate::Ibverbs;
use crate::bindings::*;

/// `ibv_poll_cq(3)`: takes up to `num_entries` completions. Returns their number, or a negative
/// value on failure.
///
/// # Safety
///
/// The contract is that of the C function: `cq` lives, `wc` is valid for writing `num_entries`
/// completions. libibverbs has opened the context, and always fills this entry.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    in_call(&"ibv_poll_cq", || {
        // SAFETY: the queue lives, and libibverbs fills the entry of every context that it opens.
        unsafe { (*(*cq).context).ops.poll_cq.unwrap_unchecked()(cq, num_entries, wc) }
    })
}

/// `ibv_req_notify_cq(3)`: arms the queue for one event on its channel.
///
/// # Safety
///
/// The contract is that of the C function: `cq` lives. libibverbs has opened the context, and
/// always fills this entry.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    in_call(&"ibv_req_notify_cq", || {
        // SAFETY: the queue lives, and libibverbs fills the entry of every context that it opens.
        unsafe { (*(*cq).context).ops.req_notify_cq.unwrap_unchecked()(cq, solicited_only) }
    })
}

through_context! {
    /// `ibv_create_cq_ex(3)`: creates a completion queue whose completions are read one field at a
    /// time.
    ///
    /// The queue has the read functions that `wc_flags` requests. See
    /// [`ibv_start_poll`](crate::ibv_start_poll).
    fn ibv_create_cq_ex(context: *mut ibv_context, cq_attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex:
        context => create_cq_ex;

    /// `ibv_modify_cq(3)`: sets how many completions, and for how long, are gathered before an
    /// event.
    fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int: (*cq).context => modify_cq;
}

/// Returns the extended queue as an ordinary one: `ibv_cq_ex` begins with the fields of `ibv_cq`.
#[inline]
pub const fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

/// `ibv_query_comp_cntr_caps(3)`: returns the capabilities of the device's completion counters.
///
/// # Safety
///
/// The contract is that of the C function: the context is open, `caps` is valid for writing.
pub unsafe fn ibv_query_comp_cntr_caps(
    lib: &Ibverbs,
    context: *mut ibv_context,
    caps: *mut ibv_comp_cntr_caps,
) -> Result<c_int, SymbolMissing> {
    // SAFETY: the size is that of the structure behind `caps`. The caller guarantees the rest.
    unsafe { lib._ibv_query_comp_cntr_caps(context, caps, size_of::<ibv_comp_cntr_caps>()) }
}
