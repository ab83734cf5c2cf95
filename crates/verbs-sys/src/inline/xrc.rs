//! Extended reliable connections: domains.

use std::ffi::c_int;

use super::through_context;
use crate::bindings::*;

through_context! {
    /// `ibv_open_xrcd(3)`: opens a domain, which is shared with all that open the same file.
    fn ibv_open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd:
        context => open_xrcd;

    /// `ibv_close_xrcd(3)`
    fn ibv_close_xrcd(xrcd: *mut ibv_xrcd) -> c_int: (*xrcd).context => close_xrcd;
}
