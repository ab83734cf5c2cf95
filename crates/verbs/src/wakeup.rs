//! One descriptor to sleep on.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::cq::CompletionChannel;
use crate::error::Error;
use crate::event::AsyncEvents;

/// A descriptor that is readable while a completion channel or a device has an event: for who sleeps on both at once and can wait for
/// one only. Taking the events is left to their owners; until they have, it stays readable.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use std::os::fd::AsFd;
/// use farreach_verbs::wakeup::Wakeup;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let (channel, events) = (context.create_comp_channel()?, context.async_events()?);
/// let wakeup = Wakeup::new(&channel, &events)?;
/// println!("{:?} is what epoll or a runtime is given", wakeup.as_fd());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Debug)]
pub struct Wakeup {
    epoll: OwnedFd,
    /// Their descriptors are open as long as these live: a number that is used again would be another's.
    _sources: (CompletionChannel, AsyncEvents),
}

impl Wakeup {
    /// Joins both.
    #[doc(alias = "epoll_create")]
    pub fn new(channel: &CompletionChannel, events: &AsyncEvents) -> Result<Self, Error> {
        let name = channel.context().device().name();
        // SAFETY: it takes no pointer.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(Error::last("epoll_create1", name));
        }
        // SAFETY: it was opened a moment ago, and nobody else has it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        for source in [channel.as_fd(), events.as_fd()] {
            add(epoll.as_fd(), source)
                .map_err(|error| Error::call("epoll_ctl", name, error.raw_os_error().unwrap_or(0)))?;
        }
        Ok(Self { epoll, _sources: (channel.clone(), events.clone()) })
    }
}

fn add(epoll: BorrowedFd<'_>, source: BorrowedFd<'_>) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    let (epoll, source) = (epoll.as_raw_fd(), source.as_raw_fd());
    // SAFETY: both are open, and the event is valid.
    match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, source, &raw mut event) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
