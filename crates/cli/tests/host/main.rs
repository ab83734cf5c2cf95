//! The command where no RDMA library or device is needed.
#![allow(clippy::print_stderr, reason = "what is skipped is told with its reason")]

#[path = "../support"]
#[allow(dead_code, reason = "each tier of tests uses its part")]
mod support {
    pub(crate) mod bash;
    pub(crate) mod client;
    pub(crate) mod host;
    pub(crate) mod raw;
    pub(crate) mod run;
    pub(crate) mod schema;
    pub(crate) mod server;
}

mod completions;
mod devices;
mod doctor_host;
mod doctor_packs;
mod failures;
mod help_texts;
mod hostile_server;
mod places;
mod shm;
mod tls;

/// A folder that the dynamic linker searches first, with files that are no libraries. It stays as long as the tests run.
fn without_libraries() -> &'static std::path::Path {
    static FOLDER: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        for soname in ["libibverbs.so.1", "libfabric.so.1"] {
            std::fs::write(folder.path().join(soname), "no library\n".repeat(100))
                .expect("a file of our own");
        }
        folder
    });
    folder.path()
}
