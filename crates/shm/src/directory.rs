//! A directory in which processes of different network namespaces meet.
//!
//! A listener has a socket file there, which only its user can connect to. Nothing that a peer says is
//! used as a path: a name has a fixed form, and is looked up in the directory that this process has
//! opened.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farreach_memory::process_epoch;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, chmodat, fchmod, fstat, fstatfs};
use rustix::fs::{open, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};

use crate::error::Hex;
use crate::host::{boot_id, host_digest};
use crate::user::is_told_from_others;

/// Names of listeners begin with it. 32 hexadecimal digits follow.
pub(crate) const NAME: &str = "farreach-";

/// The digits of a name in a directory that tell the host. The others are random.
const HOST_DIGITS: usize = 8;

/// Follows the name of a socket that does not listen yet.
const UNFINISHED: &str = ".new";

/// The age after which a socket that does not listen yet is stale. Its process makes three calls
/// meanwhile.
const UNFINISHED_FOR: Duration = Duration::from_secs(60);

/// Files of a directory that a listener looks at for stale ones.
const ENTRIES_MAX: usize = 4096;
/// Sockets that it tries to connect to.
const PROBES_MAX: usize = 256;

/// The types of file systems that only one kernel mounts at a time: ext4, xfs, btrfs, tmpfs, overlayfs,
/// f2fs, zfs and bcachefs. Files of other kernels can only be there through a virtual machine.
const LOCAL_FILE_SYSTEMS: [u64; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e];

/// How far the clock may have been adjusted between two boots.
const CLOCK_ERROR_MAX: Duration = Duration::from_secs(60);

/// A directory for the sockets of listeners.
///
/// It belongs to the user of this process or to root, and others cannot write to it, or it is sticky
/// as `/tmp` is.
///
/// ```
/// use std::time::Duration;
/// use farreach_shm::{Directory, Listener};
///
/// let volume = tempfile::tempdir()?;
/// let directory = Directory::open(volume.path())?;
/// let listener = Listener::bind_in(&directory, Duration::from_secs(10))?;
/// assert!(volume.path().join(listener.name()).exists());
/// drop(listener);
/// assert_eq!(std::fs::read_dir(volume.path())?.count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    device: u64,
    inode: u64,
    /// The beginning of the names of this host's listeners. Other hosts may see the directory, too, and
    /// a socket of theirs looks here as one of a killed process does.
    prefix: String,
    /// Whether it is in a file system that only one kernel mounts at a time.
    is_local: bool,
}

/// A directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It belongs to another user, who could replace the sockets.
    #[error("the directory {} belongs to user {owner}, and this process to user {ours}", .path.display())]
    OtherOwner {
        /// Its path.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        ours: u32,
    },
    /// Its owner cannot be told from the user of this process.
    #[error(
        "the owner of the directory {} cannot be told: user {user} here stands for all that this user namespace does \
         not have", .path.display()
    )]
    UnknownUser {
        /// Its path.
        path: PathBuf,
        /// The number of the user of this process.
        user: u32,
    },
    /// Other users can write to it, and could replace the sockets.
    #[error("other users can write to the directory {} (mode {mode:04o})", .path.display())]
    OthersCanWrite {
        /// Its path.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A system call failed.
    #[error("the directory {}: {call}: {error}", .path.display())]
    Call {
        /// The name of the call.
        call: &'static str,
        /// The path of the directory.
        path: PathBuf,
        /// Its error.
        error: io::Error,
    },
}

impl DirectoryError {
    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::OtherOwner { .. } => "name a directory of this user, which `mkdir -m 700` creates",
            Self::UnknownUser { .. } => {
                "run this process as a user that its user namespace has a number for, and not as nobody"
            }
            Self::OthersCanWrite { .. } => {
                "take the right to write from others (`chmod go-w`), or create a directory in it with \
                 `mkdir -m 700`, and name that one"
            }
            Self::Call { call: "open", error, .. } => match error.kind() {
                io::ErrorKind::NotFound => {
                    "create the directory with `mkdir -m 700`, in a volume that both see"
                }
                io::ErrorKind::NotADirectory => "name a directory, and not a file in it",
                _ => "permit this user to search the directory",
            },
            Self::Call { call, .. } if call.starts_with("/proc") => "mount /proc, and permit to read it",
            Self::Call { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                "permit this user to create sockets in the directory"
            }
            Self::Call { .. } => {
                "name a directory of a local file system that has sockets, with /proc mounted"
            }
        }
    }
}

impl Directory {
    /// Opens a directory. A symbolic link is followed: what counts is the directory at its end, which
    /// is used also if the path leads elsewhere later.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>, DirectoryError> {
        let path = path.as_ref();
        let failed = |call| {
            move |error: Errno| DirectoryError::Call { call, path: path.to_owned(), error: error.into() }
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty()).map_err(failed("open"))?;
        let stat = fstat(&fd).map_err(failed("fstat"))?;
        let (owner, ours, mode) = (stat.st_uid, geteuid().as_raw(), stat.st_mode & 0o7777);
        if owner != ours && owner != 0 {
            return Err(DirectoryError::OtherOwner { path: path.to_owned(), owner, ours });
        }
        if !is_told_from_others() {
            return Err(DirectoryError::UnknownUser { path: path.to_owned(), user: ours });
        }
        // In a sticky directory others can create files, but not replace those of this user.
        if mode & 0o022 != 0 && mode & 0o1000 == 0 {
            return Err(DirectoryError::OthersCanWrite { path: path.to_owned(), mode });
        }
        let boot_id = boot_id().map_err(|obstacle| DirectoryError::Call {
            call: obstacle.call,
            path: path.to_owned(),
            error: obstacle.error,
        })?;
        let prefix = format!("{NAME}{}", &host_digest(&boot_id)[..HOST_DIGITS]);
        // Otherwise it is not known who else uses it.
        let is_local = fstatfs(&fd).is_ok_and(|it| LOCAL_FILE_SYSTEMS.contains(&(it.f_type as u64)));
        let (path, device, inode) = (path.to_owned(), stat.st_dev, stat.st_ino);
        Ok(Arc::new(Self { fd, path, device, inode, prefix, is_local }))
    }

    /// Returns the path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the numbers of its file system and of itself. They are the same wherever it is mounted.
    pub(crate) fn id(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    pub(crate) fn failed(&self, call: &'static str, error: impl Into<io::Error>) -> DirectoryError {
        DirectoryError::Call { call, path: self.path.clone(), error: error.into() }
    }

    /// Returns the name of a new listener, from random bytes.
    pub(crate) fn name(&self, random: &[u8; 16]) -> String {
        format!("{}{}", self.prefix, Hex(&random[HOST_DIGITS / 2..]))
    }

    /// Binds a socket to a file with a name that is not yet that of a listener.
    pub(crate) fn bind(self: &Arc<Self>, socket: &OwnedFd, name: &str) -> Result<SocketFile, DirectoryError> {
        // The file gets the mode of the socket, so there is no moment at which others can connect. The
        // umask belongs to the whole process.
        fchmod(socket, OWN).map_err(|error| self.failed("fchmod", error))?;
        let unfinished = format!("{name}{UNFINISHED}");
        // A path of any length is reached in this way.
        let at = format!("/proc/self/fd/{}/{unfinished}", self.fd.as_raw_fd());
        let at = SocketAddrUnix::new(at).map_err(|error| self.failed("bind", error))?;
        bind(socket, &at).map_err(|error| self.failed("bind", error))?;
        let file = SocketFile { directory: Arc::clone(self), name: unfinished, epoch: process_epoch() };
        // Some file systems have modes of their own, and a umask may take the right of the owner.
        let is_own = |stat: &Stat| is_own_socket(stat) && stat.st_mode & 0o777 == OWN.bits();
        let (fd, stat) = self.look(&file.name).map_err(|error| self.failed("open", error))?;
        if !is_own(&stat) {
            chmodat(CWD, by_descriptor(&fd), OWN, AtFlags::empty())
                .map_err(|error| self.failed("chmod", error))?;
            let stat = fstat(&fd).map_err(|error| self.failed("fstat", error))?;
            if !is_own(&stat) {
                return Err(self.failed("bind", io::Error::other("the mode of the socket cannot be 0600")));
            }
        }
        Ok(file)
    }

    /// Returns the address of a listener's socket, and the descriptor that it is valid with.
    pub(crate) fn find(&self, name: &str) -> Result<(OwnedFd, SocketAddrUnix), FindError> {
        let (fd, stat) = self.look(name).map_err(FindError::Call)?;
        // In a sticky directory, anybody may have created a file of this name, also a symbolic link.
        if !is_own_socket(&stat) {
            return Err(FindError::Foreign);
        }
        let address = SocketAddrUnix::new(by_descriptor(&fd)).map_err(FindError::Call)?;
        Ok((fd, address))
    }

    /// Opens a file of the directory without following a link, and without accessing it.
    fn look(&self, name: &str) -> Result<(OwnedFd, Stat), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&self.fd, name, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        Ok((fd, stat))
    }

    /// Removes sockets of processes that were killed, or that an earlier boot of this host has ended. It
    /// looks at a bounded number of files, and what fails is left to the next listener.
    pub(crate) fn remove_stale(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(fd) = openat(&self.fd, c".", flags, Mode::empty()) else { return };
        let Ok(entries) = Dir::new(fd) else { return };
        let booted = booted_unix_seconds();
        let names = entries.take(ENTRIES_MAX).map_while(Result::ok).filter_map(|entry| {
            let name = entry.file_name().to_str().ok()?.to_owned();
            let is_listener = is_name(name.strip_suffix(UNFINISHED).unwrap_or(&name));
            let is_candidate = || name.starts_with(&self.prefix) || self.is_of_earlier_boot(&name, booted);
            (is_listener && is_candidate()).then_some(name)
        });
        for name in names.take(PROBES_MAX) {
            if self.is_stale(&name) {
                // Names are random, so it is still the same file.
                let _ = unlinkat(&self.fd, &*name, AtFlags::empty());
            }
        }
    }

    /// Returns whether a file with the name of another boot is older than this boot, and of this host.
    ///
    /// A file system that several hosts mount has files of hosts that have run for longer. And a virtual
    /// machine may share a directory with this host, which then sees files of its kernel: they are
    /// younger than this boot.
    fn is_of_earlier_boot(&self, name: &str, booted: u64) -> bool {
        self.is_local
            && self
                .look(name)
                .is_ok_and(|(_, stat)| changed(&stat).saturating_add(CLOCK_ERROR_MAX.as_secs()) < booted)
    }

    fn is_stale(&self, name: &str) -> bool {
        let Ok((fd, stat)) = self.look(name) else { return false };
        if !is_own_socket(&stat) {
            return false;
        }
        // Its file exists shortly before the socket is bound to it.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if name.ends_with(UNFINISHED) && now.saturating_sub(changed(&stat)) < UNFINISHED_FOR.as_secs() {
            return false;
        }
        // A listener has a socket of another type, so it does not get this connection: the error is
        // EPROTOTYPE, also if its process is stopped. It is ECONNREFUSED if no process has the socket.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(probe) = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else {
            return false;
        };
        let Ok(address) = SocketAddrUnix::new(by_descriptor(&fd)) else { return false };
        connect(&probe, &address) == Err(Errno::CONNREFUSED)
    }
}

/// A socket could not be found.
pub(crate) enum FindError {
    /// The file is no socket, or belongs to another user.
    Foreign,
    Call(Errno),
}

/// The file of a listener. It is removed on drop.
#[derive(Debug)]
pub(crate) struct SocketFile {
    directory: Arc<Directory>,
    name: String,
    epoch: u64,
}

impl SocketFile {
    /// Gives the file the name of a listener. It must listen already: otherwise another listener would
    /// take it for a stale one.
    pub(crate) fn publish(&mut self) -> Result<(), DirectoryError> {
        let Some(name) = self.name.strip_suffix(UNFINISHED) else { return Ok(()) };
        let fd = &self.directory.fd;
        renameat(fd, &*self.name, fd, name).map_err(|error| self.directory.failed("rename", error))?;
        self.name = name.to_owned();
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // In a forked child, the file belongs to the parent.
        if self.epoch == process_epoch() {
            let _ = unlinkat(&self.directory.fd, &*self.name, AtFlags::empty());
        }
    }
}

/// The mode of a socket file: its user can connect.
const OWN: Mode = Mode::RUSR.union(Mode::WUSR);

/// Returns whether this is the name of a listener, without the mark of an abstract one.
pub(crate) fn is_name(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.strip_prefix(NAME).is_some_and(|digits| digits.len() == 32 && digits.bytes().all(is_digit))
}

/// Returns when a file was created or written, in seconds since 1970.
fn changed(stat: &Stat) -> u64 {
    u64::try_from(stat.st_mtime).unwrap_or(0)
}

/// Returns when this host was booted, in seconds since 1970, by its clock of today.
fn booted_unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let running = clock_gettime(ClockId::Boottime).tv_sec;
    now.saturating_sub(u64::try_from(running).unwrap_or(u64::MAX))
}

fn is_own_socket(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Socket && stat.st_uid == geteuid().as_raw()
}

fn by_descriptor(fd: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_path() {
        let digits = "0123456789abcdef0123456789abcdef";
        assert!(is_name(&format!("farreach-{digits}")));
        for name in [
            String::new(),
            digits.to_owned(),
            "farreach-".to_owned(),
            format!("@farreach-{digits}"),
            format!("farreach-{digits}0"),
            format!("farreach-{}", &digits[1..]),
            format!("farreach-{}", digits.to_uppercase()),
            "farreach-../../../../../../../../tmp/xxx".to_owned(),
            format!("farreach-{}", "../".repeat(11)),
            format!("/farreach-{digits}"),
            format!("farreach-{digits}\0"),
            format!("../farreach-{digits}"),
            format!("farreach-{digits}{UNFINISHED}"),
        ] {
            assert!(!is_name(&name), "{name}");
        }
    }

    /// Its process was killed between `bind` and `rename`, or is about to rename it.
    #[test]
    fn an_unfinished_socket_is_stale_when_it_is_old() {
        let volume = tempfile::tempdir().unwrap();
        let directory = Directory::open(volume.path()).unwrap();
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.unwrap();
        let file = directory.bind(&socket, &directory.name(&[0; 16])).unwrap();
        let path = volume.path().join(&file.name);
        std::mem::forget(file);
        drop(socket);
        directory.remove_stale();
        assert!(path.exists());
        let old = rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 },
            last_modification: rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 },
        };
        rustix::fs::utimensat(CWD, &path, &old, AtFlags::empty()).unwrap();
        directory.remove_stale();
        assert!(!path.exists());
    }

    /// A host that has run for longer than this one may be using the file.
    #[test]
    fn old_files_of_a_file_system_of_several_hosts_stay() {
        let volume = tempfile::tempdir().unwrap();
        let path = volume.path().join(format!("{NAME}{}", "0".repeat(32)));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let old = rustix::fs::Timespec { tv_sec: 0, tv_nsec: 0 };
        let old = rustix::fs::Timestamps { last_access: old, last_modification: old };
        rustix::fs::utimensat(CWD, &path, &old, AtFlags::empty()).unwrap();
        let mut directory = Directory::open(volume.path()).unwrap();
        Arc::get_mut(&mut directory).unwrap().is_local = false;
        directory.remove_stale();
        assert!(path.exists());
        Arc::get_mut(&mut directory).unwrap().is_local = true;
        directory.remove_stale();
        assert!(!path.exists());
    }
}
