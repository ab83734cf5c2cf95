//! Tries what links need from the kernel, and names what it refuses.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::directory::{Directory, DirectoryError};
use crate::map::{Access, DescriptorError, Mapping};
use crate::meet::{Connecting, Expected, Listener, MeetError};
use crate::obstacle::Obstacle;
use crate::place::Place;
use crate::process::{Process, ProcessError, peer_pidfd};

/// What links need, and what of it this process has.
///
/// ```
/// use farreach_shm::Survey;
///
/// let survey = Survey::take();
/// for obstacle in &survey.obstacles {
///     println!("{obstacle}; {}", obstacle.fix());
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Survey {
    /// Where this process runs, unless an obstacle says why that is not known.
    pub place: Option<Place>,
    /// What keeps this process from links, in the order in which it would meet it.
    pub obstacles: Vec<Obstacle>,
    /// The error of the seal that keeps peers from writing to memory that is granted for reading
    /// only (`F_SEAL_FUTURE_WRITE`). Only [`Link::grant`](crate::Link::grant) needs it.
    pub read_only_seal: Option<io::Error>,
    /// The error of the call that tells the process at the other end of a socket, wherever it runs
    /// (`SO_PEERPIDFD`, since Linux 6.5). Without it, processes of different pid namespaces have no
    /// links.
    pub peer_pidfd: Option<io::Error>,
}

impl Survey {
    /// Tries every call, and makes a link within this process. It leaves nothing behind.
    pub fn take() -> Self {
        let mut obstacles = Vec::new();
        let place = Place::here().map_err(|obstacle| obstacles.push(obstacle)).ok();
        let trials = [memory(), events().map(drop), process(), descriptors()];
        obstacles.extend(trials.into_iter().filter_map(Result::err));
        // What is refused already would be refused again.
        if obstacles.is_empty() {
            obstacles.extend(meet(None).err().map(obstacle_of));
        }
        let is_without_memory = obstacles.iter().any(|obstacle| obstacle.call == MEMFD_CREATE);
        let read_only_seal = if is_without_memory { None } else { read_only().err() };
        let peer_pidfd = UnixStream::pair().and_then(|(one, _other)| peer_pidfd(one.as_fd())).err();
        Self { place, obstacles, read_only_seal, peer_pidfd }
    }

    /// Makes a link within this process, through a socket in this directory. It leaves nothing behind,
    /// and removes no stale files.
    ///
    /// ```
    /// use farreach_shm::{Directory, Survey};
    ///
    /// let volume = tempfile::tempdir()?;
    /// Survey::try_directory(&Directory::open(volume.path())?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_directory(directory: &Arc<Directory>) -> Result<(), DirectoryError> {
        meet(Some(directory)).map_err(|error| match error {
            MeetError::Directory(error) => error,
            other => {
                let Obstacle { call, error } = obstacle_of(other);
                directory.failed(call, error)
            }
        })
    }
}

const MEMFD_CREATE: &str = "memfd_create";

const LEN: usize = 4096;

fn memory() -> Result<(), Obstacle> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // As links and memory do: `vm.memfd_noexec` may require the flag.
    let fd = memfd_create("farreach-survey", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| memfd_create("farreach-survey", flags))
        .map_err(|error| Obstacle::new(MEMFD_CREATE, error))?;
    ftruncate(&fd, LEN as u64).map_err(|error| Obstacle::new("ftruncate", error))?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(|error| Obstacle::new("fcntl(F_ADD_SEALS)", error))?;
    match Mapping::new(fd.as_fd(), LEN, Access::ReadWrite) {
        Ok(_) => Ok(()),
        Err(DescriptorError::Call { call, error }) => Err(Obstacle::new(call, error)),
        Err(other) => Err(Obstacle::new("mmap", io::Error::other(other.to_string()))),
    }
}

fn read_only() -> io::Result<()> {
    let fd = memfd_create("farreach-survey", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    Ok(fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE)?)
}

fn events() -> Result<OwnedFd, Obstacle> {
    epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| Obstacle::new("epoll_create", error))
}

fn process() -> Result<(), Obstacle> {
    let (one, _other) = UnixStream::pair().map_err(|error| Obstacle::new("socketpair", error))?;
    Process::of_peer(&one).map(drop).map_err(obstacle_of_process)
}

/// Opens as many descriptors as one link, its memory and a control connection need together. Where
/// the limit is lower, a meeting would fail with an error that does not tell.
fn descriptors() -> Result<(), Obstacle> {
    const NEEDED: usize = 24;
    (0..NEEDED).map(|_| events()).collect::<Result<Vec<_>, _>>().map(drop)
}

/// Makes a link to this process itself. No call of it blocks.
fn meet(directory: Option<&Arc<Directory>>) -> Result<(), MeetError> {
    const TURNS: usize = 16;
    const PATIENCE: Duration = Duration::from_secs(1);
    let mut listener = match directory {
        None => Listener::bind(PATIENCE)?,
        Some(directory) => Listener::bind_beside(directory, PATIENCE)?,
    };
    // The name of the listener is random, and the link is closed at once.
    let (connector, acceptor) = ([1; 32], [2; 32]);
    listener.expect(Expected { id: 0, theirs: connector, ours: acceptor });
    let mut connecting = match directory {
        None => Connecting::new(listener.name(), connector, acceptor)?,
        Some(directory) => Connecting::new_in(directory, listener.name(), connector, acceptor)?,
    };
    let mut met = Vec::new();
    for _ in 0..TURNS {
        if connecting.poll()?.is_some() {
            return Ok(());
        }
        met.extend(listener.poll(Instant::now())?);
    }
    Err(MeetError::Refused)
}

fn obstacle_of(error: MeetError) -> Obstacle {
    match error {
        MeetError::Call { call, error } | MeetError::Descriptor(DescriptorError::Call { call, error }) => {
            Obstacle { call, error }
        }
        MeetError::Process(error) => obstacle_of_process(error),
        other => Obstacle::new("connect", io::Error::other(other.to_string())),
    }
}

fn obstacle_of_process(error: ProcessError) -> Obstacle {
    match error {
        ProcessError::Call { call, error } => Obstacle { call, error },
        error @ ProcessError::UnknownUser { .. } => {
            Obstacle::new(Obstacle::USER, io::Error::other(error.to_string()))
        }
        other => Obstacle::new("getsockopt(SO_PEERPIDFD)", io::Error::other(other.to_string())),
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_in_the_way_here() {
        let survey = Survey::take();
        assert!(survey.obstacles.is_empty(), "{:?}", survey.obstacles);
        assert!(survey.read_only_seal.is_none(), "{:?}", survey.read_only_seal);
        assert!(survey.place.is_some());
    }
}
