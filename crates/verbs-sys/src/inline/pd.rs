//! Thread domains and parent domains: how a caller tells a provider which locks it can spare.

use std::ffi::c_int;

use super::through_context;
use crate::bindings::*;

through_context! {
    /// `ibv_alloc_td(3)`: a promise that the objects made in it are used by one thread at a time.
    fn ibv_alloc_td(context: *mut ibv_context, init_attr: *mut ibv_td_init_attr) -> *mut ibv_td: context => alloc_td;

    /// `ibv_dealloc_td(3)`
    fn ibv_dealloc_td(td: *mut ibv_td) -> c_int: (*td).context => dealloc_td;

    /// `ibv_alloc_parent_domain(3)`: a protection domain with a thread domain and an allocator. Freed by `ibv_dealloc_pd`.
    fn ibv_alloc_parent_domain(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd:
        context => alloc_parent_domain;
}
