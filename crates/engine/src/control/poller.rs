//! Asks one epoll which sockets are ready.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// Events that one call returns at most. The kernel returns the remaining ones first the next time.
const READY_MAX: usize = 64;

/// The longest sleep: older kernels take no longer timeouts.
const SLEEP_MAX: Duration = Duration::from_secs(60 * 60);

/// Identifies a registered descriptor. It is never used again for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Token(pub(super) u64);

/// The events of a descriptor that are reported. A hangup or an error counts as both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interest {
    pub(super) is_reading: bool,
    pub(super) is_writing: bool,
}

impl Interest {
    pub(super) const READING: Self = Self { is_reading: true, is_writing: false };
    pub(super) const BOTH: Self = Self { is_reading: true, is_writing: true };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        if self.is_writing {
            flags |= EventFlags::OUT;
        }
        // A hangup is reported in any case. If the descriptor is not read, that must not happen
        // again and again.
        flags | if self.is_reading { EventFlags::IN } else { EventFlags::ET }
    }
}

/// One epoll, and the events of its last call.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    /// Events of the last call.
    ready: Vec<Ready>,
    /// How many of them were given out.
    given: usize,
}

/// The readiness of one descriptor.
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

    /// Registers a descriptor. While it is read, it is level-triggered: it is reported for as long
    /// as it is ready. Otherwise it is edge-triggered.
    pub(super) fn add(&self, token: Token, source: impl AsFd, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token.0), interest.flags())?)
    }

    /// Registers a descriptor, edge-triggered: it is reported once each time that it becomes
    /// readable, so it need not be read.
    pub(super) fn add_edge(&self, token: Token, source: impl AsFd) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token.0), flags)?)
    }

    /// Changes a registration; see [`add`](Self::add).
    pub(super) fn change(&self, token: Token, source: impl AsFd, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token.0), interest.flags())?)
    }

    /// Removes a registration. A descriptor that is closed needs no call.
    pub(super) fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// Returns the next ready descriptor of the last [`ask`](Self::ask).
    pub(super) fn next(&mut self) -> Option<Ready> {
        let ready = *self.ready.get(self.given)?;
        self.given += 1;
        Some(ready)
    }

    pub(super) fn has_next(&self) -> bool {
        self.given < self.ready.len()
    }

    /// Returns whether this token was among the events of the last [`ask`](Self::ask).
    pub(super) fn has_told_of(&self, token: Token) -> bool {
        self.ready.iter().any(|ready| ready.token == token)
    }

    /// Asks the kernel which descriptors are ready. Must be called only after all events of the
    /// last call were given out. `None` is the longest timeout.
    pub(super) fn ask(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map_or(SLEEP_MAX, |timeout| timeout.min(SLEEP_MAX));
        // The cast is exact, because `SLEEP_MAX` is an hour.
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        // Also if the call fails: no event may be given out twice.
        self.ready.clear();
        self.given = 0;
        let mut events = [MaybeUninit::uninit(); READY_MAX];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok((events, _)) => self.ready.extend(events.iter().map(Ready::of)),
            // A signal has ended the sleep; the caller checks why it was woken.
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }
}

impl Ready {
    fn of(event: &epoll::Event) -> Self {
        let flags = event.flags;
        // The kernel reports a failed connect as an error or a hangup.
        let is_writable = flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP);
        Self { token: Token(event.data.u64()), is_writable }
    }
}
