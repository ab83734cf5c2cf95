//! Finding the device that leads to an address, by asking more than once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::error::Error;
use super::id::CmId;
use super::wait::milliseconds_until;
use crate::address::RawAddress;

/// How long the kernel is asked at a time.
///
/// Where the peer's hardware address is not known, the kernel asks the network for it and sleeps until it is told, or until
/// the timeout. An answer that comes before it has gone to sleep tells nobody: on a fast link the first contact with a host would
/// wait out the whole timeout (seen on Linux 7.2). Asked again, it finds the answer at once. An answer that comes later wakes it, so
/// that a short step costs nothing but a few calls.
const STEP: Duration = Duration::from_millis(500);

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resolution {
    source: Option<SocketAddr>,
    peer: SocketAddr,
    deadline: Instant,
}

impl CmId {
    /// Looks for the device that leads to `peer`, optionally from `source`: `rdma_resolve_addr(3)`.
    ///
    /// An address-resolved or address-error event answers, at the deadline at the latest. Until then the kernel is asked
    /// again every half second, by whoever takes the channel's events: asked once for the whole time, it may sleep through the answer.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        deadline: Instant,
    ) -> Result<(), Error> {
        let resolution = Resolution { source, peer, deadline };
        // Before the answer can come.
        *self.resolution() = Some(resolution);
        let said = self.ask(resolution);
        if said.is_err() {
            *self.resolution() = None;
        }
        said.map_err(|error| match error {
            Error::Call { operation, errno, .. } => Error::call(operation, peer.to_string(), errno.0),
            other => other,
        })
    }

    /// Asks again if the address error of this status only says that a step is over; false where it is the answer.
    pub(super) fn resolve_again(&self, status: i32) -> bool {
        // Taken out: whoever resolves another address meanwhile puts his own in.
        let Some(resolution) = self.resolution().take() else { return false };
        if !resolution.goes_on(status, Instant::now()) {
            return false;
        }
        *self.resolution() = Some(resolution);
        let is_asked = self.ask(resolution).is_ok();
        if !is_asked {
            *self.resolution() = None;
        }
        is_asked
    }

    fn ask(&self, resolution: Resolution) -> Result<(), Error> {
        let mut source = resolution.source.map(RawAddress::new);
        let mut destination = RawAddress::new(resolution.peer);
        let timeout_ms = milliseconds_until(resolution.deadline.min(Instant::now() + STEP)).unwrap_or(1);
        self.call("rdma_resolve_addr", |id| id.resolve_addr(source.as_mut(), &mut destination, timeout_ms))
    }
}

impl Resolution {
    /// Whether an address error of this status is to be asked after again: nobody has answered yet, and there is time.
    fn goes_on(&self, status: i32, now: Instant) -> bool {
        status == -libc::ETIMEDOUT && now < self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silence_is_asked_after_again_and_only_until_the_deadline() {
        let now = Instant::now();
        let peer = "192.0.2.2:18520".parse().unwrap();
        let resolution = Resolution { source: None, peer, deadline: now + STEP };
        assert!(resolution.goes_on(-libc::ETIMEDOUT, now));
        assert!(!resolution.goes_on(-libc::ETIMEDOUT, now + STEP));
        assert!(!resolution.goes_on(-libc::ENODEV, now));
        assert!(!resolution.goes_on(-libc::ENETUNREACH, now));
    }
}
