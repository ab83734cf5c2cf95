//! The function table against the installed library: every function, at the symbol version with the
//! bound layouts.

use std::ffi::CString;

use farreach_dylib::Library;
use farreach_fabric_sys::{FI_MAJOR, FI_MINOR, Libfabric};

/// The version of a release such as `1.17`, for comparison.
type Version = (u32, u32);

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn the_library_exports_what_the_table_says_of_its_release() {
    let (library, release) = installed();
    let wrong: Vec<_> = Libfabric::FUNCTIONS
        .iter()
        .filter(|(function, since)| {
            let (name, version) = function.split_once('@').unwrap_or((function, ""));
            (address(&library, name, version) != 0) != (parse(since) <= release)
        })
        .collect();
    assert!(wrong.is_empty(), "{} {release:?} differs in: {wrong:#?}", library.path().display());
}

/// If the layouts have changed, a function at its symbol version differs from the one that a
/// program linked today would get.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn the_older_layouts_have_functions_of_their_own_in_2() {
    let (library, release) = installed();
    for name in ["fi_getinfo", "fi_freeinfo", "fi_dupinfo"] {
        let (default, older) = (address(&library, name, ""), address(&library, name, "FABRIC_1.3"));
        assert_ne!(older, 0, "{name}@FABRIC_1.3");
        assert_eq!(default != older, release >= (2, 0), "{name} of {release:?}: {default:x} and {older:x}");
    }
}

/// Returns the library that the dynamic linker finds, and its version.
fn installed() -> (Library, Version) {
    let table = Libfabric::get().expect("libfabric is installed");
    // SAFETY: the function has no arguments and no preconditions.
    let version = unsafe { table.fi_version() }.expect("every release has it");
    // SAFETY: it is the library that the table has opened already.
    let library = unsafe { Library::open(Libfabric::SONAME, "") }.expect("it is open already");
    assert_eq!(library.path(), table.path());
    (library, (FI_MAJOR(version), FI_MINOR(version)))
}

/// Returns the address of a function, at its default version if `version` is empty; 0 if it does
/// not exist.
fn address(library: &Library, name: &str, version: &str) -> usize {
    let (name, version) = (CString::new(name).unwrap(), CString::new(version).unwrap());
    let found =
        if version.is_empty() { library.symbol(&name) } else { library.versioned_symbol(&name, &version) };
    found.map_or(0, |address| address.addr().get())
}

fn parse(version: &str) -> Version {
    let (major, minor) = version.split_once('.').expect("major.minor");
    (major.parse().expect("a number"), minor.parse().expect("a number"))
}
