//! Engines that meet through a directory, also in different network namespaces.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use farreach::{Engine, Error, ErrorKind, PageMap, Peer, RemoteSlice, Rights, Settings};
use farreach_testkit::{in_own_process, wait_for};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};

const SOON: Duration = Duration::from_secs(30);

const DIRECTORY: &str = "FARREACH_TEST_SHM_DIR";

fn open(directory: Option<&Path>) -> Engine {
    let settings = Settings::new().rails(["shm"]);
    let settings = directory.into_iter().fold(settings, |settings, path| settings.shm_dir(path));
    Engine::with(settings).unwrap()
}

/// A process in a network namespace of its own.
struct Far(Child);

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects an engine here with one in another network namespace. The control connection was made
/// here: a socket stays in its namespace.
fn connect(here: Option<&Path>, there: Option<&Path>) -> (Engine, Far, Result<Peer, Error>) {
    connect_to(&["--net"], here, there)
}

/// As [`connect`], with other namespaces.
fn connect_to(
    namespaces: &[&str],
    here: Option<&Path>,
    there: Option<&Path>,
) -> (Engine, Far, Result<Peer, Error>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    let mut command = Command::new("unshare");
    command.args(namespaces).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "shm_dir::role_of_the_far_engine", "--ignored", "--nocapture"]);
    if let Some(path) = there {
        command.env(DIRECTORY, path);
    }
    let child = command.stdin(OwnedFd::from(far)).stdout(Stdio::null()).spawn().expect("unshare");
    let engine = open(here);
    let peer = engine.accept_over(near).unwrap().wait(SOON);
    (engine, Far(child), peer)
}

#[test]
#[ignore = "a role in another test"]
fn role_of_the_far_engine() {
    let directory = std::env::var_os(DIRECTORY);
    let engine = open(directory.as_deref().map(Path::new));
    let stream = TcpStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let Ok(peer) = engine.connect_over(stream).unwrap().wait(SOON) else { return };
    let memory = engine.allocate(1 << 16).wait(SOON).unwrap();
    let grant = peer.grant(memory, Rights::READ | Rights::WRITE).wait(SOON).unwrap();
    peer.send(grant.token().to_string()).wait(SOON).unwrap();
    peer.recv().wait(SOON).unwrap();
    let memory = grant.revoke(SOON).unwrap().to_vec();
    peer.send(vec![memory[0], memory[(1 << 16) - 1]]).wait(SOON).unwrap();
    // Until the other side has received it.
    let _ = peer.recv().wait(SOON);
}

/// Writes to the memory of the far engine, over shm.
fn write(engine: &Engine, peer: &Peer) -> RemoteSlice {
    assert_eq!(peer.rails(), ["shm"]);
    let token = String::from_utf8(peer.recv().wait(SOON).unwrap()).unwrap();
    let remote = peer.remote(token.parse().unwrap()).wait(SOON).unwrap();
    let mut source = engine.allocate(1 << 16).wait(SOON).unwrap();
    source.fill(7);
    peer.write_pages(source, &PageMap::of(4096).first(16), &remote, None).wait(SOON).unwrap();
    peer.send("written").wait(SOON).unwrap();
    assert_eq!(peer.recv().wait(SOON).unwrap(), [7, 7]);
    remote
}

#[test]
fn pid_and_user_namespaces_are_connected() {
    let volume = tempfile::tempdir().unwrap();
    for (namespaces, directory) in [
        (&["--pid", "--kill-child"][..], None),
        (&["--user", "--map-user=7"], None),
        // As a container is that has a volume.
        (&["--net", "--pid", "--kill-child", "--user", "--map-root-user"], Some(volume.path())),
    ] {
        let (engine, _far, peer) = connect_to(namespaces, directory, directory);
        write(&engine, &peer.unwrap_or_else(|error| panic!("{namespaces:?}: {error}")));
    }
}

#[test]
fn a_directory_connects_network_namespaces() {
    let volume = tempfile::tempdir().unwrap();
    let elsewhere = volume.path().join("link");
    std::os::unix::fs::symlink(volume.path(), &elsewhere).unwrap();
    let (engine, far, peer) = connect(Some(volume.path()), Some(&elsewhere));
    let peer = peer.unwrap();
    let remote = write(&engine, &peer);
    // Each has a file, and a killed one's is removed by the next engine.
    let files = || fs::read_dir(volume.path()).unwrap().count();
    assert_eq!(files(), 3);
    drop(far);
    assert_eq!(files(), 3);
    let next = open(Some(volume.path()));
    assert_eq!(files(), 3);
    drop((peer, remote, engine, next));
    assert_eq!(files(), 1);
}

/// In each of these cases their abstract sockets or directories differ.
#[test]
fn without_a_common_directory_namespaces_are_not_connected() {
    let volumes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, other] = volumes.each_ref().map(|volume| Some(volume.path()));
    for (here, there) in [(None, None), (one, None), (None, one), (one, other)] {
        let (_engine, _far, peer) = connect(here, there);
        let error = peer.unwrap_err();
        let told = error.to_string();
        assert!(told.contains(r#"no rail in common: the peer has ["shm"], this side has ["shm"]"#), "{told}");
        assert!(error.fix().contains("shm_dir"), "{error:?}");
    }
}

/// libfabric has a provider of the same name, which takes an address.
#[test]
fn an_address_of_shm_is_an_error() {
    for name in ["shm@127.0.0.1", "shm@/run/farreach", "shm@"] {
        let error = Engine::with(Settings::new().rails([name])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoRail, "{error}");
        assert!(error.cause().contains(&format!("open {name}: the rail shm has no address")), "{error}");
        assert!(error.fix().contains("name the rail `shm`") && error.fix().contains("shm_dir"), "{error}");
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_an_error() {
    let volume = tempfile::tempdir().unwrap();
    let path = volume.path().join("volume");
    for (mode, told, fix) in
        [(None, "No such file", "mkdir -m 700"), (Some(0o777), "mode 0777", "chmod go-w")]
    {
        if let Some(mode) = mode {
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        // Also if other rails could be opened.
        for settings in [Settings::new(), Settings::new().rails(["shm"])] {
            let error = Engine::with(settings.shm_dir(&path)).unwrap_err();
            let words = error.cause().to_owned();
            assert_eq!(error.kind(), ErrorKind::NoRail, "{words}");
            assert!(words.contains(path.to_str().unwrap()) && words.contains(told), "{words}");
            assert!(error.fix().contains(fix), "{}", error.fix());
        }
    }
}

/// A process that connects to the listener of a rail, and says nothing, costs it no descriptor after it has
/// gone. No other process connects meanwhile, which would make the rail look.
#[test]
fn a_stranger_that_has_gone_leaves_no_descriptor() {
    in_own_process(&[], || {
        let volume = tempfile::tempdir().unwrap();
        let engine = open(Some(volume.path()));
        let is_socket = |path: &PathBuf| fs::metadata(path).unwrap().file_type().is_socket();
        let listener = fs::read_dir(volume.path()).unwrap().map(|file| file.unwrap().path()).find(is_socket);
        let address = SocketAddrUnix::new(listener.unwrap()).unwrap();
        let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        let stranger = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        net::connect(&stranger, &address).unwrap();
        wait_for("the other end", || (descriptors() == before + 2).then_some(()));
        drop(stranger);
        wait_for("the end of the other end", || (descriptors() == before).then_some(()));
        drop(engine);
    });
}
