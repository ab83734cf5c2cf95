//! Numbers of errors, with their names.

use nix::errno::Errno;

/// `Permission denied (EACCES)`
pub(super) fn errno_words(code: i32) -> String {
    let errno = Errno::from_raw(code);
    format!("{} ({errno:?})", errno.desc())
}
