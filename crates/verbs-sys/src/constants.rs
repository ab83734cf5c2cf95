//! Constants whose macros bindgen cannot evaluate, or evaluates with too narrow a type.

use std::ffi::c_void;

use crate::bindings::*;

/// The kind of advice in [`ibv_advise_mr`](crate::ibv_advise_mr).
#[allow(non_camel_case_types, reason = "the C name")]
pub type ibv_advise_mr_advice = ib_uverbs_advise_mr_advice;
/// Prefetch the pages for reading.
pub const IBV_ADVISE_MR_ADVICE_PREFETCH: ibv_advise_mr_advice = IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH;
/// Prefetch the pages for writing.
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE: ibv_advise_mr_advice =
    IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
/// Prefetch only pages that are in memory; fault none in.
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: ibv_advise_mr_advice =
    IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
/// Return only when the prefetch is complete.
pub const IBV_ADVISE_MR_FLAG_FLUSH: u32 = IB_UVERBS_ADVISE_MR_FLAG_FLUSH;

/// Access flags that are ignored by kernels that do not know them. See
/// [`ibv_reg_mr`](crate::ibv_reg_mr).
pub const IBV_ACCESS_OPTIONAL_RANGE: u32 =
    ((IB_UVERBS_ACCESS_OPTIONAL_LAST << 1) - 1) & !(IB_UVERBS_ACCESS_OPTIONAL_FIRST - 1);

/// A bit of `ibv_port_attr::flags`: every address must carry a global route header.
pub const IBV_QPF_GRH_REQUIRED: u8 = 1 << 0;

/// Returned by an allocator of a parent domain to make the provider allocate.
pub const IBV_ALLOCATOR_USE_DEFAULT: *mut c_void = std::ptr::without_provenance_mut(usize::MAX);

/// The bits of an `AF_IB` service identifier that hold the port space.
pub const RDMA_IB_IP_PS_MASK: u64 = 0xFFFF_FFFF_FFFF_0000;
/// The bits of an `AF_IB` service identifier that hold the port.
pub const RDMA_IB_IP_PORT_MASK: u64 = 0x0000_0000_0000_FFFF;
/// The TCP port space in an `AF_IB` service identifier.
pub const RDMA_IB_IP_PS_TCP: u64 = 0x0000_0000_0106_0000;
/// The UDP port space in an `AF_IB` service identifier.
pub const RDMA_IB_IP_PS_UDP: u64 = 0x0000_0000_0111_0000;
/// InfiniBand's own port space in an `AF_IB` service identifier.
pub const RDMA_IB_PS_IB: u64 = 0x0000_0000_013F_0000;
