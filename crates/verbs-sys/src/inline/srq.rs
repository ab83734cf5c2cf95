//! Shared receive queues: the extended function to create them, and their numbers.

use std::ffi::c_int;

use farreach_dylib::SymbolMissing;

use super::{Unsupported, through_context};
use crate::bindings::*;
use crate::{Ibverbs, verbs_get_ctx_op};

/// `ibv_create_srq_ex(3)`: creates a shared receive queue of any type: basic, XRC, tag-matching.
///
/// # Safety
///
/// The contract is that of the C function: the context is open and the attributes are valid.
pub unsafe fn ibv_create_srq_ex(
    lib: &Ibverbs,
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> Result<*mut ibv_srq, SymbolMissing> {
    // SAFETY: the caller guarantees that the attributes are valid.
    let (mask, srq_type, pd) = unsafe { ((*attr).comp_mask, (*attr).srq_type, (*attr).pd) };
    let only_known = mask & !(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE) == 0;
    let basic = mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || srq_type == IBV_SRQT_BASIC;
    if only_known && mask & IBV_SRQ_INIT_ATTR_PD != 0 && basic {
        // SAFETY: the extended attributes begin with the fields of the plain ones.
        return unsafe { lib.ibv_create_srq(pd, attr.cast()) };
    }
    // SAFETY: the caller guarantees that the context is open.
    Ok(match unsafe { verbs_get_ctx_op!(context, create_srq_ex) } {
        // SAFETY: the entry is the provider's own. The caller guarantees the rest.
        Some(create) => unsafe { create(context, attr) },
        None => Unsupported::unsupported(),
    })
}

through_context! {
    /// `ibv_get_srq_num(3)`: returns the number by which XRC senders name the queue.
    fn ibv_get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int: (*srq).context => get_srq_num;
}
