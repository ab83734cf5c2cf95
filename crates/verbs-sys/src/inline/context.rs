//! The extended context, which holds most tables, and the queries of device, port and GID.

use std::ffi::c_int;
use std::mem::offset_of;

use farreach_dylib::SymbolMissing;

use super::through_context;
use crate::Ibverbs;
use crate::bindings::*;

/// Returns the extended context around `context`, or null if libibverbs allocated it in the old,
/// short form.
///
/// The structure of an older library is shorter, and begins later. Do not read entries through the
/// result; use [`verbs_get_ctx_op!`](crate::verbs_get_ctx_op), which checks the size.
///
/// # Safety
///
/// `context` points to an open device context.
#[inline]
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: the caller guarantees that the context is open.
    if unsafe { (*context).abi_compat }.addr() != usize::MAX {
        return std::ptr::null_mut();
    }
    // Wrapping arithmetic, because with an older library the beginning lies before the allocation.
    context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast()
}

/// The expansion of [`verbs_get_ctx_op!`](crate::verbs_get_ctx_op). `offset` is that of the entry,
/// and `_entry` determines its type.
///
/// # Safety
///
/// `context` points to an open device context, and `offset` is that of a field of `verbs_context`
/// with the type `Option<F>`.
#[doc(hidden)]
#[inline]
pub unsafe fn context_op<F: Copy>(
    context: *mut ibv_context,
    offset: usize,
    _entry: impl Fn(&verbs_context) -> Option<F>,
) -> Option<F> {
    // SAFETY: the caller guarantees that the context is open.
    let extended = unsafe { verbs_get_ctx(context) };
    if extended.is_null() {
        return None;
    }
    let sz = extended.wrapping_byte_add(offset_of!(verbs_context, sz)).cast::<usize>();
    // The table grows at its front. `sz` is the size from there to the end, which determines how
    // far back the entries extend.
    // SAFETY: `sz` lies immediately before the context in every extended context.
    if unsafe { sz.read() } < size_of::<verbs_context>() - offset {
        return None;
    }
    // SAFETY: by the size, the entry is part of the structure. The caller guarantees its type.
    unsafe { extended.wrapping_byte_add(offset).cast::<Option<F>>().read() }
}

/// Returns the entry `$op` of the extended context around `$context`, or `None` if the library's
/// structure is too short for it or the entry is null: `verbs_get_ctx_op` of `verbs.h`.
///
/// The expansion is unsafe: the context must be open.
///
/// ```
/// use farreach_verbs_sys::{ibv_context, verbs_get_ctx_op};
///
/// /// # Safety
/// ///
/// /// `context` is open.
/// unsafe fn has_device_memory(context: *mut ibv_context) -> bool {
/// // SAFETY: the caller guarantees that the context is open.
///     unsafe { verbs_get_ctx_op!(context, alloc_dm) }.is_some()
/// }
/// ```
#[macro_export]
macro_rules! verbs_get_ctx_op {
    ($context:expr, $op:ident) => {
        $crate::context_op(
            $context,
            ::std::mem::offset_of!($crate::verbs_context, $op),
            |extended: &$crate::verbs_context| extended.$op,
        )
    };
}

/// `ibv_query_device_ex(3)`: returns the device's limits and capabilities; the short form if the
/// provider has no more.
///
/// # Safety
///
/// The contract is that of the C function: the context is open, `input` is null or valid, `attr` is
/// valid for writing.
pub unsafe fn ibv_query_device_ex(
    lib: &Ibverbs,
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> Result<c_int, SymbolMissing> {
    // SAFETY: `input` is not null here, so it is valid.
    if !input.is_null() && unsafe { (*input).comp_mask } != 0 {
        return Ok(libc::EINVAL);
    }
    // SAFETY: the caller guarantees that the context is open.
    if let Some(query) = unsafe { verbs_get_ctx_op!(context, query_device_ex) } {
        // SAFETY: the caller guarantees the arguments, and the size is that of the structure behind
        // `attr`.
        let status = unsafe { query(context, input, attr, size_of::<ibv_device_attr_ex>()) };
        if status != libc::EOPNOTSUPP && status != libc::ENOSYS {
            return Ok(status);
        }
    }
    // SAFETY: `attr` is valid for writing, and zeroes are valid for plain C numbers.
    unsafe { attr.write_bytes(0, 1) };
    // SAFETY: the context is open and the attributes are valid for writing.
    unsafe { lib.ibv_query_device(context, &raw mut (*attr).orig_attr) }
}

/// `ibv_query_port(3)`: returns a port's state and capabilities. Fields that the library does not
/// know are 0.
///
/// # Safety
///
/// The contract is that of the C function: the context is open, `attr` is valid for writing.
pub unsafe fn ibv_query_port(
    lib: &Ibverbs,
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> Result<c_int, SymbolMissing> {
    // SAFETY: `attr` is valid for writing, and zeroes are valid for plain C numbers.
    unsafe { attr.write_bytes(0, 1) };
    // SAFETY: the caller guarantees that the context is open.
    match unsafe { verbs_get_ctx_op!(context, query_port) } {
        // SAFETY: the library writes at most the size that it gets.
        Some(query) => Ok(unsafe { query(context, port_num, attr, size_of::<ibv_port_attr>()) }),
        // SAFETY: the exported function writes the older, shorter structure, which is the beginning
        // of this one.
        None => unsafe { lib.ibv_query_port(context, port_num, attr.cast()) },
    }
}

/// `ibv_query_gid_ex(3)`: returns one entry of a port's GID table, with its type and net device.
///
/// # Safety
///
/// The contract is that of the C function: the context is open, `entry` is valid for writing.
pub unsafe fn ibv_query_gid_ex(
    lib: &Ibverbs,
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
) -> Result<c_int, SymbolMissing> {
    let size = size_of::<ibv_gid_entry>();
    // SAFETY: the size is that of the structure behind `entry`. The caller guarantees the rest.
    unsafe { lib._ibv_query_gid_ex(context, port_num, gid_index, entry, flags, size) }
}

/// `ibv_query_gid_table(3)`: returns the used entries of all GID tables of the device. The result
/// is their number, or a negative errno.
///
/// # Safety
///
/// The contract is that of the C function: the context is open, `entries` is valid for writing
/// `max_entries`.
pub unsafe fn ibv_query_gid_table(
    lib: &Ibverbs,
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
) -> Result<isize, SymbolMissing> {
    let size = size_of::<ibv_gid_entry>();
    // SAFETY: the size is that of one entry. The caller guarantees the rest.
    unsafe { lib._ibv_query_gid_table(context, entries, max_entries, flags, size) }
}

through_context! {
    /// `ibv_query_rt_values_ex(3)`: returns the device's clock.
    fn ibv_query_rt_values_ex(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int:
        context => query_rt_values;
}

/// Returns `true` if `caps`, a mask such as `ibv_tso_caps::supported_qpts`, contains the queue pair
/// type.
#[inline]
pub const fn ibv_is_qpt_supported(caps: u32, qpt: ibv_qp_type) -> bool {
    // A type beyond the width of the mask cannot be in it.
    qpt < u32::BITS && caps & (1 << qpt) != 0
}

/// Returns the UDP source port that a RoCE v2 device derives from a flow label.
#[inline]
pub const fn ibv_flow_label_to_udp_sport(flow_label: u32) -> u16 {
    let low = (flow_label & 0x03FFF) ^ ((flow_label & 0xFC000) >> 14);
    (low | IB_ROCE_UDP_ENCAP_VALID_PORT_MIN) as u16
}
