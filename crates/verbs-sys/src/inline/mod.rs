//! The inline functions of the headers.
//!
//! A verbs program spends its time in functions that libibverbs does not export: `verbs.h` defines
//! them inline, as a jump through a table of the device context, the queue pair or the completion
//! queue. They are reimplemented here, one file per subject.
//!
//! - *Data path* (`ibv_post_send`, `ibv_poll_cq`, `ibv_wr_*`, `ibv_wc_read_*`): two loads and a
//!   jump, without checks. The contract of each function states why its table entry is not null.
//! - *Control path* (all others): if an entry is null, or lies beyond the end of an older library's
//!   shorter table, the result is `EOPNOTSUPP`: returned, or in `errno` with a null pointer.
//! - If the header falls back on an exported function, the function here takes the
//!   [`Ibverbs`](crate::Ibverbs) table as its first argument.

use std::ffi::c_int;

mod context;
mod cq;
mod cq_ex;
mod dm;
mod flow;
mod mr;
mod mw;
mod pd;
mod post;
mod qp;
mod rdma_cm;
mod srq;
mod wq;
mod wr;
mod xrc;

pub use context::*;
pub use cq::*;
pub use cq_ex::*;
pub use dm::*;
pub use flow::*;
pub use mr::*;
pub use mw::*;
pub use pd::*;
pub use post::*;
pub use qp::*;
pub use rdma_cm::*;
pub use srq::*;
pub use wq::*;
pub use wr::*;
pub use xrc::*;

/// The result of a control-path function that the device does not support.
trait Unsupported {
    fn unsupported() -> Self;
}

impl Unsupported for c_int {
    fn unsupported() -> Self {
        libc::EOPNOTSUPP
    }
}

impl<T> Unsupported for *mut T {
    fn unsupported() -> Self {
        // SAFETY: glibc gives every thread an errno of its own.
        unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
        std::ptr::null_mut()
    }
}

/// Declares control-path functions: `context` is the expression for the device context, `op` the
/// entry of `verbs_context`.
macro_rules! through_context {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty: $context:expr => $op:ident;
    )*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// The contract is that of the C function. The objects belong to an open device.
        #[inline]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller passes a live object, which leads to an open device context.
            match unsafe { $crate::verbs_get_ctx_op!($context, $op) } {
                Some(op) => farreach_dylib::in_call(&stringify!($name), || {
                    // SAFETY: the entry is the provider's own for this context. The caller
                    // guarantees the rest.
                    unsafe { op($($arg),*) }
                }),
                None => <$ret as $crate::inline::Unsupported>::unsupported(),
            }
        }
    )*};
}

/// Declares data-path functions over the table of an extended object. The entry must not be null.
///
/// These calls are not noted for [`InCall`](farreach_dylib::InCall): a request makes several of
/// them, and each is only a few instructions long.
macro_rules! through_object {
    (
        safety: $contract:literal;
        $(
            $(#[$meta:meta])*
            fn $name:ident($object:ident: *mut $Object:ty $(, $arg:ident: $ty:ty)* $(,)?) $(-> $ret:ty)?: $op:ident;
        )*
    ) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        ///
        #[doc = $contract]
        #[inline]
        pub unsafe fn $name($object: *mut $Object $(, $arg: $ty)*) $(-> $ret)? {
            // SAFETY: the caller guarantees that the object lives and that this entry of its table
            // is filled.
            unsafe { (*$object).$op.unwrap_unchecked()($object $(, $arg)*) }
        }
    )*};
}

use {through_context, through_object};
