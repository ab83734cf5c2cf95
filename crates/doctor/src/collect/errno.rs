//! Formats error numbers with their names.

use nix::errno::Errno;

/// Returns the description and name of an error: `Permission denied (EACCES)`.
pub(super) fn errno_words(code: i32) -> String {
    let errno = Errno::from_raw(code);
    format!("{} ({errno:?})", errno.desc())
}
