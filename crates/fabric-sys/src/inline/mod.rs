//! The functions that C has as `static inline` in its headers: each jumps through a table of the
//! object.
//!
//! A provider fills every entry of a table that it installs, with functions that return
//! `-FI_ENOSYS` for operations that it does not have. The tables of later releases are longer.
//! Entries that were added later are used only if the table's own `size` covers them, exactly where
//! the header checks it.

/// Declares functions that pass all their arguments to one entry of a table.
///
/// - `=> ep.rma.write` calls the entry with the arguments as they are.
/// - `=> &domain.fid, mr.reg` does the same with the object's `fid` in place of the object.
/// - `=> &domain.fid.bind` likewise, through the table that every `fid` has.
/// - `=> fid as fid_ep, ops.cancel` finds the table in the object that begins with this `fid`.
/// - `=> checked av.ops.av_set in fi_ops_av` returns `-FI_ENOSYS` if the table is too short or the
///   entry is empty.
macro_rules! inline {
    () => {};
    (
        $(#[$meta:meta])*
        fn $name:ident($object:ident: $object_ty:ty $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty
            => checked $same:ident.$table:ident.$entry:ident in $Table:ty;
        $($rest:tt)*
    ) => {
        inline! { @fn [other]
            $(#[$meta])* $name($object: $object_ty $(, $arg: $ty)*) -> $ret {
                match checked_entry!($object, $table, $Table, $entry) {
                    Some(function) => function($object $(, $arg)*),
                    None => -$crate::FI_ENOSYS as $ret,
                }
            }
        }
        inline! { $($rest)* }
    };
    (
        $(#[$meta:meta])*
        fn $name:ident($object:ident: $object_ty:ty $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty
            => $same:ident.$table:ident.$entry:ident;
        $($rest:tt)*
    ) => {
        inline! { @fn [$table]
            $(#[$meta])* $name($object: $object_ty $(, $arg: $ty)*) -> $ret {
                (*(*$object).$table).$entry.unwrap_unchecked()($object $(, $arg)*)
            }
        }
        inline! { $($rest)* }
    };
    (
        $(#[$meta:meta])*
        fn $name:ident($object:ident: $object_ty:ty $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty
            => &$same:ident.fid, $table:ident.$entry:ident;
        $($rest:tt)*
    ) => {
        inline! { @fn [other]
            $(#[$meta])* $name($object: $object_ty $(, $arg: $ty)*) -> $ret {
                (*(*$object).$table).$entry.unwrap_unchecked()(&raw mut (*$object).fid $(, $arg)*)
            }
        }
        inline! { $($rest)* }
    };
    (
        $(#[$meta:meta])*
        fn $name:ident($object:ident: $object_ty:ty $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty
            => &$same:ident.fid.$entry:ident;
        $($rest:tt)*
    ) => {
        inline! { @fn [other]
            $(#[$meta])* $name($object: $object_ty $(, $arg: $ty)*) -> $ret {
                (*(*$object).fid.ops).$entry.unwrap_unchecked()(&raw mut (*$object).fid $(, $arg)*)
            }
        }
        inline! { $($rest)* }
    };
    (
        $(#[$meta:meta])*
        fn $name:ident($object:ident: $object_ty:ty $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty
            => $same:ident as $class:ty, $table:ident.$entry:ident;
        $($rest:tt)*
    ) => {
        inline! { @fn [other]
            $(#[$meta])* $name($object: $object_ty $(, $arg: $ty)*) -> $ret {
                (*(*$object.cast::<$class>()).$table).$entry.unwrap_unchecked()($object $(, $arg)*)
            }
        }
        inline! { $($rest)* }
    };
    (@fn [$table:ident] $(#[$meta:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty { $($body:tt)* }) => {
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// The first argument is a live object of its class, opened with the capability that this
        /// call belongs to (an endpoint without it may lack the table). The other arguments are as
        /// the man page requires.
        #[inline]
        #[allow(clippy::too_many_arguments, reason = "as many as C has")]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            noted!($table $name {
                // SAFETY: the caller guarantees that the object is live. Its provider installed the
                // table and left no entry empty.
                unsafe { $($body)* }
            })
        }
    };
}

/// Notes a call for [`InCall`](farreach_dylib::InCall), except for work requests: the carrier of the
/// engine notes that it posts, and each instruction counts there.
macro_rules! noted {
    (msg $name:ident $call:block) => {
        $call
    };
    (rma $name:ident $call:block) => {
        $call
    };
    (tagged $name:ident $call:block) => {
        $call
    };
    (atomic $name:ident $call:block) => {
        $call
    };
    ($other:ident $name:ident $call:block) => {
        farreach_dylib::in_call(&stringify!($name), || $call)
    };
}

/// Returns an entry of a table, if the table exists, is long enough to have it, and has it: the
/// header's `FI_CHECK_OP`.
macro_rules! checked_entry {
    ($object:expr, $table:ident, $Table:ty, $entry:ident) => {{
        let table = (*$object).$table;
        if !table.is_null() && (*table).size > std::mem::offset_of!($Table, $entry) {
            (*table).$entry
        } else {
            None
        }
    }};
}

mod atomic;
mod av;
mod cm;
mod cntr;
mod collective;
mod cq;
mod domain;
mod endpoint;
mod eq;
mod fabric;
mod mr;
mod msg;
mod rma;
mod tagged;
mod wait;

pub use atomic::*;
pub use av::*;
pub use cm::*;
pub use cntr::*;
pub use collective::*;
pub use cq::*;
pub use domain::*;
pub use endpoint::*;
pub use eq::*;
pub use fabric::*;
pub use mr::*;
pub use msg::*;
pub use rma::*;
pub use tagged::*;
pub use wait::*;
