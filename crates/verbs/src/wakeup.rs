//! One descriptor to sleep on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::cq::CompletionChannel;
use crate::error::Error;
use crate::event::AsyncEvents;
use crate::fd;

/// A descriptor that is readable while a completion channel or a device has an event, for callers
/// that must sleep on both with one descriptor. It does not take the events; it stays readable
/// until their owners have taken them.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use std::os::fd::AsFd;
/// use farreach_verbs::wakeup::Wakeup;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let (channel, events) = (context.create_comp_channel()?, context.async_events()?);
/// let wakeup = Wakeup::new(&channel, &events)?;
/// println!("{:?} can be passed to epoll or a runtime", wakeup.as_fd());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Debug)]
pub struct Wakeup {
    epoll: OwnedFd,
    /// Keeps the sources' descriptors open. A closed descriptor's number could be reused for
    /// another file.
    _sources: (CompletionChannel, AsyncEvents),
}

impl Wakeup {
    /// Joins a completion channel and a device's events.
    #[doc(alias = "epoll_create")]
    pub fn new(channel: &CompletionChannel, events: &AsyncEvents) -> Result<Self, Error> {
        let name = channel.context().device().name();
        let failed =
            |operation, error: io::Error| Error::call(operation, name, error.raw_os_error().unwrap_or(0));
        let epoll = fd::epoll().map_err(|error| failed("epoll_create1", error))?;
        for source in [channel.as_fd(), events.as_fd()] {
            fd::epoll_add(epoll.as_fd(), source).map_err(|error| failed("epoll_ctl", error))?;
        }
        Ok(Self { epoll, _sources: (channel.clone(), events.clone()) })
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
