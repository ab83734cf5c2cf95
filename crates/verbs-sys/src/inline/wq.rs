//! Work queues and their indirection tables: receive-side scaling for raw queue pairs.

use std::ffi::c_int;

use super::{Unsupported, through_context};
use crate::bindings::*;
use crate::verbs_get_ctx_op;

/// `ibv_create_wq(3)`: creates a receive work queue.
///
/// # Safety
///
/// The contract is that of the C function: the context is open and the attributes are valid.
pub unsafe fn ibv_create_wq(context: *mut ibv_context, attr: *mut ibv_wq_init_attr) -> *mut ibv_wq {
    // SAFETY: the caller guarantees that the context is open.
    let Some(create) = (unsafe { verbs_get_ctx_op!(context, create_wq) }) else {
        return Unsupported::unsupported();
    };
    // SAFETY: the entry is the provider's own. The caller guarantees the rest.
    let wq = unsafe { create(context, attr) };
    if !wq.is_null() {
        // The header initialises these on the caller's side, and ibv_destroy_wq relies on them.
        // SAFETY: the queue was just created, and nothing else refers to it.
        unsafe {
            (*wq).wq_context = (*attr).wq_context;
            (*wq).events_completed = 0;
            libc::pthread_mutex_init(&raw mut (*wq).mutex, std::ptr::null());
            libc::pthread_cond_init(&raw mut (*wq).cond, std::ptr::null());
        }
    }
    wq
}

through_context! {
    /// `ibv_modify_wq(3)`
    fn ibv_modify_wq(wq: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int: (*wq).context => modify_wq;

    /// `ibv_destroy_wq(3)`
    fn ibv_destroy_wq(wq: *mut ibv_wq) -> c_int: (*wq).context => destroy_wq;

    /// `ibv_create_rwq_ind_table(3)`
    fn ibv_create_rwq_ind_table(
        context: *mut ibv_context,
        attr: *mut ibv_rwq_ind_table_init_attr,
    ) -> *mut ibv_rwq_ind_table: context => create_rwq_ind_table;

    /// `ibv_destroy_rwq_ind_table(3)`
    fn ibv_destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int:
        (*table).context => destroy_rwq_ind_table;
}
