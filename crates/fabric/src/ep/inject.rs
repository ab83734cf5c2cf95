//! Injection: a few bytes are copied when they are posted, without a buffer in flight and without a
//! completion.

use farreach_fabric_sys as sys;

use super::Endpoint;
use crate::{Peer, Refusal, RemoteRegion};

impl Endpoint {
    /// Sends a few bytes that are copied at once: `fi_inject(3)`. It has no completion, so only the
    /// peer can confirm the arrival. At most [`inject_size`](crate::Info::inject_size) bytes.
    ///
    /// The peer stays in its address vector until the vector is closed.
    #[doc(alias = "fi_inject")]
    #[doc(alias = "fi_injectdata")]
    pub fn inject(&self, bytes: &[u8], peer: &Peer, immediate: Option<u64>) -> Result<(), Refusal> {
        self.start_injection(bytes, peer, None, immediate)
    }

    /// Writes a few bytes, copied at once, to the beginning of `remote`: `fi_inject_write(3)`. As
    /// [`inject`](Self::inject).
    #[doc(alias = "fi_inject_write")]
    #[doc(alias = "fi_inject_writedata")]
    pub fn inject_write(
        &self,
        bytes: &[u8],
        peer: &Peer,
        remote: RemoteRegion,
        immediate: Option<u64>,
    ) -> Result<(), Refusal> {
        self.start_injection(bytes, peer, Some(remote), immediate)
    }

    /// Sends the bytes, or writes them to `remote`.
    fn start_injection(
        &self,
        bytes: &[u8],
        peer: &Peer,
        remote: Option<RemoteRegion>,
        immediate: Option<u64>,
    ) -> Result<(), Refusal> {
        self.check_injection(bytes, peer, immediate)?;
        if let Some(remote) = remote {
            self.open().check_remote(remote, bytes.len())?;
        }
        let (ep, data, len, to) = (self.as_raw(), bytes.as_ptr().cast(), bytes.len(), peer.number());
        peer.note_injection();
        // SAFETY: the endpoint is live (`Handle`). The provider has copied the bytes when it
        // returns, and until then they are borrowed. The peer is in the endpoint's vector (checked
        // above), and stays in it from now on (noted above). The region was checked, too: its
        // length, and that it may be used.
        let status = unsafe {
            match (remote.map(|remote| (remote.address(), remote.key())), immediate) {
                (None, None) => sys::fi_inject(ep, data, len, to),
                (None, Some(immediate)) => sys::fi_injectdata(ep, data, len, immediate, to),
                (Some((address, key)), None) => sys::fi_inject_write(ep, data, len, to, address, key),
                (Some((address, key)), Some(immediate)) => {
                    sys::fi_inject_writedata(ep, data, len, immediate, to, address, key)
                }
            }
        };
        match status as i32 {
            0 => Ok(()),
            status if status == -sys::FI_EAGAIN => {
                Err(Refusal::QueueFull { in_flight: self.transmits_in_flight() })
            }
            status => {
                let operation = if remote.is_some() { "fi_inject_write" } else { "fi_inject" };
                Err(Refusal::Engine(self.domain().library().error(operation, status)))
            }
        }
    }

    fn check_injection(&self, bytes: &[u8], peer: &Peer, immediate: Option<u64>) -> Result<(), Refusal> {
        let open = self.open();
        if !peer.is_of(open.av()) {
            return Err(Refusal::OtherAddressVector);
        }
        if bytes.len() > open.limits.inject_max {
            return Err(Refusal::TooLong { len: bytes.len(), max: open.limits.inject_max });
        }
        open.check_immediate(immediate)
    }
}
