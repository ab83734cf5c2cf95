//! Additions after 1.17 that are useful with either generation: constants, and two structures that
//! grew.
//!
//! A 1.17 library treats the new constants like any unknown value: it returns an error, or ignores
//! them.

use std::ffi::{c_int, c_void};

use crate::bindings::{fi_addr_t, fi_cq_err_entry, fi_mr_attr, fi_progress, fid_mr};
use crate::constants::constants;

constants! {
    /// Receives messages or tagged messages only from the given address: `fi_getinfo(3)`, 2.0.
    u64 {
        FI_TAGGED_DIRECTED_RECV = 1 << 45,
        FI_TAGGED_MULTI_RECV = 1 << 46,
        FI_EXACT_DIRECTED_RECV = 1 << 48,
    }

    /// An address vector may hold keys: `fi_av(3)`, 1.20.
    u64 {
        FI_AUTH_KEY = 1 << 57,
    }

    /// Registers a dma-buf: `fi_mr(3)`, 1.20. Only a domain of interface version 1.20 or newer
    /// accepts it.
    u64 {
        FI_MR_DMABUF = 1 << 40,
    }

    /// The region serves one operation: `fi_mr(3)`, 2.0.
    u64 {
        FI_MR_SINGLE_USE = 1 << 41,
    }

    /// Control and data progress are unified: `fi_domain(3)`, 2.0.
    fi_progress {
        FI_PROGRESS_CONTROL_UNIFIED = 3,
    }

    /// Options of an endpoint: `fi_endpoint(3)`, 1.18 to 2.0.
    c_int {
        FI_OPT_CUDA_API_PERMITTED = 10,
        FI_OPT_SHARED_MEMORY_PERMITTED = 11,
        FI_OPT_MAX_MSG_SIZE = 12,
        FI_OPT_MAX_TAGGED_SIZE = 13,
        FI_OPT_MAX_RMA_SIZE = 14,
        FI_OPT_MAX_ATOMIC_SIZE = 15,
        FI_OPT_INJECT_MSG_SIZE = 16,
        FI_OPT_INJECT_TAGGED_SIZE = 17,
        FI_OPT_INJECT_RMA_SIZE = 18,
        FI_OPT_INJECT_ATOMIC_SIZE = 19,
    }

    /// Errors: `fi_errno(3)`, 2.0.
    c_int {
        FI_EPROTO = libc::EPROTO,
        FI_ENOMR = 270,
    }

    /// Protocols of an endpoint: `fi_endpoint(3)`, 1.18 to 2.1.
    u32 {
        FI_PROTO_COLL = 26,
        FI_PROTO_UCX = 27,
        FI_PROTO_SM2 = 28,
        FI_PROTO_CXI_RNR = 29,
        FI_PROTO_LPP = 30,
        FI_PROTO_LNX = 31,
    }

    /// The address format of the ucx provider: `fi_getinfo(3)`, 1.18.
    u32 {
        FI_ADDR_UCX = 16,
    }
}

/// Options of EFA endpoints: `fi_efa(7)`, 1.18 to 2.0.
pub const FI_OPT_EFA_EMULATED_READ: c_int = -(0xefa << 16) + 1;
/// See [`FI_OPT_EFA_EMULATED_READ`].
pub const FI_OPT_EFA_EMULATED_WRITE: c_int = FI_OPT_EFA_EMULATED_READ + 1;
/// See [`FI_OPT_EFA_EMULATED_READ`].
pub const FI_OPT_EFA_EMULATED_ATOMICS: c_int = FI_OPT_EFA_EMULATED_READ + 2;
/// See [`FI_OPT_EFA_EMULATED_READ`].
pub const FI_OPT_EFA_USE_DEVICE_RDMA: c_int = FI_OPT_EFA_EMULATED_READ + 3;
/// See [`FI_OPT_EFA_EMULATED_READ`].
pub const FI_OPT_EFA_SENDRECV_IN_ORDER_ALIGNED_128_BYTES: c_int = FI_OPT_EFA_EMULATED_READ + 4;
/// See [`FI_OPT_EFA_EMULATED_READ`].
pub const FI_OPT_EFA_WRITE_IN_ORDER_ALIGNED_128_BYTES: c_int = FI_OPT_EFA_EMULATED_READ + 5;

/// `struct fi_cq_err_entry` of 2.x, whose beginning is that of 1.17.
///
/// `fi_cq_readerr` writes the entry. libfabric guarantees to write no more than the requested
/// interface version has, but each provider implements that by itself. A caller that passes the
/// larger structure need not rely on it.
#[repr(C)]
#[derive(Copy, Clone)]
#[allow(non_camel_case_types, reason = "after the C name")]
#[allow(
    missing_debug_implementations,
    reason = "holds a pointer into a provider's memory, as its C namesake"
)]
pub struct fi_cq_err_entry_2 {
    /// The structure of 1.17.
    pub base: fi_cq_err_entry,
    /// The source of the failed receive: 1.20.
    pub src_addr: fi_addr_t,
}

/// `struct fi_mr_attr` of 2.x, whose beginning is that of 1.17.
///
/// `fi_mr_regattr` reads it. A caller passes the larger structure with zeros in the new fields, for
/// the same reason as with [`fi_cq_err_entry_2`].
#[repr(C)]
#[derive(Copy, Clone)]
#[allow(non_camel_case_types, reason = "after the C name")]
#[allow(missing_debug_implementations, reason = "holds pointers, as its C namesake")]
pub struct fi_mr_attr_2 {
    /// The structure of 1.17.
    pub base: fi_mr_attr,
    /// Additional data of a memory interface, beside the device number: 1.18.
    pub hmem_data: *mut c_void,
    /// The page size of the region: 2.0.
    pub page_size: usize,
    /// The region of which this is a part: 2.0.
    pub base_mr: *const fid_mr,
    /// The number of parts that will be registered: 2.0.
    pub sub_mr_cnt: usize,
}
