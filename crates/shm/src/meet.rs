//! How two processes meet: a Unix socket, proofs of both sides, and the first descriptors.
//!
//! No call blocks. Times are arguments, and the caller decides how long it tries.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::accepts::Accepts;
use crate::directory::{Directory, DirectoryError, FindError, NAME, SocketFile, is_name};
use crate::error::Hex;
use crate::link::{Link, Parts};
use crate::map::DescriptorError;
use crate::obstacle::Obstacle;
use crate::process::{Process, ProcessError, check_user};
use crate::segment::{Segment, Side};
use crate::socket::{Receive, Received, Socket};
use crate::wire::{Nonce, Packet, is_same_nonce};

/// Connections that have not proven themselves. The oldest is closed for a new one.
const STRANGERS_MAX: usize = 64;
/// Connections that the kernel accepts before a poll does.
const BACKLOG: i32 = 128;
/// Connections that one poll accepts.
const ACCEPTS_PER_POLL: usize = 16;

/// Two processes could not meet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeetError {
    /// Nothing listens under this name: it has ended, or is in another network namespace or directory.
    #[error("nothing listens on {name} here")]
    NotFound {
        /// The name.
        name: String,
    },
    /// The name is none that [`Listener::name`] returns.
    #[error("{name} is not the name of a listener")]
    WrongName {
        /// The name.
        name: String,
    },
    /// The file of this name is no socket, or belongs to another user.
    #[error("the file {name} is not a socket of this user")]
    ForeignFile {
        /// The name.
        name: String,
    },
    /// The directory of the sockets cannot be used.
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    /// The process that answers cannot be the peer.
    #[error("{0}")]
    Process(#[from] ProcessError),
    /// The other side does not know the nonce.
    #[error("the process that answered does not know the nonce")]
    WrongNonce,
    /// The other side closed the connection: it does not expect this one.
    #[error("the peer closed the connection, because it does not expect this one")]
    Refused,
    /// The other side sent something that this release never sends.
    #[error("the peer sent {what}")]
    Nonsense {
        /// A description.
        what: &'static str,
    },
    /// A descriptor of the other side cannot be used.
    #[error("{0}")]
    Descriptor(#[from] DescriptorError),
    /// This process was forked from the one that listens.
    #[error("the listener belongs to the process that this one was forked from")]
    Forked,
    /// A system call failed.
    #[error("{call}: {error}")]
    Call {
        /// Its name.
        call: &'static str,
        /// Its error.
        error: io::Error,
    },
}

impl MeetError {
    fn call(call: &'static str, error: impl Into<io::Error>) -> Self {
        Self::Call { call, error: error.into() }
    }

    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => {
                "start both processes in one network namespace, or name a directory that both see"
            }
            Self::Process(ProcessError::OtherUser { .. }) => "run both processes as one user",
            Self::Process(ProcessError::UnknownUser { .. }) => {
                "run this process as a user that its user namespace has a number for, and not as nobody"
            }
            Self::Process(ProcessError::Call { .. }) => "raise `ulimit -n`, and permit the call",
            Self::Process(ProcessError::Invisible) => {
                "use Linux 6.5 or newer, run both processes in one pid namespace, or use another rail"
            }
            Self::Process(ProcessError::Ended) => "start the peer again, and connect again",
            Self::ForeignFile { .. } => "name a directory to which other users cannot write",
            Self::Directory(error) => error.fix(),
            Self::Refused | Self::WrongNonce => "exchange names and nonces anew, and connect once",
            Self::WrongName { .. } | Self::Nonsense { .. } => "run the same release on both sides",
            Self::Descriptor(error) => error.fix(),
            Self::Forked => "listen in the process that uses it",
            Self::Call { .. } => "raise `ulimit -n`, and permit the call",
        }
    }
}

/// A link that a listener waits for.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// A number of the caller.
    pub id: u64,
    /// The nonce that the other side sends.
    pub theirs: Nonce,
    /// The nonce with which this side answers.
    pub ours: Nonce,
}

/// A link that was made.
#[derive(Debug)]
pub struct Met {
    /// The number of the [`Expected`].
    pub id: u64,
    /// The link.
    pub link: Link,
}

/// Waits for processes that connect.
///
/// ```
/// use std::time::{Duration, Instant};
/// use farreach_shm::Listener;
///
/// let mut listener = Listener::bind(Duration::from_secs(10))?;
/// assert!(listener.name().starts_with('@'));
/// assert!(listener.poll(Instant::now())?.is_none());
/// # Ok::<(), farreach_shm::MeetError>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    accepts: Accepts,
    name: String,
    /// The socket's file, which is removed when the listener is dropped.
    _file: Option<SocketFile>,
    patience: Duration,
    expected: Vec<Expected>,
    strangers: VecDeque<Stranger>,
    refused: u64,
}

#[derive(Debug)]
struct Stranger {
    socket: Socket,
    since: Instant,
}

impl Listener {
    /// Listens on an abstract name, which is random, and disappears with the listener. Processes of
    /// the same network namespace can connect. A connection that has not proven itself within
    /// `patience` is closed.
    pub fn bind(patience: Duration) -> Result<Self, MeetError> {
        let name = format!("{NAME}{}", Hex(&random()?));
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes())
            .map_err(|error| MeetError::call("bind", error))?;
        let socket = open()?;
        bind(&socket, &address).map_err(|error| MeetError::call("bind", error))?;
        listen(&socket, BACKLOG).map_err(|error| MeetError::call("listen", error))?;
        Self::new(socket, format!("@{name}"), None, patience)
    }

    /// Listens on a socket file with a random name in a directory, for processes of several network
    /// namespaces that share the directory. Only processes of this user can connect. The file is
    /// removed with the listener, and with it those of listeners that were killed.
    pub fn bind_in(directory: &Arc<Directory>, patience: Duration) -> Result<Self, MeetError> {
        directory.remove_stale();
        Self::bind_beside(directory, patience)
    }

    /// As [`bind_in`](Self::bind_in), and leaves stale files where they are.
    pub(crate) fn bind_beside(directory: &Arc<Directory>, patience: Duration) -> Result<Self, MeetError> {
        let name = directory.name(&random()?);
        let socket = open()?;
        let mut file = directory.bind(&socket, &name)?;
        listen(&socket, BACKLOG).map_err(|error| MeetError::call("listen", error))?;
        file.publish()?;
        Self::new(socket, name, Some(file), patience)
    }

    fn new(
        socket: OwnedFd,
        name: String,
        file: Option<SocketFile>,
        patience: Duration,
    ) -> Result<Self, MeetError> {
        let socket = Socket::new(socket);
        let accepts = Accepts::of(socket.as_fd());
        let accepts = accepts.map_err(|Obstacle { call, error }| MeetError::Call { call, error })?;
        let (expected, strangers) = (Vec::new(), VecDeque::new());
        Ok(Self { socket, accepts, name, _file: file, patience, expected, strangers, refused: 0 })
    }

    /// Returns the name for [`Connecting::new`] or [`Connecting::new_in`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for one more link. Each nonce is valid once.
    pub fn expect(&mut self, expected: Expected) {
        self.expected.push(expected);
    }

    /// Does not wait for a link any more.
    pub fn forget(&mut self, id: u64) {
        self.expected.retain(|expected| expected.id != id);
    }

    /// Returns the number of connections that were closed, because they did not prove themselves.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the number of connections that have not proven themselves yet.
    pub fn strangers(&self) -> usize {
        self.strangers.len()
    }

    /// Accepts connections. Returns a link that was made, if there is one; there may be more.
    ///
    /// Connections that lead to nothing are accepted at a limited rate, so that those who connect without a pause do
    /// not keep this process busy.
    pub fn poll(&mut self, now: Instant) -> Result<Option<Met>, MeetError> {
        if self.socket.is_of_parent() {
            return Err(MeetError::Forked);
        }
        self.accepts.earn(now, !self.expected.is_empty());
        let met = self.accept(now);
        self.accepts.settle(self.socket.as_fd(), !self.expected.is_empty());
        match met? {
            Some(met) => Ok(Some(met)),
            None => self.look_at_strangers(now),
        }
    }

    fn accept(&mut self, now: Instant) -> Result<Option<Met>, MeetError> {
        for _ in 0..ACCEPTS_PER_POLL {
            if !self.accepts.spend() {
                break;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&self.socket, flags) {
                Ok(socket) => Socket::new(socket),
                Err(Errno::AGAIN) => {
                    self.accepts.refund();
                    break;
                }
                // It has given up already.
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(error @ (Errno::MFILE | Errno::NFILE)) => {
                    // Its place is worth more than one of those who say nothing.
                    if self.strangers.pop_front().is_none() {
                        return Err(MeetError::call("accept", error));
                    }
                    self.refused += 1;
                    continue;
                }
                Err(error) => return Err(MeetError::call("accept", error)),
            };
            if check_user(socket.as_fd()).is_err() {
                self.refused += 1;
                continue;
            }
            // One that is expected has sent its proof already, so those who say nothing do not
            // displace it.
            match self.meet(&socket) {
                Ok(Some(accepted)) => {
                    self.accepts.refund();
                    return accepted.link(socket).map(Some);
                }
                Ok(None) => self.strangers.push_back(Stranger { socket, since: now }),
                Err(_) => self.refused += 1,
            }
            if self.strangers.len() > STRANGERS_MAX {
                self.strangers.pop_front();
                self.refused += 1;
            }
        }
        Ok(None)
    }

    fn look_at_strangers(&mut self, now: Instant) -> Result<Option<Met>, MeetError> {
        for _ in 0..self.strangers.len() {
            let Some(stranger) = self.strangers.pop_front() else { break };
            match self.meet(&stranger.socket) {
                Ok(Some(accepted)) => return accepted.link(stranger.socket).map(Some),
                Ok(None) if now.saturating_duration_since(stranger.since) < self.patience => {
                    self.strangers.push_back(stranger);
                }
                _ => self.refused += 1,
            }
        }
        Ok(None)
    }

    /// Looks for the proof of a connection. `None`: it has sent nothing yet.
    fn meet(&mut self, socket: &Socket) -> Result<Option<Accepted>, MeetError> {
        let Some((packet, received)) = receive(socket)? else { return Ok(None) };
        let Packet::Hello(nonce) = packet else {
            return Err(MeetError::Nonsense { what: "no greeting" });
        };
        let mut found = None;
        for (index, expected) in self.expected.iter().enumerate() {
            if is_same_nonce(&expected.theirs, &nonce) {
                found = Some(index);
            }
        }
        let index = found.ok_or(MeetError::WrongNonce)?;
        let process = Process::of_peer(socket)?;
        let segment = received.memory.ok_or(DescriptorError::Missing)?;
        let segment = Segment::map(segment.as_fd())?;
        let Expected { id, ours, .. } = self.expected[index];
        match socket.send(&Packet::Welcome(ours).to_bytes(), None) {
            Ok(true) => {}
            Ok(false) => return Err(MeetError::call("sendmsg", Errno::NOBUFS)),
            Err(error) => return Err(MeetError::call("sendmsg", error)),
        }
        // Valid once.
        self.expected.swap_remove(index);
        Ok(Some(Accepted { id, segment, process }))
    }
}

/// A connection that has proven itself.
struct Accepted {
    id: u64,
    segment: Segment,
    process: Process,
}

impl Accepted {
    fn link(self, socket: Socket) -> Result<Met, MeetError> {
        let Self { id, segment, process } = self;
        let parts = Parts { side: Side::Acceptor, segment, socket, process };
        let link = Link::new(parts).map_err(|error| MeetError::call("epoll_ctl", error))?;
        Ok(Met { id, link })
    }
}

impl AsFd for Listener {
    /// Returns a descriptor that becomes readable when a process connects, unless too many have. Connections that
    /// have not proven themselves need a poll of their own, some milliseconds later.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.accepts.as_fd()
    }
}

/// A connection that is being made.
///
/// See [`Link`] for an example.
#[derive(Debug)]
pub struct Connecting {
    name: String,
    /// The directory of the listener's socket, unless its name is abstract.
    directory: Option<Arc<Directory>>,
    ours: Nonce,
    theirs: Nonce,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The listener's queue was full.
    Connect(OwnedFd),
    /// The greeting is to be sent, or was sent.
    Greet {
        socket: Socket,
        process: Process,
        segment: Segment,
        segment_fd: OwnedFd,
    },
    Await {
        socket: Socket,
        process: Process,
        segment: Segment,
    },
    /// The link was made, or cannot be made.
    Over,
}

impl Connecting {
    /// Begins to connect to the abstract name of a listener. `ours` proves this side; `theirs` is
    /// expected in the answer.
    pub fn new(name: &str, ours: Nonce, theirs: Nonce) -> Result<Self, MeetError> {
        Self::begin(None, name, ours, theirs)
    }

    /// As [`new`](Self::new), with the name of a listener in a directory.
    pub fn new_in(
        directory: &Arc<Directory>,
        name: &str,
        ours: Nonce,
        theirs: Nonce,
    ) -> Result<Self, MeetError> {
        Self::begin(Some(Arc::clone(directory)), name, ours, theirs)
    }

    fn begin(
        directory: Option<Arc<Directory>>,
        name: &str,
        ours: Nonce,
        theirs: Nonce,
    ) -> Result<Self, MeetError> {
        // The name is the peer's. It must not lead to any other socket.
        let of_file = if directory.is_some() { Some(name) } else { name.strip_prefix('@') };
        if !of_file.is_some_and(is_name) {
            return Err(MeetError::WrongName { name: name.to_owned() });
        }
        Ok(Self { name: name.to_owned(), directory, ours, theirs, stage: Stage::Connect(open()?) })
    }

    /// Connects the socket to the listener. Returns `false` if its queue is full.
    fn connect(&self, socket: &OwnedFd) -> Result<bool, MeetError> {
        let not_found = || MeetError::NotFound { name: self.name.clone() };
        // The address in a directory is valid as long as the descriptor.
        let (_file, address) = match &self.directory {
            None => (None, SocketAddrUnix::new_abstract_name(&self.name.as_bytes()[1..])),
            Some(directory) => match directory.find(&self.name) {
                Ok((file, address)) => (Some(file), Ok(address)),
                Err(FindError::Call(Errno::NOENT)) => return Err(not_found()),
                // Without the path: the peer may get this error.
                Err(FindError::Call(error)) => return Err(MeetError::call("openat", error)),
                Err(FindError::Foreign) => return Err(MeetError::ForeignFile { name: self.name.clone() }),
            },
        };
        let address = address.map_err(|error| MeetError::call("connect", error))?;
        match connect(socket, &address) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::CONNREFUSED | Errno::NOENT) => Err(not_found()),
            Err(error) => Err(MeetError::call("connect", error)),
        }
    }

    /// Returns a descriptor that becomes readable when the answer is there, unless it is over.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.stage {
            Stage::Connect(socket) => Some(socket.as_fd()),
            Stage::Greet { socket, .. } | Stage::Await { socket, .. } => Some(socket.as_fd()),
            Stage::Over => None,
        }
    }

    /// Continues. Returns the link when it is made, once. After an error it is over.
    pub fn poll(&mut self) -> Result<Option<Link>, MeetError> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Connect(socket) => match self.connect(&socket)? {
                    true => self.stage = greet(socket)?,
                    false => {
                        self.stage = Stage::Connect(socket);
                        return Ok(None);
                    }
                },
                Stage::Greet { socket, process, segment, segment_fd } => {
                    match socket.send(&Packet::Hello(self.ours).to_bytes(), Some(segment_fd.as_fd())) {
                        Ok(true) => self.stage = Stage::Await { socket, process, segment },
                        Ok(false) => {
                            self.stage = Stage::Greet { socket, process, segment, segment_fd };
                            return Ok(None);
                        }
                        Err(Errno::PIPE | Errno::CONNRESET) => return Err(MeetError::Refused),
                        Err(error) => return Err(MeetError::call("sendmsg", error)),
                    }
                }
                Stage::Await { socket, process, segment } => {
                    let Some((packet, _)) = receive(&socket)? else {
                        self.stage = Stage::Await { socket, process, segment };
                        return Ok(None);
                    };
                    return welcomed(&self.theirs, packet, socket, process, segment).map(Some);
                }
                Stage::Over => return Ok(None),
            }
        }
    }
}

fn greet(socket: OwnedFd) -> Result<Stage, MeetError> {
    let socket = Socket::new(socket);
    // Before anything is sent: the name could have been taken by another user.
    let process = Process::of_peer(&socket)?;
    let (segment, segment_fd) = Segment::create().map_err(|error| MeetError::call("memfd_create", error))?;
    Ok(Stage::Greet { socket, process, segment, segment_fd })
}

fn welcomed(
    theirs: &Nonce,
    packet: Packet,
    socket: Socket,
    process: Process,
    segment: Segment,
) -> Result<Link, MeetError> {
    match packet {
        Packet::Welcome(nonce) if is_same_nonce(&nonce, theirs) => {}
        Packet::Welcome(_) => return Err(MeetError::WrongNonce),
        _ => return Err(MeetError::Nonsense { what: "no answer to a greeting" }),
    }
    let parts = Parts { side: Side::Connector, segment, socket, process };
    Link::new(parts).map_err(|error| MeetError::call("epoll_ctl", error))
}

fn receive(socket: &Socket) -> Result<Option<(Packet, Received)>, MeetError> {
    match socket.receive().map_err(|error| MeetError::call("recvmsg", error))? {
        Receive::Packet(received) => {
            let packet = Packet::from_bytes(&received.bytes);
            let packet = packet.ok_or(MeetError::Nonsense { what: "a packet of no kind" })?;
            Ok(Some((packet, received)))
        }
        Receive::Nothing => Ok(None),
        Receive::Closed => Err(MeetError::Refused),
        Receive::Wrong(what) => Err(MeetError::Nonsense { what }),
    }
}

fn open() -> Result<OwnedFd, MeetError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|error| MeetError::call("socket", error))
}

fn random() -> Result<[u8; 16], MeetError> {
    let mut bytes = [0; 16];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    match filled.map_err(|error| MeetError::call("getrandom", error))? {
        16 => Ok(bytes),
        _ => Err(MeetError::call("getrandom", io::Error::from(io::ErrorKind::UnexpectedEof))),
    }
}
