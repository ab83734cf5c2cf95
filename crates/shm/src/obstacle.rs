//! A call that the kernel refuses.

use std::io;

use rustix::io::Errno;

/// A call that links need, and that the kernel refuses to this process.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {error}")]
pub struct Obstacle {
    /// The call, or the file that could not be read.
    pub call: &'static str,
    /// Its error.
    pub error: io::Error,
}

impl Obstacle {
    /// The call of an obstacle that is the user of this process.
    pub(crate) const USER: &str = "geteuid";

    pub(crate) fn new(call: &'static str, error: impl Into<io::Error>) -> Self {
        Self { call, error: error.into() }
    }

    /// Returns an instruction that resolves it.
    pub fn fix(&self) -> &'static str {
        match Errno::from_io_error(&self.error) {
            _ if self.call.starts_with("/proc") => "mount /proc, and permit this process to read it",
            _ if self.call == Self::USER => {
                "run this process as a user that its user namespace has a number for, and not as nobody"
            }
            Some(Errno::MFILE) => "raise the limit of open files (`ulimit -n`)",
            Some(Errno::NFILE) => "raise the limit of open files of the host (`fs.file-max`)",
            Some(Errno::NOMEM | Errno::NOSPC) => "free memory, or raise the limit of this process",
            Some(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => {
                "permit the call in the seccomp profile of the process (Linux 5.3 or newer has it)"
            }
            Some(Errno::INVAL | Errno::NOPROTOOPT) => "use Linux 5.3 or newer",
            _ => "permit the call to this process",
        }
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_a_fix() {
        let fix = |errno: Errno| Obstacle::new("memfd_create", errno).fix();
        assert!(fix(Errno::PERM).contains("seccomp") && fix(Errno::NOSYS).contains("seccomp"));
        assert!(fix(Errno::MFILE).contains("ulimit -n"));
        assert!(fix(Errno::NFILE).contains("fs.file-max"));
        assert!(Obstacle::new("/proc/self/ns/net", Errno::PERM).fix().contains("/proc"));
    }
}
