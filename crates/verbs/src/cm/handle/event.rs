//! Copies C events.

use std::ffi::c_void;

use farreach_verbs_sys as sys;

use super::super::event::{DatagramDestination, EventKind, Parameters, Told};
use super::super::parameters::CmParameters;

/// Copies an event. `errno` is the thread's, directly after the event was taken: if librdmacm fails
/// in its own part of the event, it sets the status to -1, which is not an errno, and sets `errno`.
///
/// # Safety
///
/// The event came from librdmacm, for an id of datagrams if `is_datagram`, and is not acknowledged
/// yet.
pub(super) unsafe fn read(raw: &sys::rdma_cm_event, is_datagram: bool, errno: i32) -> Told {
    let kind = EventKind::from_raw(raw.event);
    // SAFETY: the kind and `is_datagram` determine the union field that the library has filled, or
    // left zeroed; any bits are valid for its numbers. The private data of that field is null, or
    // lies inside the event until it is acknowledged.
    let parameters = unsafe {
        match kind {
            // The private data pointer is the context of the join here, and must not be read.
            EventKind::MulticastJoin | EventKind::MulticastError => {
                let destination = DatagramDestination::from_raw(&raw.param.ud);
                Parameters::Datagram { private_data: Vec::new(), destination }
            }
            EventKind::User | EventKind::Internal => Parameters::User(raw.param.arg),
            _ if is_datagram => {
                let ud = &raw.param.ud;
                Parameters::Datagram {
                    private_data: copy(ud.private_data, ud.private_data_len),
                    destination: DatagramDestination::from_raw(ud),
                }
            }
            _ => {
                let conn = &raw.param.conn;
                let private_data = copy(conn.private_data, conn.private_data_len);
                Parameters::Connection(CmParameters::from_raw(conn, private_data))
            }
        }
    };
    let status = if raw.status == -1 && errno > 0 { -errno } else { raw.status };
    Told { kind, status, parameters, is_datagram }
}

/// Copies the private data of an event, which the acknowledgement frees.
///
/// # Safety
///
/// `start` is null, or readable for `len` bytes.
unsafe fn copy(start: *const c_void, len: u8) -> Vec<u8> {
    if start.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: `start` is not null here, so the caller guarantees `len` readable bytes. Nothing
    // changes an event meanwhile.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len.into()) }.to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::super::reject::RejectReason;
    use super::*;
    use crate::error::Errno;

    fn raw(event: u32, status: i32) -> sys::rdma_cm_event {
        sys::rdma_cm_event { event, status, ..Default::default() }
    }

    fn told_with(raw: &sys::rdma_cm_event, is_datagram: bool, errno: i32) -> Told {
        // SAFETY: each test fills the union field that the kind and the flag determine, with
        // private data of its own or none.
        unsafe { read(raw, is_datagram, errno) }
    }

    fn told(raw: &sys::rdma_cm_event, is_datagram: bool) -> Told {
        told_with(raw, is_datagram, 0)
    }

    #[test]
    fn a_rejection_is_decoded() {
        let told = told(&raw(sys::RDMA_CM_EVENT_REJECTED, 8), false);
        assert_eq!(told.kind, EventKind::Rejected);
        assert_eq!(told.reject_reason(), Some(RejectReason::InvalidServiceId));
    }

    #[test]
    fn datagrams_are_rejected_as_unreachable_with_a_status() {
        let rejected = told(&raw(sys::RDMA_CM_EVENT_UNREACHABLE, 1), true);
        assert_eq!(rejected.reject_reason(), Some(RejectReason::InvalidServiceId));
        let silent = told(&raw(sys::RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT), true);
        assert_eq!(silent.reject_reason(), None);
        assert_eq!(silent.errno(), Errno(libc::ETIMEDOUT));
        assert_eq!(told(&raw(sys::RDMA_CM_EVENT_UNREACHABLE, 1), false).reject_reason(), None);
    }

    #[test]
    fn private_data_is_copied_out_of_the_event() {
        let mut bytes = *b"hello";
        let mut event = raw(sys::RDMA_CM_EVENT_ESTABLISHED, 0);
        event.param.conn = sys::rdma_conn_param {
            private_data: bytes.as_ptr().cast(),
            private_data_len: 5,
            qp_num: 17,
            ..Default::default()
        };
        let told = told(&event, false);
        bytes.fill(0);
        let Parameters::Connection(parameters) = &told.parameters else { panic!("{told:?}") };
        assert_eq!((parameters.private_data.as_slice(), parameters.qp_num), (&b"hello"[..], 17));
    }

    #[test]
    fn a_joins_context_is_not_taken_for_private_data() {
        let mut event = raw(sys::RDMA_CM_EVENT_MULTICAST_JOIN, 0);
        event.param.ud = sys::rdma_ud_param {
            private_data: std::ptr::without_provenance(8),
            private_data_len: 255,
            qkey: 0x0123_4567,
            ..Default::default()
        };
        let Parameters::Datagram { private_data, destination } = told(&event, true).parameters else {
            panic!()
        };
        assert!(private_data.is_empty());
        assert_eq!(destination.qkey, 0x0123_4567);
    }

    #[test]
    fn the_librarys_own_failure_is_told_by_errno() {
        let event = raw(sys::RDMA_CM_EVENT_ADDR_ERROR, -1);
        let told = told_with(&event, false, libc::ENODEV);
        assert_eq!((told.status, told.errno()), (-libc::ENODEV, Errno(libc::ENODEV)));
    }

    #[test]
    fn an_unknown_event_is_kept() {
        assert_eq!(told(&raw(99, 0), false).kind, EventKind::Unknown(99));
        assert_eq!(EventKind::Unknown(99).to_string(), "unknown (99)");
    }
}
