//! What a killed process has left in shared memory.
//!
//! libfabric's shm keeps each endpoint in a file, `/dev/shm/PROCESS:USER:NUMBER`, with numbers from 0 on in each process. A process that is killed leaves
//! its files. When its number comes again, the new process finds a file there whose owner, by the number in it, is running: itself. `fi_enable` then says
//! `EBUSY`.
//!
//! So before a process has its first endpoint over shm, files of its own number are removed. One that belongs to somebody who lives is not: a process
//! of the same number in another container that has the same `/dev/shm`. Nobody locks these files, but whoever lives has them mapped, and the kernel
//! gives no lease on a file that anyone has open for writing, or mapped, in whichever container.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::provider::ProviderError;

/// Where libfabric has its files.
const FOLDER: &str = "/dev/shm";

/// Which signal tells of a lease: the kernel's number for it, the same on every processor, which the crate libc lacks.
const F_SETSIG: i32 = 10;

/// Removes what a killed process of this one's number has left, once in a process.
pub(super) fn clear() -> Result<(), ProviderError> {
    static IS_CLEAR: Mutex<bool> = Mutex::new(false);
    let mut is_clear = IS_CLEAR.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_clear {
        clear_folder(Path::new(FOLDER), std::process::id())?;
        *is_clear = true;
    }
    Ok(())
}

fn clear_folder(folder: &Path, process: u32) -> Result<(), ProviderError> {
    let user = rustix::process::getuid().as_raw();
    let prefix = format!("{process}:{user}:");
    // Where there is no such folder, the library says so.
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        if number.is_none_or(|number| number.is_empty() || number.contains(|it: char| !it.is_ascii_digit())) {
            continue;
        }
        let path = entry.path();
        match state_of(&path, user) {
            Ok(State::Dead(_lease)) => {
                // While the lease is held nobody can have opened it since. One that cannot be removed is told of by the library.
                let _ = std::fs::remove_file(&path);
            }
            Ok(State::OfAnother) => return Err(taken(&path)),
            Ok(State::Own) | Err(_) => {}
        }
    }
    Ok(())
}

enum State {
    /// Nobody has it. Or that cannot be known, and it is this user's: libfabric itself would remove it then, and fail all the same.
    Dead(File),
    /// This process has it: somebody uses the library beside the engine.
    Own,
    OfAnother,
}

fn state_of(path: &Path, user: u32) -> io::Result<State> {
    let is_ours = |metadata: &std::fs::Metadata| metadata.is_file() && metadata.uid() == user;
    if !is_ours(&std::fs::symlink_metadata(path)?) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !is_in_use(&file) {
        return Ok(State::Dead(file));
    }
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let is_it = |line: &str| line.ends_with(&format!(" {}", path.display()));
    Ok(if maps.lines().any(is_it) { State::Own } else { State::OfAnother })
}

/// Whether anyone has a file open for writing, or mapped so. If not, the file has a lease until it is closed, which keeps others from opening it.
fn is_in_use(file: &File) -> bool {
    let descriptor = file.as_raw_fd();
    // SAFETY: the descriptor is open, and no memory is passed.
    unsafe {
        // Whoever opens the file now is let in when the lease is gone, and its holder is told by a signal: this one is ignored by default.
        libc::fcntl(descriptor, F_SETSIG, libc::SIGURG);
        libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_RDLCK) == -1
            && io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
    }
}

fn taken(path: &Path) -> ProviderError {
    ProviderError::new(
        "open a rail over shm",
        format!("{} is in use by another process of the same number, in another container", path.display()),
        "give each container a /dev/shm of its own (without --ipc=host), or all of them one count of processes (--pid=host)",
    )
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use farreach_testkit::wait_for;

    use super::*;

    /// A number that no process of this kernel has.
    const PROCESS: u32 = 1 << 30;

    /// A folder of shared memory that is gone with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let path = Path::new(FOLDER).join(format!("farreach-{}-{test}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        /// A file as the library makes them, with this name behind the process's number.
        fn leave(&self, name: &str) -> PathBuf {
            let path = self.0.join(format!("{PROCESS}{name}"));
            std::fs::write(&path, [7; 4096]).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn user() -> u32 {
        rustix::process::getuid().as_raw()
    }

    /// A test beside this one that starts a program lends it our open files, for the moment until it is started.
    #[track_caller]
    fn is_cleared(folder: &Folder) {
        wait_for("file that nobody has", || clear_folder(&folder.0, PROCESS).ok());
    }

    #[test]
    fn what_is_left_is_removed_and_nothing_else() {
        let (folder, user) = (Folder::new("left"), user());
        let left = [folder.leave(&format!(":{user}:0")), folder.leave(&format!(":{user}:17"))];
        let others = [
            folder.leave(&format!("1:{user}:0")),
            folder.leave(&format!(":{}:0", user + 1)),
            folder.leave(&format!(":{user}:")),
            folder.leave(&format!(":{user}:0x")),
            folder.leave(""),
        ];
        let link = folder.0.join(format!("{PROCESS}:{user}:3"));
        std::os::unix::fs::symlink(&others[0], &link).unwrap();
        is_cleared(&folder);
        assert!(left.iter().all(|path| !path.exists()));
        assert!(others.iter().all(|path| path.exists()) && link.is_symlink());
        clear_folder(&folder.0.join("none"), PROCESS).unwrap();
    }

    #[test]
    fn what_another_process_has_is_left_to_it() {
        let folder = Folder::new("alive");
        let path = folder.leave(&format!(":{}:0", user()));
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut other =
            Command::new("sleep").arg("1000").stdin(Stdio::from(OwnedFd::from(file))).spawn().unwrap();
        let error = clear_folder(&folder.0, PROCESS).unwrap_err();
        assert!(path.exists() && error.to_string().contains(path.to_str().unwrap()), "{error}");
        assert!(error.fix.contains("/dev/shm of its own"), "{}", error.fix);
        other.kill().unwrap();
        other.wait().unwrap();
        is_cleared(&folder);
        assert!(!path.exists(), "nobody has it any more");
    }

    #[test]
    fn what_this_process_has_mapped_is_its_own() {
        let folder = Folder::new("own");
        let path = folder.leave(&format!(":{}:0", user()));
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let (access, len) = (libc::PROT_READ | libc::PROT_WRITE, 4096);
        // SAFETY: a new mapping, which nobody else knows of.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(mapped, libc::MAP_FAILED);
        drop(file);
        clear_folder(&folder.0, PROCESS).unwrap();
        assert!(path.exists());
        // SAFETY: it is that mapping, and nothing refers to it.
        assert_eq!(unsafe { libc::munmap(mapped, len) }, 0);
        is_cleared(&folder);
        assert!(!path.exists());
    }
}
