//! Constants that C has as macros, with the types of their use.
//!
//! A C macro has no type. Most of these are `uint64_t` flags; those for an `int` field are `c_int`.
//! `cargo xtask layout` compares every value with the headers.

use std::ffi::c_int;

macro_rules! constants {
    ($($(#[$meta:meta])* $ty:ty { $($name:ident = $value:expr,)* })*) => {
        $(constants! { @group [$(#[$meta])*] $ty; $($name = $value,)* })*
    };
    // Each constant of a group has the group's documentation, which is passed down as one token
    // tree.
    (@group $docs:tt $ty:ty; $($name:ident = $value:expr,)*) => {
        $(constants! { @one $docs $ty; $name = $value })*
    };
    (@one [$(#[$meta:meta])*] $ty:ty; $name:ident = $value:expr) => {
        $(#[$meta])*
        pub const $name: $ty = $value;
    };
}

pub(crate) use constants;

constants! {
    /// Capability and operation flags of `fi_getinfo(3)`, `fi_endpoint(3)`, `fi_cq(3)` and of each
    /// operation.
    u64 {
        FI_MSG = 1 << 1,
        FI_RMA = 1 << 2,
        FI_TAGGED = 1 << 3,
        FI_ATOMIC = 1 << 4,
        FI_ATOMICS = FI_ATOMIC,
        FI_MULTICAST = 1 << 5,
        FI_COLLECTIVE = 1 << 6,
        FI_READ = 1 << 8,
        FI_WRITE = 1 << 9,
        FI_RECV = 1 << 10,
        FI_SEND = 1 << 11,
        FI_TRANSMIT = FI_SEND,
        FI_REMOTE_READ = 1 << 12,
        FI_REMOTE_WRITE = 1 << 13,
        FI_MULTI_RECV = 1 << 16,
        FI_REMOTE_CQ_DATA = 1 << 17,
        FI_MORE = 1 << 18,
        FI_PEEK = 1 << 19,
        FI_TRIGGER = 1 << 20,
        FI_FENCE = 1 << 21,
        FI_COMPLETION = 1 << 24,
        FI_EVENT = FI_COMPLETION,
        FI_INJECT = 1 << 25,
        FI_INJECT_COMPLETE = 1 << 26,
        FI_TRANSMIT_COMPLETE = 1 << 27,
        FI_DELIVERY_COMPLETE = 1 << 28,
        FI_AFFINITY = 1 << 29,
        FI_COMMIT_COMPLETE = 1 << 30,
        FI_MATCH_COMPLETE = 1 << 31,
        FI_PEER_TRANSFER = 1 << 36,
        FI_AV_USER_ID = 1 << 41,
        FI_PEER = 1 << 43,
        FI_HMEM_HOST_ALLOC = 1 << 45,
        FI_HMEM_DEVICE_ONLY = 1 << 46,
        FI_HMEM = 1 << 47,
        FI_RMA_PMEM = 1 << 49,
        FI_SOURCE_ERR = 1 << 50,
        FI_LOCAL_COMM = 1 << 51,
        FI_REMOTE_COMM = 1 << 52,
        FI_SHARED_AV = 1 << 53,
        FI_PROV_ATTR_ONLY = 1 << 54,
        FI_NUMERICHOST = 1 << 55,
        FI_RMA_EVENT = 1 << 56,
        FI_SOURCE = 1 << 57,
        FI_NAMED_RX_CTX = 1 << 58,
        FI_DIRECTED_RECV = 1 << 59,
        FI_CLAIM = 1 << 59,
        FI_DISCARD = 1 << 58,
    }

    /// An address or key that does not exist: `fi_av(3)`, `fi_mr(3)`.
    u64 {
        FI_ADDR_UNSPEC = u64::MAX,
        FI_ADDR_NOTAVAIL = u64::MAX,
        FI_KEY_NOTAVAIL = u64::MAX,
    }

    /// A shared context: `fi_endpoint(3)`.
    usize {
        FI_SHARED_CONTEXT = usize::MAX,
    }

    /// Bits of `fi_domain_attr::mr_mode`: `fi_mr(3)`.
    c_int {
        FI_MR_LOCAL = 1 << 2,
        FI_MR_RAW = 1 << 3,
        FI_MR_VIRT_ADDR = 1 << 4,
        FI_MR_ALLOCATED = 1 << 5,
        FI_MR_PROV_KEY = 1 << 6,
        FI_MR_MMU_NOTIFY = 1 << 7,
        FI_MR_RMA_EVENT = 1 << 8,
        FI_MR_ENDPOINT = 1 << 9,
        FI_MR_HMEM = 1 << 10,
        FI_MR_COLLECTIVE = 1 << 11,
    }

    /// Bits of `msg_order` and `comp_order`: `fi_endpoint(3)`.
    u64 {
        FI_ORDER_NONE = 0,
        FI_ORDER_RAR = 1 << 0,
        FI_ORDER_RAW = 1 << 1,
        FI_ORDER_RAS = 1 << 2,
        FI_ORDER_WAR = 1 << 3,
        FI_ORDER_WAW = 1 << 4,
        FI_ORDER_WAS = 1 << 5,
        FI_ORDER_SAR = 1 << 6,
        FI_ORDER_SAW = 1 << 7,
        FI_ORDER_SAS = 1 << 8,
        FI_ORDER_STRICT = 0x1FF,
        FI_ORDER_RMA_RAR = 1 << 32,
        FI_ORDER_RMA_RAW = 1 << 33,
        FI_ORDER_RMA_WAR = 1 << 34,
        FI_ORDER_RMA_WAW = 1 << 35,
        FI_ORDER_ATOMIC_RAR = 1 << 36,
        FI_ORDER_ATOMIC_RAW = 1 << 37,
        FI_ORDER_ATOMIC_WAR = 1 << 38,
        FI_ORDER_ATOMIC_WAW = 1 << 39,
        FI_ORDER_DATA = 1 << 16,
    }

    /// Mode bits: the requirements of a provider on its user, `fi_getinfo(3)`.
    u64 {
        FI_CONTEXT = 1 << 59,
        FI_MSG_PREFIX = 1 << 58,
        FI_ASYNC_IOV = 1 << 57,
        FI_RX_CQ_DATA = 1 << 56,
        FI_LOCAL_MR = 1 << 55,
        FI_CONTEXT2 = 1 << 52,
    }

    /// Flags of binding, of address vectors and of sets of addresses: `fi_endpoint(3)`, `fi_av(3)`,
    /// `fi_collective(3)`.
    u64 {
        FI_SELECTIVE_COMPLETION = 1 << 59,
        FI_SYMMETRIC = 1 << 59,
        FI_SYNC_ERR = 1 << 58,
        FI_UNIVERSE = 1 << 57,
        FI_BARRIER_SET = 1 << 40,
        FI_BROADCAST_SET = 1 << 41,
        FI_ALLTOALL_SET = 1 << 42,
        FI_ALLREDUCE_SET = 1 << 43,
        FI_ALLGATHER_SET = 1 << 44,
        FI_REDUCE_SCATTER_SET = 1 << 45,
        FI_REDUCE_SET = 1 << 46,
        FI_SCATTER_SET = 1 << 47,
        FI_GATHER_SET = 1 << 48,
        FI_REG_MR = 1 << 59,
    }

    /// Flags of `fi_query_atomic`: `fi_atomic(3)`.
    u64 {
        FI_FETCH_ATOMIC = 1 << 58,
        FI_COMPARE_ATOMIC = 1 << 59,
    }

    /// The first collective operations in `fi_op` and `fi_datatype`: `fi_collective(3)`.
    c_int {
        FI_COLLECTIVE_OFFSET = 256,
    }

    /// The first of a provider's own options.
    c_int {
        FI_PROV_SPECIFIC_EFA = 0xefa << 16,
        FI_PROV_SPECIFIC_TCP = 0x7cb << 16,
    }

    /// Flag of an external logger: `fi_open(3)`.
    u64 {
        FI_LOG_PROV_FILTERED = 1 << 0,
    }

    /// Errors, which functions return negated: `fi_errno(3)`.
    c_int {
        FI_SUCCESS = 0,
        FI_EPERM = libc::EPERM,
        FI_ENOENT = libc::ENOENT,
        FI_EINTR = libc::EINTR,
        FI_EIO = libc::EIO,
        FI_E2BIG = libc::E2BIG,
        FI_EBADF = libc::EBADF,
        FI_EAGAIN = libc::EAGAIN,
        FI_ENOMEM = libc::ENOMEM,
        FI_EACCES = libc::EACCES,
        FI_EFAULT = libc::EFAULT,
        FI_EBUSY = libc::EBUSY,
        FI_ENODEV = libc::ENODEV,
        FI_EINVAL = libc::EINVAL,
        FI_EMFILE = libc::EMFILE,
        FI_ENOSPC = libc::ENOSPC,
        FI_ENOSYS = libc::ENOSYS,
        FI_EWOULDBLOCK = libc::EWOULDBLOCK,
        FI_ENOMSG = libc::ENOMSG,
        FI_ENODATA = libc::ENODATA,
        FI_EOVERFLOW = libc::EOVERFLOW,
        FI_EMSGSIZE = libc::EMSGSIZE,
        FI_ENOPROTOOPT = libc::ENOPROTOOPT,
        FI_EOPNOTSUPP = libc::EOPNOTSUPP,
        FI_EADDRINUSE = libc::EADDRINUSE,
        FI_EADDRNOTAVAIL = libc::EADDRNOTAVAIL,
        FI_ENETDOWN = libc::ENETDOWN,
        FI_ENETUNREACH = libc::ENETUNREACH,
        FI_ECONNABORTED = libc::ECONNABORTED,
        FI_ECONNRESET = libc::ECONNRESET,
        FI_ENOBUFS = libc::ENOBUFS,
        FI_EISCONN = libc::EISCONN,
        FI_ENOTCONN = libc::ENOTCONN,
        FI_ESHUTDOWN = libc::ESHUTDOWN,
        FI_ETIMEDOUT = libc::ETIMEDOUT,
        FI_ECONNREFUSED = libc::ECONNREFUSED,
        FI_EHOSTDOWN = libc::EHOSTDOWN,
        FI_EHOSTUNREACH = libc::EHOSTUNREACH,
        FI_EALREADY = libc::EALREADY,
        FI_EINPROGRESS = libc::EINPROGRESS,
        FI_EREMOTEIO = libc::EREMOTEIO,
        FI_ECANCELED = libc::ECANCELED,
        FI_EKEYREJECTED = libc::EKEYREJECTED,
        FI_EOTHER = 256,
        FI_ETOOSMALL = 257,
        FI_EOPBADSTATE = 258,
        FI_EAVAIL = 259,
        FI_EBADFLAGS = 260,
        FI_ENOEQ = 261,
        FI_EDOMAIN = 262,
        FI_ENOCQ = 263,
        FI_ECRC = 264,
        FI_ETRUNC = 265,
        FI_ENOKEY = 266,
        FI_ENOAV = 267,
        FI_EOVERRUN = 268,
        FI_ENORX = 269,
        FI_ERRNO_OFFSET = 256,
    }
}

constants! {
    /// Flags that 2.x no longer has, or whose bit has another meaning now. New code must not use
    /// them; they name what a 1.x provider reports.
    u64 {
        FI_PRIORITY = 1 << 22,
        FI_XPU_TRIGGER = 1 << 44,
        FI_VARIABLE_MSG = 1 << 48,
        FI_NOTIFY_FLAGS_ONLY = 1 << 54,
        FI_RESTRICTED_COMP = 1 << 53,
        FI_BUFFERED_RECV = 1 << 51,
    }

    /// The bit that marked values defined by a provider.
    u32 {
        FI_PROV_SPECIFIC = 1 << 31,
    }
}

/// Builds a version in libfabric's encoding: `fi_version(3)`.
#[allow(non_snake_case, reason = "the name of the C macro")]
pub const fn FI_VERSION(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// Returns the major part of a version.
#[allow(non_snake_case, reason = "the name of the C macro")]
pub const fn FI_MAJOR(version: u32) -> u32 {
    version >> 16
}

/// Returns the minor part of a version.
#[allow(non_snake_case, reason = "the name of the C macro")]
pub const fn FI_MINOR(version: u32) -> u32 {
    version & 0xffff
}

/// The interface version of these bindings, to be passed to `fi_getinfo`.
pub const API_VERSION: u32 = FI_VERSION(1, 17);

/// The symbol version of the structures in these bindings.
pub const SYMBOL_VERSION: &str = "FABRIC_1.3";
