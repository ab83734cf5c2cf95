//! Bindings to libibverbs and librdmacm.
//!
//! Types and constants come from the headers of rdma-core 65. The functions are those of
//! [`Ibverbs`] and [`Rdmacm`], which open their library on first use: a program built with this
//! crate needs no RDMA package to build or to start. The functions that the headers define inline
//! (`ibv_post_send`, `ibv_poll_cq`, `ibv_wr_*`, …) are Rust functions here, as short as in C.
//!
//! ```
//! use farreach_verbs_sys::Ibverbs;
//!
//! match Ibverbs::get() {
//!     Ok(lib) => {
//!         let mut count = 0;
//! // SAFETY: the argument is valid for writing.
//!         let list = unsafe { lib.ibv_get_device_list(&mut count) }.unwrap();
//!         if !list.is_null() {
//!             println!("{count} devices");
//! // SAFETY: the list came from ibv_get_device_list, and none of its devices is used afterwards.
//!             unsafe { lib.ibv_free_device_list(list) }.unwrap();
//!         }
//!     }
//!     Err(missing) => println!("{missing}; {}", missing.fix()),
//! }
//! ```
//!
//! # Limits
//!
//! - It provides no safe API. `farreach-verbs` does.
//! - It converts no value: immediate data and port numbers stay big-endian, errors stay return
//!   values and `errno`.
//! - It binds no provider-specific interface (`mlx5dv`, `efadv`), no `rsocket`, no `rdma_verbs.h`.
//!   [`Ibverbs`], [`Rdmacm`] and [`inline`] list further omissions.
//!
//! # Versions
//!
//! All rdma-core releases from 44 (Debian 12) to 65 are supported, and others that keep the binary
//! interface, as rdma-core has since its first release. Structures grew between the two in three
//! ways, which are handled as follows:
//!
//! - `ibv_port_attr` grew at its end: the library gets the size of the caller's structure.
//! - `verbs_context` grew at its front: [`verbs_get_ctx_op!`] reads only entries that the library's
//!   structure has.
//! - `ibv_qp_ex` grew at its end: newer entries are read only for operations that `send_ops_flags`
//!   requested, and an older library refuses to create such a queue pair.
//!
//! A function that the library is too old for is a typed error ([`SymbolMissing`]) of that call
//! only.
//!
//! # Regenerating
//!
//! `src/bindings.rs` is generated and checked in; `cargo xtask bindings` generates it again from
//! `bindgen/wrapper.h` and `bindgen/flags`. Enumerations are integers with constants, so that
//! values of a newer library are valid. Types that differ between processors (`pthread_mutex_t`,
//! `sockaddr`) come from the `libc` crate.

#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    rustdoc::all,
    reason = "generated, with the names, the layout and the documentation of C"
)]
mod bindings;
mod constants;
mod ibverbs;
pub mod inline;
mod rdmacm;

pub use bindings::*;
pub use constants::*;
pub use farreach_dylib::{LibraryMissing, SymbolMissing};
pub use ibverbs::Ibverbs;
pub use inline::*;
pub use rdmacm::Rdmacm;
