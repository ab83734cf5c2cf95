//! Opens a C library at run time.
//!
//! A program that links `libibverbs` the ordinary way does not start on a machine without it. Farreach starts
//! everywhere and tells what is missing, so its two `-sys` crates open their libraries with `dlopen(3)` when they are
//! first used. This crate is the part they share: [`Library`], the two typed errors, and [`library!`], which
//! turns a list of C prototypes into a table of functions.
//!
//! What it does not do: close a library. Providers start threads and register exit handlers, so a library that was once
//! opened stays until the process ends, and every function pointer taken from it stays good.
//!
//! ```
//! use std::ffi::{c_char, CStr};
//!
//! farreach_dylib::library! {
//!     /// The C library, opened as any other.
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
//! let c = C::get().expect("every Linux has one");
//! // SAFETY: the function takes nothing and returns a static string.
//! let version = unsafe { CStr::from_ptr(c.gnu_get_libc_version().unwrap()) };
//! assert!(version.to_str().unwrap().starts_with("2."));
//! // SAFETY: the function is missing, so nothing is called.
//! let missing = unsafe { c.gnu_get_libc_tomorrow() }.unwrap_err();
//! assert_eq!(missing.symbol, "gnu_get_libc_tomorrow");
//! ```

mod error;
mod library;
mod table;

pub use error::{LibraryMissing, SymbolMissing};
pub use library::Library;
