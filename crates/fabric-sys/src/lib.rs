//! Raw bindings to libfabric: types, constants, and functions, with the library loaded at run time.
//!
//! ```
//! use farreach_fabric_sys::{FI_MAJOR, FI_MINOR, Libfabric};
//!
//! match Libfabric::get() {
//!     Ok(libfabric) => {
//!         // SAFETY: the function has no arguments and no preconditions.
//!         let version = unsafe { libfabric.fi_version() }.expect("every release has it");
//!         println!("{} is {}.{}", libfabric.path().display(), FI_MAJOR(version), FI_MINOR(version));
//!     }
//!     Err(missing) => println!("{missing}; {}", missing.fix()),
//! }
//! ```
//!
//! # What it does
//!
//! - [`Libfabric`] contains the functions that the library exports, looked up on first use. A
//!   program that uses this crate starts on a machine without libfabric.
//! - The functions that C has in its headers, such as [`fi_writemsg`] and [`fi_cq_read`], are
//!   inline functions here, too: two loads and a jump, without an additional call.
//!   `tests/assembly.rs` checks the machine code.
//! - Every name is that of C, and the manual pages apply.
//!
//! # What it does not do
//!
//! It makes nothing safe: the crate `farreach-fabric` does. It has no functions that only providers
//! call. `fi_allocinfo` is [`Libfabric::fi_dupinfo`] of null, as in C.
//!
//! # Supported versions
//!
//! Structures are those of **1.17** (Debian 12), and that interface is requested from the library
//! ([`API_VERSION`]). All releases from 1.17 to 2.x are supported, because libfabric keeps old
//! layouts under symbol versions: `fi_getinfo`, `fi_freeinfo` and `fi_dupinfo` are looked up at
//! `FABRIC_1.3`, which 2.x still exports. Between 1.17 and 2.1 the headers changed as follows:
//!
//! | item | change | consequence here |
//! |---|---|---|
//! | `fi_domain_attr` | grew by two fields | at `FABRIC_1.3`, a 2.x library accepts and returns the shorter one. Hints come from `fi_dupinfo`, never from memory of this crate |
//! | `fi_cq_err_entry` | grew by `src_addr` | 2.x writes the fields of version 1.17. To be independent of the provider, pass [`fi_cq_err_entry_2`] |
//! | `fi_mr_attr`, and `fi_mr_modify` around it | grew by four fields | as above: pass [`fi_mr_attr_2`] with zeros in the new fields. [`fi_mr_refresh`] does so |
//! | `fi_ops_av` | grew by three functions | not bound. Tables contain their length, and later entries are used only if it covers them |
//! | bit 48 of the capabilities | was `FI_VARIABLE_MSG`, is `FI_EXACT_DIRECTED_RECV` | never request the old one; interpret the bit by the library's version |
//! | bits 45, 46 | were flags of a registration only, are now capabilities, too (`FI_TAGGED_DIRECTED_RECV`, `FI_TAGGED_MULTI_RECV`) | the meaning of the bit depends on its place |
//! | `FI_PRIORITY`, `FI_XPU_TRIGGER`, `FI_NOTIFY_FLAGS_ONLY`, `FI_RESTRICTED_COMP`, `FI_BUFFERED_RECV` | removed | named here for reports of a 1.x library; must not be requested |
//! | `FI_EP_SOCK_STREAM`, `FI_EP_SOCK_DGRAM` | removed | as above |
//! | values 16 and more of `fi_datatype`, 19 of `fi_op` | new (`FI_FLOAT16`, `FI_DIFF`) | 19 was `FI_ATOMIC_OP_LAST`, a count, not an operation |
//! | wait sets and poll sets | deprecated | still in the tables |
//! | the interface between providers (`fi_peer`) | moved to a header of its own | not bound |
//!
//! Useful constants that came later are in `src/since_2.rs`. Enumerations are integers with named
//! constants, so a new value of a newer library is a value and not undefined behaviour.
//!
//! # Regenerating the bindings
//!
//! `cargo xtask bindings` writes `src/bindings.rs` from `bindgen/wrapper.h` with the options in
//! `bindgen/flags`. A build needs neither bindgen nor libfabric's headers. `src/constants.rs`
//! (macros, which have no type) and `src/inline` are written by hand; `cargo xtask layout` compares
//! every constant and structure with the headers of both generations.

#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    unreachable_pub,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "made by bindgen"
)]
#[rustfmt::skip]
mod bindings;
mod constants;
pub mod inline;
mod library;
mod since_2;

pub use bindings::*;
pub use constants::*;
pub use farreach_dylib::{LibraryMissing, SymbolMissing};
pub use inline::*;
pub use library::Libfabric;
pub use since_2::*;
