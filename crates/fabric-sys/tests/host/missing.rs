//! A missing library, and one that lacks a function or has another version of it: typed errors.

use std::ptr;

use farreach_fabric_sys::Libfabric;
use farreach_testkit::shared_object;

const OLD_LIBRARY: &str = "unsigned fi_version(void) { return 1 << 16; }
int fi_getinfo(void) { return -22; }
";
/// The symbol versions of libfabric before 1.5.
const OLD_VERSIONS: &str = "FABRIC_1.0 { global: fi_version; fi_getinfo; local: *; };
";

#[test]
fn missing_function_is_a_typed_error() {
    let library = shared_object(env!("CARGO_TARGET_TMPDIR"), "fabric-old", OLD_LIBRARY, OLD_VERSIONS);
    // SAFETY: the library is the one above: its fi_version has the declared type, and its
    // fi_getinfo, which has not, has another symbol version and is not used.
    let table =
        unsafe { Libfabric::open(library.to_str().expect("the path is text")) }.expect("it was just built");

    // SAFETY: the function has no arguments.
    assert_eq!(unsafe { table.fi_version() }, Ok(1 << 16));

    // SAFETY: the function does not exist, so nothing is called.
    let missing = unsafe { table.fi_strerror(0) }.expect_err("it was not defined");
    assert_eq!((missing.symbol, missing.since), ("fi_strerror", "1.0"));
    assert_eq!(missing.path, library.canonicalize().expect("it exists"));

    // SAFETY: a function of that name exists, but not at that version, so nothing is called.
    let missing = unsafe { table.fi_freeinfo(ptr::null_mut()) }.expect_err("it was not defined");
    assert_eq!(missing.symbol, "fi_freeinfo@FABRIC_1.3");
    // SAFETY: as above.
    let missing = unsafe { table.fi_getinfo(0, ptr::null(), ptr::null(), 0, ptr::null(), ptr::null_mut()) }
        .expect_err("only another version of it was defined");
    assert_eq!((missing.symbol, missing.since), ("fi_getinfo@FABRIC_1.3", "1.9"));
    assert!(missing.fix().contains("libfabric 1.9"), "{}", missing.fix());
}

#[test]
fn a_missing_library_says_what_to_install() {
    // SAFETY: no such file is opened.
    let missing = unsafe { Libfabric::open("libfabric-of-no-release.so.1") }.unwrap_err();
    assert!(missing.is_absent(), "{missing}");
    assert!(missing.fix().contains("apt-get install libfabric1"), "{}", missing.fix());
}
