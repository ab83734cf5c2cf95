//! The one place that calls `dlopen`, `dlsym` and `dlvsym`.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::LibraryMissing;

/// A library that was opened and stays open until the process ends.
#[derive(Debug)]
pub struct Library {
    handle: NonNull<c_void>,
    path: PathBuf,
}

// SAFETY: the handle is only passed to dlsym and dlvsym, which POSIX and glibc allow from any thread, and it is never
// closed.
unsafe impl Send for Library {}
// SAFETY: as above; no method changes the library.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a library by its soname, searched as the dynamic linker searches, or by a path.
    ///
    /// `install` is the command that a person may type when it is missing.
    ///
    /// # Safety
    ///
    /// Opening runs the library's initialisers. The caller names a library that is fit to be loaded into this process.
    #[doc(alias = "dlopen")]
    pub unsafe fn open(name: &str, install: &'static str) -> Result<Self, LibraryMissing> {
        let missing = |reason: &str| LibraryMissing::new(name, reason, install);
        let c_name = CString::new(name).map_err(|_| missing("the name holds a NUL byte"))?;
        // RTLD_NOW: a library whose own dependencies do not fit fails here with a sentence, not later with a crash.
        // SAFETY: the name is NUL-terminated; the caller vouches for the initialisers.
        let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(|| missing(&last_error()))?;
        // SAFETY: the handle was just opened.
        let path = unsafe { path_of(handle) }.unwrap_or_else(|| PathBuf::from(name));
        Ok(Self { handle, path })
    }

    /// The file that was opened, with symbolic links followed: its name usually tells the version.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The address of a function or object; of its default version where the library has several.
    #[doc(alias = "dlsym")]
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is open and the name is NUL-terminated.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// The address of a function at one symbol version: the way to keep a structure's older layout.
    #[doc(alias = "dlvsym")]
    pub fn versioned_symbol(&self, name: &CStr, version: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is open and both strings are NUL-terminated.
        NonNull::new(unsafe { libc::dlvsym(self.handle.as_ptr(), name.as_ptr(), version.as_ptr()) })
    }
}

/// The dynamic linker's last complaint on this thread.
fn last_error() -> String {
    // SAFETY: glibc keeps the string per thread until the next call on it.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the dynamic linker gave no reason".to_owned();
    }
    // SAFETY: not null, so it is a NUL-terminated string.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

/// The start of glibc's `struct link_map`, the part that its documentation fixes.
#[repr(C)]
struct LinkMapHead {
    load_bias: usize,
    name: *const c_char,
}

/// # Safety
///
/// `handle` comes from `dlopen` and is open.
unsafe fn path_of(handle: NonNull<c_void>) -> Option<PathBuf> {
    let mut map: *const LinkMapHead = std::ptr::null();
    // SAFETY: RTLD_DI_LINKMAP writes one pointer to where the last argument points.
    let status = unsafe { libc::dlinfo(handle.as_ptr(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    if status != 0 || map.is_null() {
        return None;
    }
    // SAFETY: the link map lives as long as the library is open; its name is a NUL-terminated string.
    let name = unsafe { CStr::from_ptr((*map).name) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    Some(path.canonicalize().unwrap_or(path))
}
