//! Builds work requests in the C representation, and passes them to the device.

use std::ffi::c_int;
use std::ptr::null_mut;

use farreach_verbs_sys as sys;

use super::QueuePair;
use super::queue::WorkRequestId;
use crate::cq::WorkKind;
use crate::wr::{Datagram, Extra, FlushLevel, FlushPlacement, Operation, RemoteRange, SendFlags};

type Remote = sys::ibv_send_wr__bindgen_ty_2;

/// Builds the C structure with its scatter-gather list. Only the union fields that the operation
/// needs are written: most of its 128 bytes are unused.
#[inline(always)]
pub(super) fn send_wr(
    id: WorkRequestId,
    operation: Operation,
    flags: SendFlags,
    extra: &Extra,
    sg_list: *mut sys::ibv_sge,
    num_sge: usize,
) -> sys::ibv_send_wr {
    let (opcode, number, remote) = operation.to_raw();
    let remote = match &extra.datagram {
        Some(Datagram { ah, qp_num, qkey }) => Remote {
            ud: sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
                ah: ah.as_raw(),
                remote_qpn: *qp_num,
                remote_qkey: *qkey,
            },
        },
        None => remote,
    };
    let remote_srqn = extra.shared_queue.unwrap_or(0);
    sys::ibv_send_wr {
        wr_id: id.to_raw(),
        next: null_mut(),
        sg_list,
        num_sge: num_sge as c_int,
        opcode,
        send_flags: flags.bits(),
        __bindgen_anon_1: sys::ibv_send_wr__bindgen_ty_1 { invalidate_rkey: number },
        wr: remote,
        qp_type: sys::ibv_send_wr__bindgen_ty_3 {
            xrc: sys::ibv_send_wr__bindgen_ty_3__bindgen_ty_1 { remote_srqn },
        },
        __bindgen_anon_2: sys::ibv_send_wr__bindgen_ty_4 { tso: Default::default() },
    }
}

impl Operation {
    /// Returns the kind that its completion reports.
    #[inline(always)]
    pub(super) fn kind(self) -> WorkKind {
        match self {
            Self::Send | Self::SendImmediate(_) | Self::SendInvalidate(_) => WorkKind::Send,
            Self::Write(_) | Self::WriteImmediate(..) => WorkKind::Write,
            Self::Read(_) => WorkKind::Read,
            Self::CompareSwap { .. } => WorkKind::CompareSwap,
            Self::FetchAdd { .. } => WorkKind::FetchAdd,
            Self::AtomicWrite { .. } => WorkKind::AtomicWrite,
            Self::Flush(..) => WorkKind::Flush,
            Self::BindWindow => WorkKind::BindWindow,
            Self::LocalInvalidate(_) => WorkKind::LocalInvalidate,
        }
    }

    /// Returns `true` for a plain message.
    pub(super) fn is_message(self) -> bool {
        matches!(self, Self::Send | Self::SendImmediate(_))
    }

    /// Returns a description of the operation if unreliable connections do not support it: the
    /// specification defines no packets for it.
    pub(super) fn beyond_unreliable(self) -> Option<&'static str> {
        match self {
            Self::Read(_)
            | Self::CompareSwap { .. }
            | Self::FetchAdd { .. }
            | Self::AtomicWrite { .. }
            | Self::Flush(..) => Some("operations that the peer answers"),
            Self::SendInvalidate(_) => Some("messages that invalidate a key"),
            _ => None,
        }
    }

    /// Returns `true` if the operation is posted by a function of its own: a newer `ibv_wr_*`
    /// function, or that of windows of type 1.
    #[inline(always)]
    pub(super) fn is_apart(self) -> bool {
        self.is_extended() || self == Self::BindWindow
    }

    /// Returns `true` if only the newer `ibv_wr_*` functions support the operation.
    #[inline(always)]
    fn is_extended(self) -> bool {
        matches!(self, Self::AtomicWrite { .. } | Self::Flush(..))
    }

    /// Returns the opcode, the immediate data or key, and the remote address.
    #[inline(always)]
    fn to_raw(self) -> (sys::ibv_wr_opcode, u32, Remote) {
        let nowhere = rdma(RemoteRange::NOWHERE);
        match self {
            Self::Send => (sys::IBV_WR_SEND, 0, nowhere),
            Self::SendImmediate(immediate) => (sys::IBV_WR_SEND_WITH_IMM, immediate.to_wire(), nowhere),
            Self::SendInvalidate(key) => (sys::IBV_WR_SEND_WITH_INV, key.0, nowhere),
            Self::Write(remote) => (sys::IBV_WR_RDMA_WRITE, 0, rdma(remote)),
            Self::WriteImmediate(remote, immediate) => {
                (sys::IBV_WR_RDMA_WRITE_WITH_IMM, immediate.to_wire(), rdma(remote))
            }
            Self::Read(remote) => (sys::IBV_WR_RDMA_READ, 0, rdma(remote)),
            Self::CompareSwap { remote, expected, desired } => {
                (sys::IBV_WR_ATOMIC_CMP_AND_SWP, 0, atomic(remote, expected, desired))
            }
            Self::FetchAdd { remote, add } => (sys::IBV_WR_ATOMIC_FETCH_AND_ADD, 0, atomic(remote, add, 0)),
            Self::BindWindow => (sys::IBV_WR_BIND_MW, 0, nowhere),
            Self::LocalInvalidate(key) => (sys::IBV_WR_LOCAL_INV, key.0, nowhere),
            Self::AtomicWrite { remote, .. } => (sys::IBV_WR_ATOMIC_WRITE, 0, rdma(remote)),
            Self::Flush(remote, _) => (sys::IBV_WR_FLUSH, 0, rdma(remote)),
        }
    }
}

#[inline(always)]
fn rdma(remote: RemoteRange) -> Remote {
    let (remote_addr, rkey) = (remote.address(), remote.key().0);
    Remote { rdma: sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey } }
}

#[inline(always)]
fn atomic(remote: RemoteRange, compare_add: u64, swap: u64) -> Remote {
    let (remote_addr, rkey) = (remote.address(), remote.key().0);
    Remote { atomic: sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey } }
}

impl QueuePair {
    /// Passes a work request to the device. Returns 0 or an errno. On failure, `bad` is the work
    /// request if the device is known not to have it.
    ///
    /// # Safety
    ///
    /// As for [`post_send_raw`](Self::post_send_raw). [`check`](Self::check) has succeeded, and the
    /// poster of the send queue is held.
    #[inline(always)]
    pub(super) unsafe fn start(
        &self,
        operation: Operation,
        wr: &mut sys::ibv_send_wr,
        bad: &mut *mut sys::ibv_send_wr,
    ) -> c_int {
        if operation.is_extended() {
            // SAFETY: the caller guarantees that the work request is valid and was checked.
            return unsafe { self.start_extended(operation, wr) };
        }
        // SAFETY: the queue pair lives as long as `self`. The caller guarantees that the work
        // request, and all that it names, is valid.
        unsafe { sys::ibv_post_send(self.as_raw(), wr, bad) }
    }

    /// Passes a work request that only the newer functions support.
    ///
    /// # Safety
    ///
    /// As for [`start`](Self::start).
    #[cold]
    unsafe fn start_extended(&self, operation: Operation, wr: &sys::ibv_send_wr) -> c_int {
        let Some(qp) = self.as_raw_ex() else { return libc::EOPNOTSUPP };
        // SAFETY: the caller guarantees that the queue pair was created for the operation, so
        // `extend` has found its entries in the table. The caller holds the poster of the ring,
        // which excludes other threads from start to complete.
        unsafe {
            sys::ibv_wr_start(qp);
            (*qp).wr_id = wr.wr_id;
            (*qp).wr_flags = wr.send_flags;
            match operation {
                Operation::AtomicWrite { remote, value } => {
                    sys::ibv_wr_atomic_write(qp, remote.key().0, remote.address(), (&raw const value).cast());
                }
                Operation::Flush(remote, flush) => {
                    let placement = match flush.placement {
                        FlushPlacement::Global => sys::IBV_FLUSH_GLOBAL,
                        FlushPlacement::Persistent => sys::IBV_FLUSH_PERSISTENT,
                    };
                    let level = match flush.level {
                        FlushLevel::Range => sys::IBV_FLUSH_RANGE,
                        FlushLevel::Region => sys::IBV_FLUSH_MR,
                    };
                    let len = usize::try_from(remote.len()).unwrap_or(usize::MAX);
                    let (key, address) = (remote.key().0, remote.address());
                    sys::ibv_wr_flush(qp, key, address, len, placement as u8, level as u8);
                }
                _ => {
                    sys::ibv_wr_abort(qp);
                    return libc::EOPNOTSUPP;
                }
            }
            sys::ibv_wr_complete(qp)
        }
    }
}
