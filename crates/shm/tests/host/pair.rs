//! Two ends of a link, in one process or in two.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farreach_memory::{Buffers, Memory, Slice};
use farreach_shm::{Connecting, Event, Expected, Link, Listener, OperationError, Request};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const OURS: [u8; 32] = [1; 32];
pub(crate) const THEIRS: [u8; 32] = [2; 32];
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn listener() -> Listener {
    let mut listener = Listener::bind(PATIENCE).unwrap();
    listener.expect(Expected { id: 5, theirs: THEIRS, ours: OURS });
    listener
}

/// Repeats a look until it finds something.
pub(crate) fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

pub(crate) fn accept(listener: &mut Listener) -> Link {
    wait("a connection", || listener.poll(Instant::now()).unwrap()).link
}

/// Returns both ends of a link, the acceptor first.
pub(crate) fn pair() -> (Link, Link) {
    let mut listener = listener();
    let mut connecting = Connecting::new(listener.name(), THEIRS, OURS).unwrap();
    let (mut client, mut server) = (None, None);
    wait("a link", || {
        client = client.take().or_else(|| connecting.poll().unwrap());
        server = server.take().or_else(|| listener.poll(Instant::now()).unwrap().map(|met| met.link));
        (client.is_some() && server.is_some()).then_some(())
    });
    (server.unwrap(), client.unwrap())
}

pub(crate) fn slice(bytes: &[u8]) -> Slice {
    let mut slice = Memory::allocate(bytes.len().max(1)).unwrap();
    drop(slice.split_off(bytes.len()));
    slice.copy_from_slice(bytes);
    slice
}

/// The result of an operation.
pub(crate) struct Completed {
    pub(crate) buffers: Buffers,
    pub(crate) outcome: Result<(), OperationError>,
}

/// Posts an operation and polls until it is complete. `other` is polled, too.
pub(crate) fn run(link: &mut Link, other: &mut Link, request: Request<'_>, buffers: Buffers) -> Completed {
    link.post(77, request, buffers).map_err(|(error, _)| error).unwrap();
    let mut completed = None;
    wait("a completion", || {
        link.poll(|event| {
            if let Event::Completed { tag: 77, buffers, outcome } = event {
                completed = Some(Completed { buffers, outcome });
            }
        });
        if completed.is_none() {
            other.poll(|_| {});
        }
        completed.take()
    })
}

/// A process with a role of its own, at the other end of a link.
pub(crate) struct Peer {
    child: Child,
}

impl Peer {
    /// Starts this program again, for the test `role`, which gets the name of the listener.
    pub(crate) fn start(role: &str, listener: &Listener) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", role, "--ignored", "--nocapture"])
            .env("FARREACH_SHM_NAME", listener.name())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            // A thread on another processor continues until it is interrupted.
            wait("a stopped process", || {
                let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
                let states = tasks.map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
                let is_stopped =
                    |stat: Option<String>| stat?.rsplit_once(") ")?.1.starts_with('T').then_some(());
                states.map(is_stopped).collect::<Option<Vec<()>>>()
            });
        }
    }

    /// Waits for the end. Returns whether it succeeded, and its output.
    pub(crate) fn end(mut self) -> (bool, String) {
        let mut output = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        let status = self.child.wait().unwrap();
        (status.success(), output)
    }
}

/// Runs the test `role` as another user, with the name of the listener and a directory, and polls the
/// listener until it ends. Nobody may connect meanwhile. Only root can do this: others do nothing.
pub(crate) fn run_as_another_user(role: &str, listener: &mut Listener, volume: &Path) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // A copy that the other user may execute.
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let program = folder.path().join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut other = Command::new(&program)
        .args(["--exact", role, "--ignored"])
        .env("FARREACH_SHM_NAME", listener.name())
        .env("FARREACH_SHM_DIR", volume)
        .current_dir("/")
        .uid(65534)
        .spawn()
        .unwrap();
    let status = wait("its end", || {
        assert!(listener.poll(Instant::now()).unwrap().is_none());
        other.try_wait().unwrap()
    });
    assert!(status.success(), "{status}");
}

/// Connects in a process that [`Peer::start`] has started.
pub(crate) fn connect_as_peer() -> Link {
    let name = std::env::var("FARREACH_SHM_NAME").expect("started by another test");
    let mut connecting = Connecting::new(&name, THEIRS, OURS).unwrap();
    wait("a link", || connecting.poll().unwrap())
}

thread_local! {
    /// Messages that arrived with another one. A thread waits for messages of one link only.
    static INBOX: RefCell<VecDeque<Vec<u8>>> = const { RefCell::new(VecDeque::new()) };
}

/// Waits for a message.
pub(crate) fn message(link: &mut Link) -> Vec<u8> {
    wait("a message", || {
        let message = INBOX.with_borrow_mut(VecDeque::pop_front);
        if message.is_some() {
            return message;
        }
        let mut down = None;
        link.poll(|event| match event {
            Event::Message(bytes) => INBOX.with_borrow_mut(|inbox| inbox.push_back(bytes.to_vec())),
            Event::Down(error) => down = Some(error),
            _ => {}
        });
        let message = INBOX.with_borrow_mut(VecDeque::pop_front);
        assert!(message.is_some() || down.is_none(), "{}", down.unwrap());
        message
    })
}

pub(crate) fn send(link: &mut Link, bytes: &[u8]) {
    let mut is_sent = false;
    link.post(1, Request::Send, slice(bytes).into()).map_err(|(error, _)| error).unwrap();
    wait("a sent message", || {
        link.poll(|event| is_sent |= matches!(event, Event::Completed { tag: 1, outcome: Ok(()), .. }));
        is_sent.then_some(())
    });
}

/// Returns the number of mappings and of open descriptors of this process that are of this crate.
pub(crate) fn resources() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let maps = maps.lines().filter(|line| line.contains("/memfd:farreach")).count();
    (maps, std::fs::read_dir("/proc/self/fd").unwrap().count())
}
