//! Thread domains and parent domains, by which a caller allows a provider to omit locks.

use std::ffi::c_int;

use super::through_context;
use crate::bindings::*;

through_context! {
    /// `ibv_alloc_td(3)`: allocates a thread domain. The caller promises that its objects are used
    /// by one thread at a time.
    fn ibv_alloc_td(context: *mut ibv_context, init_attr: *mut ibv_td_init_attr) -> *mut ibv_td: context => alloc_td;

    /// `ibv_dealloc_td(3)`
    fn ibv_dealloc_td(td: *mut ibv_td) -> c_int: (*td).context => dealloc_td;

    /// `ibv_alloc_parent_domain(3)`: allocates a protection domain with a thread domain and an
    /// allocator. `ibv_dealloc_pd` frees it.
    fn ibv_alloc_parent_domain(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd:
        context => alloc_parent_domain;
}
