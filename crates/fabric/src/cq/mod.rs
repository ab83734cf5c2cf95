//! Completion queues.

mod completion;
mod poller;
mod registry;
mod wait;

use std::fmt;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockReadGuard};

use farreach_fabric_sys as sys;

use crate::ep;
use crate::handle::Handle;
use crate::{Domain, Error, Protocol};

pub use completion::{Completion, Event, Failure, OperationKind, Proof, Success, Written};
pub use poller::{Events, Poller};
pub(crate) use registry::Registry;

/// A completion queue: `fi_cq(3)`.
///
/// It is cheap to clone. It is closed when the last clone, and every endpoint that completes to it,
/// is dropped. Reading it also lets most providers make progress: an operation of a *peer* advances
/// only while this side polls.
///
/// ```no_run
/// # use farreach_fabric::Domain;
/// # fn open(domain: &Domain) -> Result<(), farreach_fabric::Error> {
/// let cq = domain.open_cq()?;
/// if cq.wait_fd().is_none() {
///     println!("this provider has no descriptor: a wait polls periodically");
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "fid_cq")]
#[derive(Clone)]
pub struct CompletionQueue(Arc<Inner>);

struct Inner {
    cq: Handle<sys::fid_cq>,
    /// Owned by the provider, and open as long as the queue.
    wait_fd: Option<RawFd>,
    /// Whether an endpoint was closed that the provider still accesses when it checks the
    /// descriptor. Locked during the check.
    is_spoiled: Mutex<bool>,
    /// Whether reading it makes progress on endpoints that access others of this process.
    looks_into_siblings: bool,
    /// Whether reading it accesses remains of the domain's closed endpoints.
    looks_into_closed: bool,
    registry: Registry,
    polling: Mutex<poller::PollState>,
}

/// Held while the provider makes progress: nothing that it accesses is closed meanwhile.
struct Moving<'cq> {
    _siblings: Option<RwLockReadGuard<'static, ()>>,
    _domain: Option<RwLockReadGuard<'cq, bool>>,
}

impl Domain {
    /// Opens a completion queue, with a descriptor to sleep on if the provider has one:
    /// `fi_cq_open(3)`. It has room for everything that one endpoint of the offer's depth can have
    /// in flight.
    #[doc(alias = "fi_cq_open")]
    pub fn open_cq(&self) -> Result<CompletionQueue, Error> {
        let info = self.info();
        self.open_cq_of(info.transmit_queue_size().saturating_add(info.receive_queue_size()))
    }

    /// As [`open_cq`](Self::open_cq), for this number of completions. Writes of peers with
    /// immediate data need room, too.
    pub fn open_cq_of(&self, size: usize) -> Result<CompletionQueue, Error> {
        if self.has_stuck_descriptors() {
            return self.open_cq_with(size, false);
        }
        match self.open_cq_with(size, true) {
            Ok(cq) => Ok(cq),
            // Not every provider has a descriptor, and they report that with different errors. An
            // error with another cause occurs again without a descriptor.
            Err(_) => self.open_cq_with(size, false),
        }
    }

    /// Returns `true` if a descriptor that was readable once stays so for good, so that sleeping on
    /// it returns at once: seen in 1.17, where this provider is called `net`, and not in 2.x, where
    /// it is `tcp`.
    fn has_stuck_descriptors(&self) -> bool {
        self.info().protocol() == Protocol::Xnet && self.library().version().major < 2
    }

    /// As [`open_cq_of`](Self::open_cq_of), without a descriptor: it must be polled. With one, some
    /// providers support only one endpoint for each queue.
    pub fn open_polled_cq_of(&self, size: usize) -> Result<CompletionQueue, Error> {
        self.open_cq_with(size, false)
    }

    fn open_cq_with(&self, size: usize, has_fd: bool) -> Result<CompletionQueue, Error> {
        let cq = Handle::<sys::fid_cq>::open(self, size, has_fd)?;
        let wait_fd = if has_fd { Some(cq.wait_fd()?) } else { None };
        Ok(CompletionQueue(Arc::new(Inner {
            cq,
            wait_fd,
            is_spoiled: Mutex::new(false),
            looks_into_siblings: self.profile().siblings_look_in,
            looks_into_closed: self.profile().close_leaves_connections,
            registry: Registry::default(),
            polling: Mutex::new(poller::PollState::new()),
        })))
    }
}

impl CompletionQueue {
    /// Returns the domain that it is in.
    pub fn domain(&self) -> &Domain {
        self.0.cq.parents()
    }

    /// Returns the C object. It lives as long as this value.
    pub fn as_raw(&self) -> *mut sys::fid_cq {
        self.0.cq.as_ptr()
    }

    #[inline]
    pub(crate) fn handle(&self) -> &Handle<sys::fid_cq> {
        &self.0.cq
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Notes that an endpoint that completes to this queue is about to be closed.
    pub(crate) fn before_close_of_endpoint(&self) {
        let profile = self.domain().profile();
        *self.lock_waits() |= profile.close_spoils_waits || profile.close_leaves_connections;
    }

    /// Returns a guard to hold while the provider makes progress on the endpoints of this queue:
    /// nothing that they access is closed meanwhile. Fails if the domain is spent.
    #[inline]
    fn moving(&self) -> Result<Moving<'_>, Error> {
        // In the same order as the code that closes endpoints.
        let siblings = self.0.looks_into_siblings.then(ep::moving);
        let domain = if self.0.looks_into_closed { Some(self.domain().moving()?) } else { None };
        Ok(Moving { _siblings: siblings, _domain: domain })
    }

    /// Returns whether the descriptor is spoiled. It does not change while the guard is held.
    fn lock_waits(&self) -> MutexGuard<'_, bool> {
        self.0.is_spoiled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for CompletionQueue {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CompletionQueue {}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("wait_fd", &self.wait_fd()).finish_non_exhaustive()
    }
}
