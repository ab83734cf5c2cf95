//! Tests of objects with a replacement of libibverbs, at the boundary to C. They cover features
//! that no software device has (on-chip memory), behaviour that is rare on a device (refusing to
//! release, failing to post or to poll, completing at a given moment), and cases that are too slow
//! on a device (every order of dropping nine handles).

mod part;
mod region;
mod safe_api;
mod script;
mod wait;

use std::ffi::{CString, c_int, c_void};
use std::mem::transmute;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use farreach_testkit::{Buffer, order, shared_object};
use farreach_verbs_sys as sys;
use farreach_verbs_sys::{Ibverbs, verbs_context};

use crate::Error;
use crate::ah::AddressAttributes;
use crate::context::Context;
use crate::cq::CompletionQueueBuilder;
use crate::device::DeviceList;
use crate::leak::leaked;
use crate::mr::AccessFlags;
use crate::mw::WindowType;
use crate::qp::{QueuePairBuilder, QueuePairType};

/// Returns the library of `library.c`, with the device of `device.c`, built once.
fn library() -> &'static (Ibverbs, PathBuf) {
    static LIBRARY: OnceLock<(Ibverbs, PathBuf)> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("farreach-verbs-table-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let folder_text = folder.to_str().expect("a folder with a name");
        let source = concat!(include_str!("library.c"), include_str!("device.c"));
        let path = shared_object(folder_text, "table", source, "");
        // SAFETY: `library.c` and `device.c` declare each function as libibverbs does.
        let lib = unsafe { Ibverbs::open(path.to_str().unwrap()) }.unwrap();
        // The library stays open, so its file is not needed any more. A failure leaves a temporary
        // folder behind, which is harmless.
        let _ = std::fs::remove_dir_all(folder);
        (lib, path)
    })
}

/// Returns a function of the library that libibverbs does not have.
fn function(name: &str) -> *mut c_void {
    let (path, name) = (&library().1, CString::new(name).unwrap());
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: both strings are NUL-terminated. The library is already open, and is found by its
    // name.
    let found = unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        assert!(!handle.is_null(), "the library is open");
        libc::dlsym(handle, name.as_ptr())
    };
    assert!(!found.is_null(), "{name:?}");
    found
}

/// Calls a function without arguments, which returns a count of this thread.
fn count(name: &str) -> c_int {
    // SAFETY: in `library.c`, each counting function takes no arguments and returns an `int`.
    unsafe { transmute::<*mut c_void, extern "C" fn() -> c_int>(function(name))() }
}

fn refuse_dereg(refuse: bool) {
    // SAFETY: in `library.c`, this function takes an `int` and returns nothing.
    let set = unsafe { transmute::<*mut c_void, extern "C" fn(c_int)>(function("table_refuse_dereg")) };
    set(refuse.into());
}

/// The functions for the context's tables, looked up once.
#[derive(Clone, Copy)]
struct Functions([usize; 10]);

impl Functions {
    fn find() -> Self {
        let names = [
            "table_alloc_mw",
            "table_dealloc_mw",
            "table_alloc_dm",
            "table_free_dm",
            "table_reg_dm_mr",
            "table_post_send",
            "table_post_recv",
            "table_post_srq_recv",
            "table_poll_cq",
            "table_req_notify_cq",
        ];
        Self(names.map(|name| function(name).expose_provenance()))
    }
}

/// Opens a context whose tables have windows, and on-chip memory if requested.
fn open(functions: Functions, has_dm: bool) -> Context {
    let lib = &library().0;
    let context = DeviceList::of(lib).unwrap().find("table0").unwrap().open().unwrap();
    let raw = context.as_raw();
    let [alloc_mw, dealloc_mw, alloc_dm, free_dm, reg_dm_mr, queues @ ..] =
        functions.0.map(std::ptr::with_exposed_provenance::<c_void>);
    let [post_send, post_recv, post_srq_recv, poll_cq, req_notify_cq] = queues;
    // SAFETY: `library.c` allocates 4096 bytes in front of each context, and nothing else uses this
    // one yet. It declares the functions with the types of the entries.
    unsafe {
        let extended = raw.byte_sub(std::mem::offset_of!(verbs_context, context)).cast::<verbs_context>();
        (*raw).abi_compat = std::ptr::without_provenance_mut(usize::MAX);
        (*extended).sz = size_of::<verbs_context>();
        (*raw).ops.alloc_mw = entry(alloc_mw);
        (*raw).ops.dealloc_mw = entry(dealloc_mw);
        (*raw).ops.post_send = entry(post_send);
        (*raw).ops.post_recv = entry(post_recv);
        (*raw).ops.post_srq_recv = entry(post_srq_recv);
        (*raw).ops.poll_cq = entry(poll_cq);
        (*raw).ops.req_notify_cq = entry(req_notify_cq);
        if has_dm {
            (*extended).alloc_dm = entry(alloc_dm);
            (*extended).free_dm = entry(free_dm);
            (*extended).reg_dm_mr = entry(reg_dm_mr);
        }
    }
    context
}

/// Converts the address of a function to an entry of a table.
///
/// # Safety
///
/// The function has this type.
unsafe fn entry<F>(address: *const c_void) -> Option<F> {
    const { assert!(size_of::<Option<F>>() == size_of::<*const c_void>()) };
    // SAFETY: a function pointer has the size of a data pointer, and the caller guarantees its
    // type.
    unsafe { std::mem::transmute_copy(&address) }
}

#[test]
fn on_chip_memory_is_copied_to_and_from_within_its_bounds() {
    let context = open(Functions::find(), true);
    let dm = context.alloc_dm(64, 3).unwrap();
    dm.copy_to(60, b"abcd").unwrap();
    let mut back = [0; 8];
    dm.copy_from(56, &mut back).unwrap();
    assert_eq!(&back, b"\0\0\0\0abcd");

    for (offset, len) in [(61, 4), (64, 1), (u64::MAX, 1), (0, 65)] {
        let outside = Err(Error::OutOfBounds { what: "on-chip memory", offset, len, size: 64 });
        assert_eq!(dm.copy_to(offset, &vec![0; len]), outside);
        assert_eq!(dm.copy_from(offset, &mut vec![0; len]), outside);
    }
    dm.copy_to(64, &[]).expect("zero bytes at the end");
}

#[test]
fn a_region_of_on_chip_memory_holds_it() {
    let before = count("table_live");
    {
        let context = open(Functions::find(), true);
        let pd = context.alloc_pd().unwrap();
        let dm = context.alloc_dm(64, 0).unwrap();
        assert!(matches!(pd.reg_dm_mr(&dm, 60, 5, AccessFlags::empty()), Err(Error::OutOfBounds { .. })));
        let region = pd.reg_dm_mr(&dm, 16, 32, AccessFlags::REMOTE_READ).unwrap();
        // The library returns its arguments.
        assert_eq!((region.lkey().0, region.len()), (16, 32));
        let access = AccessFlags::REMOTE_READ | AccessFlags::ZERO_BASED;
        assert_eq!((region.rkey().0, region.access()), (access.bits(), access));
        drop((dm, pd, context));
        assert_eq!(count("table_violations"), 0);
    }
    assert_eq!((count("table_live"), count("table_violations")), (before, 0));
}

#[test]
fn a_device_without_on_chip_memory_says_so() {
    let context = open(Functions::find(), false);
    let error = context.alloc_dm(64, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ibv_alloc_dm on table0: not supported, the device offers no on-chip memory"
    );
}

#[test]
fn on_chip_memory_of_another_context_is_refused() {
    let (one, other) = (open(Functions::find(), true), open(Functions::find(), true));
    let dm = other.alloc_dm(64, 0).unwrap();
    let refused = one.alloc_pd().unwrap().reg_dm_mr(&dm, 0, 64, AccessFlags::empty());
    assert!(matches!(refused, Err(Error::OtherContext { object: "on-chip memory", .. })));
}

/// Returns the right to leak. Leaks are counted for the whole process, so such tests are
/// serialised.
fn leaking() -> MutexGuard<'static, ()> {
    static LEAKING: Mutex<()> = Mutex::new(());
    LEAKING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn what_is_not_released_keeps_all_it_stands_on() {
    let _leaking = leaking();
    let context = open(Functions::find(), false);
    let pd = context.alloc_pd().unwrap();
    let memory = Arc::new(OwnThread(Buffer::new(64)));
    let (start, len) = (memory.0.as_ptr(), memory.0.len());
    // SAFETY: the region holds the memory, which frees its buffer on drop, and gives out no
    // reference.
    let region = unsafe { pd.reg_mr_keeping(memory.clone(), start, len, AccessFlags::empty()) }.unwrap();

    let (counted, live) = (leaked().memory_regions, count("table_live"));
    refuse_dereg(true);
    let error = region.dereg().unwrap_err();
    refuse_dereg(false);
    assert_eq!(error.to_string(), "ibv_dereg_mr on table0: Device or resource busy (errno 16)");
    assert_eq!(leaked().memory_regions, counted + 1);
    drop((pd, context));
    assert_eq!(count("table_live"), live, "region, protection domain and context stay");
    assert_eq!(Arc::strong_count(&memory), 2, "and the memory");
    assert_eq!(count("table_violations"), 0, "no parent was destroyed first");
}

/// Memory that only the test's own thread accesses.
struct OwnThread(Buffer);

// SAFETY: the buffer has no other owner.
unsafe impl Send for OwnThread {}
// SAFETY: the buffer is not accessed through it: the test reads only address and length.
unsafe impl Sync for OwnThread {}

const HANDLES: usize = 9;

/// Creates nine handles, each of which, except the first, depends on others.
fn everything(functions: Functions, buffer: &Buffer) -> [Box<dyn Send>; HANDLES] {
    let context = open(functions, false);
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    let cq = CompletionQueueBuilder::new(128).channel(&channel).build(&context).unwrap();
    let srq = pd.create_srq(4, 1).unwrap();
    let qp = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq).srq(&srq).build(&pd).unwrap();
    // SAFETY: the buffer outlives the regions, and no device writes to it.
    let mr = unsafe { pd.reg_mr_raw(buffer.as_ptr(), buffer.len(), AccessFlags::empty()) }.unwrap();
    let mw = pd.alloc_mw(WindowType::Two).unwrap();
    let ah = pd.create_ah(&AddressAttributes::to_gid(1, "fe80::1".parse().unwrap())).unwrap();
    [
        Box::new(context),
        Box::new(pd),
        Box::new(channel),
        Box::new(cq),
        Box::new(srq),
        Box::new(qp),
        Box::new(mr),
        Box::new(mw),
        Box::new(ah),
    ]
}

#[test]
fn in_every_order_of_dropping_children_go_first() {
    let (functions, buffer) = (Functions::find(), Buffer::new(64));
    drop_in_every_order(HANDLES, || everything(functions, &buffer).into());
}

#[test]
fn a_queue_pair_holds_its_domain_by_itself() {
    let functions = Functions::find();
    drop_in_every_order(3, || {
        let context = open(functions, false);
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(128).unwrap());
        let qp = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq).build(&pd).unwrap();
        vec![Box::new(pd), Box::new(cq), Box::new(qp)]
    });
}

fn drop_in_every_order(handles: usize, make: impl Fn() -> Vec<Box<dyn Send>>) {
    let before = count("table_live");
    let orders: usize = (1..=handles).product();
    for number in 0..orders {
        let mut left: Vec<_> = make().into_iter().map(Some).collect();
        for handle in order(handles, number) {
            drop(left[handle].take());
        }
    }
    assert_eq!((count("table_live"), count("table_violations")), (before, 0), "{orders} orders");
}

#[test]
fn objects_go_to_any_thread() {
    fn any_thread<T: Send + Sync>() {}
    any_thread::<Context>();
    any_thread::<crate::pd::ProtectionDomain>();
    any_thread::<crate::mr::MemoryRegion>();
    any_thread::<crate::mw::MemoryWindow>();
    any_thread::<crate::dm::DeviceMemory>();
    any_thread::<crate::cq::CompletionQueue>();
    any_thread::<crate::cq::CompletionChannel>();
    any_thread::<crate::srq::SharedReceiveQueue>();
    any_thread::<crate::qp::QueuePair>();
    any_thread::<QueuePairBuilder>();
    any_thread::<crate::ah::AddressHandle>();
    any_thread::<crate::xrc::XrcDomain>();
    any_thread::<crate::event::AsyncEvents>();
}

/// Checks the layout that `library.c` assumes beyond the first field of the objects.
const _: () = {
    assert!(std::mem::offset_of!(sys::ibv_qp_init_attr, srq) == 3 * size_of::<usize>());
    assert!(std::mem::offset_of!(sys::ibv_mr, lkey) == 4 * size_of::<usize>() + 4);
    assert!(std::mem::offset_of!(sys::ibv_dm, handle) == 3 * size_of::<usize>() + 4);
    assert!(size_of::<verbs_context>() < 4096);
    assert!(std::mem::offset_of!(sys::ibv_qp, recv_cq) == 4 * size_of::<usize>());
    assert!(std::mem::offset_of!(sys::ibv_send_wr, send_flags) == 4 * size_of::<u64>());
    assert!(std::mem::offset_of!(sys::ibv_recv_wr, num_sge) == 3 * size_of::<u64>());
    assert!(sys::IBV_SEND_SIGNALED == 2 && sys::IBV_WC_RECV == 128);
    assert!(std::mem::offset_of!(sys::ibv_wc, wc_flags) == 36 && size_of::<sys::ibv_wc>() == 48);
    assert!(size_of::<sys::ibv_cq>() <= 3 * size_of::<usize>() + 8 + 224);
};
