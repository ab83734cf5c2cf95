//! Which sockets have something to do, by one epoll.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// How many are told at a time. The kernel tells those that are left out first the next time.
const READY_MAX: usize = 64;

/// Longer sleeps are ended by this: older kernels take no longer ones.
const SLEEP_MAX: Duration = Duration::from_secs(60 * 60);

/// A name for something that is looked at. It is never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Token(pub(super) u64);

#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    /// Told by the kernel.
    ready: Vec<Ready>,
    /// How many of those were given out.
    given: usize,
}

/// What is told of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    pub(super) token: Token,
    pub(super) is_writable: bool,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, ready: Vec::with_capacity(READY_MAX), given: 0 })
    }

    /// Tells each time that this one is readable, and writable if that is asked for. Its end and its errors count as both.
    pub(super) fn add(&self, token: Token, source: impl AsFd, when_writable: bool) -> io::Result<()> {
        let flags = if when_writable { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token.0), flags)?)
    }

    /// Tells once for each time that this one becomes readable, so that nobody has to read from it.
    pub(super) fn add_edge(&self, token: Token, source: impl AsFd) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token.0), flags)?)
    }

    /// As [`add`](Self::add), for one that was added.
    pub(super) fn change(&self, token: Token, source: impl AsFd, when_writable: bool) -> io::Result<()> {
        let flags = if when_writable { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token.0), flags)?)
    }

    /// A descriptor that is closed goes by itself.
    pub(super) fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// The next one that has something to do, as far as it was asked for.
    pub(super) fn next(&mut self) -> Option<Ready> {
        let ready = *self.ready.get(self.given)?;
        self.given += 1;
        Some(ready)
    }

    pub(super) fn has_next(&self) -> bool {
        self.given < self.ready.len()
    }

    /// Whether the kernel has told of this one when it was last asked.
    pub(super) fn has_told_of(&self, token: Token) -> bool {
        self.ready.iter().any(|ready| ready.token == token)
    }

    /// Asks the kernel which have something to do, once all that it told before are given out. None is the same as the longest time.
    pub(super) fn ask(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map_or(SLEEP_MAX, |timeout| timeout.min(SLEEP_MAX));
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        self.ready.clear();
        self.given = 0;
        let mut events = [MaybeUninit::uninit(); READY_MAX];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok((events, _)) => self.ready.extend(events.iter().map(Ready::of)),
            // A signal: whoever sleeps looks why it was woken.
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}

impl Ready {
    fn of(event: &epoll::Event) -> Self {
        let flags = event.flags;
        let is_writable = flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP);
        Self { token: Token(event.data.u64()), is_writable }
    }
}
