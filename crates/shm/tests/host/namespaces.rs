//! Processes in different pid namespaces and user namespaces.
//!
//! Network namespaces are tested with the engine, which has a control connection.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farreach_shm::{
    Connecting, Directory, DirectoryError, Event, Expected, Link, Listener, MeetError, Place, Process,
    ProcessError,
};

use crate::filter::forbid_if;
use crate::pair::{OURS, THEIRS, listener, message, send, wait};

/// `SO_PEERPIDFD`, which Linux has since 6.5.
const SO_PEERPIDFD: u32 = 77;

const OWN_PID: &[&str] = &["--pid", "--kill-child"];

/// A process in namespaces of its own.
struct Far(Child);

impl Far {
    /// Starts this program again, for the test `role`.
    fn start(namespaces: &[&str], role: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new("unshare");
        command.args(namespaces).arg(std::env::current_exe().unwrap());
        command.args(["--exact", role, "--ignored", "--nocapture"]).envs(variables.iter().copied());
        Self(command.stdout(Stdio::null()).spawn().expect("unshare"))
    }

    fn is_successful(&mut self) -> Option<bool> {
        self.0.try_wait().unwrap().map(|status| status.success())
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn name() -> String {
    std::env::var("FARREACH_SHM_NAME").expect("started by another test")
}

fn connect(name: &str) -> Result<Link, MeetError> {
    let mut connecting = Connecting::new(name, THEIRS, OURS).unwrap();
    wait("an end of the meeting", || connecting.poll().transpose())
}

/// Waits until the process at the other end has ended, which a pidfd tells.
fn wait_for_end(link: &mut Link) {
    wait("the end of the process", || {
        link.poll(|_| {});
        link.process().has_ended().then_some(())
    });
}

#[test]
fn pid_namespaces_and_mapped_users_meet() {
    for namespaces in [OWN_PID, &["--user", "--map-root-user"], &["--user", "--map-user=7"]] {
        let mut listener = listener();
        let place = Place::here().unwrap().digests().place;
        let variables = [("FARREACH_SHM_NAME", listener.name()), ("FARREACH_SHM_PLACE", &place)];
        let mut far = Far::start(namespaces, "namespaces::role_that_meets", &variables);
        let mut link = wait("a link", || {
            assert_eq!(far.is_successful(), None, "{namespaces:?}");
            listener.poll(Instant::now()).unwrap().map(|met| met.link)
        });
        // A child namespace is seen from its parent.
        assert_ne!(link.process().pid(), 0);
        send(&mut link, b"seen");
        assert_eq!(message(&mut link), b"seen", "{namespaces:?}");
        assert!(!link.process().has_ended());
        drop(far);
        wait_for_end(&mut link);
    }
}

#[test]
#[ignore = "a role in another test"]
fn role_that_meets() {
    // Both sides say that they can meet.
    assert_eq!(Place::here().unwrap().digests().place, std::env::var("FARREACH_SHM_PLACE").unwrap());
    let mut link = connect(&name()).unwrap();
    let bytes = message(&mut link);
    send(&mut link, &bytes);
    wait("the end", || {
        link.poll(|_| {});
        None::<()>
    });
}

/// As containers are: neither namespace sees the other. The end of a process is told all the same.
#[test]
fn pid_namespaces_that_do_not_see_each_other_meet() {
    let volume = tempfile::tempdir().unwrap();
    let path = volume.path().to_str().unwrap();
    let role = |role| Far::start(OWN_PID, role, &[("FARREACH_SHM_DIR", path)]);
    let listening = role("namespaces::role_that_listens");
    let file = |suffix: &str| volume.path().join(format!("met-{suffix}"));
    let mut connecting = role("namespaces::role_that_connects");
    wait("a link", || {
        assert_eq!(connecting.is_successful(), None);
        (file("here").exists() && file("there").exists()).then_some(())
    });
    drop(listening);
    let is_right = wait("the end of the other one", || connecting.is_successful());
    assert!(is_right);
}

fn directory() -> std::sync::Arc<Directory> {
    Directory::open(std::env::var_os("FARREACH_SHM_DIR").unwrap()).unwrap()
}

#[test]
#[ignore = "a role in another test"]
fn role_that_listens() {
    let directory = directory();
    let mut listener = Listener::bind_in(&directory, Duration::from_secs(60)).unwrap();
    listener.expect(Expected { id: 5, theirs: THEIRS, ours: OURS });
    let mut link = wait("a link", || listener.poll(Instant::now()).unwrap()).link;
    assert_eq!(link.process().pid(), 0);
    fs::write(directory.path().join("met-there"), "").unwrap();
    wait("the end", || {
        link.poll(|_| {});
        None::<()>
    });
}

#[test]
#[ignore = "a role in another test"]
fn role_that_connects() {
    let directory = directory();
    let name = wait("a listener", || {
        let files = fs::read_dir(directory.path()).unwrap().flatten();
        let mut names = files.filter_map(|file| file.file_name().into_string().ok());
        names.find(|name| name.starts_with("farreach-") && Path::new(name).extension().is_none())
    });
    let mut connecting = Connecting::new_in(&directory, &name, THEIRS, OURS).unwrap();
    let mut link = wait("a link", || connecting.poll().unwrap());
    assert_eq!(link.process().pid(), 0, "its namespace is seen");
    assert!(!link.process().has_ended());
    fs::write(directory.path().join("met-here"), "").unwrap();
    let mut is_down = false;
    wait("the end of the process", || {
        link.poll(|event| is_down |= matches!(event, Event::Down(_)));
        (is_down && link.process().has_ended()).then_some(())
    });
}

/// Before Linux 6.5, the kernel does not tell a process that this namespace does not see.
#[test]
fn without_so_peerpidfd_pid_namespaces_do_not_meet() {
    let mut listener = listener();
    let variables = [("FARREACH_SHM_NAME", listener.name())];
    let mut far = Far::start(OWN_PID, "namespaces::role_of_an_old_kernel", &variables);
    let is_right = wait("its end", || {
        assert!(listener.poll(Instant::now()).unwrap().is_none());
        far.is_successful()
    });
    assert!(is_right);
}

#[test]
#[ignore = "a role in another test"]
fn role_of_an_old_kernel() {
    forbid_if(libc::SYS_getsockopt, Some((2, SO_PEERPIDFD)), libc::ENOPROTOOPT);
    // Within a namespace, the number of the process is enough.
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(Process::of_peer(&one).unwrap().pid(), 1);
    let survey = farreach_shm::Survey::take();
    assert!(survey.obstacles.is_empty(), "{:?}", survey.obstacles);
    assert_eq!(survey.peer_pidfd.and_then(|error| error.raw_os_error()), Some(libc::ENOPROTOOPT));
    let error = connect(&name()).unwrap_err();
    assert!(matches!(error, MeetError::Process(ProcessError::Invisible)), "{error}");
    assert!(error.fix().contains("one pid namespace"), "{}", error.fix());
}

/// For a process that its namespace has no number for, all users seem to be its own.
#[test]
fn a_user_that_cannot_be_told_from_others_does_not_meet() {
    let mut listener = listener();
    let volume = tempfile::tempdir().unwrap();
    fs::set_permissions(volume.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = volume.path().to_str().unwrap();
    let variables = [("FARREACH_SHM_NAME", listener.name()), ("FARREACH_SHM_DIR", path)];
    let mut far = Far::start(&["--user"], "namespaces::role_of_nobody", &variables);
    let is_right = wait("its end", || {
        assert!(listener.poll(Instant::now()).unwrap().is_none());
        far.is_successful()
    });
    assert!(is_right);
}

#[test]
#[ignore = "a role in another test"]
fn role_of_nobody() {
    let error = connect(&name()).unwrap_err();
    assert!(matches!(error, MeetError::Process(ProcessError::UnknownUser { user: 65534 })), "{error}");
    assert!(error.fix().contains("a user that its user namespace has a number for"), "{}", error.fix());
    // The directory seems to belong to it, too.
    let error = Directory::open(std::env::var_os("FARREACH_SHM_DIR").unwrap()).unwrap_err();
    assert!(matches!(error, DirectoryError::UnknownUser { user: 65534, .. }), "{error}");
    assert!(error.fix().contains("nobody"), "{}", error.fix());
    let survey = farreach_shm::Survey::take();
    let first = survey.obstacles.first().expect("it cannot have links");
    assert!(first.to_string().contains("cannot be told") && first.fix().contains("nobody"), "{first}");
}
