//! Two endpoints of one process, with waits that poll both.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Index;
use std::ptr::{null, null_mut};

use farreach_fabric_sys::*;
use farreach_testkit::Buffer;

/// The length of each side's memory in bytes.
const REGION: usize = 65_536;
/// The maximum number of operations of a side in flight.
const CONTEXTS: usize = 8;
/// The registration modes that providers may require; this test supports all of them.
const MR_MODE: c_int = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

fn lib() -> &'static Libfabric {
    Libfabric::get().expect("libfabric is installed")
}

#[track_caller]
fn check(what: &str, status: c_int) {
    assert_eq!(status, 0, "{what}: {}", error_text(status));
}

fn error_text(status: c_int) -> String {
    // SAFETY: the function returns a static string for every number.
    unsafe { CStr::from_ptr(lib().fi_strerror(-status).unwrap()) }.to_string_lossy().into_owned()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    /// Connections of tcp, with reliable datagrams built on them by another provider.
    TcpUnderRxm,
    /// Reliable datagrams of the tcp provider itself.
    Tcp,
    Shm,
}

impl Provider {
    /// Returns its name in the installed library, with the layer above it.
    fn name(self) -> &'static CStr {
        match self {
            Self::TcpUnderRxm => c"tcp;ofi_rxm",
            Self::Tcp if is_2() => c"tcp",
            Self::Tcp => c"net",
            Self::Shm => c"shm",
        }
    }

    pub(crate) fn should_have_atomics(self) -> bool {
        self != Self::Tcp
    }

    /// Returns `true` if `FI_SELECTIVE_COMPLETION` has an effect: the `net` of 1.17 accepts it and
    /// reports every write.
    pub(crate) fn should_complete_selectively(self) -> bool {
        self != Self::Tcp || is_2()
    }
}

fn is_2() -> bool {
    // SAFETY: the function has no arguments and no preconditions.
    FI_MAJOR(unsafe { lib().fi_version() }.unwrap()) >= 2
}

/// An offer of a provider, or hints for a query.
pub(crate) struct Offer(*mut fi_info);

impl Offer {
    /// Creates hints for reliable datagrams of this provider.
    pub(crate) fn hints(provider: &CStr, capabilities: u64) -> Self {
        // SAFETY: an empty entry is allocated, and filled with memory of malloc, which it owns from
        // then on.
        unsafe {
            let hints = lib().fi_dupinfo(null()).unwrap();
            assert!(!hints.is_null());
            (*hints).caps = capabilities;
            (*hints).mode = FI_CONTEXT | FI_CONTEXT2;
            (*(*hints).ep_attr).type_ = FI_EP_RDM;
            (*(*hints).domain_attr).mr_mode = MR_MODE;
            (*(*hints).fabric_attr).prov_name = libc::strdup(provider.as_ptr());
            Self(hints)
        }
    }

    /// Returns the provider's best offer with atomics, or without if it has none.
    fn best(provider: Provider) -> Self {
        let basic = FI_MSG | FI_RMA;
        let offer = Self::query(provider, basic | FI_ATOMIC).or_else(|| Self::query(provider, basic));
        offer.unwrap_or_else(|| panic!("{:?} is not offered", provider.name()))
    }

    fn query(provider: Provider, capabilities: u64) -> Option<Self> {
        let hints = Self::hints(provider.name(), capabilities);
        let mut found = null_mut();
        // A tcp endpoint of this machine alone; shm has no such addresses.
        let (node, flags) =
            if provider == Provider::Shm { (null(), 0) } else { (c"127.0.0.1".as_ptr(), FI_SOURCE) };
        // SAFETY: the hints are live, and the list is valid for writing.
        match unsafe { lib().fi_getinfo(API_VERSION, node, null(), flags, hints.0, &raw mut found) }.unwrap()
        {
            0 => Self(found).first_of(provider.name()),
            status if status == -FI_ENODATA => None,
            status => panic!("fi_getinfo: {}", error_text(status)),
        }
    }

    /// Returns the first offer of exactly this provider: when asked for `tcp`, the library also
    /// returns what is layered over it.
    fn first_of(&self, provider: &CStr) -> Option<Self> {
        let mut next = self.0;
        // SAFETY: the list lives as long as self, and each offer has all its attributes.
        unsafe {
            while !next.is_null() && CStr::from_ptr((*(*next).fabric_attr).prov_name) != provider {
                next = (*next).next;
            }
            (!next.is_null()).then(|| Self(lib().fi_dupinfo(next).unwrap()))
        }
    }

    pub(crate) fn get(&self) -> *mut fi_info {
        self.0
    }

    fn info(&self) -> &fi_info {
        // SAFETY: the entry lives as long as self, and nobody writes to it.
        unsafe { &*self.0 }
    }

    fn mr_mode(&self) -> c_int {
        // SAFETY: an offer has all its attributes.
        unsafe { (*self.info().domain_attr).mr_mode }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // SAFETY: this value owns the entry, and objects that were opened with it have a copy.
        unsafe { lib().fi_freeinfo(self.0) }.unwrap();
    }
}

/// An object of libfabric, closed at the end of its scope. `T` begins with a `fid`, as every class
/// does.
struct Object<T>(*mut T);

impl<T> Object<T> {
    /// Wraps the object that `open` writes to its argument.
    #[track_caller]
    fn open(open: impl FnOnce(*mut *mut T) -> c_int) -> Self {
        let mut object = null_mut();
        check(std::any::type_name::<T>(), open(&raw mut object));
        Self(object)
    }

    fn fid(&self) -> *mut fid {
        self.0.cast()
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: this value owns the object, and its children are closed before, by the order of
        // the fields below.
        let status = unsafe { fi_close(self.fid()) };
        // A test that has failed already must not abort.
        if !std::thread::panicking() {
            check(std::any::type_name::<T>(), status);
        }
    }
}

/// One side: an endpoint with everything that it needs, in the order of closing.
pub(crate) struct Peer {
    mr: Object<fid_mr>,
    ep: Object<fid_ep>,
    av: Object<fid_av>,
    cq: Object<fid_cq>,
    _domain: Object<fid_domain>,
    _fabric: Object<fid_fabric>,
    offer: Offer,
    pub(crate) buffer: Buffer,
    contexts: Buffer,
    other: u64,
}

impl Peer {
    fn open(provider: Provider, requested_key: u64) -> Self {
        let offer = Offer::best(provider);
        let info = offer.info();
        // SAFETY: the offer is valid, and each object is created from a live one. Plain sends
        // complete, and those described by a structure if they ask for it.
        unsafe {
            (*info.tx_attr).op_flags |= FI_COMPLETION;
            let fabric = Object::open(|it| lib().fi_fabric(info.fabric_attr, it, null_mut()).unwrap());
            let domain = Object::open(|it| fi_domain(fabric.0, offer.get(), it, null_mut()));
            let mut attr = fi_cq_attr { format: FI_CQ_FORMAT_DATA, ..std::mem::zeroed() };
            let cq = Object::open(|it| fi_cq_open(domain.0, &raw mut attr, it, null_mut()));
            let mut attr = fi_av_attr { type_: FI_AV_TABLE, ..std::mem::zeroed() };
            let av = Object::open(|it| fi_av_open(domain.0, &raw mut attr, it, null_mut()));
            let ep = Object::open(|it| fi_endpoint(domain.0, offer.get(), it, null_mut()));
            check("bind av", fi_ep_bind(ep.0, av.fid(), 0));
            // Two bindings: a selective one for both directions would suppress completions of
            // receives.
            check("bind cq", fi_ep_bind(ep.0, cq.fid(), FI_TRANSMIT | FI_SELECTIVE_COMPLETION));
            check("bind cq", fi_ep_bind(ep.0, cq.fid(), FI_RECV));
            check("enable", fi_enable(ep.0));
            let buffer = Buffer::new(REGION);
            let mr = register(&domain, &ep, &buffer, requested_key, offer.mr_mode());
            let contexts = Buffer::new(CONTEXTS * size_of::<fi_context2>());
            Self {
                mr,
                ep,
                av,
                cq,
                _domain: domain,
                _fabric: fabric,
                offer,
                buffer,
                contexts,
                other: FI_ADDR_UNSPEC,
            }
        }
    }

    fn address(&self) -> Vec<u8> {
        let mut address = vec![0; 256];
        let mut len = address.len();
        // SAFETY: the endpoint is live, and there is room for so many bytes.
        check("fi_getname", unsafe { fi_getname(self.ep.fid(), address.as_mut_ptr().cast(), &raw mut len) });
        address.truncate(len);
        address
    }

    fn insert(&mut self, address: &[u8]) {
        // SAFETY: the vector is live, the address is one of this provider's, and there is room for
        // one number.
        let inserted = unsafe {
            fi_av_insert(self.av.0, address.as_ptr().cast(), 1, &raw mut self.other, 0, null_mut())
        };
        assert_eq!(inserted, 1, "{}", error_text(inserted));
    }

    pub(crate) fn ep(&self) -> *mut fid_ep {
        self.ep.0
    }

    /// Returns the other side, for operations.
    pub(crate) fn peer(&self) -> fi_addr_t {
        self.other
    }

    /// Returns a place in this side's memory, for its own operations.
    pub(crate) fn at(&self, offset: usize) -> *mut c_void {
        assert!(offset < REGION);
        self.buffer.as_ptr().wrapping_byte_add(offset)
    }

    /// Returns a place in this side's memory, for operations of the other side: address and key.
    pub(crate) fn remote(&self, offset: usize) -> (u64, u64) {
        let is_virtual = self.offer.mr_mode() & FI_MR_VIRT_ADDR != 0;
        let address = if is_virtual { self.buffer.address(offset) } else { offset as u64 };
        // SAFETY: the region is live.
        (address, unsafe { fi_mr_key(self.mr.0) })
    }

    /// Returns the descriptor of local buffers: null, unless the provider requires one.
    pub(crate) fn descriptor(&self) -> *mut c_void {
        if self.offer.mr_mode() & FI_MR_LOCAL == 0 {
            return null_mut();
        }
        // SAFETY: the region is live.
        unsafe { fi_mr_desc(self.mr.0) }
    }

    /// Returns the context of an operation, which the provider may write to until it completes.
    pub(crate) fn context(&self, index: usize) -> *mut c_void {
        assert!(index < CONTEXTS);
        self.contexts.as_ptr().cast::<fi_context2>().wrapping_add(index).cast()
    }

    pub(crate) fn inject_size(&self) -> usize {
        // SAFETY: an offer has all its attributes.
        unsafe { (*self.offer.info().tx_attr).inject_size }
    }

    pub(crate) fn offers_atomics(&self) -> bool {
        self.offer.info().caps & FI_ATOMIC != 0
    }

    /// Returns completions. This also lets the provider make progress.
    fn poll(&self) -> Vec<fi_cq_data_entry> {
        // SAFETY: the entries consist of numbers and pointers, for which zero is valid.
        let mut entries: [fi_cq_data_entry; 8] = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is live and has this format, and there is room for so many entries.
        let count = unsafe { fi_cq_read(self.cq.0, entries.as_mut_ptr().cast(), entries.len()) };
        match count as c_int {
            status if status == -FI_EAGAIN => Vec::new(),
            status if status == -FI_EAVAIL => panic!("{}", self.failure()),
            status if status < 0 => panic!("fi_cq_read: {}", error_text(status)),
            count => entries[..count as usize].to_vec(),
        }
    }

    /// Returns the text of the error at the head of the queue.
    fn failure(&self) -> String {
        // SAFETY: the entry consists of numbers and pointers, for which zero is valid.
        let mut entry: fi_cq_err_entry_2 = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is live, and the entry has the larger of the two sizes.
        let count = unsafe { fi_cq_readerr(self.cq.0, (&raw mut entry).cast(), 0) };
        format!("an operation failed: {count}, {}", error_text(-entry.base.err))
    }
}

/// Registers the whole buffer for everything, as the provider requires it.
///
/// # Safety
///
/// The domain, the endpoint and the buffer are live, and outlive the region.
unsafe fn register(
    domain: &Object<fid_domain>,
    ep: &Object<fid_ep>,
    buffer: &Buffer,
    requested_key: u64,
    mr_mode: c_int,
) -> Object<fid_mr> {
    let access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    let (start, len) = (buffer.as_ptr(), buffer.len());
    // SAFETY: the contract is that of the caller.
    unsafe {
        let mr =
            Object::open(|it| fi_mr_reg(domain.0, start, len, access, 0, requested_key, 0, it, null_mut()));
        if mr_mode & FI_MR_ENDPOINT != 0 {
            check("bind mr", fi_mr_bind(mr.0, ep.fid(), 0));
            check("enable mr", fi_mr_enable(mr.0));
        }
        mr
    }
}

/// The side that begins an operation, and its target.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;

/// Two sides that know each other's addresses.
pub(crate) struct Pair {
    pub(crate) provider: Provider,
    peers: [Peer; 2],
    /// Completions that were not asked for yet.
    seen: RefCell<[VecDeque<fi_cq_data_entry>; 2]>,
}

impl Pair {
    pub(crate) fn open(provider: Provider) -> Self {
        let mut peers = [A, B].map(|side| Peer::open(provider, 0x10 + side as u64));
        let [a, b] = [A, B].map(|side| peers[side].address());
        assert_ne!(a, b);
        peers[A].insert(&b);
        peers[B].insert(&a);
        Self { provider, peers, seen: RefCell::default() }
    }

    /// Posts an operation. Polls and tries again on `EAGAIN`.
    #[track_caller]
    pub(crate) fn post(&self, operation: impl Fn() -> isize) {
        farreach_testkit::wait_for("room in the queue", || match operation() as c_int {
            0 => Some(()),
            status if status == -FI_EAGAIN => {
                self.progress();
                None
            }
            status => panic!("{}", error_text(status)),
        });
    }

    /// Returns the next completion of one side.
    #[track_caller]
    pub(crate) fn completion(&self, side: usize) -> fi_cq_data_entry {
        farreach_testkit::wait_for("completion", || {
            self.progress();
            self.seen.borrow_mut()[side].pop_front()
        })
    }

    /// Polls both sides until a condition holds.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, happened: impl Fn() -> bool) {
        farreach_testkit::wait_for(what, || {
            self.progress();
            happened().then_some(())
        });
    }

    /// Checks that there is no unexpected completion.
    #[track_caller]
    pub(crate) fn assert_quiet(&self) {
        // A message of a finished operation may still be in flight inside the process.
        for _ in 0..100 {
            self.progress();
        }
        for completions in self.seen.borrow().iter() {
            let flags: Vec<_> = completions.iter().map(|entry| format!("{:x}", entry.flags)).collect();
            assert!(flags.is_empty(), "nobody asked for these completions: {flags:?}");
        }
    }

    /// Polls both sides: an operation does not advance while its target does not poll.
    fn progress(&self) {
        for (peer, seen) in self.peers.iter().zip(self.seen.borrow_mut().iter_mut()) {
            seen.extend(peer.poll());
        }
    }
}

impl Index<usize> for Pair {
    type Output = Peer;

    fn index(&self, side: usize) -> &Peer {
        &self.peers[side]
    }
}
