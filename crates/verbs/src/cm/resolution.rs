//! Resolves the address of a peer, with repeated requests to the kernel.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::error::Error;
use super::id::CmId;
use super::wait::milliseconds_until;
use crate::address::RawAddress;

/// The timeout of one request to the kernel.
///
/// If the peer's hardware address is unknown, the kernel requests it from the network and sleeps
/// until it arrives, or until the timeout. An answer that arrives before the kernel sleeps wakes
/// nothing: on a fast link the first contact with a host would take the whole timeout (seen on
/// Linux 7.2). A repeated request finds the answer at once. A later answer does wake the kernel, so
/// a short step costs only a few calls.
const STEP: Duration = Duration::from_millis(500);

/// A pending address resolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resolution {
    source: Option<SocketAddr>,
    peer: SocketAddr,
    deadline: Instant,
}

impl CmId {
    /// Resolves the device for `peer`, optionally from `source`: `rdma_resolve_addr(3)`.
    ///
    /// An address-resolved or address-error event answers, by the deadline at the latest. Until
    /// then, the thread that takes the channel's events repeats the request every half second: a
    /// single request for the whole time could miss the answer.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        deadline: Instant,
    ) -> Result<(), Error> {
        let resolution = Resolution { source, peer, deadline };
        // Set before the call, because the answer may arrive at once.
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

    /// Repeats the request if the address error only reports the end of a step. Returns `false` if
    /// the error is final.
    pub(super) fn resolve_again(&self, status: i32) -> bool {
        // Taken out, so that a thread that resolves another address meanwhile can set its own.
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
    /// Returns `true` if the request should be repeated: no answer has arrived yet, and time is
    /// left.
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
