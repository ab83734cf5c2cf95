//! What became of a request.

use std::fmt;

use farreach_verbs_sys as sys;

use crate::imm::ImmediateData;
use crate::mr::RemoteKey;
use crate::qp::place::Taken;
use crate::qp::queue::InFlight;
use crate::wr::Buffers;

/// A request that the device is done with: how it went, and its buffers.
///
/// It is the proof that the device has stopped: the buffers are the caller's again, whether it went well or not.
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
    /// What the device says. It stays until the poller goes on, which it cannot before this is gone.
    pub(super) wc: &'poller sys::ibv_wc,
    /// Whether it says that of this request; or of a later one, which this one came before.
    pub(super) is_own: bool,
}

impl WorkCompletion<'_> {
    /// The number that the caller gave the request.
    #[inline]
    pub fn tag(&self) -> u64 {
        self.request.tag
    }

    /// What was asked for.
    #[inline]
    pub fn kind(&self) -> WorkKind {
        self.request.kind
    }

    /// The queue pair.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        self.wc.qp_num
    }

    /// How it went.
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

    /// The buffers, which are the caller's again.
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

/// What a request asked for.
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
    /// A message out.
    Send,
    /// Bytes into the peer's memory.
    Write,
    /// Bytes out of the peer's memory.
    Read,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// Eight bytes written at once.
    AtomicWrite,
    /// Earlier writes made visible or lasting.
    Flush,
    /// A key of this side ended.
    LocalInvalidate,
    /// A window bound.
    BindWindow,
    /// Room for a message, which has come; or for a peer's write with immediate.
    Recv,
}

/// What is known of a request that went well.
///
/// ```
/// use farreach_verbs::cq::Success;
///
/// assert_eq!(Success::default().immediate, None);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Success {
    /// The bytes that came; of requests other than receives, reads and atomics it means nothing.
    pub byte_len: u32,
    /// The immediate data that came along.
    pub immediate: Option<ImmediateData>,
    /// The key that the peer's message has ended.
    pub invalidated: Option<RemoteKey>,
    /// Whether it is a peer's write with immediate that took this receive.
    pub is_write: bool,
    /// The queue pair that sent a datagram.
    pub source_qp_num: u32,
    /// Whether the first 40 bytes of a datagram's buffer are its routing header.
    pub has_routing_header: bool,
}

impl Success {
    /// The completion is of a request that went well: only then its fields mean something.
    #[inline]
    fn from_raw(wc: &sys::ibv_wc) -> Self {
        let has = |flag: u32| wc.wc_flags & flag != 0;
        // SAFETY: both members are numbers of the same 32 bits, which began as zeroes: any bits are valid.
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

/// Why a request failed. It displays as what the device said; [`cause`](Self::cause) says what that means here.
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
    /// What the device said.
    pub status: WorkStatus,
    /// The maker's own number for it.
    pub vendor_error: u32,
}

c_enum! {
    /// How a request ended.
    ///
    /// ```
    /// use farreach_verbs::cq::WorkStatus;
    ///
    /// assert_eq!(WorkStatus::Flushed.to_string(), "flushed");
    /// ```
    #[doc(alias = "ibv_wc_status")]
    pub enum WorkStatus(u32) {
        /// It went well.
        Success = sys::IBV_WC_SUCCESS, "success";
        /// A local buffer is too short or too long.
        LocalLength = sys::IBV_WC_LOC_LEN_ERR, "local length error";
        /// The queue pair cannot do this.
        LocalQueuePair = sys::IBV_WC_LOC_QP_OP_ERR, "local queue pair operation error";
        /// A local key does not allow it.
        LocalProtection = sys::IBV_WC_LOC_PROT_ERR, "local protection error";
        /// The queue pair failed before this request was done.
        Flushed = sys::IBV_WC_WR_FLUSH_ERR, "flushed";
        /// A window could not be bound.
        WindowBind = sys::IBV_WC_MW_BIND_ERR, "memory window bind error";
        /// The peer's answer makes no sense.
        BadResponse = sys::IBV_WC_BAD_RESP_ERR, "bad response";
        /// The peer's write does not fit.
        LocalAccess = sys::IBV_WC_LOC_ACCESS_ERR, "local access error";
        /// The peer does not understand the request, or has no room for the message.
        RemoteInvalid = sys::IBV_WC_REM_INV_REQ_ERR, "remote invalid request";
        /// The peer's key does not allow it.
        RemoteAccess = sys::IBV_WC_REM_ACCESS_ERR, "remote access error";
        /// The peer could not do it.
        RemoteOperation = sys::IBV_WC_REM_OP_ERR, "remote operation error";
        /// The peer does not answer.
        RetryExceeded = sys::IBV_WC_RETRY_EXC_ERR, "transport retry counter exceeded";
        /// The peer has no receive posted.
        ReceiverNotReady = sys::IBV_WC_RNR_RETRY_EXC_ERR, "receiver not ready retry counter exceeded";
        /// The peer gave up the request.
        RemoteAborted = sys::IBV_WC_REM_ABORT_ERR, "remote aborted";
        /// The device is broken.
        Fatal = sys::IBV_WC_FATAL_ERR, "fatal error";
        /// No answer came in time.
        ResponseTimeout = sys::IBV_WC_RESP_TIMEOUT_ERR, "response timeout";
        /// None of these.
        General = sys::IBV_WC_GENERAL_ERR, "general error";
    }
}

impl Failure {
    #[cold]
    fn from_raw(wc: &sys::ibv_wc) -> Self {
        Self { status: WorkStatus::from_raw(wc.status), vendor_error: wc.vendor_err }
    }

    /// Whether it is only the echo of an earlier failure: the first one of a queue pair tells, the rest are flushed.
    pub fn is_flush(&self) -> bool {
        self.status == WorkStatus::Flushed
    }

    /// What it means here.
    pub fn cause(&self) -> &'static str {
        self.meaning().0
    }

    /// What to do about it.
    pub fn fix(&self) -> &'static str {
        self.meaning().1
    }

    fn meaning(&self) -> (&'static str, &'static str) {
        match self.status {
            WorkStatus::Flushed => (
                "the queue pair had failed, or was told to, before this request was done",
                "look at the first failure of this queue pair",
            ),
            WorkStatus::RetryExceeded => (
                "no acknowledgement from the peer after all retries: it is gone, or its packets do not arrive",
                "check that the peer lives; if it does, that UDP port 4791 (RoCE v2) passes every firewall on the way, and check GID, \
                 VLAN and PFC on the path",
            ),
            WorkStatus::ReceiverNotReady => {
                ("the peer has posted no receive for this message", "post receives ahead, or raise rnr_retry")
            }
            WorkStatus::RemoteAccess => (
                "the peer's key is wrong or dead, its range too short, or its rights do not allow this",
                "ask the peer for a key that is alive, and check address, length and rights",
            ),
            WorkStatus::RemoteInvalid | WorkStatus::RemoteOperation => (
                "the peer's receive is too short for the message, or it does not do this operation",
                "post longer receives, or check the rights of the peer's queue pair",
            ),
            WorkStatus::LocalProtection => (
                "a buffer's key does not allow this in the queue pair's protection domain",
                "register the memory with the access that the operation needs",
            ),
            WorkStatus::LocalLength => (
                "a message longer than the receive that took it, or than the device can send",
                "post longer receives, or send shorter messages",
            ),
            _ => ("the device gives no further reason", "look into dmesg, and up the vendor error"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}), vendor error {}", self.status, self.status.raw(), self.vendor_error)
    }
}

impl std::error::Error for Failure {}
