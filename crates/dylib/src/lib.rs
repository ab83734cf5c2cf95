//! Opens C libraries at run time.
//!
//! A program that is linked against `libibverbs` does not start on a machine without it. Farreach
//! starts on every machine and reports what is missing, so its two `-sys` crates open their
//! libraries with `dlopen(3)` on first use. This crate is the part that they share: [`Library`],
//! the two typed errors, and [`library!`], which turns a list of C prototypes into a table of
//! functions.
//!
//! Libraries are never closed. Providers start threads and register exit handlers, so a library
//! stays open until the process ends. Invariant: a function pointer taken from a library stays
//! valid for the life of the process.
//!
//! A call that does not return can be named by another thread: see [`InCall`].
//!
//! ```
//! use std::ffi::{c_char, CStr};
//!
//! farreach_dylib::library! {
//! /// The C library, opened like any other library.
//!     pub struct C {
//!         soname: "libc.so.6",
//!         install: "apt-get install libc6",
//!         release: "glibc",
//!     }
//!
//!     /// `gnu_get_libc_version(3)`
//!     fn gnu_get_libc_version() -> *const c_char, since "2.1";
//!     /// A function that no release has.
//!     fn gnu_get_libc_tomorrow() -> *const c_char, since "99";
//! }
//!
//! let c = C::get().expect("glibc is installed");
//! // SAFETY: the function takes no arguments and returns a static string.
//! let version = unsafe { CStr::from_ptr(c.gnu_get_libc_version().unwrap()) };
//! assert!(version.to_str().unwrap().starts_with("2."));
//! // SAFETY: the function is missing, so nothing is called.
//! let missing = unsafe { c.gnu_get_libc_tomorrow() }.unwrap_err();
//! assert_eq!(missing.symbol, "gnu_get_libc_tomorrow");
//! ```

mod error;
mod in_call;
mod library;
mod table;

pub use error::{LibraryMissing, SymbolMissing};
pub use in_call::{Attached, InCall, in_call};
pub use library::Library;
