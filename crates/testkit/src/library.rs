//! Libraries built for a test, and releases of installed ones.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles C into `lib{name}.so` in `directory`, which is usually `env!("CARGO_TARGET_TMPDIR")`.
/// `versions` is a linker's version script, or empty.
#[track_caller]
pub fn shared_object(directory: &str, name: &str, source: &str, versions: &str) -> PathBuf {
    let file = |ending: &str| Path::new(directory).join(format!("{name}{ending}"));
    let (c, map, library) = (file(".c"), file(".map"), Path::new(directory).join(format!("lib{name}.so")));
    std::fs::write(&c, source).expect("the folder is writable");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&c);
    if !versions.is_empty() {
        std::fs::write(&map, versions).expect("the folder is writable");
        compiler.arg(format!("-Wl,--version-script={}", map.display()));
    }
    let status = compiler.status().expect("cc is installed, because it links Rust programs");
    assert!(status.success(), "{compiler:?} ended with {status}");
    library
}

/// Returns the release of rdma-core that an installed library belongs to, from its file name:
/// `libibverbs.so.1.14.44.0` is libibverbs 1.14 of rdma-core 44.
#[track_caller]
pub fn rdma_core_release(library: &Path) -> u32 {
    let name = library.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let numbers: Vec<&str> =
        name.split_once(".so.").map(|(_, version)| version.split('.').collect()).unwrap_or_default();
    let release = match numbers[..] {
        [_, _, release, _] => release.parse().ok(),
        _ => None,
    };
    release.unwrap_or_else(|| panic!("{} does not tell its release", library.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_the_third_number() {
        assert_eq!(rdma_core_release(Path::new("/usr/lib/libibverbs.so.1.14.44.0")), 44);
        assert_eq!(rdma_core_release(Path::new("librdmacm.so.1.3.65.0")), 65);
    }

    #[test]
    #[should_panic(expected = "libibverbs.so.1 does not tell its release")]
    fn a_link_tells_nothing() {
        rdma_core_release(Path::new("/usr/lib/libibverbs.so.1"));
    }
}
