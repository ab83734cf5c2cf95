//! The result of a work request.

use std::fmt;

use farreach_verbs_sys as sys;

use crate::imm::ImmediateData;
use crate::mr::RemoteKey;
use crate::qp::place::Taken;
use crate::qp::queue::InFlight;
use crate::wr::Buffers;

/// A completed work request, with its result and its buffers.
///
/// It proves that the device is done with the work request: the buffers belong to the caller again,
/// whether it succeeded or failed.
///
/// ```no_run
/// # use farreach_verbs::cq::CompletionQueue;
/// # fn poll(cq: &CompletionQueue) -> Result<(), farreach_verbs::Error> {
/// let mut poller = cq.poller();
/// for completion in poller.poll()? {
///     match completion.outcome() {
///         Ok(success) => println!("{}: {} bytes", completion.tag(), success.byte_len),
///         Err(error) => println!("{}: {error}; {}", completion.tag(), error.fix()),
///     }
///     let _buffers = completion.into_buffers();
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_wc")]
pub struct WorkCompletion<'poller> {
    pub(super) request: Taken<'poller, InFlight>,
    /// The device's completion. It is valid until the poller continues, which it cannot while this
    /// lives.
    pub(super) wc: &'poller sys::ibv_wc,
    /// `true` if the completion is that of this work request, and `false` if it is that of a later
    /// one, which implies that this one succeeded.
    pub(super) is_own: bool,
}

impl WorkCompletion<'_> {
    /// Returns the tag that the caller gave the work request.
    #[inline]
    pub fn tag(&self) -> u64 {
        self.request.tag
    }

    /// Returns the kind of the work request.
    #[inline]
    pub fn kind(&self) -> WorkKind {
        self.request.kind
    }

    /// Returns the number of the queue pair.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        self.wc.qp_num
    }

    /// Returns the result.
    #[inline]
    pub fn outcome(&self) -> Result<Success, Failure> {
        if !self.is_own {
            return Ok(Success::default());
        }
        if self.wc.status != sys::IBV_WC_SUCCESS {
            return Err(Failure::from_raw(self.wc));
        }
        Ok(Success::from_raw(self.wc))
    }

    /// Returns the buffers to the caller.
    #[inline]
    pub fn into_buffers(self) -> Buffers {
        InFlight::into_buffers(self.request)
    }
}

impl fmt::Debug for WorkCompletion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkCompletion")
            .field("tag", &self.tag())
            .field("kind", &self.kind())
            .field("qp_num", &self.qp_num())
            .field("outcome", &self.outcome())
            .field("buffers", &self.request.buffers)
            .finish()
    }
}

/// The kind of a work request.
///
/// ```no_run
/// # use farreach_verbs::cq::CompletionQueue;
/// use farreach_verbs::cq::WorkKind;
///
/// # fn serve(cq: &CompletionQueue) -> Result<(), farreach_verbs::Error> {
/// let mut poller = cq.poller();
/// let received = poller.poll()?.filter(|completion| completion.kind() == WorkKind::Recv).count();
/// println!("{received} messages");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkKind {
    /// Send a message.
    Send,
    /// Write to the peer's memory.
    Write,
    /// Read from the peer's memory.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// Write eight bytes atomically.
    AtomicWrite,
    /// Make earlier writes visible or persistent.
    Flush,
    /// Invalidate a local key.
    LocalInvalidate,
    /// Bind a window.
    BindWindow,
    /// Receive a message, or the immediate of a peer's write.
    Recv,
}

/// The details of a successful work request.
///
/// ```
/// use farreach_verbs::cq::Success;
///
/// assert_eq!(Success::default().immediate, None);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Success {
    /// The number of received bytes. Only valid for receives, reads and atomics.
    pub byte_len: u32,
    /// The received immediate data.
    pub immediate: Option<ImmediateData>,
    /// The key that the peer's message invalidated.
    pub invalidated: Option<RemoteKey>,
    /// `true` if this receive was consumed by a peer's write with immediate.
    pub is_write: bool,
    /// The number of the queue pair that sent a datagram.
    pub source_qp_num: u32,
    /// `true` if the first 40 bytes of a datagram's buffer are its global route header.
    pub has_routing_header: bool,
}

impl Success {
    /// Converts a successful completion. The fields are only valid if the work request succeeded.
    #[inline]
    fn from_raw(wc: &sys::ibv_wc) -> Self {
        let has = |flag: u32| wc.wc_flags & flag != 0;
        // SAFETY: both union fields are numbers of the same 32 bits, which were initialised with
        // zeroes; any bits are valid.
        let (immediate, invalidated) =
            unsafe { (wc.__bindgen_anon_1.imm_data, wc.__bindgen_anon_1.invalidated_rkey) };
        Self {
            byte_len: wc.byte_len,
            immediate: has(sys::IBV_WC_WITH_IMM).then(|| ImmediateData::from_wire(immediate)),
            invalidated: has(sys::IBV_WC_WITH_INV).then_some(RemoteKey(invalidated)),
            is_write: wc.opcode == sys::IBV_WC_RECV_RDMA_WITH_IMM,
            source_qp_num: wc.src_qp,
            has_routing_header: has(sys::IBV_WC_GRH),
        }
    }
}

/// The cause of a failed work request. `Display` shows the device's status; [`cause`](Self::cause)
/// explains it.
///
/// ```
/// use farreach_verbs::cq::{Failure, WorkStatus};
///
/// let failure = Failure { status: WorkStatus::RetryExceeded, vendor_error: 129 };
/// assert_eq!(failure.to_string(), "transport retry counter exceeded (12), vendor error 129");
/// assert!(failure.cause().contains("no acknowledgement"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The device's status.
    pub status: WorkStatus,
    /// The vendor's error number.
    pub vendor_error: u32,
}

c_enum! {
    /// The status of a completed work request.
    ///
    /// ```
    /// use farreach_verbs::cq::WorkStatus;
    ///
    /// assert_eq!(WorkStatus::Flushed.to_string(), "flushed");
    /// ```
    #[doc(alias = "ibv_wc_status")]
    pub enum WorkStatus(u32) {
        /// The work request succeeded.
        Success = sys::IBV_WC_SUCCESS, "success";
        /// A local buffer is too short or too long.
        LocalLength = sys::IBV_WC_LOC_LEN_ERR, "local length error";
        /// The queue pair does not support the operation.
        LocalQueuePair = sys::IBV_WC_LOC_QP_OP_ERR, "local queue pair operation error";
        /// A local key does not permit the access.
        LocalProtection = sys::IBV_WC_LOC_PROT_ERR, "local protection error";
        /// The queue pair failed before the work request was executed.
        Flushed = sys::IBV_WC_WR_FLUSH_ERR, "flushed";
        /// A window could not be bound.
        WindowBind = sys::IBV_WC_MW_BIND_ERR, "memory window bind error";
        /// The peer's response is invalid.
        BadResponse = sys::IBV_WC_BAD_RESP_ERR, "bad response";
        /// The peer's write violates the local access rights.
        LocalAccess = sys::IBV_WC_LOC_ACCESS_ERR, "local access error";
        /// The peer does not support the request, or its receive is too short for the message.
        RemoteInvalid = sys::IBV_WC_REM_INV_REQ_ERR, "remote invalid request";
        /// The peer's key does not permit the access.
        RemoteAccess = sys::IBV_WC_REM_ACCESS_ERR, "remote access error";
        /// The peer could not complete the operation.
        RemoteOperation = sys::IBV_WC_REM_OP_ERR, "remote operation error";
        /// The peer does not answer.
        RetryExceeded = sys::IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded";
        /// The peer has no receive posted.
        ReceiverNotReady = sys::IBV_WC_RNR_RETRY_EXC_ERR, "receiver not ready retry counter exceeded";
        /// The peer aborted the request.
        RemoteAborted = sys::IBV_WC_REM_ABORT_ERR, "remote aborted";
        /// The device has failed.
        Fatal = sys::IBV_WC_FATAL_ERR, "fatal error";
        /// No response arrived in time.
        ResponseTimeout = sys::IBV_WC_RESP_TIMEOUT_ERR, "response timeout";
        /// Any other error.
        General = sys::IBV_WC_GENERAL_ERR, "general error";
    }
}

impl Failure {
    #[cold]
    fn from_raw(wc: &sys::ibv_wc) -> Self {
        Self { status: WorkStatus::from_raw(wc.status), vendor_error: wc.vendor_err }
    }

    /// Returns `true` if this only follows from an earlier failure: the first failure of a queue
    /// pair has the cause, and the rest are flushed.
    pub fn is_flush(&self) -> bool {
        self.status == WorkStatus::Flushed
    }

    /// Returns an explanation of the failure.
    pub fn cause(&self) -> &'static str {
        self.meaning().0
    }

    /// Returns an instruction that resolves the failure.
    pub fn fix(&self) -> &'static str {
        self.meaning().1
    }

    fn meaning(&self) -> (&'static str, &'static str) {
        match self.status {
            WorkStatus::Flushed => (
                "the queue pair entered the error state before this work request was executed",
                "check the first failure of this queue pair",
            ),
            WorkStatus::RetryExceeded => (
                "no acknowledgement from the peer after all retries: it is gone, or its packets do not arrive",
                "check that the peer is alive; if it is, that UDP port 4791 (RoCE v2) passes every firewall on the path, and check GID, \
                 VLAN and PFC on the path",
            ),
            WorkStatus::ReceiverNotReady => {
                ("the peer has posted no receive for this message", "post receives ahead, or raise rnr_retry")
            }
            WorkStatus::RemoteAccess => (
                "the peer's key is wrong or revoked, its range is too short, or its rights do not permit this",
                "request a valid key from the peer, and check address, length and rights",
            ),
            WorkStatus::RemoteInvalid | WorkStatus::RemoteOperation => (
                "the peer's receive is too short for the message, or it does not support this operation",
                "post longer receives, or check the rights of the peer's queue pair",
            ),
            WorkStatus::LocalProtection => (
                "a buffer's key does not permit this in the queue pair's protection domain",
                "register the memory with the access that the operation needs",
            ),
            WorkStatus::LocalLength => (
                "a message is longer than its receive, or than the device can send",
                "post longer receives, or send shorter messages",
            ),
            _ => ("the device gives no further reason", "check dmesg, and look up the vendor error"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}), vendor error {}", self.status, self.status.raw(), self.vendor_error)
    }
}

impl std::error::Error for Failure {}
