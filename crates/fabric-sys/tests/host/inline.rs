//! The inline functions, over hand-made tables: each argument arrives unchanged at its place.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::{offset_of, zeroed};
use std::ptr;

use farreach_fabric_sys::*;

thread_local! {
    /// The arguments of the last call of a hand-made table's function, each as a number.
    static SEEN: Cell<[u64; 12]> = const { Cell::new([0; 12]) };
}

fn note<const N: usize>(arguments: [u64; N]) {
    let mut all = [0; 12];
    all[..N].copy_from_slice(&arguments);
    SEEN.set(all);
}

fn seen<const N: usize>() -> [u64; N] {
    SEEN.get()[..N].try_into().expect("no more than were noted")
}

fn at<T: ?Sized>(pointer: *const T) -> u64 {
    pointer.cast::<()>().addr() as u64
}

/// Returns a pointer that is never dereferenced.
fn address<T>(number: usize) -> *mut T {
    ptr::without_provenance_mut(number)
}

/// Returns an object or table of C with zeros.
fn empty<T>() -> T {
    // SAFETY: used only for structures of integers, pointers and optional functions, for which zero
    // is valid.
    unsafe { zeroed() }
}

unsafe extern "C" fn made_writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    note([at(ep), at(msg), flags]);
    -7
}

unsafe extern "C" fn made_write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    note([at(ep), at(buf), len as u64, at(desc), dest_addr, addr, key, at(context)]);
    0
}

#[test]
fn rma_arguments_arrive() {
    let mut ops: fi_ops_rma = empty();
    ops.writemsg = Some(made_writemsg);
    ops.write = Some(made_write);
    let mut ep: fid_ep = empty();
    ep.rma = &raw mut ops;
    let ep = &raw mut ep;

    // SAFETY: the endpoint has a table with these two entries, which dereference no pointer.
    unsafe {
        assert_eq!(fi_writemsg(ep, address(0x10), FI_DELIVERY_COMPLETE), -7);
        assert_eq!(seen(), [at(ep), 0x10, 1 << 28]);
        assert_eq!(fi_write(ep, address(1), 2, address(3), 4, 5, u64::MAX, address(7)), 0);
    }
    assert_eq!(seen(), [at(ep), 1, 2, 3, 4, 5, u64::MAX, 7]);
}

unsafe extern "C" fn made_read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    note([at(cq), at(buf), count as u64]);
    count as isize
}

#[test]
fn completion_queue_arguments_arrive() {
    let mut ops: fi_ops_cq = empty();
    ops.read = Some(made_read);
    let mut cq: fid_cq = empty();
    cq.ops = &raw mut ops;
    let cq = &raw mut cq;
    // SAFETY: the queue has a table with this entry, which dereferences no pointer.
    assert_eq!(unsafe { fi_cq_read(cq, address(0x20), 16) }, 16);
    assert_eq!(seen(), [at(cq), 0x20, 16]);
}

unsafe extern "C" fn made_compwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    desc: *mut c_void,
    compare: *const c_void,
    compare_desc: *mut c_void,
    result: *mut c_void,
    result_desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    note([
        at(ep),
        at(buf),
        count as u64,
        at(desc),
        at(compare),
        at(compare_desc),
        at(result),
        at(result_desc),
    ]);
    let rest = [dest_addr, addr, key, u64::from(datatype), u64::from(op), at(context)];
    assert_eq!(rest, [9, 10, 11, u64::from(FI_UINT64), u64::from(FI_CSWAP), 14]);
    0
}

#[test]
fn atomic_arguments_arrive() {
    let mut ops: fi_ops_atomic = empty();
    ops.compwrite = Some(made_compwrite);
    let mut ep: fid_ep = empty();
    ep.atomic = &raw mut ops;
    let ep = &raw mut ep;
    let p = address::<c_void>;
    // SAFETY: the endpoint has a table with this entry, which dereferences no pointer.
    let status = unsafe {
        fi_compare_atomic(ep, p(2), 3, p(4), p(5), p(6), p(7), p(8), 9, 10, 11, FI_UINT64, FI_CSWAP, p(14))
    };
    assert_eq!((status, seen()), (0, [at(ep), 2, 3, 4, 5, 6, 7, 8]));
}

unsafe extern "C" fn made_reg(
    fid: *mut fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    note([at(fid), at(buf), len as u64, access, offset, requested_key, flags, at(mr), at(context)]);
    0
}

#[test]
fn registration_names_the_domain_by_its_fid() {
    let mut ops: fi_ops_mr = empty();
    ops.reg = Some(made_reg);
    let mut domain: fid_domain = empty();
    domain.mr = &raw mut ops;
    let domain = &raw mut domain;
    // SAFETY: the domain has a table with this entry, which dereferences no pointer.
    let status = unsafe { fi_mr_reg(domain, address(1), 2, 3, 4, 5, 6, address(7), address(8)) };
    assert_eq!((status, seen()), (0, [at(domain), 1, 2, 3, 4, 5, 6, 7, 8]));
}

unsafe extern "C" fn made_cancel(fid: fid_t, context: *mut c_void) -> isize {
    note([at(fid), at(context)]);
    0
}

unsafe extern "C" fn made_control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    note([at(fid), command as u64, at(arg)]);
    3
}

unsafe extern "C" fn made_bind(fid: *mut fid, other: *mut fid, flags: u64) -> c_int {
    note([at(fid), at(other), flags]);
    4
}

#[test]
fn calls_through_the_fid_arrive() {
    let (mut base, mut ops): (fi_ops, fi_ops_ep) = (empty(), empty());
    base.control = Some(made_control);
    base.bind = Some(made_bind);
    ops.cancel = Some(made_cancel);
    let mut ep: fid_ep = empty();
    ep.fid.ops = &raw mut base;
    ep.ops = &raw mut ops;
    let ep = &raw mut ep;
    // SAFETY: the endpoint has tables with these entries, which dereference no pointer.
    unsafe {
        assert_eq!(fi_cancel(ep.cast(), address(5)), 0);
        assert_eq!(seen(), [at(ep), 5]);
        assert_eq!(fi_enable(ep), 3);
        assert_eq!(seen(), [at(ep), u64::from(FI_ENABLE), 0]);
        assert_eq!(fi_ep_bind(ep, address(8), FI_TRANSMIT | FI_SELECTIVE_COMPLETION), 4);
    }
    assert_eq!(seen(), [at(ep), 8, 1 << 11 | 1 << 59]);
}

unsafe extern "C" fn made_refresh(_fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: FI_REFRESH comes with this structure.
    let modify = unsafe { &*arg.cast::<fi_mr_modify>() };
    note([command as u64, modify.flags, at(modify.attr.mr_iov), modify.attr.iov_count as u64]);
    0
}

#[test]
fn refresh_passes_a_structure() {
    let mut base: fi_ops = empty();
    base.control = Some(made_refresh);
    let mut mr: fid_mr = empty();
    mr.fid.ops = &raw mut base;
    // SAFETY: the region has a table with this entry, which reads the structure that the function
    // passes.
    assert_eq!(unsafe { fi_mr_refresh(&raw mut mr, address(0x30), 2, 9) }, 0);
    assert_eq!(seen(), [u64::from(FI_REFRESH), 9, 0x30, 2]);
}

unsafe extern "C" fn made_adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    note([at(cntr), value]);
    0
}

#[test]
fn late_entries_are_checked() {
    let add = |cntr: *mut fid_cntr, size: usize, adderr| {
        let mut ops: fi_ops_cntr = empty();
        ops.size = size;
        ops.adderr = adderr;
        // SAFETY: the counter is live, and its table states its own length.
        unsafe {
            (*cntr).ops = &raw mut ops;
            fi_cntr_adderr(cntr, 6)
        }
    };
    let made = Some(made_adderr as unsafe extern "C" fn(*mut fid_cntr, u64) -> c_int);
    let whole = size_of::<fi_ops_cntr>();
    let mut cntr: fid_cntr = empty();
    let cntr = &raw mut cntr;

    // SAFETY: the counter is live and has no table.
    assert_eq!(unsafe { fi_cntr_adderr(cntr, 6) }, -FI_ENOSYS, "no table");
    assert_eq!(add(cntr, whole, None), -FI_ENOSYS, "an empty entry");
    assert_eq!(
        add(cntr, offset_of!(fi_ops_cntr, adderr), made),
        -FI_ENOSYS,
        "a table that ends before the entry"
    );
    assert_eq!(add(cntr, whole, made), 0);
    assert_eq!(seen(), [at(cntr), 6]);
}

#[test]
fn structures_that_grew_begin_alike() {
    assert_eq!(offset_of!(fi_cq_err_entry_2, src_addr), size_of::<fi_cq_err_entry>());
    assert_eq!(offset_of!(fi_mr_attr_2, hmem_data), size_of::<fi_mr_attr>());
}
