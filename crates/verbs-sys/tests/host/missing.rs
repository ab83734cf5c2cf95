//! Tests of a missing library, and of a library that lacks a function: typed errors, while other
//! functions work.

use farreach_testkit::shared_object;
use farreach_verbs_sys::{Ibverbs, Rdmacm};

/// A library with only one function of libibverbs.
const SHORT_LIBRARY: &str = "int ibv_fork_init(void) { return 42; }";

#[test]
fn a_missing_function_is_an_error_of_its_own_call_alone() {
    let library = shared_object(env!("CARGO_TARGET_TMPDIR"), "short", SHORT_LIBRARY, "");
    // SAFETY: the only function of the library has the declared type.
    let short = unsafe { Ibverbs::open(library.to_str().unwrap()) }.expect("the library opens");
    // SAFETY: the function takes no arguments.
    assert_eq!(unsafe { short.ibv_fork_init() }, Ok(42));

    // SAFETY: the function is missing, so nothing is called.
    let missing = unsafe { short.ibv_alloc_dmah(std::ptr::null_mut(), std::ptr::null_mut()) }.unwrap_err();
    assert_eq!(missing.symbol, "ibv_alloc_dmah");
    assert_eq!(missing.since, "59");
    assert_eq!(missing.path, library.canonicalize().unwrap());
    assert_eq!(missing.fix(), "ibv_alloc_dmah needs rdma-core 59 or newer: install that release");
}

#[test]
fn a_missing_library_says_what_to_install() {
    // SAFETY: no such file exists, so nothing is loaded.
    let missing = unsafe { Rdmacm::open("librdmacm-of-no-release.so.1") }.unwrap_err();
    assert!(missing.is_absent(), "{missing}");
    assert!(missing.fix().contains("apt-get install librdmacm1"), "{}", missing.fix());
}
