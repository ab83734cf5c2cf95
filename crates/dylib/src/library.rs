//! Calls `dlopen`, `dlsym` and `dlvsym`. No other module does.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::LibraryMissing;

/// A library that stays open until the process ends.
#[derive(Debug)]
pub struct Library {
    handle: NonNull<c_void>,
    path: PathBuf,
}

// SAFETY: the handle is only passed to `dlsym` and `dlvsym`, which POSIX and glibc allow from any
// thread, and it is never closed.
unsafe impl Send for Library {}
// SAFETY: as for `Send`; no method changes the library.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a library by its soname, found by the dynamic linker's search rules, or by a path.
    ///
    /// `install` is a command that installs the library. The error carries it.
    ///
    /// # Safety
    ///
    /// Opening runs the library's initialisers. The caller guarantees that the library may be
    /// loaded into this process.
    #[doc(alias = "dlopen")]
    pub unsafe fn open(name: &str, install: &'static str) -> Result<Self, LibraryMissing> {
        let missing = |reason: &str| LibraryMissing::new(name, reason, install);
        let c_name = CString::new(name).map_err(|_| missing("the name contains a NUL byte"))?;
        // RTLD_NOW reports an unresolved dependency here, as an error. Lazy binding would crash
        // later.
        // SAFETY: the name is NUL-terminated. The caller guarantees that the initialisers may run.
        let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(|| missing(&last_error()))?;
        // SAFETY: `dlopen` has just returned the handle, and it is never closed.
        let path = unsafe { path_of(handle) }.unwrap_or_else(|| PathBuf::from(name));
        Ok(Self { handle, path })
    }

    /// Returns the path of the opened file, with symbolic links resolved. The file name usually
    /// contains the version.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the address of a function or object, at its default version if the library has
    /// several.
    #[doc(alias = "dlsym")]
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is never closed, and the name is NUL-terminated.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// Returns the address of a function at one symbol version. An older version keeps the older
    /// layout of its structures.
    #[doc(alias = "dlvsym")]
    pub fn versioned_symbol(&self, name: &CStr, version: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is never closed, and both strings are NUL-terminated.
        NonNull::new(unsafe { libc::dlvsym(self.handle.as_ptr(), name.as_ptr(), version.as_ptr()) })
    }
}

/// Returns the dynamic linker's last error message on this thread.
fn last_error() -> String {
    // SAFETY: glibc keeps the string, which belongs to this thread, until this thread's next call
    // into the linker.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the dynamic linker gave no reason".to_owned();
    }
    // SAFETY: the pointer is not null, so `dlerror` has returned a NUL-terminated string.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

/// The start of glibc's `struct link_map`. glibc documents these fields as stable.
#[repr(C)]
struct LinkMapHead {
    load_bias: usize,
    name: *const c_char,
}

/// Returns the path of the file behind a handle, or `None` if the linker does not report it.
///
/// # Safety
///
/// `handle` comes from `dlopen` and is open.
unsafe fn path_of(handle: NonNull<c_void>) -> Option<PathBuf> {
    let mut map: *const LinkMapHead = std::ptr::null();
    // SAFETY: the caller guarantees an open handle. RTLD_DI_LINKMAP writes one pointer, to the
    // local `map`.
    let status = unsafe { libc::dlinfo(handle.as_ptr(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    if status != 0 || map.is_null() {
        return None;
    }
    // SAFETY: the link map exists while the library is open, and its name is a NUL-terminated
    // string.
    let name = unsafe { CStr::from_ptr((*map).name) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    Some(path.canonicalize().unwrap_or(path))
}
