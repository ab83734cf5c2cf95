//! Tests of the inline functions with tables of the test: there is no device and no library, only
//! functions that record their arguments.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{null_mut, without_provenance_mut};

use farreach_verbs_sys::*;

thread_local! {
    /// The calls through the tables: name and arguments.
    static CALLS: RefCell<Vec<(&'static str, Vec<u64>)>> = const { RefCell::new(Vec::new()) };
}

/// Defines a function for a table. It records its arguments and returns the value after the arrow.
macro_rules! noting {
    ($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty = $value:expr)?) => {{
        unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
            CALLS.with_borrow_mut(|calls| calls.push((stringify!($name), vec![$($arg as u64),*])));
            $($value)?
        }
        Some($name as unsafe extern "C" fn($($ty),*) $(-> $ret)?)
    }};
}

#[track_caller]
fn assert_called(name: &str, arguments: &[u64]) {
    let calls = CALLS.take();
    assert_eq!(calls, [(calls[0].0, arguments.to_vec())]);
    assert_eq!(calls[0].0, name);
}

fn zeroed<T>() -> Box<T> {
    // SAFETY: used only for C structures of numbers, pointers and optional functions, for which
    // zeroes are valid.
    Box::new(unsafe { MaybeUninit::zeroed().assume_init() })
}

fn errno() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

/// An extended context with empty tables.
struct Device(*mut verbs_context);

impl Device {
    fn new() -> Self {
        let mut extended = zeroed::<verbs_context>();
        extended.sz = size_of::<verbs_context>();
        extended.context.abi_compat = without_provenance_mut(usize::MAX);
        Self(Box::into_raw(extended))
    }

    fn table(&mut self) -> &mut verbs_context {
        // SAFETY: the context lives as long as `self`, which is borrowed exclusively.
        unsafe { &mut *self.0 }
    }

    fn context(&self) -> *mut ibv_context {
        // SAFETY: the context lives. No reference is made, so the pointer may also be used for the
        // fields before it.
        unsafe { &raw mut (*self.0).context }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box and has no other owner.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

fn at<T>(address: usize) -> *mut T {
    without_provenance_mut(address)
}

#[test]
fn posting_and_polling_pass_their_arguments_on() {
    let mut device = Device::new();
    let ops = &mut device.table().context.ops;
    ops.post_send =
        noting!(post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int = 12);
    ops.post_recv =
        noting!(post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int = 0);
    ops.post_srq_recv = noting!(post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int = 0);
    ops.poll_cq = noting!(poll_cq(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc) -> c_int = -1);
    ops.req_notify_cq = noting!(req_notify_cq(cq: *mut ibv_cq, solicited: c_int) -> c_int = 0);

    let (mut qp, mut srq, mut cq) = (zeroed::<ibv_qp>(), zeroed::<ibv_srq>(), zeroed::<ibv_cq>());
    (qp.context, srq.context, cq.context) = (device.context(), device.context(), device.context());
    let (qp, srq, cq) = (&raw mut *qp, &raw mut *srq, &raw mut *cq);

    // SAFETY: the objects live, and their tables hold functions that only read the arguments as
    // numbers.
    unsafe {
        assert_eq!(ibv_post_send(qp, at(0x10), at(0x20)), 12);
        assert_called("post_send", &[qp as u64, 0x10, 0x20]);
        assert_eq!(ibv_post_recv(qp, at(0x30), at(0x40)), 0);
        assert_called("post_recv", &[qp as u64, 0x30, 0x40]);
        assert_eq!(ibv_post_srq_recv(srq, at(0x50), at(0x60)), 0);
        assert_called("post_srq_recv", &[srq as u64, 0x50, 0x60]);
        assert_eq!(ibv_poll_cq(cq, 16, at(0x70)), -1);
        assert_called("poll_cq", &[cq as u64, 16, 0x70]);
        assert_eq!(ibv_req_notify_cq(cq, 1), 0);
        assert_called("req_notify_cq", &[cq as u64, 1]);
    }
}

#[test]
fn work_requests_pass_their_arguments_on() {
    type Qp = *mut ibv_qp_ex;
    let mut object = zeroed::<ibv_qp_ex>();
    object.wr_start = noting!(wr_start(qp: Qp));
    object.wr_complete = noting!(wr_complete(qp: Qp) -> c_int = 7);
    object.wr_rdma_write_imm = noting!(wr_rdma_write_imm(qp: Qp, rkey: u32, addr: u64, imm: u32));
    object.wr_atomic_cmp_swp =
        noting!(wr_atomic_cmp_swp(qp: Qp, rkey: u32, addr: u64, compare: u64, swap: u64));
    object.wr_atomic_write = noting!(wr_atomic_write(qp: Qp, rkey: u32, addr: u64, value: *const c_void));
    object.wr_flush = noting!(wr_flush(qp: Qp, rkey: u32, addr: u64, len: usize, kind: u8, level: u8));
    object.wr_bind_mw =
        noting!(wr_bind_mw(qp: Qp, mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info));
    object.wr_set_sge = noting!(wr_set_sge(qp: Qp, lkey: u32, addr: u64, length: u32));
    object.wr_set_ud_addr = noting!(wr_set_ud_addr(qp: Qp, ah: *mut ibv_ah, qpn: u32, qkey: u32));
    let qp = &raw mut *object;
    let q = qp as u64;

    // SAFETY: the called entries are filled, with functions that only read the arguments as
    // numbers.
    unsafe {
        ibv_wr_start(qp);
        assert_called("wr_start", &[q]);
        ibv_wr_rdma_write_imm(qp, 1, 2, 3_u32.to_be());
        assert_called("wr_rdma_write_imm", &[q, 1, 2, u64::from(3_u32.to_be())]);
        ibv_wr_atomic_cmp_swp(qp, 1, 2, 3, 4);
        assert_called("wr_atomic_cmp_swp", &[q, 1, 2, 3, 4]);
        ibv_wr_atomic_write(qp, 1, 2, at::<c_void>(3));
        assert_called("wr_atomic_write", &[q, 1, 2, 3]);
        ibv_wr_flush(qp, 1, 2, 3, 4, 5);
        assert_called("wr_flush", &[q, 1, 2, 3, 4, 5]);
        ibv_wr_bind_mw(qp, at(1), 2, at(3));
        assert_called("wr_bind_mw", &[q, 1, 2, 3]);
        ibv_wr_set_sge(qp, 1, 2, 3);
        assert_called("wr_set_sge", &[q, 1, 2, 3]);
        ibv_wr_set_ud_addr(qp, at(1), 2, 3);
        assert_called("wr_set_ud_addr", &[q, 1, 2, 3]);
        assert_eq!(ibv_wr_complete(qp), 7);
        assert_called("wr_complete", &[q]);
    }
}

#[test]
fn extended_completions_are_read_through_their_queue() {
    type Cq = *mut ibv_cq_ex;
    let mut object = zeroed::<ibv_cq_ex>();
    object.start_poll = noting!(start_poll(cq: Cq, attr: *mut ibv_poll_cq_attr) -> c_int = libc::ENOENT);
    object.read_imm_data = noting!(read_imm_data(cq: Cq) -> u32 = 5_u32.to_be());
    object.read_completion_wallclock_ns = noting!(read_completion_wallclock_ns(cq: Cq) -> u64 = u64::MAX);
    let cq = &raw mut *object;

    // SAFETY: the called entries are filled, with functions that only read the arguments as
    // numbers.
    unsafe {
        assert_eq!(ibv_start_poll(cq, at(1)), libc::ENOENT);
        assert_called("start_poll", &[cq as u64, 1]);
        assert_eq!(ibv_wc_read_imm_data(cq), 5_u32.to_be(), "big-endian, as in C");
        assert_called("read_imm_data", &[cq as u64]);
        assert_eq!(ibv_wc_read_completion_wallclock_ns(cq), u64::MAX);
        assert_called("read_completion_wallclock_ns", &[cq as u64]);
    }
}

#[test]
fn the_control_path_reaches_the_context() {
    let mut device = Device::new();
    device.table().alloc_dm =
        noting!(alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm = at(0x99));
    device.table().reg_dm_mr = noting!(
        reg_dm_mr(pd: *mut ibv_pd, dm: *mut ibv_dm, offset: u64, length: usize, access: u32) -> *mut ibv_mr = at(0x98)
    );
    let mut pd = zeroed::<ibv_pd>();
    pd.context = device.context();
    let pd = &raw mut *pd;

    // SAFETY: the objects live, and their tables hold functions that only read the arguments as
    // numbers.
    unsafe {
        assert_eq!(ibv_alloc_dm(device.context(), at(0x10)), at(0x99));
        assert_called("alloc_dm", &[device.context() as u64, 0x10]);
        assert_eq!(ibv_reg_dm_mr(pd, at(1), 2, 3, 4), at(0x98));
        assert_called("reg_dm_mr", &[pd as u64, 1, 2, 3, 4]);
    }
}

#[test]
fn a_null_entry_is_not_supported() {
    let device = Device::new();
    let (mut pd, mut srq, mut dm) = (zeroed::<ibv_pd>(), zeroed::<ibv_srq>(), zeroed::<ibv_dm>());
    (pd.context, srq.context, dm.context) = (device.context(), device.context(), device.context());
    let mut bad = null_mut();
    // SAFETY: the objects live, and nothing is called through their empty tables.
    unsafe {
        *libc::__errno_location() = 0;
        assert!(ibv_alloc_dm(device.context(), null_mut()).is_null());
        assert_eq!(errno(), Some(libc::EOPNOTSUPP));
        *libc::__errno_location() = 0;
        assert!(ibv_alloc_mw(&raw mut *pd, IBV_MW_TYPE_2).is_null());
        assert_eq!(errno(), Some(libc::EOPNOTSUPP));
        assert_eq!(ibv_memcpy_to_dm(&raw mut *dm, 0, null_mut(), 0), libc::EOPNOTSUPP);
        assert_eq!(ibv_post_srq_ops(&raw mut *srq, at(0x10), &mut bad), libc::EOPNOTSUPP);
    }
    assert_eq!(bad, at(0x10), "the first operation that was not posted");
}

#[test]
fn an_entry_beyond_an_older_librarys_table_is_not_read() {
    let mut device = Device::new();
    device.table().alloc_dm =
        noting!(alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm = at(0x99));
    // The entry is filled, but by the size it belongs to the memory before the structure.
    device.table().sz = size_of::<verbs_context>() - offset_of!(verbs_context, alloc_dm) - 1;
    // SAFETY: the context lives.
    assert!(unsafe { ibv_alloc_dm(device.context(), null_mut()) }.is_null());
    device.table().sz += 1;
    // SAFETY: the context lives.
    assert_eq!(unsafe { ibv_alloc_dm(device.context(), null_mut()) }, at(0x99));
}

#[test]
fn a_context_of_the_old_short_form_has_no_extended_table() {
    let mut device = Device::new();
    device.table().alloc_dm =
        noting!(alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm = at(0x99));
    device.table().context.abi_compat = null_mut();
    // SAFETY: the context lives.
    unsafe {
        assert!(verbs_get_ctx(device.context()).is_null());
        assert!(ibv_alloc_dm(device.context(), null_mut()).is_null());
    }
}

#[test]
fn a_window_is_bound_within_its_own_protection_domain() {
    let mut device = Device::new();
    device.table().context.ops.bind_mw =
        noting!(bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int = 0);
    let (mut mw, mut mr, mut bind) = (zeroed::<ibv_mw>(), zeroed::<ibv_mr>(), zeroed::<ibv_mw_bind>());
    (mw.context, mw.type_, mw.pd) = (device.context(), IBV_MW_TYPE_1, at(0x8));
    // SAFETY: the objects live, and the table's function only reads the arguments as numbers.
    let bound = |mw: &mut ibv_mw, bind: &mut ibv_mw_bind| unsafe { ibv_bind_mw(at(0x10), mw, bind) };

    assert_eq!(bound(&mut mw, &mut bind), 0, "no region and no length: unbinds");
    bind.bind_info.length = 1;
    assert_eq!(bound(&mut mw, &mut bind), libc::EINVAL);
    (bind.bind_info.mr, mr.pd) = (&raw mut *mr, at(0x16));
    assert_eq!(bound(&mut mw, &mut bind), libc::EPERM);
    mr.pd = mw.pd;
    assert_eq!(bound(&mut mw, &mut bind), 0);
    mw.type_ = IBV_MW_TYPE_2;
    assert_eq!(bound(&mut mw, &mut bind), libc::EINVAL);
}

#[test]
fn small_arithmetic_is_the_headers() {
    assert_eq!(ibv_inc_rkey(0x1234_56ff), 0x1234_5600);
    assert_eq!(ibv_inc_rkey(0xffff_ffff), 0xffff_ff00);
    assert_eq!(ibv_flow_label_to_udp_sport(0), 0xC000);
    assert_eq!(ibv_flow_label_to_udp_sport(0xFFFFF), 0xC000 | (0x3FFF ^ 0x3F));
    assert!(ibv_is_qpt_supported(1 << IBV_QPT_RC, IBV_QPT_RC));
    assert!(!ibv_is_qpt_supported(1 << IBV_QPT_RC, IBV_QPT_DRIVER));
    assert_eq!(IBV_ACCESS_OPTIONAL_RANGE, 0x3ff0_0000);
    assert_ne!(IBV_ACCESS_RELAXED_ORDERING & IBV_ACCESS_OPTIONAL_RANGE, 0);
}
