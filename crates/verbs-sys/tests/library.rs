//! Compares the tables with the installed libraries, by release.

use std::ffi::CString;
use std::path::Path;

use farreach_dylib::Library;
use farreach_testkit::rdma_core_release;
use farreach_verbs_sys::{Ibverbs, Rdmacm};

#[test]
#[ignore = "needs libibverbs: cargo xtask test runs it"]
fn libibverbs_exports_what_the_table_says_of_its_release() {
    let table = Ibverbs::get().expect("libibverbs is installed");
    check(Ibverbs::SONAME, table.path(), Ibverbs::FUNCTIONS);
}

#[test]
#[ignore = "needs librdmacm: cargo xtask test runs it"]
fn librdmacm_exports_what_the_table_says_of_its_release() {
    let table = Rdmacm::get().expect("librdmacm is installed");
    check(Rdmacm::SONAME, table.path(), Rdmacm::FUNCTIONS);
}

#[test]
#[ignore = "needs libibverbs: cargo xtask test runs it"]
fn the_tables_functions_are_the_librarys() {
    let ibverbs = Ibverbs::get().expect("libibverbs is installed");
    let rdmacm = Rdmacm::get().expect("librdmacm is installed");
    assert_eq!(rdma_core_release(ibverbs.path()), rdma_core_release(rdmacm.path()));
    // SAFETY: the functions take numbers and have no preconditions.
    unsafe {
        assert_eq!(ibverbs.ibv_rate_to_mbps(3), Ok(10_000));
        assert!(!rdmacm.rdma_event_str(0).unwrap().is_null());
    }
}

/// Checks that every function is found exactly if the release is at least its `since`.
fn check(soname: &str, path: &Path, functions: &[(&str, &str)]) {
    let release = rdma_core_release(path);
    // SAFETY: the table has already opened this library.
    let library = unsafe { Library::open(soname, "") }.expect("it is open already");
    assert_eq!(library.path(), path);
    let wrong: Vec<String> = functions
        .iter()
        .filter(|(name, since)| {
            let expected = since.parse::<u32>().expect("a release number") <= release;
            let name = CString::new(*name).expect("a C name");
            library.symbol(&name).is_some() != expected
        })
        .map(|(name, since)| format!("{name}, since {since}"))
        .collect();
    assert!(wrong.is_empty(), "{} of rdma-core {release} differs in: {wrong:#?}", path.display());
}
