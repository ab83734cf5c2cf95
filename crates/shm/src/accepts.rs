//! The rate at which a listener accepts connections.
//!
//! Everybody in a network namespace can connect to an abstract name, also another user, whose connections
//! are refused. So that such connections do not keep this process busy, each costs one of a number of
//! permits, which come back with time. Without any, the listener's descriptor is not readable for a while:
//! further connections stay in the kernel's queue, and beyond its length the kernel refuses them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::closer;
use crate::obstacle::Obstacle;

/// Permits that are there at most: two queues of the kernel.
const PERMITS_MAX: u32 = 256;
/// Permits with which accepting goes on after there was none.
const RESUME_WITH: u32 = 16;
/// The time in which one comes back. A connection costs some microseconds.
const EVERY: Duration = Duration::from_millis(10);
/// The same while a connection is expected, which takes part in the race for a place in the queue.
const EVERY_WHILE_EXPECTED: Duration = Duration::from_micros(100);

/// Decides whether a listener accepts, and tells it by a descriptor.
#[derive(Debug)]
pub(crate) struct Accepts {
    permits: u32,
    /// The time of the last permit that came back.
    earned_at: Option<Instant>,
    is_paused: bool,
    /// Whether the epoll tells of connections.
    is_watching: bool,
    /// The socket and the timer.
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Accepts {
    pub(crate) fn of(socket: BorrowedFd<'_>) -> Result<Self, Obstacle> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| Obstacle::new("epoll_create", error))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|error| Obstacle::new("timerfd_create", error))?;
        for fd in [socket, timer.as_fd()] {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                .map_err(|error| Obstacle::new("epoll_ctl", error))?;
        }
        Ok(Self { permits: PERMITS_MAX, earned_at: None, is_paused: false, is_watching: true, epoll, timer })
    }

    /// Adds the permits that have come back.
    pub(crate) fn earn(&mut self, now: Instant, is_expecting: bool) {
        let every = every(is_expecting);
        let since = *self.earned_at.get_or_insert(now);
        let earned = now.saturating_duration_since(since).as_nanos() / every.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        if earned >= PERMITS_MAX {
            (self.permits, self.earned_at) = (PERMITS_MAX, Some(now));
        } else {
            self.permits = PERMITS_MAX.min(self.permits + earned);
            self.earned_at = Some(since + every * earned);
        }
        if self.permits >= RESUME_WITH && !closer::is_behind() {
            self.is_paused = false;
        }
    }

    /// Takes a permit. Returns `false` if there is none.
    pub(crate) fn spend(&mut self) -> bool {
        if self.permits == 0 || closer::is_behind() {
            self.is_paused = true;
        }
        if !self.is_paused {
            self.permits -= 1;
        }
        !self.is_paused
    }

    /// Gives a permit back, for a connection that led to something.
    pub(crate) fn refund(&mut self) {
        self.permits = PERMITS_MAX.min(self.permits + 1);
    }

    /// Lets the descriptor tell of connections, or of the end of the pause.
    pub(crate) fn settle(&mut self, socket: BorrowedFd<'_>, is_expecting: bool) {
        if self.is_paused {
            self.set_timer(every(is_expecting) * RESUME_WITH);
        }
        if self.is_paused != self.is_watching {
            return;
        }
        let mut interest = epoll::EventFlags::empty();
        if !self.is_paused {
            interest = epoll::EventFlags::IN;
            self.set_timer(Duration::ZERO);
        }
        // It fails only for a socket that is not in the epoll.
        let _ = epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(0), interest);
        self.is_watching = !self.is_paused;
    }

    fn set_timer(&self, after: Duration) {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let after = Timespec { tv_sec: 0, tv_nsec: after.subsec_nanos().into() };
        // It fails only for times that are no times. A timer that was set anew is not readable.
        let _ = timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: zero, it_value: after },
        );
    }
}

impl AsFd for Accepts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

fn every(is_expecting: bool) -> Duration {
    if is_expecting { EVERY_WHILE_EXPECTED } else { EVERY }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn is_readable(accepts: &Accepts) -> bool {
        let mut fds = [PollFd::new(accepts, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).unwrap() > 0
    }

    /// A socket to which somebody connects without a pause is not readable for most of the time.
    #[test]
    fn a_flood_takes_what_comes_back_with_time() {
        // The end of a pipe without a writer stays readable.
        let (socket, writer) = rustix::pipe::pipe().unwrap();
        drop(writer);
        let mut accepts = Accepts::of(socket.as_fd()).unwrap();
        let begin = Instant::now();
        accepts.earn(begin, false);
        assert!(is_readable(&accepts));
        let mut accepted = 0;
        let mut take_all = |accepts: &mut Accepts, now, is_expecting| {
            accepts.earn(now, is_expecting);
            while accepts.spend() {
                accepted += 1;
            }
            accepts.settle(socket.as_fd(), is_expecting);
            std::mem::take(&mut accepted)
        };
        assert_eq!(take_all(&mut accepts, begin, false), PERMITS_MAX);
        assert!(accepts.is_paused);
        // Not at each one that comes back, and no more than in this time.
        assert_eq!(take_all(&mut accepts, begin + EVERY * (RESUME_WITH - 1), false), 0);
        assert_eq!(take_all(&mut accepts, begin + EVERY * RESUME_WITH, false), RESUME_WITH);
        assert_eq!(take_all(&mut accepts, begin + EVERY * RESUME_WITH, false), 0);
        let later = begin + EVERY * RESUME_WITH * 2;
        assert_eq!(take_all(&mut accepts, later, true), PERMITS_MAX, "while somebody is expected");
        accepts.earn(later + EVERY * PERMITS_MAX, false);
        accepts.settle(socket.as_fd(), false);
        assert!(!accepts.is_paused && is_readable(&accepts));
    }

    #[test]
    fn the_timer_ends_a_pause() {
        let (socket, _writer) = rustix::pipe::pipe().unwrap();
        let mut accepts = Accepts::of(socket.as_fd()).unwrap();
        accepts.earn(Instant::now(), true);
        while accepts.spend() {}
        accepts.settle(socket.as_fd(), true);
        let mut fds = [PollFd::new(&accepts, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        accepts.earn(Instant::now() + EVERY, true);
        accepts.settle(socket.as_fd(), true);
        assert!(!accepts.is_paused && !is_readable(&accepts), "nobody has connected");
    }
}
