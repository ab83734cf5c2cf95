//! The functions that the library exports. All others go through tables: see [`crate::inline`].
//!
//! Two exported functions are not bound: `fi_log` and `fi_param_define`, which only providers call.
//! They are variadic, and such a function must not be called through a pointer of a fixed type.

use std::ffi::{c_char, c_int, c_void};

use crate::bindings::{
    fi_fabric_attr, fi_info, fi_log_level, fi_log_subsys, fi_param, fi_provider, fi_type, fid, fid_fabric,
};

farreach_dylib::library! {
    /// libfabric, loaded at run time.
    pub struct Libfabric {
        soname: "libfabric.so.1",
        install: "apt-get install libfabric1 (Debian, Ubuntu) or dnf install libfabric (Fedora, RHEL)",
        release: "libfabric",
    }

    /// Returns the version of the library: `fi_version(3)`.
    fn fi_version() -> u32, since "1.0";

    /// Returns the English text of an error number: `fi_errno(3)`.
    fn fi_strerror(errnum: c_int) -> *const c_char, since "1.0";

    /// Queries the offers of providers: `fi_getinfo(3)`, with the structures of 1.17.
    fn fi_getinfo(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int, since "1.9", version "FABRIC_1.3";

    /// Frees a list that `fi_getinfo` or `fi_dupinfo` returned: `fi_getinfo(3)`.
    fn fi_freeinfo(info: *mut fi_info), since "1.9", version "FABRIC_1.3";

    /// Copies one entry, or allocates an empty one if given null, which C calls `fi_allocinfo`:
    /// `fi_getinfo(3)`.
    fn fi_dupinfo(info: *const fi_info) -> *mut fi_info, since "1.9", version "FABRIC_1.3";

    /// Opens a fabric: `fi_fabric(3)`, with the structure that names the interface version.
    fn fi_fabric(attr: *mut fi_fabric_attr, fabric: *mut *mut fid_fabric, context: *mut c_void) -> c_int,
        since "1.5", version "FABRIC_1.1";

    /// Opens an object of the library by its name, such as its logger or its registration cache:
    /// `fi_open(3)`.
    fn fi_open(
        version: u32,
        name: *const c_char,
        attr: *mut c_void,
        attr_len: usize,
        flags: u64,
        fid: *mut *mut fid,
        context: *mut c_void,
    ) -> c_int, since "1.13";

    /// Writes a value or structure as text into a buffer of the library, which the next call on
    /// this thread overwrites: `fi_tostr(3)`. For structures that grew, it reads the length of its
    /// own release; use it only on structures that the library allocated.
    fn fi_tostr(data: *const c_void, datatype: fi_type) -> *mut c_char, since "1.0";

    /// As [`fi_tostr`](Self::fi_tostr), into the caller's buffer: `fi_tostr(3)`.
    fn fi_tostr_r(buf: *mut c_char, len: usize, data: *const c_void, datatype: fi_type) -> *mut c_char, since "1.12";

    /// Returns the settings that the library and its providers read from the environment:
    /// `fi_getparams(3)`.
    fn fi_getparams(params: *mut *mut fi_param, count: *mut c_int) -> c_int, since "1.0";

    /// Frees the result of `fi_getparams`: `fi_getparams(3)`.
    fn fi_freeparams(params: *mut fi_param), since "1.0";

    /// Reads one setting: `fi_provider(3)`.
    fn fi_param_get(provider: *mut fi_provider, param_name: *const c_char, value: *mut c_void) -> c_int, since "1.0";

    /// Returns whether a message of this level would be written: `fi_provider(3)`.
    fn fi_log_enabled(provider: *const fi_provider, level: fi_log_level, subsystem: fi_log_subsys) -> c_int, since "1.0";

    /// As [`fi_log_enabled`](Self::fi_log_enabled), rate-limited: `fi_provider(3)`.
    fn fi_log_ready(
        provider: *const fi_provider,
        level: fi_log_level,
        subsystem: fi_log_subsys,
        showtime: *mut u64,
    ) -> c_int, since "1.14";
}
