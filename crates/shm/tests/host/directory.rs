//! Meetings in a directory.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farreach_shm::{Connecting, Directory, DirectoryError, Expected, Listener, MeetError};
use rustix::process::{Pid, Signal, kill_process};

use crate::pair::{OURS, THEIRS, accept, run_as_another_user, wait};

const PATIENCE: Duration = Duration::from_secs(60);

/// The name of a listener that there is not.
const GONE: &str = "farreach-00000000000000000000000000000000";

fn listener(directory: &Arc<Directory>) -> Listener {
    let mut listener = Listener::bind_in(directory, PATIENCE).unwrap();
    listener.expect(Expected { id: 5, theirs: THEIRS, ours: OURS });
    listener
}

/// Returns the beginning of the names of this host.
fn prefix(directory: &Arc<Directory>) -> String {
    let mut name = Listener::bind_in(directory, PATIENCE).unwrap().name().to_owned();
    name.truncate("farreach-".len() + 8);
    name
}

fn files(volume: &Path) -> Vec<PathBuf> {
    fs::read_dir(volume).unwrap().map(|file| file.unwrap().path()).collect()
}

fn error_of(directory: &Arc<Directory>, name: &str) -> MeetError {
    Connecting::new_in(directory, name, THEIRS, OURS).unwrap().poll().unwrap_err()
}

#[test]
fn a_socket_file_is_of_its_user_and_is_removed_with_its_listener() {
    let volume = tempfile::tempdir().unwrap();
    // A path that is longer than the address of a socket.
    let long = volume.path().join("x".repeat(120)).join("y".repeat(120));
    fs::create_dir_all(&long).unwrap();
    let directory = Directory::open(&long).unwrap();
    let mut listener = listener(&directory);
    let file = fs::symlink_metadata(long.join(listener.name())).unwrap();
    assert!(file.file_type().is_socket() && file.mode() & 0o777 == 0o600, "{:o}", file.mode());
    let mut connecting = Connecting::new_in(&directory, listener.name(), THEIRS, OURS).unwrap();
    assert!(connecting.poll().unwrap().is_none());
    accept(&mut listener);
    wait("a link", || connecting.poll().unwrap());
    assert_eq!(files(&long), [long.join(listener.name())]);
    drop(listener);
    assert_eq!(files(&long), [] as [PathBuf; 0]);
}

#[test]
fn the_directory_is_that_which_was_opened() {
    let volume = tempfile::tempdir().unwrap();
    let (one, other) = (volume.path().join("one"), volume.path().join("other"));
    fs::create_dir(&one).unwrap();
    symlink(&one, &other).unwrap();
    let [by_path, by_link] = [&one, &other].map(|path| Directory::open(path).unwrap());
    fs::remove_file(&other).unwrap();
    let mut listener = listener(&by_path);
    let mut connecting = Connecting::new_in(&by_link, listener.name(), THEIRS, OURS).unwrap();
    assert!(connecting.poll().unwrap().is_none());
    accept(&mut listener);
}

#[test]
fn directories_that_others_control_are_refused() {
    let volume = tempfile::tempdir().unwrap();
    let path = volume.path().join("volume");
    let with_mode = |mode| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Directory::open(&path)
    };
    let error = Directory::open(&path).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()) && error.fix().contains("mkdir"), "{error}");
    fs::create_dir(&path).unwrap();
    for mode in [0o700, 0o755, 0o500, 0o1777, 0o1733] {
        with_mode(mode).unwrap();
    }
    for mode in [0o777, 0o770, 0o702, 0o2775] {
        let error = with_mode(mode).unwrap_err();
        assert!(matches!(error, DirectoryError::OthersCanWrite { .. }), "{mode:o}: {error}");
        assert!(error.to_string().contains(&format!("mode {mode:04o}")) && error.fix().contains("chmod"));
    }
    let file = volume.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Directory::open(&file).unwrap_err();
    assert!(error.to_string().contains("Not a directory") && error.fix().contains("name a directory"));
    if !rustix::process::geteuid().is_root() {
        return;
    }
    with_mode(0o700).unwrap();
    chown(&path, Some(65534), None).unwrap();
    let error = Directory::open(&path).unwrap_err();
    assert!(matches!(error, DirectoryError::OtherOwner { owner: 65534, ours: 0, .. }), "{error}");
}

/// A name comes from the peer.
#[test]
fn names_lead_to_no_other_socket() {
    let volume = tempfile::tempdir().unwrap();
    let inner = volume.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let directory = Directory::open(&inner).unwrap();
    // A listener outside, which a path could lead to.
    let outside = Listener::bind_in(&Directory::open(volume.path()).unwrap(), PATIENCE).unwrap();
    let absolute = volume.path().join(outside.name());
    for name in [
        format!("../{}", outside.name()),
        absolute.to_str().unwrap().to_owned(),
        format!("@{}", outside.name()),
        format!("{}/", outside.name()),
        format!("{}\0", outside.name()),
        "..".to_owned(),
        String::new(),
        "x".repeat(1 << 20),
    ] {
        let error = Connecting::new_in(&directory, &name, THEIRS, OURS).unwrap_err();
        assert!(matches!(error, MeetError::WrongName { .. }), "{error}");
    }
    assert!(matches!(error_of(&directory, outside.name()), MeetError::NotFound { .. }));
    // A link with the name of a listener.
    symlink(&absolute, inner.join(GONE)).unwrap();
    assert!(matches!(error_of(&directory, GONE), MeetError::ForeignFile { .. }));
    fs::remove_file(inner.join(GONE)).unwrap();
    fs::write(inner.join(GONE), "").unwrap();
    assert!(matches!(error_of(&directory, GONE), MeetError::ForeignFile { .. }));
    fs::remove_file(inner.join(GONE)).unwrap();
    if rustix::process::geteuid().is_root() {
        let foreign = UnixListener::bind(inner.join(GONE)).unwrap();
        chown(inner.join(GONE), Some(65534), None).unwrap();
        assert!(matches!(error_of(&directory, GONE), MeetError::ForeignFile { .. }));
        drop(foreign);
    }
}

struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process that listens in a directory, and waits for its file.
fn other_listener(volume: &Path) -> Other {
    let before = files(volume).len();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "directory::role_of_a_listener", "--ignored", "--nocapture"])
        .env("FARREACH_SHM_DIR", volume)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait("a listener", || {
        let are_there =
            files(volume).len() > before && files(volume).iter().all(|it| it.extension().is_none());
        are_there.then_some(())
    });
    Other(child)
}

#[test]
#[ignore = "a role in another test"]
fn role_of_a_listener() {
    let volume = std::env::var_os("FARREACH_SHM_DIR").unwrap();
    let mut listener = listener(&Directory::open(volume).unwrap());
    wait("the end", || listener.poll(Instant::now()).unwrap().and(None::<()>));
}

#[test]
fn files_of_killed_processes_are_removed_and_no_others() {
    let volume = tempfile::tempdir().unwrap();
    let directory = Directory::open(volume.path()).unwrap();
    let prefix = prefix(&directory);
    let kept = [
        format!("{prefix}{}", "1".repeat(24)),
        format!("{prefix}{}", "2".repeat(24)),
        "other".to_owned(),
        GONE.to_owned(),
        format!("{prefix}{}x", "3".repeat(24)),
    ];
    fs::write(volume.path().join(&kept[0]), "").unwrap();
    symlink("/nowhere", volume.path().join(&kept[1])).unwrap();
    // Sockets of another program, of another host, and with a longer name. Nothing listens on them.
    for name in &kept[2..] {
        drop(UnixListener::bind(volume.path().join(name)).unwrap());
    }
    let mut victims: Vec<Other> = (0..3).map(|_| other_listener(volume.path())).collect();
    let stopped = victims.pop().unwrap();
    kill_process(Pid::from_child(&stopped.0), Signal::STOP).unwrap();
    let own = listener(&directory);
    // All of them live.
    assert_eq!(files(volume.path()).len(), kept.len() + 4);
    drop(victims);
    assert_eq!(files(volume.path()).len(), kept.len() + 4);
    let next = listener(&directory);
    let left = files(volume.path());
    assert_eq!(left.len(), kept.len() + 3, "{left:?}");
    for name in kept.iter().map(String::as_str).chain([own.name(), next.name()]) {
        assert!(left.contains(&volume.path().join(name)), "{name}: {left:?}");
    }
    // Those that live were not disturbed.
    assert_eq!((own.refused(), own.strangers()), (0, 0));
    let mut own = own;
    assert!(own.poll(Instant::now()).unwrap().is_none());
    assert_eq!((own.refused(), own.strangers()), (0, 0));
}

/// Sets the time at which a file was written.
fn set_age(path: &Path, unix_seconds: i64) {
    let time = rustix::fs::Timespec { tv_sec: unix_seconds, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
}

/// Names of other boots, which are those of this host if they are older than its boot.
#[test]
fn files_of_an_earlier_boot_are_removed() {
    let volume = tempfile::tempdir().unwrap();
    let directory = Directory::open(volume.path()).unwrap();
    let boot = fs::read_to_string("/proc/stat").unwrap();
    let boot: i64 = boot.lines().find_map(|line| line.strip_prefix("btime ")).unwrap().parse().unwrap();
    let name = |number: u8| volume.path().join(format!("farreach-{number:032x}"));
    let bound = |path: &Path, age| {
        let listener = UnixListener::bind(path).unwrap();
        set_age(path, age);
        listener
    };
    let old = [name(0), name(1), name(2).with_extension("new")];
    for path in &old {
        drop(bound(path, boot - 3600));
    }
    // Younger, or as old as the boot within the error of clocks; no name of a listener; a file.
    let kept = [name(3), name(4), volume.path().join("other"), name(5)];
    drop(bound(&kept[0], boot + 5));
    drop(bound(&kept[1], boot - 5));
    drop(bound(&kept[2], boot - 3600));
    fs::write(&kept[3], "").unwrap();
    set_age(&kept[3], boot - 3600);
    // A process has it, whatever its file says.
    let live = name(6);
    let _listener = bound(&live, boot - 3600);
    let own = listener(&directory);
    let left = files(volume.path());
    for path in kept.iter().chain([&live, &volume.path().join(own.name())]) {
        assert!(left.contains(path), "{}: {left:?}", path.display());
    }
    assert_eq!(left.len(), kept.len() + 2, "{left:?}");
    if rustix::process::geteuid().is_root() {
        let foreign = name(7);
        drop(bound(&foreign, boot - 3600));
        chown(&foreign, Some(65534), None).unwrap();
        drop(Listener::bind_in(&directory, PATIENCE).unwrap());
        assert!(foreign.exists());
    }
}

#[test]
fn stale_files_are_removed_in_steps() {
    let volume = tempfile::tempdir().unwrap();
    let directory = Directory::open(volume.path()).unwrap();
    let prefix = prefix(&directory);
    for number in 0..300 {
        let name = format!("{prefix}{number:024x}");
        drop(UnixListener::bind(volume.path().join(name)).unwrap());
    }
    let listener = listener(&directory);
    assert_eq!(files(volume.path()).len(), 300 - 256 + 1);
    drop(listener);
    drop(Listener::bind_in(&directory, PATIENCE).unwrap());
    assert_eq!(files(volume.path()), [] as [PathBuf; 0]);
}

#[test]
fn another_user_of_a_sticky_directory_is_refused() {
    let volume = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(volume.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let mut listener = listener(&Directory::open(volume.path()).unwrap());
    run_as_another_user("directory::role_of_another_user", &mut listener, volume.path());
    // It could not even connect.
    assert_eq!((listener.refused(), listener.strangers()), (0, 0));
}

#[test]
#[ignore = "a role in another test"]
fn role_of_another_user() {
    let volume = PathBuf::from(std::env::var_os("FARREACH_SHM_DIR").unwrap());
    let name = std::env::var("FARREACH_SHM_NAME").unwrap();
    let error = error_of(&Directory::open(&volume).unwrap(), &name);
    assert!(matches!(error, MeetError::ForeignFile { .. }), "{error}");
    // Without the check of this library, the kernel refuses.
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
    let address = rustix::net::SocketAddrUnix::new(volume.join(&name)).unwrap();
    assert_eq!(rustix::net::connect(&socket, &address), Err(rustix::io::Errno::ACCESS));
    // It cannot remove the file either, and its own listener removes nothing.
    assert!(fs::remove_file(volume.join(&name)).is_err());
    drop(Listener::bind_in(&Directory::open(&volume).unwrap(), PATIENCE).unwrap());
    assert!(volume.join(&name).exists());
}
