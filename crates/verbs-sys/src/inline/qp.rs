//! Queue pairs: the extended functions to create, open and limit them.

use std::ffi::c_int;

use farreach_dylib::SymbolMissing;

use super::{Unsupported, through_context};
use crate::bindings::*;
use crate::{Ibverbs, verbs_get_ctx_op};

/// `ibv_create_qp_ex(3)`: creates a queue pair with more attributes than `ibv_create_qp` takes,
/// such as its work-request functions (`send_ops_flags`).
///
/// # Safety
///
/// The contract is that of the C function: the context is open and the attributes are valid.
pub unsafe fn ibv_create_qp_ex(
    lib: &Ibverbs,
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, SymbolMissing> {
    // SAFETY: the caller guarantees that the attributes are valid.
    if unsafe { (*attr).comp_mask } == IBV_QP_INIT_ATTR_PD {
        // SAFETY: the extended attributes begin with the fields of the plain ones.
        return unsafe { lib.ibv_create_qp((*attr).pd, attr.cast()) };
    }
    // SAFETY: the caller guarantees that the context is open.
    Ok(match unsafe { verbs_get_ctx_op!(context, create_qp_ex) } {
        // SAFETY: the entry is the provider's own. The caller guarantees the rest.
        Some(create) => unsafe { create(context, attr) },
        None => Unsupported::unsupported(),
    })
}

through_context! {
    /// `ibv_open_qp(3)`: opens the receiving queue pair of an XRC domain that another process
    /// created.
    fn ibv_open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp: context => open_qp;

    /// `ibv_modify_qp_rate_limit(3)`: limits the rate of a queue pair.
    fn ibv_modify_qp_rate_limit(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int:
        (*qp).context => modify_qp_rate_limit;
}
