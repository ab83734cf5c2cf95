//! Parameters that the two sides exchange when they connect.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::null;

use farreach_verbs_sys as sys;

use super::error::Error;
use super::port_space::PortSpace;

/// The parameters that a side sends when it connects or accepts, and receives from the peer.
///
/// Private data is part of the handshake, up to the [limits of the port space](PortSpace): enough
/// to agree on a protocol, a message size, a key. **The peer may see more bytes than were sent**:
/// InfiniBand and RoCE carry the whole field, padded with zeroes. Include a length, or use a fixed
/// length.
///
/// ```
/// use farreach_verbs::cm::CmParameters;
///
/// let size: u32 = 65536;
/// let parameters = CmParameters::new().with_private_data(size.to_be_bytes());
/// assert_eq!(parameters.private_data, [0, 1, 0, 0]);
/// ```
#[doc(alias = "rdma_conn_param")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CmParameters {
    /// Bytes for the peer's program.
    pub private_data: Vec<u8>,
    /// The number of the peer's reads and atomics that this side serves at once.
    /// [`DEVICE_MAX`](Self::DEVICE_MAX) means as many as device and peer allow.
    pub responder_resources: u8,
    /// The number of reads and atomics that this side may have in flight at once.
    /// [`DEVICE_MAX`](Self::DEVICE_MAX) means as many as device and peer allow.
    pub initiator_depth: u8,
    /// `true` if hardware flow control is available.
    pub flow_control: bool,
    /// The number of retries of a request without an answer, 0 to 7. The value of the connecting
    /// side applies.
    pub retry_count: u8,
    /// The number of retries of a message that found no receive posted, 0 to 6; 7 means for ever.
    pub rnr_retry_count: u8,
    /// `true` if the queue pair uses a shared receive queue. Methods that take a queue pair set it.
    pub has_srq: bool,
    /// The queue pair's number. Methods that take a queue pair set it.
    pub qp_num: u32,
}

impl CmParameters {
    /// As many reads and atomics as the device and the peer allow.
    pub const DEVICE_MAX: u8 = sys::RDMA_MAX_RESP_RES as u8;

    /// Creates parameters without private data, with the device's maxima, and with many but finite
    /// retries.
    pub fn new() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: Self::DEVICE_MAX,
            initiator_depth: Self::DEVICE_MAX,
            flow_control: true,
            // Not 7, which never ends: by definition for `rnr_retry_count`, and on Soft-RoCE for
            // `retry_count`.
            retry_count: 6,
            rnr_retry_count: 6,
            has_srq: false,
            qp_num: 0,
        }
    }

    /// Sets the private data for the peer.
    pub fn with_private_data(self, private_data: impl Into<Vec<u8>>) -> Self {
        Self { private_data: private_data.into(), ..self }
    }

    /// Converts to the C structure. Fails if the private data exceeds `max`.
    pub(super) fn to_raw(&self, operation: &'static str, max: usize) -> Result<RawParameters<'_>, Error> {
        let private_data_len = private_data_len(operation, &self.private_data, max)?;
        let raw = sys::rdma_conn_param {
            private_data: pointer(&self.private_data),
            private_data_len,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: self.flow_control.into(),
            retry_count: self.retry_count.min(7),
            rnr_retry_count: self.rnr_retry_count.min(7),
            srq: self.has_srq.into(),
            qp_num: self.qp_num,
        };
        Ok(RawParameters { raw, _private_data: PhantomData })
    }

    /// Converts the parameters of an event, with a copy of its private data.
    pub(super) fn from_raw(raw: &sys::rdma_conn_param, private_data: Vec<u8>) -> Self {
        Self {
            private_data,
            responder_resources: raw.responder_resources,
            initiator_depth: raw.initiator_depth,
            flow_control: raw.flow_control != 0,
            retry_count: raw.retry_count,
            rnr_retry_count: raw.rnr_retry_count,
            has_srq: raw.srq != 0,
            qp_num: raw.qp_num,
        }
    }
}

/// Parameters as a C structure, made by [`CmParameters::to_raw`].
///
/// Invariant: the private data is null, or readable for its length while this lives.
pub(super) struct RawParameters<'a> {
    raw: sys::rdma_conn_param,
    _private_data: PhantomData<&'a [u8]>,
}

impl RawParameters<'_> {
    pub(super) fn as_mut_ptr(&mut self) -> *mut sys::rdma_conn_param {
        &raw mut self.raw
    }
}

impl Default for CmParameters {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns a pointer to the first byte, or null if there is none, as C expects.
pub(super) fn pointer(bytes: &[u8]) -> *const c_void {
    if bytes.is_empty() { null() } else { bytes.as_ptr().cast() }
}

/// Returns the length, if it fits the message.
pub(super) fn private_data_len(operation: &'static str, bytes: &[u8], max: usize) -> Result<u8, Error> {
    match u8::try_from(bytes.len()) {
        Ok(len) if bytes.len() <= max => Ok(len),
        _ => Err(Error::PrivateDataTooLong { operation, len: bytes.len(), max }),
    }
}

impl PortSpace {
    /// Returns the maximum private data of [`connect`](super::CmId::connect), in bytes.
    pub const fn connect_data_max(self) -> usize {
        match self {
            // The message has 92, of which the kernel uses 36 for the addresses.
            Self::Tcp | Self::Ib => 56,
            // The message has 216, likewise.
            Self::Udp => 180,
        }
    }

    /// Returns the maximum private data of [`accept`](super::CmId::accept), in bytes.
    pub const fn accept_data_max(self) -> usize {
        match self {
            Self::Tcp | Self::Ib => 196,
            Self::Udp => 136,
        }
    }

    /// Returns the maximum private data of [`reject`](super::CmId::reject), in bytes.
    pub const fn reject_data_max(self) -> usize {
        match self {
            Self::Tcp | Self::Ib => 148,
            Self::Udp => 136,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_fits_or_is_refused_with_the_limit() {
        let parameters = |len| CmParameters::new().with_private_data(vec![7; len]);
        assert_eq!(parameters(56).to_raw("rdma_connect", 56).unwrap().raw.private_data_len, 56);
        let error = parameters(57).to_raw("rdma_connect", PortSpace::Tcp.connect_data_max()).err().unwrap();
        assert_eq!(error.to_string(), "rdma_connect: 57 bytes of private data exceed the maximum of 56");
        // 300 would be truncated to 44 in eight bits.
        let error = parameters(300).to_raw("rdma_accept", PortSpace::Tcp.accept_data_max()).err().unwrap();
        assert_eq!(error, Error::PrivateDataTooLong { operation: "rdma_accept", len: 300, max: 196 });
    }

    #[test]
    fn no_private_data_is_a_null_pointer() {
        let parameters = CmParameters::new();
        let raw = parameters.to_raw("rdma_connect", 56).unwrap().raw;
        assert!(raw.private_data.is_null());
        assert_eq!(raw.private_data_len, 0);
        assert_eq!(raw.rnr_retry_count, 6, "7 would never end");
    }

    #[test]
    fn what_an_event_carries_is_copied() {
        let raw = sys::rdma_conn_param {
            private_data: null(),
            private_data_len: 0,
            responder_resources: 4,
            initiator_depth: 5,
            flow_control: 1,
            retry_count: 6,
            rnr_retry_count: 7,
            srq: 1,
            qp_num: 0x11,
        };
        let read = CmParameters::from_raw(&raw, vec![1, 2, 3]);
        let expected = CmParameters {
            private_data: vec![1, 2, 3],
            responder_resources: 4,
            initiator_depth: 5,
            flow_control: true,
            retry_count: 6,
            rnr_retry_count: 7,
            has_srq: true,
            qp_num: 0x11,
        };
        assert_eq!(read, expected);
    }
}
